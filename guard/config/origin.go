package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Origin is the place where a key was set. The zero value means that the default applies.
type Origin struct {
	File string `json:"file,omitempty"` // that sets it; left out if the default applies
	Line int    `json:"line,omitempty"` // 0: unknown
}

// String returns file:line, or "default".
func (o Origin) String() string {
	switch {
	case o.File == "":
		return "default"
	case o.Line == 0:
		return o.File
	default:
		return o.File + ":" + strconv.Itoa(o.Line)
	}
}

// origins records where each key was set, over all files.
type origins struct {
	files    []string          // lowest precedence first
	keyed    map[string]Origin // tables and keys, by path
	elements map[string]int    // number of elements in each list of tables so far, by its path
}

// begin starts the next file.
func (o *origins) begin(file string) { o.files = append(o.files, file) }

// current returns the file that is being read, or "" before the first.
func (o *origins) current() string {
	if len(o.files) == 0 {
		return ""
	}
	return o.files[len(o.files)-1]
}

// adopt records the keys of the current file. Keys that it does not set keep their origin, and its
// list elements are numbered after those of earlier files.
func (o *origins) adopt(lines keyLines) {
	if o.keyed == nil {
		o.keyed, o.elements = map[string]Origin{}, map[string]int{}
	}
	for path, line := range lines {
		if list, n, rest, ok := element(path); ok {
			path = fmt.Sprintf("%s[%d]%s", list, o.elements[list]+n, rest)
		}
		o.keyed[path] = Origin{o.current(), line}
	}
}

// element splits the path of an element in a list of tables: "protect[2].name" becomes "protect", 2
// and ".name".
func element(path string) (list string, n int, rest string, ok bool) {
	list, rest, ok = strings.Cut(path, "[")
	if !ok {
		return "", 0, "", false
	}
	number, rest, ok := strings.Cut(rest, "]")
	n, err := strconv.Atoi(number)
	return list, n, rest, ok && err == nil
}

// of returns where a key, or else the innermost table around it, was set. If that is unknown, it
// returns the current file.
func (o *origins) of(key string) Origin {
	if at, ok := enclosing(o.keyed, key); ok {
		return at
	}
	return Origin{File: o.current()}
}

// KeyOrigin is one key of the effective configuration.
type KeyOrigin struct {
	Key    string `json:"key"`   // with its table, as in TOML
	Value  any    `json:"value"` // a string, a number, true, false or a list of strings
	Origin        // no file: the default applies
}

// Report is the effective configuration in machine-readable form.
type Report struct {
	APIVersion string      `json:"apiVersion"`
	Files      []string    `json:"files"`           // lowest precedence first
	Keys       []KeyOrigin `json:"keys"`            // in the order of the reference
	Notes      []string    `json:"notes,omitempty"` // settings that are valid but may not do what they seem to
}

// Origins returns where each key of the effective configuration was set.
func (c Config) Origins() (list []KeyOrigin) {
	origin := c.originOf()
	for _, l := range c.lines() {
		if l.key != "" {
			if texts, ok := l.value.([]string); ok {
				l.value = append([]string{}, texts...) // [] instead of null
			}
			list = append(list, KeyOrigin{l.key, l.value, origin(l.key)})
		}
	}
	return list
}

// originOf returns a function that returns where a key in force was set. Keys inside an inline value
// have no line of their own, so a value that differs from its default was set where the enclosing
// value is.
func (c Config) originOf() func(key string) Origin {
	changed := c.Diff(Default())
	return func(key string) Origin {
		at, ok := c.origins.keyed[key]
		if _, _, _, rule := element(key); ok || !rule && !slices.Contains(changed, key) {
			return at
		}
		return c.origins.of(key)
	}
}
