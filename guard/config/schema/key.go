package schema

import (
	"fmt"
	"time"

	"github.com/criguard/criguard/policy"
)

// Key is one key of a file, bound to the field that holds its value. It converts between the field and its TOML form: a
// bool, int64, float64, string, []string or map[string]string.
type Key struct {
	Name    string // path, such as "eviction.interval"; within a list of tables the key alone
	Restart bool   // a change takes effect at the next start

	unit     Unit
	def      any    // the default, in TOML form
	required string // hint if the key is missing; "": it may be missing
	set      func(c *Checker, at string, v any)
	get      func() any

	// For a list of tables, which has none of the above.
	add func() []Key   // appends an element and returns the keys bound to it
	all func() [][]Key // the keys bound to each element
}

// Unit says what the text of a value stands for.
type Unit int

// The units.
const (
	NoUnit Unit = iota
	Durations
	Quantities
	Percentages
	OneOrMore // a list that may be written as a single string
)

// Bind binds a field of type T whose TOML form has type F.
func Bind[T, F any](name string, field *T, in Unit, def F, parse func(c *Checker, at string, v F) T, format func(T) F) Key {
	return Key{
		Name: name, unit: in, def: def,
		set: func(c *Checker, at string, v any) {
			if f, ok := v.(F); ok {
				*field = parse(c, at, f)
			}
		},
		get: func() any { return format(*field) },
	}
}

// Tables is a list of tables.
func Tables[T any](name string, field *[]T, keys func(*T) []Key) Key {
	return Key{
		Name: name,
		add: func() []Key {
			*field = append(*field, *new(T))
			return keys(&(*field)[len(*field)-1])
		},
		all: func() (all [][]Key) {
			for i := range *field {
				all = append(all, keys(&(*field)[i]))
			}
			return all
		},
	}
}

// Same returns a value as it is: the field has the TOML form.
func Same[T any](v T) T { return v }

// Unchecked is the parser of values that need no check, or whose check concerns several keys.
func Unchecked[T any](_ *Checker, _ string, v T) T { return v }

// Flag is true or false.
func Flag(name string, field *bool, def bool) Key {
	return Bind(name, field, NoUnit, def, Unchecked, Same)
}

// Number is a whole number within limits.
func Number(name string, field *int, def int64, least, most int, hint string) Key {
	return Bind(name, field, NoUnit, def, func(c *Checker, at string, n int64) int {
		switch {
		case n < int64(least):
			c.Add(at, n, fmt.Sprintf("must be at least %d", least), hint)
		case n > int64(most):
			c.Add(at, n, fmt.Sprintf("must be at most %d", most), hint)
		}
		return int(n)
	}, func(n int) int64 { return int64(n) })
}

// Text is a string that is checked unless it is empty.
func Text(name string, field *string, check func(c *Checker, at, v string)) Key {
	return Bind(name, field, NoUnit, "", func(c *Checker, at, v string) string {
		if v != "" {
			check(c, at, v)
		}
		return v
	}, Same)
}

// Texts is a list of strings. The field is nil if the list is empty.
func Texts(name string, field *[]string, def []string, check func(c *Checker, at, v string)) Key {
	return Bind(name, field, NoUnit, def, func(c *Checker, at string, list []string) []string {
		for i, v := range list {
			check(c, fmt.Sprintf("%s[%d]", at, i+1), v)
		}
		if len(list) == 0 {
			return nil
		}
		return list
	}, Same)
}

// Duration is a duration within limits.
func Duration(name string, field *time.Duration, def string, least, most time.Duration) Key {
	return Bind(name, field, Durations, def, func(c *Checker, at, text string) time.Duration { return c.Duration(at, text, least, most) }, policy.ShortDuration)
}

// OrRequire makes the key one that must be set.
func (k Key) OrRequire(hint string) Key {
	k.required = hint
	return k
}

// AtRestart makes the key one whose change takes effect at the next start.
func (k Key) AtRestart() Key {
	k.Restart = true
	return k
}

// Value returns the value of the field in TOML form. A list of tables has none.
func (k Key) Value() any { return k.get() }

// IsEmpty reports whether the value is an empty text, list or table.
func (k Key) IsEmpty() bool { return isEmpty(k.get()) }

// IsTables reports whether the value is a list of tables.
func (k Key) IsTables() bool { return k.all != nil }

// Elements returns the keys of each table in a list of tables.
func (k Key) Elements() [][]Key { return k.all() }

// Names returns the path of a key, or those of the keys in a list of tables, such as "priority[].value".
func (k Key) Names() (names []string) {
	if !k.IsTables() {
		return []string{k.Name}
	}
	for _, sub := range k.add() {
		names = append(names, k.Name+"[]."+sub.Name)
	}
	return names
}
