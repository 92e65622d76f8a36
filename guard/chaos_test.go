package guard

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

	"github.com/criguard/criguard/policy"
)

// An hour of random trouble, in virtual time: pods that leak, fork or fill the disk
// come and go, the runtime is away or hangs, signals cannot be read, wakes storm in,
// and the service is killed and started again, also in the middle of a stop. Whatever
// comes together, only culprits are stopped, each within its time, and every stop is
// verified.
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

// A node without faults and without culprits stops nobody in an hour.
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
		// One run of the service, which ends as with kill -9.
		life, end := context.WithCancel(ctx)
		w.mu.Lock()
		w.endLife = end
		w.mu.Unlock()
		g := New(w.cfg, w, w, w, w, restraint)
		l := Loop{Guard: g, Wakes: wakes, Calls: calls, After: w.after}
		l.Run(life)
		end()
		w.restarts++
		kept, err := json.Marshal(g.restraint)
		if err != nil {
			w.t.Fatal(err)
		}
		time.Sleep(w.between(100*time.Millisecond, 2*time.Second)) // until the service is started again
		if restraint, err = policy.LoadRestraint(kept, "boot", w.Now()); err != nil {
			w.t.Fatal(err)
		}
		w.mu.Lock()
		w.begun = nil // nobody tells what became of them
		w.mu.Unlock()
	}
	w.jobs.Wait()
}

// after holds every pass to what must be so.
func (w *chaos) after(p *Pass) {
	w.passes++
	for _, v := range p.Settled {
		w.begun = slices.DeleteFunc(w.begun, func(s string) bool { return s == v.Sandbox })
		if v.Result == nil || !v.Result.Emptied && len(v.Result.Errors) == 0 {
			w.t.Errorf("%v: the stop of %s ended without being verified: %+v", w.Now(), v.Pod, v.Result)
		}
	}
	if p.Stop != nil {
		w.stopped++
		w.begun = append(w.begun, p.Stop.Sandbox)
		// A hard and a soft one at a time; while what a dead pod held lags behind, one more.
		if alive := w.alive(w.begun); alive > 2 || len(w.begun) > 3 {
			w.t.Errorf("%v: %d stops at a time, of which %d have not ended: %v", w.Now(), len(w.begun), alive, w.begun)
		}
		if !strings.HasPrefix(p.Stop.Pod, "d/culprit") {
			w.t.Errorf("%v: %s was stopped: %s", w.Now(), p.Stop.Pod, p.Stop.Reason)
			w.t.Log(w.describe(p))
		}
	}
	w.overdue(p)
}

// overdue fails when a culprit is left alone though nothing holds its stop back.
func (w *chaos) overdue(p *Pass) {
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

func (w *chaos) describe(p *Pass) string {
	var b strings.Builder
	for _, r := range p.Ranked {
		fmt.Fprintf(&b, "%d %s uses %s of %s; %s\n", r.Position, r.Pod, FormatBytes(r.Usage), FormatBytes(r.Request), r.Excluded)
	}
	return b.String()
}

// storm wakes the loop at random, thousands of times a second now and then.
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
