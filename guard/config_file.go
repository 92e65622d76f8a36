package guard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// maxConfig bounds a configuration file.
const maxConfig = 1 << 20

// DefaultConfig is the configuration without any file.
func DefaultConfig() Config {
	cfg, _ := build("defaults", defaultRaw()) // a test holds the defaults to the rules
	return cfg
}

// LoadConfig reads a configuration file. Without a path it reads the one at
// DefaultConfigPath, and takes the defaults where there is none. The error joins
// a *ConfigError for each mistake.
func LoadConfig(path string) (Config, error) {
	named := path != ""
	if !named {
		path = DefaultConfigPath
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return build("defaults", defaultRaw())
	}
	if err != nil {
		return Config{}, &ConfigError{File: path, Rule: err.Error(), Hint: "name a file that can be read"}
	}
	defer func() { _ = f.Close() }()
	return ParseConfig(path, f)
}

// ParseConfig reads a configuration; name stands for it in errors. Keys that are
// left out have their defaults, tables of thresholds are merged with theirs. The
// error joins a *ConfigError for each mistake.
func ParseConfig(name string, r io.Reader) (Config, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxConfig+1))
	if err != nil {
		return Config{}, &ConfigError{File: name, Rule: err.Error(), Hint: "name a file that can be read"}
	}
	if len(text) > maxConfig {
		return Config{}, &ConfigError{File: name, Rule: "is larger than 1 MiB", Hint: "this is no configuration of criguard's"}
	}
	var tree map[string]any
	if _, err := toml.NewDecoder(bytes.NewReader(text)).Decode(&tree); err != nil {
		e := &ConfigError{File: name, Rule: err.Error(), Hint: "is it TOML? strings need quotes, tables [brackets]"}
		var pe toml.ParseError
		if errors.As(err, &pe) {
			e.Line, e.Rule = pe.Position.Line, strings.TrimSpace(pe.Message)
			e.Key = pe.LastKey
		}
		return Config{}, e
	}
	raw := defaultRaw()
	m := &mistakes{file: name}
	m.fill(reflect.ValueOf(&raw).Elem(), tree, "")
	cfg, err := build(name, raw)
	if all := errors.Join(m.err(), err); all != nil {
		return Config{}, all
	}
	return cfg, nil
}

// fill puts a table over a struct, key by key; what is unknown or of another type
// is a mistake, and the others go on.
func (m *mistakes) fill(into reflect.Value, table map[string]any, path string) {
	fields := fieldsOf(into)
	for _, key := range sortedKeys(table) {
		at := joinKey(path, key)
		field, ok := fields[key]
		if !ok {
			m.unknown(at, key, path, fields)
			continue
		}
		m.set(field, table[key], at)
	}
}

func (m *mistakes) unknown(at, key, path string, fields map[string]reflect.Value) {
	var hint string
	if k, ok := kubeletKeys[key]; ok {
		hint = "the kubelet's " + key + " is " + k + " here"
	} else if n := nearest(key, sortedKeys(fields)); n != "" {
		hint = fmt.Sprintf("did you mean %q?", n)
	} else if at := findKey(key); at != "" && at != joinKey(path, key) {
		hint = "did you mean " + at + "?"
	} else {
		hint = "config.example.toml has every key"
	}
	m.add(at, nil, "unknown key", hint)
}

// findKey finds a key in another table.
func findKey(key string) string {
	raw := defaultRaw()
	top := fieldsOf(reflect.ValueOf(&raw).Elem())
	for _, table := range sortedKeys(top) {
		if table == key {
			return key
		}
		if v := top[table]; v.Kind() == reflect.Struct {
			if _, ok := fieldsOf(v)[key]; ok {
				return "[" + table + "] " + key
			}
		}
	}
	return ""
}

