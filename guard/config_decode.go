package guard

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// The TOML decoder ends at the first value of a wrong type and passes over keys that
// it does not know. Here every mistake counts, so the tree that it makes without a
// type to fill is put over the keys one by one.

// fill puts a table over a struct; what is unknown or of another type is a
// mistake, and the others go on.
func (m *mistakes) fill(into reflect.Value, table map[string]any, path string) {
	fields := fieldsOf(into)
	for _, key := range sortedKeys(table) {
		at := joinKey(path, key)
		if field, ok := fields[key]; ok {
			m.set(field, table[key], at)
			continue
		}
		hint := ""
		if !m.full() {
			hint = suggest(path, key)
		}
		m.add(at, nil, "unknown key", hint)
	}
}

// set assigns one value.
func (m *mistakes) set(into reflect.Value, v any, at string) {
	switch into.Kind() {
	case reflect.Pointer:
		p := reflect.New(into.Type().Elem())
		into.Set(p) // it is set, whatever to
		m.set(p.Elem(), v, at)
	case reflect.Struct:
		if t, ok := v.(map[string]any); ok {
			m.fill(into, t, at)
		} else {
			m.add(at, v, "must be a table", fmt.Sprintf("write [%s] on a line of its own", at))
		}
	case reflect.Map:
		m.setTable(into, v, at)
	case reflect.Slice:
		m.setList(into, v, at)
	case reflect.Bool:
		if b, ok := v.(bool); ok {
			into.SetBool(b)
		} else {
			m.add(at, v, "must be true or false", "without quotes")
		}
	case reflect.String:
		if s, ok := v.(string); ok {
			into.SetString(s)
		} else {
			m.add(at, v, "must be a string", stringHint(into, v))
		}
	default:
		if n, ok := v.(int64); ok && !into.OverflowInt(n) {
			into.SetInt(n)
		} else {
			m.add(at, v, "must be a whole number", "without quotes and without a unit")
		}
	}
}

// setTable merges a table of texts, such as thresholds by signal, into a map.
func (m *mistakes) setTable(into reflect.Value, v any, at string) {
	table, ok := v.(map[string]any)
	if !ok {
		m.add(at, v, "must be a table", fmt.Sprintf("write [%s] on a line of its own", at))
		return
	}
	if into.IsNil() {
		into.Set(reflect.MakeMap(into.Type()))
	}
	for _, key := range sortedKeys(table) {
		value := reflect.New(into.Type().Elem()).Elem()
		if sub, ok := table[key].(map[string]any); ok {
			// memory.available without quotes is a table "memory" to TOML.
			m.add(joinKey(at, key), nil, "must be a string", quoteHint(key, sub))
			continue
		}
		if m.set(value, table[key], joinKey(at, key)); !m.has(joinKey(at, key)) {
			into.SetMapIndex(reflect.ValueOf(key), value)
		}
	}
}

func quoteHint(key string, sub map[string]any) string {
	for _, rest := range sortedKeys(sub) {
		return fmt.Sprintf("put the whole name in quotes: %q = …", shorten(key+"."+rest))
	}
	return `put the whole name in quotes, as "memory.available" = …`
}

func (m *mistakes) setList(into reflect.Value, v any, at string) {
	var items []any
	switch list := v.(type) {
	case []any:
		items = list
	case []map[string]any:
		for _, t := range list {
			items = append(items, t)
		}
	case string:
		if into.Type() == reflect.TypeFor[oneOrMore]() {
			into.Set(reflect.ValueOf(oneOrMore{list}))
			return
		}
		m.add(at, v, "must be a list", `write it as ["a", "b"]`)
		return
	default:
		hint := `write it as ["a", "b"]`
		if into.Type().Elem().Kind() == reflect.Struct {
			hint = fmt.Sprintf("write [[%s]], with two brackets", at)
		}
		m.add(at, v, "must be a list", hint)
		return
	}
	// Rules add up over the files; a list of texts replaces the one before.
	before := 0
	if into.Type().Elem().Kind() == reflect.Struct {
		before = into.Len()
		m.rules[at] = before + len(items)
	}
	list := reflect.MakeSlice(into.Type(), before+len(items), before+len(items))
	reflect.Copy(list, into.Slice(0, before))
	for i, item := range items {
		m.set(list.Index(before+i), item, fmt.Sprintf("%s[%d]", at, before+i+1))
	}
	into.Set(list)
}

// stringHint shows a value that is no string as one.
func stringHint(into reflect.Value, v any) string {
	n, number := v.(int64)
	switch into.Interface().(type) {
	case durationText:
		if number && n >= 0 {
			return fmt.Sprintf(`with quotes and a unit: "%ds"`, n)
		}
		return `with quotes and a unit, as "30s"`
	case quantityText:
		if number && n >= 0 {
			return fmt.Sprintf(`with quotes: "%d" is an amount, "%d%%" a share`, n, n)
		}
		return `with quotes, as "100Mi" or "10%"`
	default:
		return "with quotes"
	}
}

// fieldsOf finds the fields of a struct by their keys; those of an embedded one
// count as its own.
func fieldsOf(v reflect.Value) map[string]reflect.Value {
	fields := map[string]reflect.Value{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			for key, field := range fieldsOf(v.Field(i)) {
				fields[key] = field
			}
			continue
		}
		fields[keyOf(f)] = v.Field(i)
	}
	return fields
}

// keyOf is the key of a field.
func keyOf(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("toml"), ",")
	return key
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// joinKey is the path of a key in the table at a path. What is no bare key in TOML
// has quotes.
func joinKey(path, key string) string {
	bare := func(r rune) bool {
		return r == '_' || r == '-' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z'
	}
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return !bare(r) }) {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}
