package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/criguard/criguard/guard/safetext"
)

// PrintJSON writes a value as indented JSON.
func PrintJSON(w io.Writer, v any) error { return encode(w, v, "  ") }

// PrintLine writes a value as JSON on one line.
func PrintLine(w io.Writer, v any) error { return encode(w, v, "") }

func encode(w io.Writer, v any, indent string) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// Say prints a line or a part of one. It keeps every argument on that line.
func Say(w io.Writer, format string, args ...any) {
	for i, a := range args {
		switch v := a.(type) {
		case string:
			args[i] = safetext.Line(v)
		case fmt.Stringer:
			args[i] = safetext.Line(v.String())
		}
	}
	fmt.Fprintf(w, format, args...)
}
