package need

import (
	"os"
	"testing"
)

// recorder is a test that goes on after it is skipped.
type recorder struct {
	*testing.T
	skips int
}

func (r *recorder) Skipf(string, ...any) { r.skips++ }

// A test is skipped for what the machine lacks, and for nothing else.
func TestNeeds(t *testing.T) {
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
}
