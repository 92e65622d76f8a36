package eviction

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// TestChaos simulates an hour of random faults in virtual time: pods leak memory, fork or fill the disk,
// the runtime is down or hangs, readings fail, the fleet permits nothing, wake-ups arrive in storms, and the service is killed and
// restarted, even during a stop. In any combination, only culprits may be stopped, each in time, and every
// stop must be verified.
func TestChaos(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4, 5, 6, 7, 8}
	if s := os.Getenv("CRIGUARD_CHAOS_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{seed}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newChaos(t, seed)
				w.run(time.Hour)
				t.Logf("%d culprits came, %d were stopped in %d passes; %d restarts of the service", w.came, w.stopped, w.passes, w.restarts)
				if w.stopped < 10 {
					t.Errorf("only %d stops: the scenario is too gentle", w.stopped)
				}
			})
		})
	}
}

// On a node without faults and culprits, no pod is stopped for an hour.
func TestChaosWithoutCulprits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newChaos(t, 99)
		w.peaceful = true
		w.run(time.Hour)
		if w.stopped > 0 {
			t.Errorf("%d stops", w.stopped)
		}
	})
}

func (w *chaos) run(length time.Duration) {
	ctx, cancel := context.WithTimeout(w.t.Context(), length)
	defer cancel()
	go w.trouble(ctx)
	wakes, calls := make(chan string, 1), make(chan func())
	go w.storm(ctx, wakes)
	restraint := policy.NewRestraint("boot")
	for ctx.Err() == nil {
		// Run the service once. It ends as if by kill -9.
		life, end := context.WithCancel(ctx)
		w.mu.Lock()
		w.endLife = end
		w.mu.Unlock()
		g := New(w.cfg, w, w, w, w, w, restraint)
		l := Loop{Guard: g, Wakes: wakes, Calls: calls, After: w.after}
		l.Run(life)
		end()
		w.restarts++
		kept, err := json.Marshal(g.restraint)
		if err != nil {
			w.t.Fatal(err)
		}
		time.Sleep(w.between(100*time.Millisecond, 2*time.Second)) // until the service is restarted
		if restraint, err = policy.LoadRestraint(kept, "boot", w.Now()); err != nil {
			w.t.Fatal(err)
		}
		w.mu.Lock()
		w.begun = nil // no later run learns how these stops ended
		w.mu.Unlock()
	}
	w.jobs.Wait()
}

// after checks what must be true after every pass.
func (w *chaos) after(p *api.Pass) {
	w.passes++
	for _, v := range p.Settled {
		w.begun = slices.DeleteFunc(w.begun, func(s *api.StopView) bool { return s.Sandbox == v.Sandbox })
		if v.Result == nil || !v.Result.Emptied && len(v.Result.Errors) == 0 {
			w.t.Errorf("%v: the stop of %s ended without being verified: %+v", w.Now(), v.Pod, v.Result)
		}
	}
	if p.Stop != nil {
		w.stopped++
		w.begun = append(w.begun, p.Stop)
		// One stop is in flight for each pool, and one soft stop beside a hard one that it does not relieve.
		if alive := w.alive(p.Stop.Signal, p.Stop.Kind); alive > 1 || len(w.begun) > 4 {
			w.t.Errorf("%v: %d stops at a time, of which %d for %s have not ended", w.Now(), len(w.begun), alive, p.Stop.Signal)
		}
		if !strings.HasPrefix(p.Stop.Pod, "d/culprit") {
			w.t.Errorf("%v: %s was stopped: %s", w.Now(), p.Stop.Pod, p.Stop.Reason)
			w.t.Log(w.describe(p))
		}
	}
	w.overdue(p)
}

// overdue fails the test if memory stays below the hard threshold for 2 s and nothing holds a stop back.
func (w *chaos) overdue(p *api.Pass) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if !w.blind(now) && w.runtimeOK(now) && w.memory(now) < w.hardLevel() && p.Held == "" && p.Stop == nil && len(w.begun) == 0 {
		if w.low == 0 {
			w.low = now
		}
		if now-w.low > 2*time.Second {
			w.t.Errorf("%v: memory has been below the hard threshold for %v, and nothing holds a stop back: %s", now, now-w.low, w.describe(p))
			w.low = now
		}
		return
	}
	w.low = 0
}

func (w *chaos) describe(p *api.Pass) string {
	var b strings.Builder
	for _, r := range p.Ranked {
		fmt.Fprintf(&b, "%d %s uses %s of %s; %s\n", r.Position, r.Pod, api.FormatBytes(r.Usage), api.FormatBytes(r.Request), r.Excluded)
	}
	return b.String()
}

// storm wakes the loop at random, now and then in a burst of 100 wake-ups that are 100 µs apart.
func (w *chaos) storm(ctx context.Context, wakes chan<- string) {
	rng := rand.New(rand.NewPCG(w.seed, 2))
	for ctx.Err() == nil {
		pause := time.Duration(rng.Int64N(int64(10 * time.Second)))
		n := 1
		if rng.IntN(20) == 0 {
			n, pause = 100, 100*time.Microsecond
		}
		for range n {
			select {
			case wakes <- "memory":
			default:
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
		}
	}
}
