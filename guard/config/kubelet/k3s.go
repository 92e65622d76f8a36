package kubelet

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/criguard/criguard/guard/config/schema"
)

// flags are the kubelet's flags that have an equivalent key, with the fields of a KubeletConfiguration.
// sep separates the keys of a table from their values.
var flags = map[string]struct{ field, tag, sep string }{
	"eviction-hard":                       {"evictionHard", "!!map", "<"},
	"eviction-soft":                       {"evictionSoft", "!!map", "<"},
	"eviction-soft-grace-period":          {"evictionSoftGracePeriod", "!!map", "="},
	"eviction-minimum-reclaim":            {"evictionMinimumReclaim", "!!map", "="},
	"eviction-max-pod-grace-period":       {"evictionMaxPodGracePeriod", "", ""},
	"eviction-pressure-transition-period": {"evictionPressureTransitionPeriod", "!!str", ""},
	"container-runtime-endpoint":          {"containerRuntimeEndpoint", "!!str", ""},
	"root-dir":                            {"rootDir", "!!str", ""},
	"cgroup-root":                         {"cgroupRoot", "!!str", ""},
	"cgroup-driver":                       {"cgroupDriver", "!!str", ""},
	"cgroups-per-qos":                     {"cgroupsPerQOS", "", ""},
	"enforce-node-allocatable":            {"enforceNodeAllocatable", "!!seq", ""},
	"image-gc-high-threshold":             {"imageGCHighThresholdPercent", "", ""},
	"image-gc-low-threshold":              {"imageGCLowThresholdPercent", "", ""},
	"minimum-image-ttl-duration":          {"imageMinimumGCAge", "!!str", ""},

	"minimum-container-ttl-duration":        {"minimumContainerTTLDuration", "!!str", ""},
	"maximum-dead-containers-per-container": {"maximumDeadContainersPerContainer", "", ""},
	"maximum-dead-containers":               {"maximumDeadContainers", "", ""},
}

// fieldNames are the fields of flags that are not called like them. They have no equivalent key.
var fieldNames = map[string]string{
	"pod-manifest-path": "staticPodPath", "manifest-url": "staticPodURL", "pod-max-pids": "podPidsLimit",
}

// k3s are the kubelet's thresholds if neither a drop-in nor a flag sets others. Since 1.32, k3s and RKE2
// write them to a drop-in; before, they passed them as flags (k3s/pkg/daemons/agent).
var (
	k3sHard       = map[string]string{"nodefs.available": "5%", "imagefs.available": "5%"}
	k3sMinReclaim = map[string]string{"nodefs.available": "10%", "imagefs.available": "10%"}
)

// k3sKeys are keys that most configurations of k3s and RKE2 have, and a KubeletConfiguration has not.
var k3sKeys = []string{
	"kubelet-arg", "token", "token-file", "server", "cluster-init", "data-dir", "node-name", "node-ip", "node-label", "node-taint", "tls-san",
	"write-kubeconfig-mode", "disable", "flannel-backend", "cni", "profile",
}

// k3sConfig is a configuration of k3s or RKE2, which holds flags for the kubelet.
type k3sConfig struct {
	product  string // k3s or rke2
	args     []*yaml.Node
	endpoint *yaml.Node // the flag that k3s derives from its own key; nil: none
	dataDir  string
	dataFrom schema.Origin // where dataDir was set; no file: it is the default
	missing  bool          // the file does not exist: k3s has its defaults
}

// Where k3s copies the files of the kubelet's flags --config and --config-dir at its start, below the directory
// of the kubelet's drop-ins (k3s/pkg/daemons/agent).
const (
	copiedFile = "10-cli-config.conf"
	copiedDir  = "20-cli-config-dir"
)

// takeArg removes a flag from the arguments and returns its last value, "" if it is not set.
func (k *k3sConfig) takeArg(name string) (value string) {
	k.args = slices.DeleteFunc(k.args, func(arg *yaml.Node) bool {
		got, v, _ := strings.Cut(strings.TrimPrefix(arg.Value, "--"), "=")
		if arg.Kind != yaml.ScalarNode || got != name {
			return false
		}
		value = v
		return true
	})
	return value
}

