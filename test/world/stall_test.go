package world

import (
	"fmt"
	"testing"
	"time"

	"github.com/criguard/criguard/cri/critest"
)

// While tasks wait for memory or I/O for more than half of the time, a pod is stopped if less than a fifth of the memory is
// available, within three seconds. Then enough is available, and none follows.
func TestStall(t *testing.T) {
	for r := range resources {
		for _, c := range []struct {
			outside int64 // bytes
			share   float64
			stops   int
		}{{2000 * mib, 0.6, 0}, {2500 * mib, 0.6, 1}, {2500 * mib, 0.4, 0}} {
			t.Run(fmt.Sprintf("%s, %d MiB outside, %.0f %%", stallSignals[r], c.outside/mib, c.share*100), func(t *testing.T) {
				var w *World
				run(t, func(t *testing.T) (*World, time.Duration) {
					w = New(t, false, 4*gib, critest.Containerd2, fmt.Sprintf("eviction.hard = {\"memory.available\" = \"100Mi\", %q = \"50%%\"}", stallSignals[r]))
					w.hard, w.outside, w.limit[r] = 100*mib, c.outside, 0.5
					for i := range 4 {
						w.addPod(&pod{used: int64(i+1) * 100 * mib})
					}
					w.Start()
					w.At(20*time.Second, func(w *World) { w.slowed[r] = c.share })
					return w, 50 * time.Second
				})
				if len(w.kills) != c.stops {
					t.Fatalf("stopped %v, want %d", w.kills, c.stops)
				}
				for _, p := range w.kills {
					if at := p.stoppedAt; p.used > 0 || p.atKill != 400*mib || at < 21*time.Second || at > 23*time.Second {
						t.Errorf("stopped a pod with %d MiB at %v", p.atKill/mib, at)
					}
				}
			})
		}
	}
}
