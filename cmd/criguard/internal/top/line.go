package top

import "strings"

// Style is how a piece of text looks.
type Style uint8

// The styles. Without colour, Good, Warn and Bad look like Plain: whatever they say, words or
// signs say too.
const (
	Plain Style = iota
	Bold
	Dim
	Good
	Warn
	Bad
	Title // a bar across the screen
)

// Span is text of one style. It holds nothing that a terminal would act on.
type Span struct {
	Text  string
	Style Style
}

// Line is one row of the screen.
type Line []Span

// String is the text alone.
func (l Line) String() string {
	var b strings.Builder
	for _, s := range l {
		b.WriteString(s.Text)
	}
	return b.String()
}

// columns is how wide the line is.
func (l Line) columns() int {
	n := 0
	for _, s := range l {
		for _, r := range s.Text {
			n += runeWidth(r)
		}
	}
	return n
}

// codes are the SGR parameters (ECMA-48) of a style.
func (s Style) codes(colour bool) string {
	switch {
	case s == Bold:
		return "1"
	case s == Title:
		return "7"
	case !colour:
		return ""
	}
	return []string{Dim: "2", Good: "32", Warn: "33", Bad: "1;31"}[s]
}

// Encode is the line as a terminal is sent it; it leaves the style as it was.
func (l Line) Encode(colour bool) string {
	var b strings.Builder
	for _, s := range l {
		codes := ""
		if s.Style != Plain {
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
	line Line
}

func (v *view) row() *row { return &row{glyphs: &v.glyphs, left: v.width} }

// put adds text, cut to width columns and to what is left of the line. It is the only way for
// text into a line.
func (r *row) put(style Style, width int, text string) *row {
	shown, columns := r.fit(text, min(width, r.left))
	if columns == 0 {
		return r
	}
	r.left -= columns
	if last := len(r.line) - 1; last >= 0 && r.line[last].Style == style {
		r.line[last].Text += shown
	} else {
		r.line = append(r.line, Span{shown, style})
	}
	return r
}

// say adds text, cut to what is left of the line.
func (r *row) say(style Style, text string) *row { return r.put(style, r.left, text) }

// skip adds blank columns.
func (r *row) skip(style Style, width int) *row {
	return r.put(style, width, strings.Repeat(" ", max(0, min(width, r.left))))
}

// cell adds a column of a table: text, filled up to the width, and a blank.
func (r *row) cell(style Style, width int, text string) *row {
	before := r.left
	r.put(style, width, text)
	return r.skip(style, width-(before-r.left)+1)
}

// right is a cell whose text stands at the right.
func (r *row) right(style Style, width int, text string) *row {
	_, columns := r.fit(text, width)
	return r.skip(style, width-columns).put(style, width, text).skip(style, 1)
}