// readK3s adds the file and its drop-ins (FILE.d/*.yaml) if it is a configuration of k3s or RKE2.
func (c *conversion) readK3s(f schema.File) (k k3sConfig, ok bool) {
	file := f.Name
	product := filepath.Base(filepath.Dir(file))
	inItsPlace := product == "k3s" || product == "rke2"
	if !inItsPlace {
		product = "k3s"
	}
	if _, err := os.Stat(file); inItsPlace && errors.Is(err, fs.ErrNotExist) && filepath.Base(file) == "config.yaml" {
		k.missing, f.Err = true, nil
	}
	var doc yaml.Node
	if f.Err != nil || yaml.Unmarshal(f.Text, &doc) != nil || hasKey(&doc, "kind") || !inItsPlace && !hasKey(&doc, k3sKeys...) {
		return k, false
	}
	k.product = product
	var files []string
	for _, pattern := range []string{"*.yaml", "*.yml"} {
		found, _ := filepath.Glob(filepath.Join(file+".d", pattern)) // the only error is a bad pattern
		files = append(files, found...)
	}
	slices.Sort(files)
	c.files = append(c.files, file)
	if !k.missing {
		c.addK3s(&k, f)
	}
	for _, file := range files {
		c.files = append(c.files, file)
		c.addK3s(&k, schema.ReadFile(file))
	}
	k.dataDir = filepath.Clean(cmp.Or(k.dataDir, k.defaultDir()))
	if k.endpoint != nil {
		k.args = append([]*yaml.Node{k.endpoint}, k.args...) // a kubelet-arg counts more
	}
	return k, true
}

// hasKey reports whether a document has one of the keys at its top level, without decoding it.
func hasKey(doc *yaml.Node, keys ...string) bool {
	return isTable(doc) && slices.ContainsFunc(keys, func(key string) bool { return hasField(doc.Content[0], key) })
}

// addK3s merges a file. A key replaces the one of an earlier file; "kubelet-arg+" adds to it.
func (c *conversion) addK3s(k *k3sConfig, f schema.File) {
	if f.Err != nil {
		c.mistakes = append(c.mistakes, f.Err)
		return
	}
	var doc yaml.Node
	var keys map[string]yaml.Node
	err := yaml.Unmarshal(f.Text, &doc)
	if err == nil && mark(&doc, f.Name) > maxNodes {
		err = fmt.Errorf("line %d: must have at most %d keys and values", doc.Line, maxNodes)
	}
	switch {
	case err != nil || doc.Kind == 0: // there is nothing but comments in many
	case !isTable(&doc) && doc.Content[0].ShortTag() != "!!null":
		err = errors.New("must be a configuration of k3s or RKE2")
	default:
		err = doc.Decode(&keys)
	}
	if err != nil {
		c.addYAML(f.Name, err)
		return
	}
	for _, name := range []string{"kubelet-arg", "kubelet-arg+"} {
		node, set := keys[name]
		if !set {
			continue
		}
		if name == "kubelet-arg" {
			k.args = nil
		}
		if node.Kind != yaml.SequenceNode {
			node = yaml.Node{Content: []*yaml.Node{new(node)}} // k3s takes a single argument, too
		}
		k.args = append(k.args, node.Content...)
	}
	if node, set := keys["data-dir"]; set {
		k.dataDir, k.dataFrom = node.Value, schema.Origin{File: f.Name, Line: node.Line}
	}
	if node, set := keys["container-runtime-endpoint"]; set && node.Value != "" {
		node.Value = "container-runtime-endpoint=" + node.Value
		k.endpoint = &node
	}
}

// airgapDir returns the directory of the tarballs that k3s imports, unless it is the default, which
// criguard knows.
func (k *k3sConfig) airgapDir() string {
	if k.dataDir == k.defaultDir() {
		return ""
	}
	return filepath.Join(k.dataDir, "agent/images")
}

func (k *k3sConfig) defaultDir() string { return filepath.Join("/var/lib/rancher", k.product) }

// configDir returns the directory of the kubelet's drop-ins that k3s keeps, also if it may not be read, or "".
func (k *k3sConfig) configDir() string {
	dir := filepath.Join(k.dataDir, "agent/etc/kubelet.conf.d")
	if st, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) || err == nil && !st.IsDir() {
		return ""
	}
	return dir
}

