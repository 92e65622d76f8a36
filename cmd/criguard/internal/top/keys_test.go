package top

import (
	"slices"
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	for _, test := range []struct {
		name   string
		pieces []string
		want   []key
	}{
		{"characters", []string{"q", "jk", "1?"}, []key{'q', 'j', 'k', '1', '?'}},
		{"xterm arrows", []string{"\x1b[A\x1b[B\x1b[C\x1b[D"}, []key{keyUp, keyDown, keyRight, keyLeft}},
		{"application mode", []string{"\x1bOA\x1bOB\x1bOH\x1bOF"}, []key{keyUp, keyDown, keyHome, keyEnd}},
		{"pages", []string{"\x1b[5~\x1b[6~\x1b[1~\x1b[4~\x1b[Z\t"}, []key{keyPageUp, keyPageDown, keyHome, keyEnd, keyBackTab, keyTab}},
		{"cut in pieces", []string{"\x1b", "[", "6", "~", "\xe5\xae", "\xbd"}, []key{keyPageDown, '宽'}},
		{"escape, then quit", []string{"\x1b", "q"}, []key{'q'}},
		{"escape twice, then up", []string{"\x1b\x1b[A"}, []key{keyUp}},
		{"not known", []string{"\x1b[200~\x1b[1;5A\x1b[<0;1;1Mx"}, []key{'x'}},
		{"broken off", []string{"\x1b[1\x03"}, []key{keyCtrlC}},
		{"without an end", []string{"\x1b[" + strings.Repeat("1", 2*maxSequence), "\x1b[A"}, nil},
		{"no text", []string{"\xff\xfe", "q"}, []key{'q'}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var r keyReader
			var got []key
			for _, p := range test.pieces {
				got = append(got, r.read([]byte(p))...)
			}
			if test.want == nil {
				if !slices.Contains(got, keyUp) {
					t.Errorf("got %v: what came after is lost", got)
				}
				return
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// For any input, ctrl-C is recognized and the buffered rest stays short.
func FuzzKeys(f *testing.F) {
	f.Add([]byte("\x1b[1;5A"), 2)
	f.Add([]byte("\x1b[1111111111111111111111111111111111"), 20)
	f.Add([]byte("\xe5\xae\xbd"), 1)
	f.Fuzz(func(t *testing.T, typed []byte, cut int) {
		var whole, pieces keyReader
		want := whole.read(slices.Clone(typed))
		at := min(max(cut, 0), len(typed))
		got := append(pieces.read(slices.Clone(typed[:at])), pieces.read(slices.Clone(typed[at:]))...)
		if len(typed) < maxSequence && !slices.Equal(got, want) {
			t.Errorf("%q cut at %d: %v, whole: %v", typed, at, got, want)
		}
		if len(whole.rest) >= maxSequence {
			t.Errorf("%q: keeps %d bytes", typed, len(whole.rest))
		}
		if got := whole.read([]byte{3, 3}); !slices.Contains(got, keyCtrlC) {
			t.Errorf("%q: ctrl-C is lost: %v", typed, got)
		}
	})
}
