package world

import (
	"fmt"
	"testing"
	"time"

	"github.com/criguard/criguard/cri/critest"
)

// A fast leak of high priority is stopped, and nobody else, also when criguard is killed just before the threshold is met
// and comes back just before or after that.
func TestLeakAroundARestart(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		for _, away := range []time.Duration{50 * time.Millisecond, 150 * time.Millisecond, 250 * time.Millisecond} {
			t.Run(fmt.Sprintf("v1 %t, %v away", v1, away), func(t *testing.T) {
				var w *World
				run(t, func(t *testing.T) (*World, time.Duration) {
					w = New(t, v1, 4*gib, critest.Containerd2, `eviction.hard."memory.available" = "100Mi"`, "[[priority]]\nname = \"leak\"\nvalue = 1000")
					w.hard = 100 * mib
					for i := range 19 {
						w.addPod(&pod{spec: critest.PodSpec{Name: fmt.Sprint("pod-", i)}, used: 100 * mib})
					}
					leak := w.addPod(&pod{spec: critest.PodSpec{Name: "leak"}, used: 10 * mib})
					w.Start()
					w.At(20*time.Second, func(*World) { leak.rate, leak.leaks = 700*mib, time.Now() })
					// 4096 - 1900 - 10 - 100 MiB at 700 MiB/s: 2.98 s until the threshold.
					w.At(22800*time.Millisecond, (*World).Kill)
					w.At(22800*time.Millisecond+away, (*World).Start)
					return w, 30 * time.Second
				})
				if len(w.kills) != 1 || w.kills[0].spec.Name != "leak" {
					t.Errorf("stopped %v, want the leak", w.kills)
				}
			})
		}
	}
}
