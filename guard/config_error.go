package guard

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrConfig is what every mistake in a configuration is.
var ErrConfig = errors.New("bad configuration")

// ConfigError is one mistake in a configuration.
type ConfigError struct {
	File  string
	Line  int    // 0 = not known
	Key   string // dotted path: "images.min_age", `eviction.hard."pid.available"`, "priority[2].namespace"; "" = the file
	Value string // in TOML; "" = none
	Rule  string // what it breaks
	Hint  string // what to do; "" = plain from the rule
	cause error
}

// Error is `config.toml:12: images.min_age = "5": rule (hint: …)`.
func (e *ConfigError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	b.WriteString(": ")
	if e.Key != "" {
		b.WriteString(e.Key)
		if e.Value != "" {
			b.WriteString(" = " + e.Value)
		}
		b.WriteString(": ")
	}
	b.WriteString(e.Rule)
	if e.Hint != "" {
		b.WriteString(" (hint: " + e.Hint + ")")
	}
	return b.String()
}

// Is makes every mistake an ErrConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

// Unwrap is why the file cannot be read, when that is the mistake.
func (e *ConfigError) Unwrap() error { return e.cause }

// maxMistakes bounds what is told of one file.
const maxMistakes = 100

// mistakes gathers those of all files that a configuration is made of.
type mistakes struct {
	origins
	list []*ConfigError
	more int             // that are only counted
	keys map[string]bool // that have one
}

// add tells of one. The first of a key is the one to mend: what follows from it
// is not told. A nil value is none.
func (m *mistakes) add(key string, value any, rule, hint string) {
	if m.keys[key] {
		return
	}
	if m.keys == nil {
		m.keys = map[string]bool{}
	}
	m.keys[key] = true
	if m.full() {
		m.more++
		return
	}
	o := m.of(key)
	e := &ConfigError{File: o.File, Line: o.Line, Key: shorten(key), Rule: rule, Hint: hint}
	if value != nil {
		e.Value = show(value)
	}
	m.list = append(m.list, e)
}

// full reports whether more mistakes are only counted: no hint need be found.
func (m *mistakes) full() bool { return len(m.list) >= maxMistakes }

// has reports whether one of the keys is mistaken: it is not compared with others
// then.
func (m *mistakes) has(keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return m.keys[key] })
}

// err joins them, in the order of the files and their lines; those without a line
// come last.
func (m *mistakes) err() error {
	slices.SortStableFunc(m.list, func(a, b *ConfigError) int {
		if c := cmp.Compare(slices.Index(m.files, a.File), slices.Index(m.files, b.File)); c != 0 {
			return c
		}
		if (a.Line == 0) != (b.Line == 0) {
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Compare(a.Line, b.Line)
	})
	var errs []error
	for _, e := range m.list {
		errs = append(errs, e)
	}
	if m.more > 0 {
		errs = append(errs, &ConfigError{File: m.current(), Rule: fmt.Sprintf("has %d more mistakes", m.more), Hint: "mend these first"})
	}
	return errors.Join(errs...)
}

// maxShown bounds what is shown of a key or a value, in bytes.
const maxShown = 120

// shorten bounds a text.
func shorten(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + "…"
}

// show writes a value as TOML has it, tables and lists in short.
func show(value any) string {
	switch v := value.(type) {
	case string:
		return strconv.Quote(shorten(v))
	case map[string]any:
		return "{…}"
	case []any:
		if len(v) == 0 {
			return "[]"
		}
		return "[…]"
	case []map[string]any:
		return "[…]"
	case time.Time:
		return v.Format(time.RFC3339Nano)
	default:
		return fmt.Sprint(v)
	}
}
