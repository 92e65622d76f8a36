package kubelet

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/schema"
)

// onlyKubelet explains why fields that concern pressure have no equivalent key.
var onlyKubelet = map[string]string{
	"imageServiceEndpoint":          "criguard uses [runtime] endpoint for images, too",
	"runtimeRequestTimeout":         "[runtime] timeout applies only to short calls, and keeps its default",
	"kernelMemcgNotification":       "criguard always asks the kernel for notifications",
	"localStorageCapacityIsolation": "the CRI does not report pods' limits: write [[limit]] rules",
	"kubeReserved":                  "criguard reads the limit of the pods' cgroup, which includes it",
	"systemReserved":                "criguard reads the limit of the pods' cgroup, which includes it",
	"reservedMemory":                "criguard reads the limit of the pods' cgroup, which includes it",
	"kubeReservedCgroup":            "it contains no pods",
	"systemReservedCgroup":          "it contains no pods",
	"containerLogMaxSize":           "the kubelet rotates logs; criguard removes the logs of deleted pods",
	"containerLogMaxFiles":          "the kubelet rotates logs; criguard removes the logs of deleted pods",
	"containerLogMaxWorkers":        "the kubelet rotates logs; criguard removes the logs of deleted pods",
	"containerLogMonitorInterval":   "the kubelet rotates logs; criguard removes the logs of deleted pods",
	"containerRuntime":              "criguard detects the runtime",
	"featureGates":                  "they concern only the kubelet",
	"staticPodPath":                 "criguard never stops static pods: protect_static",
	"staticPodURL":                  "criguard never stops static pods: protect_static",
	"failSwapOn":                    "set a threshold for swap.available instead",
	"memorySwap":                    "set a threshold for swap.available instead",
	"podInfraContainerImage":        "criguard keeps the sandbox image that the runtime uses",
	"housekeepingInterval":          "[eviction] interval is criguard's own",
	"maxHousekeepingInterval":       "[eviction] interval is criguard's own",
	"podPidsLimit":                  "the kubelet sets it in each pod's cgroup",
	"volumeStatsAggPeriod":          "criguard measures volumes when a disk signal is under pressure",
}

// line writes a line and records its origin.
func (c *conversion) line(at schema.Origin, format string, args ...any) {
	fmt.Fprintf(&c.toml, format+"\n", args...)
	c.origins = append(c.origins, at)
}

func (c *conversion) comment(format string, args ...any) { c.line(schema.Origin{}, format, args...) }

func (c *conversion) head() {
	c.comment("# criguard's equivalent of this kubelet configuration:")
	for i, file := range c.files {
		remark := ""
		if i == 0 && c.k3s != nil && c.k3s.missing {
			remark = " (does not exist: the defaults of " + c.k3s.product + ")"
		}
		c.comment("#   %q%s", file, remark)
	}
	if c.k3s != nil {
		c.comment("# Flags on the command line of %s, in its unit's ExecStart or environment, are not read.", c.k3s.product)
	} else {
		c.comment("# Flags on the kubelet's command line count more than its files, and are not read: see `ps -o args= -C kubelet`.")
	}
	c.comment("# The thresholds are the kubelet's own. If the kubelet still evicts pods on this node, raise them,")
	c.comment("# so that criguard acts first.")
	if !c.exact {
		c.comment("# Where the kubelet has no hard threshold, criguard keeps its default; --exact switches it off.")
	}
}

// carry writes a converted key, with a remark.
func (c *conversion) carry(table, key, value string, from schema.Origin, why string) {
	c.carryTOML(table, key, config.TOMLString(value), from, why)
}

func (c *conversion) carryNumber(table, key string, value int64, from schema.Origin) {
	c.carryTOML(table, key, strconv.FormatInt(value, 10), from, "")
}

func (c *conversion) carryTOML(table, key, value string, from schema.Origin, why string) {
	if table != c.table {
		c.table = table
		c.comment("")
		c.comment("[%s]", table)
	}
	if why != "" {
		why = " # " + why
	}
	c.line(from, "%s = %s%s", schema.JoinKey("", key), value, why)
}

// leave remarks that a field has no equivalent key.
func (c *conversion) leave(name, why string) {
	c.left = append(c.left, fmt.Sprintf("#   %s: %s", name, why))
}

// others writes comments on the fields that were not converted.
func (c *conversion) others() {
	names := ""
	for _, name := range slices.Sorted(maps.Keys(c.Others)) {
		if why, known := onlyKubelet[name]; known {
			c.leave(name, why)
		} else if c.Others[name] != nil {
			names += ", " + schema.JoinKey("", name)
		}
	}
	if len(c.left) > 0 {
		c.comment("\n# Not converted:\n%s", strings.Join(c.left, "\n"))
	}
	if names != "" {
		c.comment("\n# Unrelated to pressure, images and dead containers:%s", wrap(names[1:]))
	}
}

// wrap breaks a list into comment lines.
func wrap(names string) string {
	const width = 90
	lines, column := "", width
	for name := range strings.FieldsSeq(names) {
		if column += 1 + len(name); column > width {
			lines += "\n#  "
			column = len("#   ") + len(name)
		}
		lines += " " + name
	}
	return lines
}