// set assigns one value.
func (m *mistakes) set(into reflect.Value, v any, at string) {
	wrong := func(want string) { m.add(at, v, "must be "+want, typeHint(want)) }
	switch into.Kind() {
	case reflect.Pointer:
		p := reflect.New(into.Type().Elem())
		before := len(m.errs)
		if m.set(p.Elem(), v, at); len(m.errs) == before {
			into.Set(p)
		}
	case reflect.String:
		if s, ok := v.(string); ok {
			into.SetString(s)
		} else {
			wrong("a string")
		}
	case reflect.Bool:
		if b, ok := v.(bool); ok {
			into.SetBool(b)
		} else {
			wrong("true or false")
		}
	case reflect.Int, reflect.Int64:
		if n, ok := v.(int64); ok && !into.OverflowInt(n) {
			into.SetInt(n)
		} else {
			wrong("a whole number")
		}
	case reflect.Struct:
		if t, ok := v.(map[string]any); ok {
			m.fill(into, t, at)
		} else {
			wrong("a table")
		}
	case reflect.Map:
		m.setStrings(into, v, at)
	case reflect.Slice:
		m.setSlice(into, v, at)
	default:
		wrong("left out")
	}
}

// setStrings merges a table of strings into a map.
func (m *mistakes) setStrings(into reflect.Value, v any, at string) {
	t, ok := v.(map[string]any)
	if !ok {
		m.add(at, v, "must be a table", typeHint("a table"))
		return
	}
	if into.IsNil() {
		into.Set(reflect.MakeMap(into.Type()))
	}
	for _, key := range sortedKeys(t) {
		switch s := t[key].(type) {
		case string:
			into.SetMapIndex(reflect.ValueOf(key), reflect.ValueOf(s))
		case map[string]any:
			// memory.available without quotes is the table "memory" to TOML.
			m.add(joinKey(at, key), nil, "must be a string",
				fmt.Sprintf("put the name in quotes: %q = …", key+"."+strings.Join(sortedKeys(s), ".")))
		default:
			m.add(joinKey(at, key), s, "must be a string", typeHint("a string"))
		}
	}
}

func (m *mistakes) setSlice(into reflect.Value, v any, at string) {
	var items []any
	switch l := v.(type) {
	case []any:
		items = l
	case []map[string]any:
		for _, t := range l {
			items = append(items, t)
		}
	default:
		m.add(at, v, "must be a list", typeHint("a list"))
		return
	}
	list := reflect.MakeSlice(into.Type(), len(items), len(items))
	for i, item := range items {
		m.set(list.Index(i), item, fmt.Sprintf("%s[%d]", at, i+1))
	}
	into.Set(list)
}

func typeHint(want string) string {
	switch want {
	case "a string":
		return `put it in quotes, as "10s" or "100Mi"`
	case "true or false":
		return "without quotes"
	case "a whole number":
		return "without quotes and without a unit"
	case "a table":
		return "write [table] on a line of its own"
	case "a list":
		return `write it as ["a", "b"]; rules as [[priority]]`
	default:
		return ""
	}
}

// fieldsOf finds the fields of a struct by their TOML keys; embedded ones count as
// its own.
func fieldsOf(v reflect.Value) map[string]reflect.Value {
	fields := map[string]reflect.Value{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			for k, e := range fieldsOf(v.Field(i)) {
				fields[k] = e
			}
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("toml"), ",")
		fields[name] = v.Field(i)
	}
	return fields
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func joinKey(path, key string) string {
	if strings.Contains(key, ".") {
		key = `"` + key + `"`
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// Effective renders the configuration in force as TOML, with every default
// filled in. Reading it back gives the same configuration.
func (c Config) Effective() string {
	var b bytes.Buffer
	enc := toml.NewEncoder(&b)
	enc.Indent = ""
	if err := enc.Encode(c.source); err != nil {
		return "# cannot be rendered: " + err.Error() + "\n"
	}
	return b.String()
}

// Diff names the keys whose values differ from an older configuration's.
func (c Config) Diff(old Config) []string {
	return diff("", reflect.ValueOf(c.source), reflect.ValueOf(old.source))
}

func diff(path string, a, b reflect.Value) []string {
	if a.Kind() != reflect.Struct {
		if reflect.DeepEqual(a.Interface(), b.Interface()) {
			return nil
		}
		return []string{path}
	}
	fa, fb := fieldsOf(a), fieldsOf(b)
	var names []string
	for _, key := range sortedKeys(fa) {
		names = append(names, diff(joinKey(path, key), fa[key], fb[key])...)
	}
	return names
}
