package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/term"

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

// Terminal returns the terminal behind a command's output, for code that draws on it.
func Terminal(w io.Writer) (*os.File, bool) {
	if safe, ok := w.(*safetext.Writer); ok {
		w = safe.Unwrap()
	}
	f, ok := w.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}

// Table writes aligned columns.
type Table struct{ w *tabwriter.Writer }

// NewTable returns a table with a header.
func NewTable(w io.Writer, columns ...string) *Table {
	t := &Table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.Row(columns...)
	return t
}

// Row adds a line.
func (t *Table) Row(cells ...string) {
	for i, c := range cells {
		cells[i] = safetext.Line(c)
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

// Flush writes the table.
func (t *Table) Flush() { _ = t.w.Flush() }
