package guard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of a kubelet's configuration. An alias counts as what it stands for: a small
// file could stand for more than there is memory.
const (
	maxKubeletDepth     = 32     // of what is in each other
	maxKubeletValues    = 20_000 // in a file
	maxKubeletDocuments = 32     // in a file
)

// kubeletField is a value of a kubelet's configuration: nil, a bool, int64, float64 or
// string, []kubeletField or kubeletFields. Without a file it is the kubelet's default.
type kubeletField struct {
	Origin
	value any
}

type kubeletFields map[string]kubeletField

// scalar is the value for people; nil for what has parts.
func (f kubeletField) scalar() any {
	switch f.value.(type) {
	case kubeletFields, []kubeletField:
		return nil
	default:
		return f.value
	}
}

// readKubelet reads the file and its drop-ins, which are put over it as a kubelet
// does: JSON merge patches, in the order of their paths, over a file that has its
// defaults already. So a drop-in's evictionHard adds to the defaults.
func (m *mistakes) readKubelet(file string, dropIns []string) kubeletFields {
	fields := m.readKubeletFile(file)
	if f := fields["evictionHard"]; f.value == nil && fields != nil {
		fields["evictionHard"] = kubeletField{value: withKubeletDefaults(nil)}
	}
	for _, dir := range dropIns {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && filepath.Ext(path) == ".conf" {
				mergeKubelet(fields, m.readKubeletFile(path))
			}
			return err
		})
		if err != nil {
			m.list = append(m.list, unreadable(dir, err))
		}
	}
	return fields
}

// mergeKubelet puts one over the other: tables merge, null removes, and all else
// replaces (RFC 7396).
func mergeKubelet(into, over kubeletFields) {
	for name, f := range over {
		table, isTable := f.value.(kubeletFields)
		before, wasTable := into[name].value.(kubeletFields)
		switch {
		case into == nil: // there are mistakes already
		case f.value == nil:
			delete(into, name)
		case isTable && wasTable:
			mergeKubelet(before, table)
		default:
			into[name] = f
		}
	}
}

// readKubeletFile reads the one KubeletConfiguration of a file; nil with a mistake.
func (m *mistakes) readKubeletFile(path string) kubeletFields {
	m.begin(path)
	b, err := readConfig(path)
	if err != nil {
		m.list = append(m.list, unreadable(path, err))
		return nil
	}
	fields, mistake := parseKubelet(path, b)
	if mistake != nil {
		m.list = append(m.list, mistake)
	}
	return fields
}

// parseKubelet reads YAML or JSON.
func parseKubelet(name string, text []byte) (kubeletFields, *ConfigError) {
	if len(text) > maxConfig {
		return nil, &ConfigError{File: name, Rule: fmt.Sprintf("must be at most %d KiB", maxConfig>>10), Hint: "this is no configuration of a kubelet"}
	}
	if json.Valid(text) {
		text = bytes.ReplaceAll(text, []byte{'\t'}, []byte{' '}) // YAML does not take tabs between JSON's values
	}
	r := kubeletReader{name: name, left: maxKubeletValues}
	var found kubeletFields
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for n := 1; ; n++ {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, yamlError(name, err)
		}
		if n > maxKubeletDocuments {
			return nil, &ConfigError{File: name, Line: doc.Line, Rule: fmt.Sprintf("must have at most %d documents", maxKubeletDocuments)}
		}
		f, mistake := r.field(&doc, 0)
		if mistake != nil {
			return nil, mistake
		}
		fields, ok := f.value.(kubeletFields)
		version, _ := fields["apiVersion"].value.(string)
		if !ok || fields["kind"].value != "KubeletConfiguration" || !strings.HasPrefix(version, "kubelet.config.k8s.io/") {
			continue // kubeadm has several kinds in one file
		}
		if found != nil {
			return nil, &ConfigError{File: name, Line: doc.Line, Rule: "must have one KubeletConfiguration"}
		}
		found = fields
	}
	if found == nil {
		return nil, &ConfigError{File: name, Rule: "must be a KubeletConfiguration", Hint: "as /var/lib/kubelet/config.yaml, with apiVersion and kind"}
	}
	return found, nil
}

