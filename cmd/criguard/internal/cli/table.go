package cli

import (
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/rivo/uniseg"
	"golang.org/x/term"

	"github.com/criguard/criguard/guard/safetext"
)

const (
	columnGap = 2
	// enoughOfCell is how much of a long cell is worth more than another column, unless Enough says otherwise.
	enoughOfCell = 20
)

// Table writes aligned columns. On a terminal that is too narrow, it cuts the longest cells, and before less than
// enough of one remains, it leaves out columns that the caller can spare.
type Table struct {
	w      io.Writer
	rows   [][]string // the first is the header
	spare  []string
	enough int
}

// NewTable returns a table with a header.
func NewTable(w io.Writer, columns ...string) *Table {
	t := &Table{w: w, enough: enoughOfCell}
	t.Row(columns...)
	return t
}

// Spare names the columns that a narrow terminal may leave out, the first one first.
func (t *Table) Spare(columns ...string) *Table {
	t.spare = columns
	return t
}

// Enough sets how much of a long cell is worth more than a column that can be spared.
func (t *Table) Enough(width int) *Table {
	t.enough = width
	return t
}

// Row adds a line, which has a cell for each column.
func (t *Table) Row(cells ...string) {
	for i, c := range cells {
		cells[i] = safetext.Line(c)
	}
	t.rows = append(t.rows, cells)
}

// Flush writes the table.
func (t *Table) Flush() {
	columns, limit, more := t.layout(), 0, "…"
	if width := tableWidth(t.w); width > 0 {
		columns, limit = t.fit(columns, width)
	}
	if ASCII() {
		more = "~"
	}
	var b strings.Builder
	for _, cells := range t.rows {
		for i, c := range columns {
			text, width := cells[c.index], uniseg.StringWidth(cells[c.index])
			if limit > 0 && width > limit {
				text, width = cut(text, limit, more)
			}
			b.WriteString(text)
			if i < len(columns)-1 {
				b.WriteString(strings.Repeat(" ", c.shown(limit)-width+columnGap))
			}
		}
		b.WriteByte('\n')
	}
	_, _ = io.WriteString(t.w, b.String())
}

// column is a column that is shown.
type column struct {
	index, width int
}

// shown returns how wide a column is if no cell may be wider than limit; 0 = no limit.
func (c column) shown(limit int) int {
	if limit > 0 {
		return min(c.width, limit)
	}
	return c.width
}

// layout returns all columns.
func (t *Table) layout() []column {
	columns := make([]column, len(t.rows[0]))
	for i := range columns {
		columns[i].index = i
		for _, cells := range t.rows {
			columns[i].width = max(columns[i].width, uniseg.StringWidth(cells[i]))
		}
	}
	return columns
}

// fit returns the columns to show on a terminal of this width, and how wide a cell may be.
func (t *Table) fit(columns []column, width int) (shown []column, limit int) {
	for spare := t.spare; ; spare = spare[1:] {
		limit = widest(columns, width)
		if limit >= t.enough || len(spare) == 0 {
			return columns, limit
		}
		columns = slices.DeleteFunc(columns, func(c column) bool { return t.rows[0][c.index] == spare[0] })
	}
}

// widest returns how wide a cell may be so that all columns fit, at least 1.
func widest(columns []column, width int) int {
	for limit := width; limit > 1; limit-- {
		total := (len(columns) - 1) * columnGap
		for _, c := range columns {
			total += c.shown(limit)
		}
		if total <= width {
			return limit
		}
	}
	return 1
}

// cut returns the beginning of a text that is too wide, and its width. It ends with more, which is one column wide.
func cut(text string, limit int, more string) (shown string, width int) {
	rest, state := text, -1
	for {
		_, next, w, s := uniseg.FirstGraphemeClusterInString(rest, state)
		if width+w > limit-1 {
			return text[:len(text)-len(rest)] + more, width + 1
		}
		rest, state, width = next, s, width+w
	}
}

// whole is an output whose tables are not cut, even on a terminal.
type whole struct{ io.Writer }

func (w whole) Unwrap() io.Writer { return w.Writer }

// Terminal returns the terminal behind a command's output, for code that draws on it.
func Terminal(w io.Writer) (*os.File, bool) {
	for {
		wrapper, ok := w.(interface{ Unwrap() io.Writer })
		if !ok {
			break
		}
		w = wrapper.Unwrap()
	}
	f, ok := w.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}

// tableWidth returns how wide a table may be; 0 = any width. $COLUMNS counts before the size that the terminal
// reports, which a serial line does not know.
func tableWidth(w io.Writer) int {
	f, ok := Terminal(w)
	if _, all := w.(whole); all || !ok {
		return 0
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	n, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return n
}

// ASCII reports whether the locale lacks Unicode (locale(7)), as it often does on a board's serial
// console.
func ASCII() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(os.Getenv(name)); v != "" {
			return !strings.Contains(v, "utf-8") && !strings.Contains(v, "utf8")
		}
	}
	return true
}
