package schema

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"github.com/criguard/criguard/policy"
)

// Hints are the hints that depend on the kind of file.
type Hints struct {
	Example string            // of a key, such as `interval = "10s"`
	Table   string            // an example of a table, such as "[images]"
	Unknown string            // for an unknown key that resembles none; "": the keys of its table
	Others  map[string]string // keys of other programs, see Plain: the equivalent "[table] key", or why there is none
}

// Checker reads and checks files. It does not use a value that breaks a rule.
type Checker struct {
	Origins
	hints  Hints
	known  []Key           // of the files that are being read
	values map[string]any  // values read so far, by path, in TOML form
	list   []*Error        // mistakes in all files
	more   int             // mistakes beyond maxMistakes, which are only counted
	keys   map[string]bool // keys that have a mistake
}

// maxMistakes limits how many mistakes are listed; the rest are only counted.
const maxMistakes = 100

// NewChecker returns a checker that has read no file.
func NewChecker(hints Hints) *Checker {
	return &Checker{Origins: newOrigins(), hints: hints, values: map[string]any{}, keys: map[string]bool{}}
}

// Read merges files, lowest precedence first: their values replace those of earlier files, and their lists of tables come
// before those of earlier files, because the first match wins. It returns false if a file is unreadable, too large or not
// TOML, in which case it cannot report further mistakes in it. It only adds empty elements to lists of tables, so Apply
// needs other keys if there are such lists.
func (c *Checker) Read(keys []Key, files ...File) bool {
	c.known = keys
	var parsed []document
	for _, f := range files {
		c.begin(f.Name)
		d, mistake := c.parse(f)
		if mistake != nil {
			c.list = append(c.list, mistake)
			continue
		}
		parsed = append(parsed, d)
	}
	for _, d := range slices.Backward(parsed) {
		for _, k := range keys {
			if k.IsTables() {
				items, _ := tablesOf(d.at(k.Name))
				d.before[k.Name] = c.elements[k.Name]
				c.elements[k.Name] += len(items)
			}
		}
	}
	for _, d := range parsed {
		c.adopt(d)
		c.fill(keys, d.tree, "", "")
	}
	return len(parsed) == len(files)
}

// document is a file that is TOML. The TOML decoder stops at the first value of a wrong type and skips unknown keys. To
// report every mistake, the checker decodes into an untyped tree and reads the keys one by one.
type document struct {
	name   string
	tree   map[string]any
	lines  keyLines
	before map[string]int // number of elements that precede this file's in each list of tables
}

// at returns the value of a dotted path of bare keys, or nil.
func (d document) at(path string) (v any) {
	v = d.tree
	for word := range strings.SplitSeq(path, ".") {
		table, _ := v.(map[string]any)
		v = table[word]
	}
	return v
}

// parse decodes a file.
func (c *Checker) parse(f File) (document, *Error) {
	if f.Err != nil {
		return document{}, f.Err
	}
	text := strings.TrimPrefix(string(f.Text), "\ufeff")
	if i := notText(text); i >= 0 {
		return document{}, &Error{File: f.Name, Line: 1 + strings.Count(text[:i], "\n"), Rule: "must be text in UTF-8", Hint: "save it in this encoding; a file of NULs was damaged, as by a power cut"}
	}
	d := document{name: f.Name, before: map[string]int{}}
	var beyond bound
	if d.lines, beyond = findKeyLines(text); beyond.line > 0 {
		return d, &Error{File: f.Name, Line: beyond.line, Rule: beyond.rule, Hint: "no criguard key is nested this deeply"}
	}
	if _, err := toml.Decode(text, &d.tree); err != nil {
		return d, c.syntaxError(d.lines, err)
	}
	return d, nil
}

// notText returns the place of the first NUL or invalid byte, or -1.
func notText(text string) int {
	for i, r := range text {
		if r == 0 || r == utf8.RuneError && !strings.HasPrefix(text[i:], string(r)) {
			return i
		}
	}
	return -1
}

