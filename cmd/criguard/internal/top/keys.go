package top

import "unicode/utf8"

// key is a pressed key: a character, or one of the constants below.
type key rune

// Keys that are not characters.
const (
	keyUp key = -1 - iota
	keyDown
	keyLeft
	keyRight
	keyBackTab
	keyPageUp
	keyPageDown
	keyHome
	keyEnd
)

const (
	keyCtrlC  key = 0x03
	keyTab    key = '\t'
	keyRedraw key = 0x0c // ctrl-L
)

// maxSequence limits how many bytes of an unfinished escape sequence are kept.
const maxSequence = 32

// keyReader decodes keys from terminal input. It carries an incomplete sequence over to the next
// read and skips sequences that it does not know.
type keyReader struct{ rest []byte }

func (k *keyReader) read(piece []byte) []key {
	var keys []key
	b := append(k.rest, piece...)
	for len(b) > 0 {
		if b[0] != 0x1b {
			if !utf8.FullRune(b) {
				break
			}
			r, n := utf8.DecodeRune(b)
			if r != utf8.RuneError {
				keys = append(keys, key(r))
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

// sequence returns the length of the escape sequence at the start of b, or 0 if b does not yet hold
// all of it.
func sequence(b []byte) int {
	switch {
	case len(b) < 2:
		return 0
	case b[1] != '[' && b[1] != 'O': // the escape key, followed by another key
		return 1
	}
	for i := 2; i < len(b); i++ {
		if b[i] >= 0x40 && b[i] <= 0x7e {
			return i + 1
		}
		if b[i] < 0x20 { // sequence was interrupted
			return i
		}
	}
	return 0
}

// special maps an escape sequence to its key, as xterm, VTE, tmux and the Linux console send it.
func special(seq string) (key, bool) {
	switch seq {
	case "[A", "OA":
		return keyUp, true
	case "[B", "OB":
		return keyDown, true
	case "[C", "OC":
		return keyRight, true
	case "[D", "OD":
		return keyLeft, true
	case "[Z":
		return keyBackTab, true
	case "[5~":
		return keyPageUp, true
	case "[6~":
		return keyPageDown, true
	case "[H", "OH", "[1~":
		return keyHome, true
	case "[F", "OF", "[4~":
		return keyEnd, true
	}
	return 0, false
}
