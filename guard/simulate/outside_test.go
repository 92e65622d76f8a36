package simulate

import (
	"testing"
	"time"

	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/policy"
)

// Processes outside the pods take memory, hold it and end, one after the other. While the memory of one comes back,
// and while the next one begins to take it, there are moments at which little is missing. No pod has to be
// stopped for it.
func TestLeaksOutsideEnd(t *testing.T) {
	outsideAlone(t, func(w *loopWorld, run func(pause time.Duration, until func() bool)) {
		for range 3 {
			left := w.rng.Int64N(60) * mebi
			w.rate, w.leaking = 400, true
			run(5*time.Millisecond, func() bool { return w.available() <= left })
			w.leaking = false
			run(50*time.Millisecond, w.lasts(time.Duration(w.rng.Int64N(int64(20*time.Second)))))
			w.rate, w.leaking = -1000-w.rng.Int64N(5000), true // it ends
			run(2*time.Millisecond, func() bool { return w.available() > 300*mebi })
		}
	})
}

// Processes outside the pods hold what is missing, and one of them gives much of it back, waits, and takes it again, as a
// compiler does. Little is missing while it waits, but a stop would not help for long.
func TestLeaksOutsideSwing(t *testing.T) {
	outsideAlone(t, func(w *loopWorld, run func(pause time.Duration, until func() bool)) {
		for range 5 {
			w.rate, w.leaking = 400, true
			run(5*time.Millisecond, func() bool { return w.available() <= 20*mebi })
			w.rate = -1000 - w.rng.Int64N(5000)
			some := (85 + w.rng.Int64N(100)) * mebi
			run(2*time.Millisecond, func() bool { return w.available() > some })
			w.leaking = false
			run(50*time.Millisecond, w.lasts(time.Second+time.Duration(w.rng.Int64N(int64(5*time.Second)))))
		}
	})
}

// outsideAlone makes worlds of two small pods, in which only processes outside them take memory, and checks that no
// pod is stopped. run makes passes until the condition is met.
func outsideAlone(t *testing.T, play func(w *loopWorld, run func(pause time.Duration, until func() bool))) {
	t.Helper()
	for seed := range uint64(loopRuns(loopCase{rate: 400})) {
		w := newLoopWorld(loopCase{outside: true}, seed)
		w.pods = w.pods[:2]
		for _, p := range w.pods {
			p.used = 8 * mebi
		}
		w.list()
		w.outsideOf = w.capacity - w.podsUse() - 400*mebi
		g := eviction.New(config.Default(), w, w, w, w, nil, policy.NewRestraint("loop"))
		run := func(pause time.Duration, until func() bool) {
			for !until() {
				w.advance(pause)
				g.Pass(t.Context(), "timer")
			}
		}
		run(100*time.Millisecond, w.lasts(10*time.Second+time.Duration(w.rng.Int64N(int64(time.Second)))))
		if play(w, run); len(w.stopped) > 0 {
			t.Errorf("seed %d: %d pods were stopped, the first at %v", seed, len(w.stopped), w.stopped[0].killed)
		}
	}
}

// lasts returns a function that reports whether so much time has passed.
func (w *loopWorld) lasts(d time.Duration) func() bool {
	end := w.now + d
	return func() bool { return w.now >= end }
}