func (c *Checker) syntaxError(lines keyLines, err error) *Error {
	e := &Error{File: c.file, Rule: Shorten(err.Error()), Hint: fmt.Sprintf("strings need quotes, for example %s; tables need brackets, for example %s", c.hints.Example, c.hints.Table)}
	var parse toml.ParseError
	if errors.As(err, &parse) {
		e.Line, e.Rule = parse.Position.Line, strings.TrimSuffix(strings.TrimSpace(Shorten(parse.Message)), ".")
		if strings.HasSuffix(e.Rule, `to end table name, but got '\n' instead`) {
			e.Line-- // for this error the decoder returns the next line
		}
		if strings.Contains(e.Rule, "to end table name") {
			e.Hint = "the name of a table ends with a bracket, for example " + c.hints.Table
		}
		e.Key = lines.at(e.Line)
	}
	if strings.Contains(e.Rule, "already") {
		e.Hint = "set each key and define each [table] only once"
	}
	return e
}

// Apply checks the values that were read and sets the fields that the keys are bound to. Missing values get their
// defaults.
func (c *Checker) Apply(keys []Key) { c.apply(keys, "") }

// apply applies the values below a path.
func (c *Checker) apply(keys []Key, path string) {
	for _, k := range keys {
		at := strings.TrimPrefix(path+"."+k.Name, ".")
		if k.IsTables() {
			for i := range c.elements[at] {
				c.apply(k.add(), fmt.Sprintf("%s[%d]", at, i+1))
			}
			continue
		}
		if v, ok := c.values[at]; k.required != "" && (!ok || isEmpty(v)) {
			c.Add(at, nil, "must be set", k.required)
			continue
		}
		c.values[at] = c.value(k, at)
		k.set(c, at, c.values[at])
	}
}

// value returns the value read for a key, or its default.
func (c *Checker) value(k Key, at string) any {
	if v, ok := c.values[at]; ok {
		return v
	}
	return k.def
}

// isEmpty reports whether a value in TOML form is empty.
func isEmpty(v any) bool {
	r := reflect.ValueOf(v)
	return slices.Contains([]reflect.Kind{reflect.String, reflect.Slice, reflect.Map}, r.Kind()) && r.Len() == 0
}

// Value returns the value in force for a key, in TOML form.
func (c *Checker) Value(key string) any { return c.values[key] }

// Add records a mistake. It keeps only the first mistake of a key, because later ones follow from it. A nil value means
// that the key has no value.
func (c *Checker) Add(key string, value any, rule, hint string) {
	c.AddAt(c.Of(key), key, value, rule, hint)
}

// AddAt is Add for a mistake in another place than the key's.
func (c *Checker) AddAt(at Origin, key string, value any, rule, hint string) {
	switch {
	case c.keys[key]:
		return
	case c.full():
		c.more++
	default:
		c.list = append(c.list, NewError(at, key, value, rule, hint))
	}
	c.keys[key] = true
}

// full reports whether further mistakes are only counted, so that no hint is needed.
func (c *Checker) full() bool { return len(c.list) >= maxMistakes }

// Has reports whether one of the keys has a mistake. Such a key is not compared with others.
func (c *Checker) Has(keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return c.keys[key] })
}

// Err joins the mistakes, an *Error for each.
func (c *Checker) Err() error {
	if c.more > 0 {
		c.list = append(c.list, &Error{File: c.file, Rule: fmt.Sprintf("has %d more mistakes", c.more), Hint: "fix these first"})
	}
	return JoinErrors(c.Files, c.list)
}

// Duration parses a duration of a key and checks its limits.
func (c *Checker) Duration(key, value string, least, most time.Duration) time.Duration {
	d, err := time.ParseDuration(value)
	switch bare := strings.TrimRight(value, "0123456789."); {
	case err != nil && bare == "" && value != "":
		c.Add(key, value, "must have a unit", fmt.Sprintf("%q means seconds; the units are ms, s, m and h", value+"s"))
	case err != nil && strings.HasSuffix(value, "d"):
		c.Add(key, value, "must be a duration", `the largest unit is the hour; a day is "24h"`)
	case err != nil:
		c.Add(key, value, "must be a duration", `for example "500ms", "30s" or "1h30m"`)
	case d < 0:
		c.Add(key, value, "must not be negative", fmt.Sprintf("the minimum is %q", policy.ShortDuration(least)))
	case d < least:
		c.Add(key, value, "must be at least "+policy.ShortDuration(least), "")
	case d > most:
		c.Add(key, value, "must be at most "+policy.ShortDuration(most), "")
	}
	return d
}
