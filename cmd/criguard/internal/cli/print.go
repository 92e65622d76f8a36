package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/safetext"
	"github.com/criguard/criguard/reclaim"
)

// print writes a value as JSON or as a table, by the flag --output.
func (o *options) print(cmd *cobra.Command, v any, table func(w io.Writer)) error {
	if o.output == "json" {
		return printJSON(cmd.OutOrStdout(), v)
	}
	table(cmd.OutOrStdout())
	return nil
}

// printJSON writes a value as indented JSON.
func printJSON(w io.Writer, v any) error { return encode(w, v, "  ") }

// printLine writes a value as JSON on one line.
func printLine(w io.Writer, v any) error { return encode(w, v, "") }

func encode(w io.Writer, v any, indent string) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// say prints a line or a part of one. It keeps every argument on that line.
func say(w io.Writer, format string, args ...any) {
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

// terminal returns the terminal behind a command's output, for code that draws on it.
func terminal(w io.Writer) (*os.File, bool) {
	if safe, ok := w.(*safetext.Writer); ok {
		w = safe.Unwrap()
	}
	f, ok := w.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}

// itemName returns the name that users know a removed item by.
func itemName(it reclaim.Item) string { return cmp.Or(it.Name, it.ID) }

// itemAge returns an item's age, or "unknown".
func itemAge(it reclaim.Item) string {
	if it.AgeUnknown {
		return "unknown"
	}
	return age(time.Duration(it.Age))
}

// itemSize returns an item's size, or "-" if unknown.
func itemSize(it reclaim.Item) string {
	if it.Size <= 0 {
		return "-"
	}
	return api.FormatBytes(it.Size)
}

// table writes aligned columns.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, columns ...string) *table {
	t := &table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.row(columns...)
	return t
}

func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = safetext.Line(c)
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

func (t *table) flush() { _ = t.w.Flush() }
