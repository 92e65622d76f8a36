package schema

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// fill reads a table over the values of earlier files. path is its place in the file, and within its
// place among the keys. Unknown keys and wrong types are mistakes.
func (c *Checker) fill(keys []Key, table map[string]any, path, within string) {
	for _, word := range slices.Sorted(maps.Keys(table)) {
		at, name := JoinKey(path, word), JoinKey(within, word)
		if i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == name }); i >= 0 {
			if k := keys[i]; k.IsTables() {
				c.readTables(k, table[word], at)
			} else if v, ok := c.typed(k, table[word], at); ok {
				c.values[at] = v
			}
			continue
		}
		if slices.ContainsFunc(keys, func(k Key) bool { return strings.HasPrefix(k.Name, name+".") }) {
			if sub, ok := c.table(table[word], at); ok {
				c.fill(keys, sub, at, name)
			}
			continue
		}
		hint := ""
		if !c.full() {
			hint = c.hints.suggest(c.known, path, word)
		}
		c.Add(at, nil, "unknown key", hint)
	}
}

// readTables reads a list of tables.
func (c *Checker) readTables(k Key, v any, at string) {
	items, ok := tablesOf(v)
	if !ok {
		c.Add(at, v, "must be a list", fmt.Sprintf("write [[%s]] with two brackets", at))
		return
	}
	for i, item := range items {
		path := fmt.Sprintf("%s[%d]", at, c.before[at]+i+1)
		if t, ok := c.table(item, path); ok {
			c.fill(k.add(), t, path, "")
		}
	}
}

// tablesOf returns the elements of a list of tables, whichever way it is written.
func tablesOf(v any) ([]any, bool) {
	if list, ok := v.([]map[string]any); ok {
		items := make([]any, len(list))
		for i, t := range list {
			items[i] = t
		}
		return items, true
	}
	items, ok := v.([]any)
	return items, ok
}

func (c *Checker) table(v any, at string) (map[string]any, bool) {
	t, ok := v.(map[string]any)
	if !ok {
		header := "[" + at + "]"
		if list, _, rest, is := element(at); is && rest == "" {
			header = "[[" + list + "]]"
		} else if is {
			header = "[" + list + rest + "]"
		}
		c.Add(at, v, "must be a table", fmt.Sprintf("write %s on a line of its own", header))
	}
	return t, ok
}

// typed returns a value in the TOML form of a key.
func (c *Checker) typed(k Key, v any, at string) (any, bool) {
	if reflect.TypeOf(v) == reflect.TypeOf(k.def) {
		return v, true
	}
	switch k.def.(type) {
	case bool:
		c.Add(at, v, "must be true or false", "write it without quotes")
	case int64:
		c.Add(at, v, "must be a whole number", "write it without quotes and without a unit")
	case string:
		c.Add(at, v, "must be a string", stringHint(k.unit, v))
	case float64:
		if n, ok := v.(int64); ok {
			return float64(n), true
		}
		c.Add(at, v, "must be a number", "write it without quotes, for example 0.1")
	case []string:
		return c.texts(k, v, at)
	default:
		if t, ok := c.table(v, at); ok {
			return c.tableOfTexts(k, t, at), true
		}
	}
	return nil, false
}

func (c *Checker) texts(k Key, v any, at string) (any, bool) {
	if s, ok := v.(string); ok && k.unit == OneOrMore {
		return []string{s}, true
	}
	items, ok := v.([]any)
	if !ok {
		c.Add(at, v, "must be a list", listHint(v))
	}
	list := make([]string, len(items))
	for i, item := range items {
		if s, ok := c.typed(Key{def: ""}, item, fmt.Sprintf("%s[%d]", at, i+1)); ok {
			list[i], _ = s.(string)
		}
	}
	return list, ok
}

// tableOfTexts merges the strings of a table, such as thresholds by signal, over earlier ones.
func (c *Checker) tableOfTexts(k Key, table map[string]any, at string) map[string]string {
	out := map[string]string{}
	if before, ok := c.value(k, at).(map[string]string); ok {
		maps.Copy(out, before)
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if sub, ok := table[name].(map[string]any); ok {
			// TOML reads memory.available without quotes as a table "memory".
			c.Add(JoinKey(at, name), nil, "must be a string", quoteHint(name, sub))
		} else if s, ok := c.typed(Key{def: "", unit: k.unit}, table[name], JoinKey(at, name)); ok {
			out[name], _ = s.(string)
		}
	}
	return out
}

func quoteHint(key string, sub map[string]any) string {
	for _, rest := range slices.Sorted(maps.Keys(sub)) {
		return fmt.Sprintf("put the whole name in quotes: %q = …", Shorten(key+"."+rest))
	}
	return `put the whole name in quotes, for example "memory.available" = …`
}

// listHint suggests how to write a value as a list.
func listHint(v any) string {
	if s, ok := v.(string); ok {
		return "write it as [" + show(s) + "]"
	}
	return `write it as ["a", "b"]`
}

// stringHint suggests how to write a value of another type as a string.
func stringHint(in Unit, v any) string {
	n, number := v.(int64)
	number = number && n >= 0
	switch {
	case in == Durations && number:
		return fmt.Sprintf(`write it with quotes and a unit: "%ds"`, n)
	case in == Durations:
		return `write it with quotes and a unit, for example "30s"`
	case in == Quantities && number:
		return fmt.Sprintf(`write it with quotes: "%d" is an amount, "%d%%" a share`, n, n)
	case in == Percentages && number:
		return fmt.Sprintf(`write it with quotes: "%d%%"`, n)
	case in == Percentages:
		return `write it with quotes, for example "85%"`
	case in == Quantities:
		return `write it with quotes, for example "100Mi" or "10%"`
	default:
		return "write it with quotes"
	}
}
