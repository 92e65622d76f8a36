package guard

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/policy"
)

// loopKernel is a node with plenty of everything, on the bubble's clock.
type loopKernel struct {
	start  time.Time
	passes atomic.Int64
}

func (k *loopKernel) Now() time.Duration { return time.Since(k.start) }
func (k *loopKernel) Observe(obs *policy.Observations) {
	k.passes.Add(1)
	obs[policy.MemoryAvailable] = policy.ObserveMemory(1<<40, 1<<30, k.Now())
}
func (k *loopKernel) Layout() policy.Layout { return policy.SingleFS }
func (k *loopKernel) Measure([]policy.Candidate, []Pod, policy.Signal) (int64, bool) {
	return 0, false
}
func (k *loopKernel) HasUnlisted(Pod) bool                      { return false }
func (k *loopKernel) Outlived()                                 {}
func (k *loopKernel) Inventory(context.Context, bool) Inventory { return Inventory{} }

// runLoop runs a loop for a time in a bubble, while feed does something to it,
// and returns how many passes it made.
func runLoop(t *testing.T, length time.Duration, feed func(ctx context.Context, wakes chan<- string, calls chan<- func())) (passes int64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &loopKernel{start: time.Now()}
		wakes, calls := make(chan string, 1), make(chan func())
		ctx, cancel := context.WithTimeout(t.Context(), length)
		defer cancel()
		l := Loop{Guard: New(DefaultConfig(), k, k, nil, nil, policy.NewRestraint("boot")), Wakes: wakes, Calls: calls, After: func(*Pass) {}}
		go feed(ctx, wakes, calls)
		l.Run(ctx)
		passes = k.passes.Load()
		synctest.Wait()
	})
	return passes
}

// Without a wake the loop looks once a second.
func TestLoopIdles(t *testing.T) {
	if got := runLoop(t, 10*time.Second+time.Millisecond, func(context.Context, chan<- string, chan<- func()) {}); got != 11 {
		t.Errorf("%d passes in ten seconds, want one at the start and one each second", got)
	}
}

// A storm of wakes costs one pass each 5 ms at most, and none is lost for ever.
func TestLoopStorm(t *testing.T) {
	got := runLoop(t, time.Second, func(ctx context.Context, wakes chan<- string, _ chan<- func()) {
		tick := time.NewTicker(100 * time.Microsecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			select {
			case wakes <- "storm":
			default:
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	if got > 201 || got < 190 {
		t.Errorf("%d passes in a second of 10,000 wakes, want one each 5 ms", got)
	}
}

// A wake right after a pass is remembered and served when it may be.
func TestLoopRemembersWake(t *testing.T) {
	got := runLoop(t, 500*time.Millisecond, func(_ context.Context, wakes chan<- string, _ chan<- func()) {
		time.Sleep(time.Millisecond) // of the bubble's clock: within the gap after the first pass
		wakes <- "early"
	})
	if got != 2 {
		t.Errorf("%d passes, want the first and the one that was woken", got)
	}
}

// Calls run between passes.
func TestLoopCalls(t *testing.T) {
	ran := false
	runLoop(t, 100*time.Millisecond, func(_ context.Context, _ chan<- string, calls chan<- func()) {
		done := make(chan struct{})
		calls <- func() { ran = true; close(done) }
		<-done
	})
	if !ran {
		t.Error("the call did not run")
	}
}

func TestPacer(t *testing.T) {
	const gib = 1 << 30
	hard := policy.Threshold{Signal: policy.MemoryAvailable, Value: policy.Bytes(gib)}
	see := func(p *pacer, available int64, at time.Duration) *policy.Observations {
		var obs policy.Observations
		obs[policy.MemoryAvailable] = policy.Observation{Available: available, Capacity: 64 * gib, At: at, Status: policy.OK}
		p.see(&obs, at)
		return &obs
	}
	for _, tc := range []struct {
		name      string
		available int64
		faster    int64 // a fill seen before, bytes per second
		want      time.Duration
	}{
		{"far away", 40 * gib, 0, time.Second},
		{"headroom over twice the least rate", 2 * gib, 0, 500 * time.Millisecond},
		{"twice the fastest fill seen", 2 * gib, 4 * gib, 125 * time.Millisecond},
		{"never below 5 ms", gib + 1, 0, 5 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var p pacer
			if tc.faster > 0 {
				see(&p, tc.available+tc.faster, 0)
			}
			obs := see(&p, tc.available, time.Second)
			if got := p.pause([]policy.Threshold{hard}, policy.Pressure{}, obs, time.Minute); got != tc.want {
				t.Errorf("pause %s, want %s", got, tc.want)
			}
		})
	}
	t.Run("a fill is forgotten after two minutes", func(t *testing.T) {
		var p pacer
		see(&p, 6*gib, 0)
		see(&p, 2*gib, time.Second)
		var obs *policy.Observations
		for i := range 3 {
			obs = see(&p, 2*gib, time.Duration(i+1)*61*time.Second)
		}
		if got := p.pause([]policy.Threshold{hard}, policy.Pressure{}, obs, time.Minute); got != 500*time.Millisecond {
			t.Errorf("pause %s, want 500ms", got)
		}
	})
	t.Run("a lump between two looks is no fill", func(t *testing.T) {
		var p pacer
		var obs *policy.Observations
		for i, available := range []int64{6 * gib, 6 * gib, 6*gib - gib/16, 6*gib - gib/16} {
			obs = see(&p, available, time.Duration(i)*20*time.Millisecond)
		}
		if got, least := p.pause([]policy.Threshold{hard}, policy.Pressure{}, obs, time.Minute), 900*time.Millisecond; got < least {
			t.Errorf("pause %s after 64 MiB within 60 ms, want at least %s", got, least)
		}
	})
	t.Run("a met threshold is looked at four times a second, a grace period when it ends", func(t *testing.T) {
		var p pacer
		obs := see(&p, gib/2, 0)
		due := policy.Pressure{Met: []policy.Met{{Threshold: hard, Due: true}}}
		if got := p.pause([]policy.Threshold{hard}, due, obs, time.Minute); got != heldPause {
			t.Errorf("pause %s, want %s", got, heldPause)
		}
		waits := policy.Pressure{Met: []policy.Met{{Threshold: hard, Wait: 70 * time.Millisecond}}}
		if got := p.pause([]policy.Threshold{hard}, waits, obs, time.Minute); got != 70*time.Millisecond {
			t.Errorf("pause %s, want 70ms", got)
		}
	})
}
