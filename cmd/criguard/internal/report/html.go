package report

import (
	"bytes"
	"fmt"
	"html"
	"strings"
	"unicode"
)

// markup is what this package itself writes. Text of any other origin is given as an
// argument, and is escaped without exception.
type markup string

// document collects a page.
type document struct{ bytes.Buffer }

// put writes markup with its %s filled in by text.
func (d *document) put(m markup, text ...string) {
	escaped := make([]any, len(text))
	for i, s := range text {
		escaped[i] = html.EscapeString(visible(s))
	}
	fmt.Fprintf(d, string(m), escaped...)
}

// visible replaces what would hide or turn text around.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
}

// table writes rows below a head; a wide one scrolls by itself.
func (d *document) table(caption string, head []string, rows [][]string) {
	d.put(`<div class="scroll" tabindex="0" role="region" aria-label="%s"><table><thead><tr>`, caption)
	for _, h := range head {
		d.put(`<th scope="col">%s</th>`, h)
	}
	d.put("</tr></thead><tbody>\n")
	for _, row := range rows {
		d.put("<tr>")
		for i, cell := range row {
			d.put(`<td data-label="%s">%s</td>`, head[i], cell)
		}
		d.put("</tr>\n")
	}
	d.put("</tbody></table></div>\n")
}
