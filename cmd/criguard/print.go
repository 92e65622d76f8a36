package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/criguard/criguard/cmd/criguard/internal/words"
	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/reclaim"
)

// printJSON writes a value for programs.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// itemName is what people know a removed thing by, and itemSize its size, "-" where that is not known.
func itemName(it reclaim.Item) string { return cmp.Or(it.Name, it.ID) }

func itemSize(it reclaim.Item) string {
	if it.Size <= 0 {
		return "-"
	}
	return guard.FormatBytes(it.Size)
}

// table writes columns for people.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, columns ...string) *table {
	t := &table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.row(columns...)
	return t
}

func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = words.Line(c)
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

func (t *table) flush() { _ = t.w.Flush() }
