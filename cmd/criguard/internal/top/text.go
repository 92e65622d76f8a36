package top

import (
	"strings"
	"unicode"

	"github.com/rivo/uniseg"
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

// runeWidth is how many columns a rune takes by itself.
func runeWidth(r rune) int {
	if r < unicode.MaxASCII {
		return 1
	}
	return uniseg.StringWidth(string(r))
}

// show is what is shown of a rune. What controls the terminal, combines with its neighbours or
// turns the direction of writing becomes the sign for a strange character.
func (g *glyphs) show(r rune) string {
	switch {
	case r >= ' ' && r < unicode.MaxASCII:
		return string(r)
	case r == '\n' || r == '\t':
		return " "
	case r < unicode.MaxASCII || !g.unicode || !unicode.IsPrint(r) || unicode.Is(unicode.M, r) || unicode.Is(unicode.Regional_Indicator, r) || runeWidth(r) < 1:
		return g.strange
	}
	return string(r)
}

// fit is as much of a text as width columns hold, and the columns it takes. What is cut ends
// with the sign for more.
func (g *glyphs) fit(text string, width int) (shown string, columns int) {
	if width <= 0 {
		return "", 0
	}
	var b strings.Builder
	whole, keep, keepColumns := true, 0, 0 // what is kept when the sign must be put behind
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
