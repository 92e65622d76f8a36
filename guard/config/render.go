package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// Effective renders the effective configuration as TOML, with all defaults filled in. Parsing it
// yields the same configuration.
func (c Config) Effective() string {
	return strings.Join(convertAll(c.lines(), func(l line) string { return l.text + "\n" }), "")
}

// EffectiveWithOrigins returns Effective with each key's origin as a comment.
func (c Config) EffectiveWithOrigins() string {
	const column = 44
	origin := c.originOf()
	return strings.Join(convertAll(c.lines(), func(l line) string {
		if l.key == "" {
			return l.text + "\n"
		}
		return fmt.Sprintf("%-*s # %s\n", column, l.text, origin(l.key))
	}), "")
}

// line is a line of the effective configuration: a header, a blank line, or a key with its value.
type line struct {
	text, key string
	value     any // in TOML form, see value
}

func (c Config) lines() []line {
	var r renderer
	keys, _ := schema(&c)
	for _, k := range keys {
		table, name := splitKey(k.name)
		switch {
		case k.rules != nil:
			for i, element := range k.rules.all() {
				r.header = ""
				r.rule(element, k.name, fmt.Sprintf("%s[%d]", k.name, i+1))
			}
		case table == "":
			r.value("", k.name, name, k.get())
		default:
			r.value("["+table+"]", k.name, name, k.get())
		}
	}
	return r.lines
}

type renderer struct {
	lines  []line
	header string // of the current table
}

// under starts a table unless it is the current one.
func (r *renderer) under(header string) {
	if r.header != header {
		r.lines = append(r.lines, line{}, line{text: header})
	}
	r.header = header
}

func (r *renderer) rule(keys []key, list, path string) {
	for _, k := range keys {
		v := k.get()
		if _, ok := v.(map[string]string); ok && !isEmpty(v) {
			r.under("[[" + list + "]]") // even if the rule has nothing but labels
			r.value("", path+"."+k.name, list+"."+k.name, v)
		} else if !isEmpty(v) {
			r.value("[["+list+"]]", path+"."+k.name, k.name, v)
		}
	}
}

// value adds the lines of a key; a table gets a header of its own.
func (r *renderer) value(header, path, name string, v any) {
	t, ok := v.(map[string]string)
	if !ok {
		r.under(header)
		r.lines = append(r.lines, line{name + " = " + inTOML(v), path, v})
		return
	}
	if header != "" {
		name = strings.Trim(header, "[]") + "." + name
	}
	r.under("[" + name + "]")
	for _, key := range sortedKeys(t) {
		r.lines = append(r.lines, line{tomlKey(key) + " = " + inTOML(t[key]), JoinKey(path, key), t[key]})
	}
}

// tomlKey formats a key as TOML.
func tomlKey(key string) string {
	if isBare(key) {
		return key
	}
	return TOMLString(key)
}

// TOMLString formats a string as a TOML value.
func TOMLString(text string) string {
	b, err := toml.Marshal(map[string]string{"v": text})
	if err != nil {
		return strconv.Quote(text) // unreachable: every string can be marshaled
	}
	return strings.TrimPrefix(strings.TrimSpace(string(b)), "v = ")
}
