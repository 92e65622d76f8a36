package top

import (
	"encoding/xml"
	"fmt"
	"os"
	"strings"
	"testing"
)

// picture is the screenshot that the README shows.
const picture = "../../../../docs/top.svg"

// maxPicture limits the picture's size in bytes, so that the README loads quickly.
const maxPicture = 60 << 10

// The picture in the README matches the view. To update it, run `go test
// ./cmd/criguard/internal/top -update`.
func TestPicture(t *testing.T) {
	const width, height = 100, 28
	m := leaking()
	svg := drawSVG(m.view(width, height, noon()), width, height)
	if len(svg) > maxPicture {
		t.Errorf("%d bytes, want %d at most", len(svg), maxPicture)
	}
	if err := xml.Unmarshal([]byte(svg), new(struct{})); err != nil {
		t.Error(err)
	}
	golden(t, picture, svg)
	readme, err := os.ReadFile("../../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "(docs/top.svg)") {
		t.Error("README.md does not show docs/top.svg")
	}
}

// The size of a character in the picture, and the margin around the screen.
const (
	cellWidth, cellHeight = 8.4, 18
	margin                = 12
)

// drawSVG draws a screen of characters.
func drawSVG(lines []line, width, height int) string {
	var b strings.Builder
	w, h := float64(width)*cellWidth+2*margin, height*cellHeight+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="14" fill="#d0d0d0" xml:space="preserve">
<title>criguard top</title>
<style>.b{font-weight:bold;fill:#fff}.d{fill:#8a8a8a}.g{fill:#5fbf5f}.w{fill:#e0b040}.r{fill:#ff6060;font-weight:bold}.t{fill:#14181d}text{white-space:pre}</style>
<rect width="100%%" height="100%%" rx="8" fill="#14181d"/>
`, w, h)
	classes := []string{plain: "", bold: "b", dim: "d", good: "g", warn: "w", bad: "r", title: "t"}
	for i, l := range lines {
		column := 0
		for _, s := range l {
			n := line{s}.columns()
			x, top := margin+float64(column)*cellWidth, margin+i*cellHeight
			column += n
			if s.Style == title {
				fmt.Fprintf(&b, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"#d0d0d0\"/>\n", x, top, float64(n)*cellWidth, cellHeight)
			}
			if strings.TrimSpace(s.Text) == "" {
				continue
			}
			text := strings.TrimRight(s.Text, " ")
			class := ""
			if c := classes[s.Style]; c != "" {
				class = ` class="` + c + `"`
			}
			// textLength keeps the columns aligned in any font.
			fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%d\" textLength=\"%.1f\" lengthAdjust=\"spacingAndGlyphs\"%s>", x, top+13, float64(line{{text, s.Style}}.columns())*cellWidth, class)
			_ = xml.EscapeText(&b, []byte(text))
			b.WriteString("</text>\n")
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}
