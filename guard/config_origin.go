package guard

import (
	"fmt"
	"strconv"
	"strings"
)

// Origin is where a key was set. The zero value is nowhere: its default counts.
type Origin struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"` // 0 = not known
}

// String is file:line, or "default".
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

// origins knows where each key was set, over all files.
type origins struct {
	files []string          // in the order in which they are put over each other
	keyed map[string]Origin // tables and keys, by path
	rules map[string]int    // how many elements a list of tables has so far, by its path
}

// begin goes on to the next file.
func (o *origins) begin(file string) { o.files = append(o.files, file) }

// current is the file that is being read; "" before the first.
func (o *origins) current() string {
	if len(o.files) == 0 {
		return ""
	}
	return o.files[len(o.files)-1]
}

// adopt notes the keys of the current file. Those of earlier files stay where they
// are not set again; elements of lists of tables come after those before.
func (o *origins) adopt(lines keyLines) {
	if o.keyed == nil {
		o.keyed, o.rules = map[string]Origin{}, map[string]int{}
	}
	for path, line := range lines {
		if list, n, rest, ok := element(path); ok {
			path = fmt.Sprintf("%s[%d]%s", list, o.rules[list]+n, rest)
		}
		o.keyed[path] = Origin{o.current(), line}
	}
}

// element takes the path of something in a list of tables apart: "protect[2].name"
// is the second of "protect", ".name".
func element(path string) (list string, n int, rest string, ok bool) {
	list, rest, ok = strings.Cut(path, "[")
	if !ok {
		return "", 0, "", false
	}
	number, rest, ok := strings.Cut(rest, "]")
	n, err := strconv.Atoi(number)
	return list, n, rest, ok && err == nil
}

// of finds where a key, or else what it is in, was set; in the current file where
// that is not known.
func (o *origins) of(key string) Origin {
	for key != "" {
		if at, ok := o.keyed[key]; ok {
			return at
		}
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	return Origin{File: o.current()}
}

// KeyOrigin is one key of a configuration in force.
type KeyOrigin struct {
	Key    string `json:"key"`
	Value  string `json:"value"` // in TOML
	Origin        // without a file: the default
}

// ConfigReport is a configuration in force for programs.
type ConfigReport struct {
	APIVersion string      `json:"apiVersion"`
	Files      []string    `json:"files"` // in the order in which they count
	Keys       []KeyOrigin `json:"keys"`
}

// Origins tells of every key in force where it was set.
func (c Config) Origins() []KeyOrigin {
	var list []KeyOrigin
	c.eachEffective(func(_, key, value string, at Origin) {
		if key != "" {
			list = append(list, KeyOrigin{key, value, at})
		}
	})
	return list
}

// EffectiveWithOrigins is Effective with where each key was set beside it, as a
// comment.
func (c Config) EffectiveWithOrigins() string {
	const column = 44
	var b strings.Builder
	c.eachEffective(func(line, key, _ string, at Origin) {
		if key != "" {
			line = fmt.Sprintf("%-*s # %s", column, line, at)
		}
		b.WriteString(line + "\n")
	})
	return b.String()
}

// eachEffective goes through the lines of Effective; key is "" for those that set
// none.
func (c Config) eachEffective(line func(line, key, value string, at Origin)) {
	text := c.Effective()
	lines, _ := findKeyLines(text)
	changed := map[string]bool{}
	for _, key := range c.Diff(DefaultConfig()) {
		changed[key] = true
	}
	n := 0
	for l := range strings.Lines(text) {
		n++
		l = strings.TrimSuffix(l, "\n")
		name, value, ok := strings.Cut(l, " = ")
		if !ok || strings.HasPrefix(name, "[") {
			line(l, "", "", Origin{})
			continue
		}
		key := lines.at(n)
		line(l, key, value, c.originOf(key, changed))
	}
}

// originOf is where a key in force was set. A table that is written within another
// value has no line of its own: what differs from its default was set with it.
func (c Config) originOf(key string, changed map[string]bool) Origin {
	at, ok := c.origins.keyed[key]
	if _, _, _, rule := element(key); ok || !rule && !changed[key] {
		return at
	}
	return c.origins.of(key)
}
