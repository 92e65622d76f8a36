package report

import (
	"bytes"
	"fmt"
	"html"

	"github.com/criguard/criguard/guard/safetext"
)

// markup is text that this package writes itself. All other text is passed as an argument and is
// always escaped.
type markup string

// document is a buffer that a page is written to.
type document struct{ bytes.Buffer }

// put writes the markup and replaces each %s with escaped text.
func (d *document) put(m markup, text ...string) {
	escaped := make([]any, len(text))
	for i, s := range text {
		escaped[i] = html.EscapeString(string(safetext.Escape([]byte(s))))
	}
	fmt.Fprintf(d, string(m), escaped...)
}

// table writes a header and rows; a wide table scrolls on its own.
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
