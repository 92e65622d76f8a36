package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"":                                  "",
		"  plain words ":                    "plain words",
		"one\ntwo\tthree":                   "one two three",
		"\x1b[31mred":                       "[31mred",
		"not \xff\xfe text":                 "not    text",
		"schön":                             "schön",
		strings.Repeat("x", maxCause):       strings.Repeat("x", maxCause),
		strings.Repeat("x", maxCause+1):     strings.Repeat("x", maxCause) + "…",
		strings.Repeat("ö", maxCause/2+1):   strings.Repeat("ö", maxCause/2) + "…",
		"x" + strings.Repeat("ö", maxCause): "x" + strings.Repeat("ö", maxCause/2-1) + "…",
	} {
		if got := clean(in); got != want || !utf8.ValidString(got) {
			t.Errorf("clean(%.20q) = %q, want %q", in, got, want)
		}
	}
}

func TestShort(t *testing.T) {
	for in, want := range map[string]string{"": "", "abc": "abc", "0123456789abcdef": "0123456789abc", "\n\x00a": "a"} {
		if got := short(in); got != want {
			t.Errorf("short(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestStreamEnd: if a stream ends cleanly, the number of events before shows whether the runtime has no
// events or is shutting down.
func TestStreamEnd(t *testing.T) {
	for seen, want := range map[int]error{0: ErrUnsupported, 1: ErrUnavailable, 1000: ErrUnavailable} {
		err := streamError(context.Background(), fmt.Errorf("receive: %w", io.EOF), seen, 0)
		if !errors.Is(err, want) || errors.Is(err, io.EOF) {
			t.Errorf("after %d events: %v, want %v", seen, err, want)
		}
	}
}

func TestAnswersFor(t *testing.T) {
	for _, tc := range []struct {
		asked, got string
		ok         bool
	}{
		{"abc", "abc", true}, {"abc", "abcdef", true}, {"abc", "abd", false}, {"abc", "ab", false}, {"abc", "", false}, {"", "", false},
	} {
		if err := answersFor("ask", tc.asked, tc.got); (err == nil) != tc.ok || err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("asked for %q, got %q: %v", tc.asked, tc.got, err)
		}
	}
}
