package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/safetext"
)

// ErrInvalid matches every mistake in a configuration.
var ErrInvalid = errors.New("invalid configuration")

// Error is one mistake in a configuration.
type Error struct {
	File  string
	Line  int    // 0: unknown
	Key   string // dotted path, such as `eviction.hard."pid.available"` or "priority[2].namespace"; "": the file
	Value string // in TOML; "": no value
	Rule  string // the rule that is broken
	Hint  string // how to fix it; "": obvious from the rule
	cause error
}

// Error returns `config.toml:12: images.min_age = "5": rule (hint: …)`.
func (e *Error) Error() string { return safetext.Line(e.text()) }

func (e *Error) text() string {
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

// Is reports whether target is ErrInvalid, which matches every Error.
func (e *Error) Is(target error) bool { return target == ErrInvalid }

// Unwrap returns the cause if the file cannot be read, and otherwise nil.
func (e *Error) Unwrap() error { return e.cause }

// NewError returns a mistake with its key and value shortened. A nil value means that the key has no
// value.
func NewError(at Origin, key string, value any, rule, hint string) *Error {
	e := &Error{File: at.File, Line: at.Line, Key: shorten(key), Rule: shorten(rule), Hint: hint}
	if value != nil {
		e.Value = show(value)
	}
	return e
}

// JoinErrors joins mistakes in the order of the files and lines; those without a line come last.
func JoinErrors(files []string, list []*Error) error {
	slices.SortStableFunc(list, func(a, b *Error) int {
		if c := cmp.Compare(slices.Index(files, a.File), slices.Index(files, b.File)); c != 0 {
			return c
		}
		return cmp.Compare(uint(a.Line-1), uint(b.Line-1)) // 0 becomes the largest
	})
	return errors.Join(convertAll(list, func(e *Error) error { return e })...)
}

// Errors returns the mistakes that an error of this package joins.
func Errors(err error) (list []*Error) {
	errs := []error{err}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		errs = joined.Unwrap()
	}
	for _, err := range errs {
		var e *Error
		if errors.As(err, &e) {
			list = append(list, e)
		}
	}
	return list
}

// maxMistakes limits how many mistakes of a configuration are listed; the rest are only counted.
const maxMistakes = 100

// mistakes collects the mistakes in all files of a configuration.
type mistakes struct {
	origins
	list []*Error
	more int             // mistakes beyond maxMistakes, which are only counted
	keys map[string]bool // keys that have a mistake
}

// add records a mistake. It keeps only the first mistake of a key, because later ones follow from
// it. A nil value means that the key has no value.
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
	m.list = append(m.list, NewError(m.of(key), key, value, rule, hint))
}

// full reports whether further mistakes are only counted, so that no hint is needed.
func (m *mistakes) full() bool { return len(m.list) >= maxMistakes }

// has reports whether one of the keys has a mistake. Such a key is not compared with others.
func (m *mistakes) has(keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return m.keys[key] })
}

// err joins the mistakes.
func (m *mistakes) err() error {
	if m.more > 0 {
		m.list = append(m.list, &Error{File: m.current(), Rule: fmt.Sprintf("has %d more mistakes", m.more), Hint: "fix these first"})
	}
	return JoinErrors(m.files, m.list)
}

// maxShown limits how many bytes of a key or a value are shown.
const maxShown = 120

// shorten truncates a text to maxShown bytes.
func shorten(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + "…"
}

// show formats a value in TOML, with tables and lists abbreviated.
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
