package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/policy"
)

// value converts between a field and its TOML form: a bool, int64, string, []string or
// map[string]string.
type value struct {
	unit     unit
	def      any    // the default, in TOML form
	required string // hint if the key is missing; "": it may be missing
	set      func(c checker, at string, v any)
	get      func() any
	rules    *rules // for a list of tables, which has none of the above
}

// unit says what the text of a value stands for.
type unit int

const (
	noUnit unit = iota
	inDurations
	inQuantities
	oneOrMore // a list that may be written as a single string
)

// rules are the elements of a list of tables.
type rules struct {
	add func() []key   // appends an element and returns the keys bound to it
	all func() [][]key // the keys bound to each element
}

// bind binds a field of type T whose TOML form has type F.
func bind[T, F any](field *T, in unit, def F, parse func(c checker, at string, v F) T, format func(T) F) value {
	return value{
		unit: in, def: def,
		set: func(c checker, at string, v any) {
			if f, ok := v.(F); ok {
				*field = parse(c, at, f)
			}
		},
		get: func() any { return format(*field) },
	}
}

func same[T any](v T) T { return v }

// unchecked is the parser of values that need no check, or whose check concerns several keys.
func unchecked[T any](_ checker, _ string, v T) T { return v }

func required(v value, hint string) value {
	v.required = hint
	return v
}

func flag(field *bool, def bool) value { return bind(field, noUnit, def, unchecked, same) }

func number(field *int, def int64, least, most int, hint string) value {
	return bind(field, noUnit, def, func(c checker, at string, n int64) int {
		switch {
		case n < int64(least):
			c.add(at, n, fmt.Sprintf("must be at least %d", least), hint)
		case n > int64(most):
			c.add(at, n, fmt.Sprintf("must be at most %d", most), hint)
		}
		return int(n)
	}, func(n int) int64 { return int64(n) })
}

// text is a string that is checked unless it is empty.
func text(field *string, check func(c checker, at, v string)) value {
	return bind(field, noUnit, "", func(c checker, at, v string) string {
		if v != "" {
			check(c, at, v)
		}
		return v
	}, same)
}

// texts is a list of strings. The field is nil if the list is empty.
func texts(field *[]string, def []string, check func(c checker, at, v string)) value {
	return bind(field, noUnit, def, func(c checker, at string, list []string) []string {
		for i, v := range list {
			check(c, fmt.Sprintf("%s[%d]", at, i+1), v)
		}
		return orNil(list)
	}, same)
}

// choice is one of the allowed words; the first is the default.
func choice[T ~string](field *T, allowed ...T) value {
	return bind(field, noUnit, string(allowed[0]), func(c checker, at, word string) T { return choose(c, at, word, allowed...) }, asString)
}

func duration(field *time.Duration, def string, least, most time.Duration) value {
	return bind(field, inDurations, def, func(c checker, at, text string) time.Duration { return c.duration(at, text, least, most) }, policy.ShortDuration)
}

func quantity(field *policy.Quantity, def string, parse func(c checker, at, text string) policy.Quantity) value {
	return bind(field, inQuantities, def, parse, policy.Quantity.String)
}

// bySignal is a table of strings, which package policy checks.
func bySignal(field *map[string]string, in unit, def map[string]string) value {
	return bind(field, in, def, unchecked, same)
}

func ranking(field *[]policy.Key, res policy.Resource) value {
	return bind(field, noUnit, keyNames(policy.DefaultKeys(res)), checker.rankKeys, keyNames)
}

// tables is a list of tables.
func tables[T any](field *[]T, keys func(*T) []key) value {
	return value{rules: &rules{
		add: func() []key {
			*field = append(*field, *new(T))
			return keys(&(*field)[len(*field)-1])
		},
		all: func() (all [][]key) {
			for i := range *field {
				all = append(all, keys(&(*field)[i]))
			}
			return all
		},
	}}
}

// isEmpty reports whether a value in TOML form is empty. Rules omit such values.
func isEmpty(v any) bool {
	r := reflect.ValueOf(v)
	return slices.Contains([]reflect.Kind{reflect.String, reflect.Slice, reflect.Map}, r.Kind()) && r.Len() == 0
}

// inTOML formats a value on one line.
func (v value) inTOML() string {
	if v.rules == nil {
		return inTOML(v.get())
	}
	return "[" + strings.Join(convertAll(v.rules.all(), func(keys []key) string {
		set := map[string]string{}
		for _, k := range keys {
			if !isEmpty(k.get()) {
				set[k.name] = k.inTOML()
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

// orNil makes a missing list and an empty one the same.
func orNil[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}
