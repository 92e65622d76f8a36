package safetext

import (
	"cmp"
	"io"
	"unicode/utf8"
)

// Writer escapes everything written through it, like Escape does. It holds back an incomplete
// character at the end of a write until the next one. It is not safe for concurrent use.
type Writer struct {
	to      io.Writer
	partial []byte // the first bytes of an incomplete character
	lost    error  // of the first write that failed
}

// NewWriter returns a Writer that writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{to: w} }

// Unwrap returns the underlying writer.
func (w *Writer) Unwrap() io.Writer { return w.to }

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	if len(w.partial) == 0 && plain(p, true) == len(p) {
		n, err := w.to.Write(p)
		w.lost = cmp.Or(w.lost, err)
		return n, err
	}
	b := append(w.partial, p...)
	whole := len(b) - cutOff(b)
	w.partial = append([]byte(nil), b[whole:]...)
	if _, err := w.to.Write(Escape(b[:whole])); err != nil {
		w.lost = cmp.Or(w.lost, err)
		return 0, err
	}
	return len(p), nil
}

// Flush writes the bytes of a character that was never completed. It returns the first error of all writes, which those who
// print need not check each.
func (w *Writer) Flush() error {
	if len(w.partial) > 0 {
		rest := Escape(w.partial)
		w.partial = nil
		_, err := w.to.Write(rest)
		w.lost = cmp.Or(w.lost, err)
	}
	return w.lost
}

// cutOff counts the bytes of an incomplete character at the end of b.
func cutOff(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
