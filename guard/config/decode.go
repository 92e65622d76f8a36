package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// The TOML decoder stops at the first value of a wrong type and skips unknown keys. To report every
// mistake, criguard decodes into an untyped tree and reads the keys one by one.

// checker reads and checks values against the schema. It does not use a value that breaks a rule.
type checker struct {
	*mistakes
	values map[string]any // values read so far, by path, in TOML form
}

// fill reads a table over the values of earlier files. path is its place in the file, and within its
// place among the keys. Unknown keys and wrong types are mistakes.
func (c checker) fill(keys []key, table map[string]any, path, within string) {
	for _, word := range sortedKeys(table) {
		at, name := JoinKey(path, word), JoinKey(within, word)
		if i := slices.IndexFunc(keys, func(k key) bool { return k.name == name }); i >= 0 {
			if k := keys[i].value; k.rules != nil {
				c.readRules(k.rules, table[word], at)
			} else if v, ok := c.typed(k, table[word], at); ok {
				c.values[at] = v
			}
			continue
		}
		if slices.ContainsFunc(keys, func(k key) bool { return strings.HasPrefix(k.name, name+".") }) {
			if sub, ok := c.table(table[word], at); ok {
				c.fill(keys, sub, at, name)
			}
			continue
		}
		hint := ""
		if !c.full() {
			hint = suggest(path, word)
		}
		c.add(at, nil, "unknown key", hint)
	}
}

// readRules reads a list of tables; it adds to those of earlier files.
func (c checker) readRules(r *rules, v any, at string) {
	items, ok := v.([]any)
	if list, is := v.([]map[string]any); is {
		items, ok = convertAll(list, func(t map[string]any) any { return t }), true
	}
	if !ok {
		c.add(at, v, "must be a list", fmt.Sprintf("write [[%s]] with two brackets", at))
		return
	}
	before := c.elements[at]
	c.elements[at] += len(items)
	for i, item := range items {
		path := fmt.Sprintf("%s[%d]", at, before+i+1)
		if t, ok := c.table(item, path); ok {
			c.fill(r.add(), t, path, "")
		}
	}
}

func (c checker) table(v any, at string) (map[string]any, bool) {
	t, ok := v.(map[string]any)
	if !ok {
		c.add(at, v, "must be a table", fmt.Sprintf("write [%s] on a line of its own", at))
	}
	return t, ok
}

// typed returns a value in the TOML form of a key.
func (c checker) typed(k value, v any, at string) (any, bool) {
	if reflect.TypeOf(v) == reflect.TypeOf(k.def) {
		return v, true
	}
	switch k.def.(type) {
	case bool:
		c.add(at, v, "must be true or false", "write it without quotes")
	case int64:
		c.add(at, v, "must be a whole number", "write it without quotes and without a unit")
	case string:
		c.add(at, v, "must be a string", stringHint(k.unit, v))
	case []string:
		return c.texts(k, v, at)
	default:
		if t, ok := c.table(v, at); ok {
			return c.tableOfTexts(k, t, at), true
		}
	}
	return nil, false
}

func (c checker) texts(k value, v any, at string) (any, bool) {
	if s, ok := v.(string); ok && k.unit == oneOrMore {
		return []string{s}, true
	}
	items, ok := v.([]any)
	if !ok {
		c.add(at, v, "must be a list", `write it as ["a", "b"]`)
	}
	list := make([]string, len(items))
	for i, item := range items {
		if s, ok := c.typed(value{def: ""}, item, fmt.Sprintf("%s[%d]", at, i+1)); ok {
			list[i], _ = s.(string)
		}
	}
	return list, ok
}

// tableOfTexts merges the strings of a table, such as thresholds by signal, over earlier ones.
func (c checker) tableOfTexts(k value, table map[string]any, at string) map[string]string {
	out := map[string]string{}
	if before, ok := c.value(k, at).(map[string]string); ok {
		maps.Copy(out, before)
	}
	for _, name := range sortedKeys(table) {
		if sub, ok := table[name].(map[string]any); ok {
			// TOML reads memory.available without quotes as a table "memory".
			c.add(JoinKey(at, name), nil, "must be a string", quoteHint(name, sub))
		} else if s, ok := c.typed(value{def: "", unit: k.unit}, table[name], JoinKey(at, name)); ok {
			out[name], _ = s.(string)
		}
	}
	return out
}

func quoteHint(key string, sub map[string]any) string {
	for _, rest := range sortedKeys(sub) {
		return fmt.Sprintf("put the whole name in quotes: %q = …", shorten(key+"."+rest))
	}
	return `put the whole name in quotes, for example "memory.available" = …`
}

// stringHint suggests how to write a value of another type as a string.
func stringHint(in unit, v any) string {
	n, number := v.(int64)
	number = number && n >= 0
	switch {
	case in == inDurations && number:
		return fmt.Sprintf(`write it with quotes and a unit: "%ds"`, n)
	case in == inDurations:
		return `write it with quotes and a unit, for example "30s"`
	case in == inQuantities && number:
		return fmt.Sprintf(`write it with quotes: "%d" is an amount, "%d%%" a share`, n, n)
	case in == inQuantities:
		return `write it with quotes, for example "100Mi" or "10%"`
	default:
		return "write it with quotes"
	}
}

// value returns the value read for a key, or its default.
func (c checker) value(k value, at string) any {
	if v, ok := c.values[at]; ok {
		return v
	}
	return k.def
}

// apply checks the values below a path and sets the fields that the keys are bound to. Missing
// values get their defaults.
func (c checker) apply(keys []key, path string) {
	for _, k := range keys {
		at := strings.TrimPrefix(path+"."+k.name, ".")
		if k.rules != nil {
			for i := range c.elements[at] {
				c.apply(k.rules.add(), fmt.Sprintf("%s[%d]", at, i+1))
			}
			continue
		}
		if _, ok := c.values[at]; k.required != "" && (!ok || isEmpty(c.values[at])) {
			c.add(at, nil, "must be set", k.required)
			continue
		}
		c.values[at] = c.value(k.value, at)
		k.set(c, at, c.values[at])
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// JoinKey appends a key to the path of its table. It quotes keys that are not bare keys in TOML.
func JoinKey(path, key string) string {
	if !isBare(key) {
		key = strconv.Quote(key)
	}
	return strings.TrimPrefix(path+"."+key, ".")
}

// isBare reports whether TOML allows a key without quotes.
func isBare(key string) bool {
	return key != "" && !strings.ContainsFunc(key, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}
