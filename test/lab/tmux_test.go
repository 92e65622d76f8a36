package lab

import (
	"slices"
	"strings"
	"testing"
)

func TestLibraries(t *testing.T) {
	got := libraries("libc6 (>= 2.36), libevent-core-2.1-7 (>= 2.1.8-stable), libtinfo6 (>= 6) | libtinfo5, libutempter0:any (>= 1.1.5)\n")
	if want := []string{"libevent-core-2.1-7", "libtinfo6", "libutempter0"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A machine without tmux gets one that runs.
func TestCachedTmux(t *testing.T) {
	command, err := cachedTmux(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := command("-V").CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "tmux ") {
		t.Errorf("tmux says %q, %v", out, err)
	}
}
