package top

import "unicode/utf8"

// Key is a key that was pressed: a character, or one of the keys below.
type Key rune

// Keys that are no characters.
const (
	KeyUp Key = -1 - iota
	KeyDown
	KeyLeft
	KeyRight
	KeyBackTab
	KeyPageUp
	KeyPageDown
	KeyHome
	KeyEnd
)

const (
	keyCtrlC  Key = 0x03
	keyTab    Key = '\t'
	keyRedraw Key = 0x0c // ctrl-L
)

// maxSequence bounds what is kept of a sequence that does not end.
const maxSequence = 32

// keyReader finds keys in what a terminal sends. Sequences that are cut go on in the next
// piece; those it does not know are skipped.
type keyReader struct{ rest []byte }

func (k *keyReader) read(piece []byte) []Key {
	var keys []Key
	b := append(k.rest, piece...)
	for len(b) > 0 {
		if b[0] != 0x1b {
			if !utf8.FullRune(b) {
				break
			}
			r, n := utf8.DecodeRune(b)
			if r != utf8.RuneError {
				keys = append(keys, Key(r))
			}
			b = b[n:]
			continue
		}
		n := sequence(b)
		if n == 0 && len(b) < maxSequence {
			break
		}
		n = max(n, 1)
		if key, ok := special(string(b[1:n])); ok {
			keys = append(keys, key)
		}
		b = b[n:]
	}
	k.rest = append([]byte(nil), b...)
	return keys
}

// sequence is the length of the escape sequence that b begins with, 0 while its end is missing.
func sequence(b []byte) int {
	switch {
	case len(b) < 2:
		return 0
	case b[1] != '[' && b[1] != 'O': // the escape key, and whatever was pressed after it
		return 1
	}
	for i := 2; i < len(b); i++ {
		if b[i] >= 0x40 && b[i] <= 0x7e {
			return i + 1
		}
		if b[i] < 0x20 { // broken off
			return i
		}
	}
	return 0
}

// special is what a sequence stands for, as xterm, VTE, tmux and the Linux console send it.
func special(seq string) (Key, bool) {
	switch seq {
	case "[A", "OA":
		return KeyUp, true
	case "[B", "OB":
		return KeyDown, true
	case "[C", "OC":
		return KeyRight, true
	case "[D", "OD":
		return KeyLeft, true
	case "[Z":
		return KeyBackTab, true
	case "[5~":
		return KeyPageUp, true
	case "[6~":
		return KeyPageDown, true
	case "[H", "OH", "[1~":
		return KeyHome, true
	case "[F", "OF", "[4~":
		return KeyEnd, true
	}
	return 0, false
}
