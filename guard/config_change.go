package guard

import (
	"fmt"
	"reflect"
	"strings"
)

// Change is a key whose value differs between two configurations.
type Change struct {
	Key      string
	Old, New string // in TOML, shortened; "" = not set
}

// Diff names the keys whose values differ from an older configuration's, in
// alphabetical order. Lists of rules differ as a whole.
func (c Config) Diff(old Config) (names []string) {
	for _, ch := range c.Changes(old) {
		names = append(names, ch.Key)
	}
	return names
}

// Changes is Diff with the values.
func (c Config) Changes(old Config) []Change {
	return changes("", reflect.ValueOf(old.keys()), reflect.ValueOf(c.keys()))
}

func changes(path string, old, now reflect.Value) (all []Change) {
	switch now.Kind() {
	case reflect.Struct:
		before, after := fieldsOf(old), fieldsOf(now)
		for _, key := range sortedKeys(after) {
			all = append(all, changes(joinKey(path, key), before[key], after[key])...)
		}
	case reflect.Map:
		keys := map[string]bool{}
		for _, m := range []reflect.Value{old, now} {
			for _, key := range m.MapKeys() {
				keys[key.String()] = true
			}
		}
		for _, key := range sortedKeys(keys) {
			k := reflect.ValueOf(key)
			if a, b := inTOML(old.MapIndex(k)), inTOML(now.MapIndex(k)); a != b {
				all = append(all, Change{joinKey(path, key), shorten(a), shorten(b)})
			}
		}
	default:
		if !reflect.DeepEqual(old.Interface(), now.Interface()) {
			all = append(all, Change{path, shorten(inTOML(old)), shorten(inTOML(now))})
		}
	}
	return all
}

// inTOML writes a value on one line; "" = there is none.
func inTOML(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Invalid:
		return ""
	case reflect.Pointer:
		return inTOML(v.Elem())
	case reflect.String:
		return tomlString(v.String())
	case reflect.Slice:
		items := make([]string, v.Len())
		for i := range items {
			items[i] = inTOML(v.Index(i))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case reflect.Map:
		values := map[string]reflect.Value{}
		for _, key := range v.MapKeys() {
			values[key.String()] = v.MapIndex(key)
		}
		return inlineTable(values)
	case reflect.Struct:
		return inlineTable(fieldsOf(v))
	default:
		return fmt.Sprint(v.Interface())
	}
}

// inlineTable leaves out what is not set.
func inlineTable(values map[string]reflect.Value) string {
	var parts []string
	for _, key := range sortedKeys(values) {
		if v := values[key]; !v.IsZero() {
			parts = append(parts, joinKey("", key)+" = "+inTOML(v))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
