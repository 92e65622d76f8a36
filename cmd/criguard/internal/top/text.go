package top

import (
	"strings"
	"unicode"

	"github.com/rivo/uniseg"

	"github.com/criguard/criguard/guard/safetext"
)

// glyphs are the characters that a terminal can show.
type glyphs struct {
	full, empty, hard, soft string // of bars
	here, more, strange     string
	arrows                  string
	unicode                 bool
}

func glyphsFor(ascii bool) glyphs {
	if ascii {
		return glyphs{full: "#", empty: ".", hard: "H", soft: "S", here: ">", more: "~", strange: "?", arrows: "arrows"}
	}
	return glyphs{full: "█", empty: "░", hard: "┃", soft: "╎", here: "▸", more: "…", strange: "�", arrows: "↑↓", unicode: true}
}

// runeWidth returns the number of columns that a single rune takes.
func runeWidth(r rune) int {
	if r < unicode.MaxASCII {
		return 1
	}
	return uniseg.StringWidth(string(r))
}

// show returns the text to show for a rune. It replaces runes that control the terminal, combine
// with their neighbours or change the text direction with the replacement sign.
func (g *glyphs) show(r rune) string {
	switch {
	case r >= ' ' && r < unicode.MaxASCII:
		return string(r)
	case r == '\n' || r == '\t':
		return " "
	case safetext.Unsafe(r) || !g.unicode || !unicode.IsPrint(r) || unicode.Is(unicode.M, r) || unicode.Is(unicode.Regional_Indicator, r) || runeWidth(r) < 1:
		return g.strange
	}
	return string(r)
}

// fit returns as much of a text as fits in width columns, and the columns used. Truncated text ends
// with the ellipsis sign.
func (g *glyphs) fit(text string, width int) (shown string, columns int) {
	if width <= 0 {
		return "", 0
	}
	var b strings.Builder
	whole, keep, keepColumns := true, 0, 0 // the prefix to keep if the ellipsis must follow
	for _, r := range text {
		s := g.show(r)
		w := 1
		if len(s) > 1 {
			w = runeWidth([]rune(s)[0])
		}
		if columns+w > width {
			whole = false
			break
		}
		b.WriteString(s)
		columns += w
		if columns < width {
			keep, keepColumns = b.Len(), columns
		}
	}
	if whole {
		return b.String(), columns
	}
	return b.String()[:keep] + g.more, keepColumns + 1
}
