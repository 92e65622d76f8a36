package safetext

import (
	"bytes"
	"encoding/json"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Unsafe reports whether a terminal may act on r or show nothing for it: C0, DEL, C1, format
// characters (bidi controls, zero-width characters, tags), line and paragraph separators.
func Unsafe(r rune) bool {
	if r < unicode.MaxASCII {
		return r < ' '
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// Line returns s on a single line, with every unsafe character replaced by an escape such as \u001b.
func Line(s string) string { return string(appendSafe(nil, []byte(s), false)) }

// Escape replaces every unsafe character except newline and tab with an escape such as \u001b. Output of
// encoding/json keeps its value.
func Escape(b []byte) []byte { return appendSafe(make([]byte, 0, len(b)), b, true) }

// JSON encodes a value as JSON on one line without unsafe characters, so that any program may print it. It
// leaves <, > and & as they are.
func JSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	text := bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
	if plain(text, true) == len(text) {
		return text, err // nothing to escape: with room for the end of the line
	}
	return Escape(text), err
}

// plain counts the bytes at the start of b that are safe ASCII.
func plain(b []byte, layout bool) int {
	for i, c := range b {
		if (c < ' ' && !(layout && (c == '\n' || c == '\t'))) || c >= unicode.MaxASCII {
			return i
		}
	}
	return len(b)
}

// appendSafe appends b to dst with unsafe characters escaped; layout keeps newline and tab.
func appendSafe(dst, b []byte, layout bool) []byte {
	for len(b) > 0 {
		n := plain(b, layout)
		dst, b = append(dst, b[:n]...), b[n:]
		if len(b) == 0 {
			break
		}
		r, size := utf8.DecodeRune(b)
		if Unsafe(r) {
			dst = appendEscape(dst, r)
		} else {
			dst = utf8.AppendRune(dst, r) // U+FFFD for invalid UTF-8
		}
		b = b[size:]
	}
	return dst
}

// appendEscape appends a JSON escape (\u and four hex digits), or a surrogate pair of escapes for a character beyond the basic
// plane.
func appendEscape(dst []byte, r rune) []byte {
	if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
		return appendEscape(appendEscape(dst, high), low)
	}
	const digits = "0123456789abcdef"
	return append(dst, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}
