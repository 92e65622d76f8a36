package top

import "strings"

// style is the look of a piece of text.
type style uint8

// The styles. Without colour, Good, Warn and Bad look like Plain, so words or signs must carry the
// same meaning.
const (
	plain style = iota
	bold
	dim
	good
	warn
	bad
	title // a bar across the screen
)

// span is text in one style. It contains no terminal control sequences.
type span struct {
	Text  string
	Style style
}

// line is one row of the screen.
type line []span

// String returns the text without styles.
func (l line) String() string {
	var b strings.Builder
	for _, s := range l {
		b.WriteString(s.Text)
	}
	return b.String()
}

// columns returns the width of the line.
func (l line) columns() int {
	n := 0
	for _, s := range l {
		for _, r := range s.Text {
			n += runeWidth(r)
		}
	}
	return n
}

// codes returns the SGR parameters (ECMA-48) of a style.
func (s style) codes(colour bool) string {
	switch {
	case s == bold:
		return "1"
	case s == title:
		return "7"
	case !colour:
		return ""
	}
	return []string{dim: "2", good: "32", warn: "33", bad: "1;31"}[s]
}

// encode returns the line with its escape sequences. At its end, the terminal's style is reset.
func (l line) encode(colour bool) string {
	var b strings.Builder
	for _, s := range l {
		codes := ""
		if s.Style != plain {
			codes = s.Style.codes(colour)
		}
		if codes == "" {
			b.WriteString(s.Text)
			continue
		}
		b.WriteString("\x1b[" + codes + "m" + s.Text + "\x1b[0m")
	}
	return b.String()
}

// row builds a line of a fixed width.
type row struct {
	*glyphs
	left int // columns
	line line
}

func (v *view) row() *row { return &row{glyphs: &v.glyphs, left: v.width} }

// put adds text, truncated to width columns and to the space left on the line. All text enters a
// line through put.
func (r *row) put(style style, width int, text string) *row {
	shown, columns := r.fit(text, min(width, r.left))
	if columns == 0 {
		return r
	}
	r.left -= columns
	if last := len(r.line) - 1; last >= 0 && r.line[last].Style == style {
		r.line[last].Text += shown
	} else {
		r.line = append(r.line, span{shown, style})
	}
	return r
}

// say adds text, truncated to the space left on the line.
func (r *row) say(style style, text string) *row { return r.put(style, r.left, text) }

// skip adds blank columns.
func (r *row) skip(style style, width int) *row {
	return r.put(style, width, strings.Repeat(" ", max(0, min(width, r.left))))
}

// cell adds a table column: text, padded to the width, and a blank.
func (r *row) cell(style style, width int, text string) *row {
	before := r.left
	r.put(style, width, text)
	return r.skip(style, width-(before-r.left)+1)
}

// right adds a cell with right-aligned text.
func (r *row) right(style style, width int, text string) *row {
	_, columns := r.fit(text, width)
	return r.skip(style, width-columns).put(style, width, text).skip(style, 1)
}
