// Package jsondoc compares criguard's JSON with docs/json.md.
package jsondoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Doc is the content of docs/json.md.
type Doc struct {
	values map[string]string           // name of the type by where the value is found
	types  map[string]map[string]field // by name and field
}

// field is a row of a type's table.
type field struct {
	kind           string // without a link: "list of Pass"
	optional, null bool
}

var (
	link    = regexp.MustCompile(`\[([^\]]+)\]\([^)]*\)`)
	section = regexp.MustCompile(`(?m)^## (\S+)$`)
	row     = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]*) \\|")
	found   = regexp.MustCompile("(?m)^\\| (.*`.*|[a-z].*) \\| \\[([^\\]]+)\\]")
)

// Read reads the document.
func Read(path string) (*Doc, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read JSON reference: %w", err)
	}
	text := string(b)
	d := &Doc{values: map[string]string{}, types: map[string]map[string]field{}}
	at := section.FindAllStringSubmatchIndex(text, -1)
	if len(at) == 0 {
		return nil, fmt.Errorf("read JSON reference: %s: no types", path)
	}
	for _, m := range found.FindAllStringSubmatch(text[:at[0][0]], -1) {
		d.values[strings.ReplaceAll(m[1], "`", "")] = m[2]
	}
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		fields := map[string]field{}
		for _, r := range row.FindAllStringSubmatch(text[m[1]:end], -1) {
			kind, optional := strings.CutSuffix(link.ReplaceAllString(r[2], "$1"), ", optional")
			kind, null := strings.CutSuffix(kind, ", or null")
			fields[r[1]] = field{kind, optional, null}
		}
		d.types[text[m[2]:m[3]]] = fields
	}
	return d, nil
}

// Commands lists the commands with -o json that the document describes.
func (d *Doc) Commands() []string {
	var names []string
	for _, where := range slices.Sorted(maps.Keys(d.values)) {
		if name, ok := strings.CutSuffix(where, " -o json"); ok {
			names = append(names, name)
		}
	}
	return names
}

// Fields lists the fields of all types, as "Type.field".
func (d *Doc) Fields() (names []string) {
	for typ, fields := range d.types {
		for name := range fields {
			names = append(names, typ+"."+name)
		}
	}
	slices.Sort(names)
	return names
}

// Command compares the output of `criguard name -o json`, or of its failure, with the document. It returns
// the differences.
func (d *Doc) Command(name string, failed bool, out []byte) []string {
	where := name + " -o json"
	if failed {
		where = "a command with -o json that fails"
	}
	return d.Value(where, out, map[string]bool{})
}

// Value compares a value that is found there with the document, as Command does. It adds the fields that it
// saw to seen, as "Type.field".
func (d *Doc) Value(where string, out []byte, seen map[string]bool) []string {
	typ, ok := d.values[where]
	if !ok {
		return []string{"not in the document: " + where}
	}
	dec := json.NewDecoder(bytes.NewReader(out))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return []string{fmt.Sprintf("%s: %v in %q", where, err, out)}
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return []string{where + ": more than one JSON value"}
	}
	c := checker{d, seen, nil}
	c.check(where, typ, v)
	return c.wrong
}

type checker struct {
	doc   *Doc
	seen  map[string]bool
	wrong []string
}

func (c *checker) add(at, format string, args ...any) {
	c.wrong = append(c.wrong, at+": "+fmt.Sprintf(format, args...))
}

// check compares a value with its documented type.
func (c *checker) check(at, kind string, v any) {
	if of, ok := strings.CutPrefix(kind, "list of "); ok {
		list, ok := v.([]any)
		if !ok {
			c.add(at, "%v is no list", v)
		}
		for i := range list {
			c.check(fmt.Sprintf("%s[%d]", at, i), of, list[i])
		}
		return
	}
	object, isObject := v.(map[string]any)
	if of, ok := strings.CutPrefix(kind, "object of "); ok {
		if !isObject {
			c.add(at, "%v is no object", v)
		}
		for name := range object {
			c.check(at+"."+name, of, object[name])
		}
		return
	}
	if fields, ok := c.doc.types[kind]; ok {
		if !isObject {
			c.add(at, "%v is no %s", v, kind)
			return
		}
		c.object(at, kind, fields, object)
		return
	}
	if !isA(kind, v) {
		c.add(at, "%v is no %s", v, kind)
	}
}

func (c *checker) object(at, kind string, fields map[string]field, object map[string]any) {
	for name, v := range object {
		f, ok := fields[name]
		c.seen[kind+"."+name] = true
		switch {
		case !ok:
			c.add(at, "%s has no field %q in the document", kind, name)
		case v == nil && f.null:
		default:
			c.check(at+"."+name, f.kind, v)
		}
	}
	for name, f := range fields {
		if _, ok := object[name]; !ok && !f.optional {
			c.add(at, "%s is missing, and not optional", name)
		}
	}
}

// isA reports whether a value has a plain type.
func isA(kind string, v any) bool {
	text, isText := v.(string)
	switch kind {
	case "any":
		return v != nil
	case "string":
		return isText
	case "boolean":
		_, ok := v.(bool)
		return ok
	case "integer":
		n, ok := v.(json.Number)
		if !ok {
			return false
		}
		_, err := n.Int64()
		return err == nil
	case "number":
		_, ok := v.(json.Number)
		return ok
	case "duration":
		_, err := time.ParseDuration(text)
		return isText && err == nil
	case "time":
		_, err := time.Parse(time.RFC3339Nano, text)
		return isText && err == nil
	}
	return false
}