// setFlags applies the kubelet's flags over its files, as a kubelet does: a table replaces that of the
// files, and a repeated flag adds to it. "eviction-hard+=…" also keeps what k3s itself passes in the flag, and
// with "-" in place of "+" the others count more (k3s/pkg/util/args.go).
func (c *conversion) setFlags(args []*yaml.Node) {
	fields := map[string]*yaml.Node{}
	for _, arg := range args {
		at := schema.Origin{File: arg.HeadComment, Line: arg.Line}
		node := func(tag, value string) *yaml.Node {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value, HeadComment: at.File, Line: at.Line}
		}
		var text string
		if err := arg.Decode(&text); err != nil {
			c.add(at, "kubelet-arg", nil, "must be a list of strings", "k3s rejects it, too")
			continue
		}
		written, value, hasValue := strings.Cut(strings.TrimPrefix(text, "--"), "=")
		if !hasValue {
			value = "true"
		}
		name, less := strings.TrimRight(written, "+-"), strings.HasSuffix(written, "-")
		f, known := flags[name]
		if !known {
			if c.Others == nil {
				c.Others = map[string]*field[any]{}
			}
			c.Others[cmp.Or(fieldNames[name], camelCase(name))] = &field[any]{Origin: at, value: value}
			continue
		}
		switch f.tag {
		case "!!map":
			table := fields[f.field]
			if table == nil {
				table = &yaml.Node{Kind: yaml.MappingNode, Tag: f.tag, HeadComment: at.File, Line: at.Line}
				fields[f.field] = table
				if name != written {
					c.setOwnFlag(table, f.field)
				}
			}
			for pair := range strings.SplitSeq(value, ",") {
				signal, amount, ok := strings.Cut(pair, f.sep)
				if !ok && pair != "" {
					c.add(at, "kubelet-arg", text, fmt.Sprintf("must be %s=SIGNAL%sVALUE,…", name, f.sep), "a kubelet rejects it, too")
				} else if signal = strings.TrimSpace(signal); ok && !(less && hasField(table, signal)) {
					setKey(table, signal, node("!!str", strings.TrimSpace(amount)))
				}
			}
		case "!!seq":
			list := fields[f.field] // a kubelet adds the items of a repeated flag
			if list == nil {
				list = &yaml.Node{Kind: yaml.SequenceNode, Tag: f.tag, HeadComment: at.File, Line: at.Line}
			}
			for item := range strings.SplitSeq(value, ",") {
				list.Content = append(list.Content, node("!!str", item))
			}
			fields[f.field] = list
		default:
			if !less || fields[f.field] == nil {
				fields[f.field] = node(f.tag, value)
			}
		}
	}
	all := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for name, value := range fields {
		setKey(all, name, value)
		switch name {
		case "evictionHard":
			c.EvictionHard = nil
		case "evictionSoft":
			c.EvictionSoft = nil
		case "evictionSoftGracePeriod":
			c.EvictionSoftGracePeriod = nil
		case "evictionMinimumReclaim":
			c.EvictionMinimumReclaim = nil
		}
	}
	if err := all.Decode(&c.settings); err != nil && len(args) > 0 {
		c.addYAML(args[0].HeadComment, err)
	}
}

// setOwnFlag sets what k3s itself passes in a flag for a table: its defaults, before it kept drop-ins.
func (c *conversion) setOwnFlag(table *yaml.Node, field string) {
	own := map[string]map[string]string{"evictionHard": k3sHard, "evictionMinimumReclaim": k3sMinReclaim}[field]
	if c.whose != c.k3s.product {
		own = nil
	}
	for _, signal := range slices.Sorted(maps.Keys(own)) {
		setKey(table, signal, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: own[signal]})
	}
}

// hasField reports whether a mapping has a key.
func hasField(m *yaml.Node, key string) bool {
	for i := 0; i < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return true
		}
	}
	return false
}

// setKey sets a key of a mapping. YAML rejects a key that is set twice; for a flag, the last one wins.
func setKey(m *yaml.Node, key string, value *yaml.Node) {
	for i := 0; i < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			m.Content[i+1] = value
			return
		}
	}
	m.Content = append(m.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, value)
}

// camelCase returns a flag in the spelling of a field.
func camelCase(flag string) string {
	parts := strings.Split(flag, "-")
	for i, p := range parts[1:] {
		if p != "" {
			parts[i+1] = strings.ToUpper(p[:1]) + p[1:]
		}
	}
	return strings.Join(parts, "")
}
