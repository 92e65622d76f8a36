package need

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorder is a test that goes on after it is skipped.
type recorder struct {
	*testing.T
	skips int
}

func (r *recorder) Skipf(string, ...any) { r.skips++ }

// A test is skipped for what the machine lacks, and the skip is recorded.
func TestNeeds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skips")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(skipsEnv, path)
	root := 1
	if os.Geteuid() == 0 {
		root = 0
	}
	for name, c := range map[string]struct {
		need  func(TB)
		skips int
	}{
		"root":             {Root, root},
		"an older linux":   {func(t TB) { Linux(t, 3, 99) }, 0},
		"a newer linux":    {func(t TB) { Linux(t, 99, 0) }, 1},
		"a file":           {func(t TB) { File(t, "/proc/self") }, 0},
		"a missing file":   {func(t TB) { File(t, "/proc/none") }, 1},
		"a program":        {func(t TB) { Program(t, "sh") }, 0},
		"a lacked program": {func(t TB) { Program(t, "criguard-none") }, 1},
	} {
		r := &recorder{T: t}
		if c.need(r); r.skips != c.skips {
			t.Errorf("%s: %d skips", name, r.skips)
		}
	}
	want := 3 + root
	if got := strings.Count(read(path), "skipped need.test TestNeeds: needs "); got != want {
		t.Errorf("%d skips recorded, want %d: %s", got, want, read(path))
	}
}
