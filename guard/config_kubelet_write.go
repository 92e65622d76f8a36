package guard

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// kubeletOnly is why fields that have to do with pressure have no key here.
var kubeletOnly = map[string]string{
	"imageServiceEndpoint":          "images are at [runtime] endpoint",
	"runtimeRequestTimeout":         "[runtime] timeout is of short calls alone, and keeps its default",
	"kernelMemcgNotification":       "the kernel is always asked to notify",
	"cgroupDriver":                  "it is found",
	"localStorageCapacityIsolation": "pods' limits are not in the CRI: write [[limit]] rules",
	"kubeReserved":                  "it is in the limit of the pods' cgroup, which is read",
	"systemReserved":                "it is in the limit of the pods' cgroup, which is read",
	"reservedMemory":                "it is in the limit of the pods' cgroup, which is read",
	"kubeReservedCgroup":            "no pod is in it",
	"systemReservedCgroup":          "no pod is in it",
	"containerLogMaxSize":           "the kubelet rotates logs; criguard removes those of pods that are gone",
	"containerLogMaxFiles":          "the kubelet rotates logs; criguard removes those of pods that are gone",
	"containerLogMaxWorkers":        "the kubelet rotates logs; criguard removes those of pods that are gone",
	"containerLogMonitorInterval":   "the kubelet rotates logs; criguard removes those of pods that are gone",
	"featureGates":                  "they are the kubelet's own",
	"staticPodPath":                 "static pods are never stopped: protect_static",
	"staticPodURL":                  "static pods are never stopped: protect_static",
	"failSwapOn":                    "swap.available can have a threshold of its own",
	"memorySwap":                    "swap.available can have a threshold of its own",
	"podPidsLimit":                  "the kubelet sets it in each pod's cgroup",
	"volumeStatsAggPeriod":          "volumes are measured when a disk signal is pressed",
}

// tree is what was carried over as a TOML decoder would give it.
func (c *kubeletConversion) tree() map[string]any {
	root := map[string]any{}
	for _, k := range c.carried {
		table := root
		for name := range strings.SplitSeq(k.table, ".") {
			sub, ok := table[name].(map[string]any)
			if !ok {
				sub = map[string]any{}
				table[name] = sub
			}
			table = sub
		}
		table[k.key] = k.value
	}
	return root
}

// text is what was carried over, with comments for what was not.
func (c *kubeletConversion) text() string {
	var b strings.Builder
	b.WriteString("# What this configuration of a kubelet means to criguard:\n")
	for _, file := range c.files {
		fmt.Fprintf(&b, "#   %s\n", strconv.Quote(file))
	}
	b.WriteString("# The thresholds are the kubelet's own. Where it goes on evicting from this node, raise them:\n" +
		"# criguard's must come first.\n")
	table := ""
	for _, k := range c.carried {
		if k.table != table {
			table = k.table
			fmt.Fprintf(&b, "\n[%s]\n", table)
		}
		fmt.Fprintf(&b, "%s = %s", joinKey("", k.key), tomlString(k.value))
		if k.why != "" {
			b.WriteString(" # " + k.why)
		}
		b.WriteString("\n")
	}
	c.leaveOthers(&b)
	return b.String()
}

// leaveOthers tells of what was not carried over.
func (c *kubeletConversion) leaveOthers(b *strings.Builder) {
	var others []string
	for _, name := range sortedKeys(c.fields) {
		why, known := kubeletOnly[name]
		switch {
		case known:
			c.leave(name, why)
		case !c.used[name]:
			others = append(others, shorten(joinKey("", name)))
		}
	}
	if len(c.left) > 0 {
		b.WriteString("\n# Not carried over:\n")
	}
	for _, l := range c.left {
		fmt.Fprintf(b, "#   %s: %s\n", shorten(l.name), l.why)
	}
	if len(others) == 0 {
		return
	}
	b.WriteString("\n# Not about pressure, images or dead containers:")
	const width = 90
	column := width
	for i, name := range others {
		if i < len(others)-1 {
			name += ","
		}
		if column += 1 + len(name); column > width {
			b.WriteString("\n#  ")
			column = len("#   ") + len(name)
		}
		b.WriteString(" " + name)
	}
	b.WriteString("\n")
}

// tomlString writes a text as a value.
func tomlString(text string) string {
	b, err := toml.Marshal(map[string]string{"v": text})
	if err != nil {
		return strconv.Quote(text) // a text always has a form
	}
	return strings.TrimPrefix(strings.TrimSpace(string(b)), "v = ")
}
