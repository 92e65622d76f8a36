package machine

import (
	"runtime"
	"testing"
)

// After one processor, the runtime chooses how many it uses, so that it follows the CPU limit of its cgroup again. A number in
// the environment stays.
func TestUseProcessors(t *testing.T) {
	all := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(all) })
	t.Setenv("GOMAXPROCS", "")
	runtime.SetDefaultGOMAXPROCS()
	chosen := runtime.GOMAXPROCS(0)
	for _, c := range []struct {
		environment         string
		n, wantBefore, want int
	}{
		{"", 1, chosen, 1},
		{"", chosen + 1, 1, chosen},
		{"", 1, chosen, 1},
		{"7", 7, 1, 7},
		{"7", 1, 7, 1},
	} {
		t.Setenv("GOMAXPROCS", c.environment)
		if before := useProcessors(c.n); before != c.wantBefore || runtime.GOMAXPROCS(0) != c.want {
			t.Errorf("%q, %d: %d processors, before %d; want %d, %d", c.environment, c.n, runtime.GOMAXPROCS(0), before, c.want, c.wantBefore)
		}
	}
}
