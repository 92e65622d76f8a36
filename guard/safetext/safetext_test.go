package safetext

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                        "",
		"shop/cart-1 (5 %) é 宽 😀": "shop/cart-1 (5 %) é 宽 😀",
		"a\x1b[2Jb":               `a\u001b[2Jb`,
		"a\nb\tc\rd":              `a\u000ab\u0009c\u000dd`,
		"\u009b31m\x7f":           `\u009b31m\u007f`,
		"\u202egnp.exe\u2066":     `\u202egnp.exe\u2066`,
		"\u200e\u200f\u061c":      `\u200e\u200f\u061c`,
		"\u200b\u200d\ufeff":      `\u200b\u200d\ufeff`,
		"\u2028\u2029\u0085":      `\u2028\u2029\u0085`,
		"\U000e0041":              `\udb40\udc41`,
		"\x9b\xff":                "\ufffd\ufffd",
	} {
		if got := Line(in); got != want {
			t.Errorf("Line(%q) = %q, want %q", in, got, want)
		}
	}
}

// JSON is one line, and keeps the characters that matter only in HTML.
func TestJSON(t *testing.T) {
	if b, err := JSON("a < b & c > d\u202e"); err != nil || string(b) != `"a < b & c > d\u202e"` {
		t.Errorf("%s, %v", b, err)
	}
}

// JSON without unsafe characters is not copied, also if a newline is added.
func TestJSONIsNotCopied(t *testing.T) {
	b, err := JSON(strings.Repeat("a", 10000))
	if err != nil || len(b) != 10002 || cap(b) == len(b) {
		t.Errorf("%d bytes, room for %d, %v", len(b), cap(b), err)
	}
}

// A character split over two writes stays one character. An incomplete character at the end is not
// a character.
func TestWriterKeepsCutCharacters(t *testing.T) {
	const text = "wide 宽 bidi \u202e c1 \u009b tag \U000e0041\nend\xe5"
	for step := 1; step < len(text); step++ {
		var out strings.Builder
		w := NewWriter(&out)
		for b := []byte(text); len(b) > 0; {
			n := min(step, len(b))
			if got, err := w.Write(b[:n]); got != n || err != nil {
				t.Fatalf("wrote %d of %d: %v", got, n, err)
			}
			b = b[n:]
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if want := "wide 宽 bidi \\u202e c1 \\u009b tag \\udb40\\udc41\nend\ufffd"; out.String() != want {
			t.Errorf("in steps of %d: %q, want %q", step, out.String(), want)
		}
	}
}

// The first error of a write is not lost, whatever follows.
func TestWriterKeepsError(t *testing.T) {
	first := errors.New("first")
	for _, text := range []string{"plain", "wide 宽", "\xe5"} {
		errs := []error{first, errors.New("second"), nil}
		w := NewWriter(writerFunc(func(p []byte) (int, error) {
			err := errs[0]
			errs = errs[1:]
			return len(p), err
		}))
		_, _ = w.Write([]byte(text))
		if err := w.Flush(); !errors.Is(err, first) {
			t.Errorf("%q: %v", text, err)
		}
		_, _ = w.Write([]byte("later"))
		if err := w.Flush(); !errors.Is(err, first) {
			t.Errorf("%q and more: %v", text, err)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func isSafe(s string, layout bool) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return Unsafe(r) && !(layout && (r == '\n' || r == '\t'))
	})
}

// For any text, a terminal gets nothing to act on, a line stays a single line, safe text is
// unchanged, and JSON keeps its value.
func FuzzEscape(f *testing.F) {
	for _, s := range []string{"pod", "\x1b[31m\u202e", "\x9b\xe2\x80", "\U000e0041\u2028", "\\u202e\\", "\xed\xa0\x80"} {
		f.Add(s, uint8(1))
	}
	f.Fuzz(func(t *testing.T, s string, step uint8) {
		if line := Line(s); !isSafe(line, false) {
			t.Errorf("Line(%q) = %q", s, line)
		}
		if isSafe(s, false) && Line(s) != s {
			t.Errorf("Line changed %q to %q", s, Line(s))
		}
		var out bytes.Buffer
		w := NewWriter(&out)
		for b := []byte(s); len(b) > 0; {
			n := min(int(step)+1, len(b))
			_, _ = w.Write(b[:n])
			b = b[n:]
		}
		_ = w.Flush()
		if !isSafe(out.String(), true) || out.String() != string(Escape([]byte(s))) {
			t.Errorf("%q was written as %q", s, out.String())
		}
		encoded, err := json.Marshal(map[string]string{s: s})
		if err != nil {
			t.Fatal(err)
		}
		var before, after map[string]string
		if err := json.Unmarshal(encoded, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(Escape(encoded), &after); err != nil {
			t.Fatalf("%s: %v", Escape(encoded), err)
		}
		for key, value := range before {
			if after[key] != value {
				t.Errorf("%q became %q", value, after[key])
			}
		}
	})
}

// The categories that Unsafe checks include all characters known to attack terminals.
func TestUnsafe(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if unicode.Is(unicode.Bidi_Control, r) && !Unsafe(r) {
			t.Errorf("%U turns text around", r)
		}
	}
	for _, r := range "aé宽😀 -_/.:\u0301" {
		if Unsafe(r) {
			t.Errorf("%U is unsafe", r)
		}
	}
}
