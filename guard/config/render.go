package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/criguard/criguard/guard/config/schema"
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
	value     any // in TOML form, see schema.Key
}

func (c Config) lines() []line {
	var r renderer
	keys, _ := allKeys(&c)
	for _, k := range keys {
		table, name := schema.SplitKey(k.Name)
		switch {
		case k.IsTables():
			for i, element := range k.Elements() {
				r.header = ""
				r.rule(element, k.Name, fmt.Sprintf("%s[%d]", k.Name, i+1))
			}
		case table == "":
			r.value("", k.Name, name, k.Value())
		default:
			r.value("["+table+"]", k.Name, name, k.Value())
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

func (r *renderer) rule(keys []schema.Key, list, path string) {
	for _, k := range keys {
		v := k.Value()
		if _, ok := v.(map[string]string); ok && !k.IsEmpty() {
			r.under("[[" + list + "]]") // even if the rule has nothing but labels
			r.value("", path+"."+k.Name, list+"."+k.Name, v)
		} else if !k.IsEmpty() {
			r.value("[["+list+"]]", path+"."+k.Name, k.Name, v)
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
		r.lines = append(r.lines, line{tomlKey(key) + " = " + inTOML(t[key]), schema.JoinKey(path, key), t[key]})
	}
}

// keyInTOML formats the value of a key on one line.
func keyInTOML(k schema.Key) string {
	if !k.IsTables() {
		return inTOML(k.Value())
	}
	return "[" + strings.Join(convertAll(k.Elements(), func(keys []schema.Key) string {
		set := map[string]string{}
		for _, k := range keys {
			if !k.IsEmpty() {
				set[k.Name] = keyInTOML(k)
			}
		}
		return inlineTable(set)
	}), ", ") + "]"
}

func inTOML(v any) string {
	switch v := v.(type) {
	case string:
		return TOMLString(v)
	case []string:
		return "[" + strings.Join(convertAll(v, TOMLString), ", ") + "]"
	case map[string]string:
		set := map[string]string{}
		for name, text := range v {
			set[name] = TOMLString(text)
		}
		return inlineTable(set)
	default:
		return fmt.Sprint(v)
	}
}

// inlineTable formats values in TOML as an inline table.
func inlineTable(values map[string]string) string {
	var parts []string
	for _, name := range sortedKeys(values) {
		parts = append(parts, tomlKey(name)+" = "+values[name])
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func asString[T ~string](v T) string { return string(v) }

func convertAll[From, To any](items []From, to func(From) To) []To {
	var out []To
	for _, item := range items {
		out = append(out, to(item))
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// tomlKey formats a key as TOML.
func tomlKey(key string) string {
	if schema.JoinKey("", key) == key {
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