// kubeletReader takes YAML's nodes for values.
type kubeletReader struct {
	name string
	left int // values that may come still
}

func (r *kubeletReader) mistake(n *yaml.Node, key, rule, hint string) *ConfigError {
	return &ConfigError{File: r.name, Line: n.Line, Key: shorten(key), Rule: rule, Hint: hint}
}

func (r *kubeletReader) field(n *yaml.Node, depth int) (f kubeletField, mistake *ConfigError) {
	f.Origin = Origin{r.name, n.Line}
	if r.left--; r.left < 0 || depth > maxKubeletDepth {
		return f, r.mistake(n, "", fmt.Sprintf("must have at most %d values, %d in each other", maxKubeletValues, maxKubeletDepth), "this is no configuration of a kubelet")
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return r.field(n.Content[0], depth)
	case yaml.AliasNode:
		return r.field(n.Alias, depth+1)
	case yaml.SequenceNode:
		list := []kubeletField{}
		for _, item := range n.Content {
			sub, mistake := r.field(item, depth+1)
			if mistake != nil {
				return f, mistake
			}
			list = append(list, sub)
		}
		f.value = list
	case yaml.MappingNode:
		f.value, mistake = r.table(n, depth)
	default:
		f.value = yamlScalar(n)
	}
	return f, mistake
}

func (r *kubeletReader) table(n *yaml.Node, depth int) (kubeletFields, *ConfigError) {
	fields := kubeletFields{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch _, twice := fields[key.Value]; {
		case key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge":
			return nil, r.mistake(key, "", "must have plain keys", "write out what << and other keys stand for")
		case twice:
			return nil, r.mistake(key, joinKey("", key.Value), "must be named once", "")
		}
		f, mistake := r.field(value, depth+1)
		if mistake != nil {
			return nil, mistake
		}
		f.Line = key.Line
		fields[key.Value] = f
	}
	return fields, nil
}

// yamlScalar is a value without parts. What no kubelet has as another type is text.
func yamlScalar(n *yaml.Node) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!int":
		if i, err := strconv.ParseInt(n.Value, 0, 64); err == nil {
			return i
		}
	case "!!float":
		if f, err := strconv.ParseFloat(n.Value, 64); err == nil {
			return f
		}
	}
	return n.Value
}

// yamlError takes the line out of what YAML's reader says.
func yamlError(file string, err error) *ConfigError {
	e := &ConfigError{File: file, Rule: shorten(strings.TrimPrefix(err.Error(), "yaml: ")), Hint: "a kubelet would refuse this file, too"}
	if at := regexp.MustCompile(`^line (\d+): `).FindStringSubmatch(e.Rule); at != nil {
		e.Line, _ = strconv.Atoi(at[1])
		e.Rule = strings.TrimPrefix(e.Rule, at[0])
	}
	return e
}

// scalar takes a field of a type; ok is false where it is left out, null, or of
// another type, which is a mistake.
func scalar[T string | bool | int64](c *kubeletConversion, name string) (value T, from Origin, ok bool) {
	c.used[name] = true
	f, named := c.fields[name]
	if !named || f.value == nil {
		return value, from, false
	}
	if value, ok = f.value.(T); !ok {
		rule := map[string]string{"string": "must be a string", "bool": "must be true or false", "int64": "must be a whole number"}
		c.add(name, f.scalar(), rule[fmt.Sprintf("%T", value)], "a kubelet refuses it, too")
	}
	return value, f.Origin, ok
}

// table takes a field that has fields of its own.
func (c *kubeletConversion) table(name string) kubeletFields {
	c.used[name] = true
	f, named := c.fields[name]
	if !named || f.value == nil {
		return nil
	}
	fields, ok := f.value.(kubeletFields)
	if !ok {
		c.add(name, f.scalar(), "must be a table", "a kubelet refuses it, too")
	}
	return maps.Clone(fields)
}
