package live_test

import (
	"testing"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// After a restart of the runtime, however quick, nothing is pruned for a while: the runtime may not
// list everything yet.
func TestRestartHoldsPruning(t *testing.T) {
	n := newDisk(t, lab.Containerd1)
	n.configure(config{
		hard: thresholds{policy.ImageFSAvailable: diskLow},
		more: "[images]\nmin_age = \"0s\"\nunused_grace = \"0s\"\nhold_after_runtime_restart = \"5m\"\n",
	})
	s := n.startWith(0)
	n.restartRuntime()
	_, prunable := n.images(lab.Containerd1)
	n.until("the pressure to be noticed", func() bool { return len(s.met()) > 0 })
	n.until("what is kept to be told", func() bool {
		for _, p := range s.history() {
			for _, r := range p.Reclaimed {
				if r.Signal == policy.ImageFSAvailable || r.Signal == policy.ContainerFSAvailable {
					return true
				}
			}
		}
		return false
	})
	if gone := n.missing(prunable); len(gone) > 0 {
		t.Errorf("%v are gone", gone)
	}
}
