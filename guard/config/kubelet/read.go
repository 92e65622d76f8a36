package kubelet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/criguard/criguard/guard/config/schema"
)

// Limits of a file. The decoder takes quadratic time to find keys that are set twice.
const (
	maxDocuments = 32
	maxNodes     = 20_000 // keys and values in a document
)

// read reads a kubelet's file, a directory of its drop-ins or a configuration of k3s, and merges drop-ins
// as a kubelet does: JSON merge patches (RFC 7396), in the order of their paths, applied to a file with
// defaults already set. So a drop-in's evictionHard adds to the defaults.
func (c *conversion) read(file string, dropIns []string) {
	f := schema.ReadFile(file) // once: it may be a pipe
	k3s, isK3s := c.readK3s(f)
	if st, err := os.Stat(file); isK3s {
		c.readByK3s(&k3s, dropIns)
		dropIns = nil
	} else if err == nil && st.IsDir() {
		dropIns = slices.Concat([]string{file}, dropIns)
	} else {
		c.addFile(f)
	}
	if c.EvictionHard == nil {
		c.EvictionHard = &field[table]{value: tableOf(defaultHard)}
	}
	for _, dir := range dropIns {
		c.readDir(dir, nil)
	}
	if len(c.files) == 0 {
		c.files = []string{file}
		c.add(schema.Origin{File: file}, "", nil, "must contain a kubelet's drop-ins, *.conf", "name the directory of the kubelet's --config-dir")
	}
	c.setFlags(k3s.args)
}

// readByK3s reads a kubelet's files as k3s has the kubelet read them: k3s's defaults, then those of the flags
// --config and --config-dir, which k3s copies among its drop-ins when it starts.
func (c *conversion) readByK3s(k *k3sConfig, dropIns []string) {
	c.k3s = k
	file, dir := k.takeArg("config"), k.takeArg("config-dir")
	if own := k.configDir(); len(dropIns) == 0 && own != "" {
		dropIns = []string{own}
	}
	if len(dropIns) == 0 {
		c.whose = k.product
		c.EvictionHard = &field[table]{value: tableOf(k3sHard)}
		c.EvictionMinimumReclaim = &field[table]{value: tableOf(k3sMinReclaim)}
	} else {
		c.EvictionHard = &field[table]{value: tableOf(defaultHard)}
	}
	isNew := func(source string) bool { // otherwise it is read with the other drop-ins
		return source != "" && !slices.ContainsFunc(dropIns, func(d string) bool { return strings.HasPrefix(source+"/", d+"/") })
	}
	named := map[string]func(){}
	if isNew(file) {
		named[copiedFile] = func() { c.readFile(file) }
	}
	if isNew(dir) {
		named[copiedDir] = func() { c.readDir(dir, nil) }
	}
	for _, d := range dropIns {
		c.readDir(d, named)
	}
	for _, copied := range slices.Sorted(maps.Keys(named)) {
		named[copied]() // k3s has not copied it yet
	}
}

// readDir reads a directory's drop-ins, *.conf, in the order of their paths. It reads a source instead of its
// copy, and removes it from copies.
func (c *conversion) readDir(dir string, copies map[string]func()) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		read, copied := copies[rel]
		switch {
		case err != nil:
			return err
		case copied:
			delete(copies, rel)
			read()
			if d.IsDir() {
				return fs.SkipDir
			}
		case !d.IsDir() && filepath.Ext(path) == ".conf":
			c.readFile(path)
		}
		return nil
	})
	if err != nil {
		c.mistakes = append(c.mistakes, schema.Unreadable(dir, err))
	}
}

func (c *conversion) readFile(path string) { c.addFile(schema.ReadFile(path)) }

func (c *conversion) addFile(f schema.File) {
	c.files = append(c.files, f.Name)
	if f.Err != nil {
		c.mistakes = append(c.mistakes, f.Err)
	} else if err := c.parse(f.Name, f.Text); err != nil {
		c.addYAML(f.Name, err)
	}
}

// parse decodes the single KubeletConfiguration in a file, in YAML or JSON, over the settings.
func (c *conversion) parse(file string, text []byte) error {
	if json.Valid(text) {
		text = bytes.ReplaceAll(text, []byte{'\t'}, []byte{' '}) // YAML does not allow tabs between JSON values
	}
	var found *yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for n := 1; ; n++ {
		var doc yaml.Node
		var head header
		if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if mark(&doc, file) > maxNodes {
			return fmt.Errorf("line %d: must have at most %d keys and values", doc.Line, maxNodes)
		}
		if isTable(&doc) { // otherwise it is not a kubelet's
			if err := doc.Decode(&head); err != nil {
				return err
			}
		}
		isKubelet := head.Kind == "KubeletConfiguration" && strings.HasPrefix(head.APIVersion, "kubelet.config.k8s.io/")
		switch {
		case n > maxDocuments:
			return fmt.Errorf("line %d: must have at most %d documents", doc.Line, maxDocuments)
		case isKubelet && found != nil:
			return fmt.Errorf("line %d: must have one KubeletConfiguration", doc.Line)
		case isKubelet: // kubeadm writes several kinds into one file
			found = &doc
		}
	}
	if found == nil {
		return errors.New("must be a KubeletConfiguration, with apiVersion and kind, or a configuration of k3s or RKE2")
	}
	return found.Decode(&c.settings)
}

// isTable reports whether a document consists of keys and values.
func isTable(doc *yaml.Node) bool {
	return len(doc.Content) == 1 && doc.Content[0].Kind == yaml.MappingNode
}

// addYAML adds the mistakes in a file's YAML, with their lines.
func (c *conversion) addYAML(file string, err error) {
	hint := "this is probably not a kubelet configuration"
	rule, yamls := strings.CutPrefix(err.Error(), "yaml: ")
	if yamls {
		hint = "a kubelet rejects this file, too"
	}
	rules := []string{rule}
	if all := new(yaml.TypeError); errors.As(err, &all) {
		rules = all.Errors
	}
	for _, rule := range rules {
		at := schema.Origin{File: file}
		if line := regexp.MustCompile(`^line (\d+): `).FindStringSubmatch(rule); line != nil {
			at.Line, _ = strconv.Atoi(line[1])
			rule = strings.TrimPrefix(rule, line[0])
		}
		c.add(at, "", nil, rule, hint)
	}
}
