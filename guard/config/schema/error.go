package schema

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
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
	e := &Error{File: at.File, Line: at.Line, Key: Shorten(key), Rule: Shorten(rule), Hint: hint}
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
	errs := make([]error, len(list))
	for i, e := range list {
		errs[i] = e
	}
	return errors.Join(errs...)
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

// maxShown limits how many bytes of a key or a value are shown.
const maxShown = 120

// Shorten truncates a text to maxShown bytes.
func Shorten(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + "…"
}

// show formats a value in TOML, with tables and lists abbreviated.
func show(value any) string {
	switch v := value.(type) {
	case string:
		return strconv.Quote(Shorten(v))
	case map[string]any:
		return "{…}"
	case time.Time:
		return v.Format(time.RFC3339Nano)
	case float64:
		return Shorten(strconv.FormatFloat(v, 'f', -1, 64)) // as it is usually written, without an exponent
	}
	switch v := reflect.ValueOf(value); {
	case v.Kind() != reflect.Slice:
		return fmt.Sprint(value)
	case v.Len() == 0:
		return "[]"
	default:
		return "[…]"
	}
}
