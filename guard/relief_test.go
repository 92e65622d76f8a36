package guard

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/policy"
)

const memoryHard = "[eviction.hard]\n\"memory.available\" = \"1Gi\"\n"

// A hard stop for memory goes on when its reclaim takes long. That one goes on, too: it is
// not begun again meanwhile, and told once, when it has ended.
func TestPassHardMemoryDoesNotWaitForReclaim(t *testing.T) {
	g, n := newPassGuard(t, memoryHard)
	n.swapping = true
	n.set(policy.MemoryAvailable, 0)
	if p := n.at(g, 0); p.Stop != nil || p.Held != HeldReclaiming {
		t.Fatalf("at once: %+v, held by %q", p.Stop, p.Held)
	}
	if d := g.Pause(); d != hardReliefWait {
		t.Errorf("the loop sleeps for %v", d)
	}
	if p := n.at(g, hardReliefWait-time.Millisecond); p.Stop != nil || p.Held != HeldReclaiming {
		t.Fatalf("a little later: %+v, held by %q", p.Stop, p.Held)
	}
	if d := g.Pause(); d != minPause {
		t.Errorf("the loop sleeps for %v then", d)
	}
	if p := n.at(g, hardReliefWait); p.Stop == nil || p.Stop.Pod != "d/big" {
		t.Fatalf("when it has waited: %+v, held by %q", p.Stop, p.Held)
	}
	if d := g.Pause(); d < heldPause {
		t.Errorf("the loop sleeps for %v, with nothing to wait for", d)
	}
	n.end(n.stops[0])
	n.at(g, time.Second)
	if p := n.at(g, 7*time.Second); p.Stop == nil || p.Stop.Pod != "d/small" || len(n.reliefs) != 1 {
		t.Fatalf("the next one: %+v, held by %q, %d reclaims", p.Stop, p.Held, len(n.reliefs))
	}
	n.end(n.stops[1])
	told := 0
	n.reliefs[0].steps = []string{"memory"}
	for i := range 20 {
		if i == 10 {
			close(n.reliefs[0].done)
		}
		p := n.at(g, 7*time.Second+time.Duration(i)*100*time.Millisecond)
		told += len(p.Reclaimed)
		if (told > 0) != (i >= 10) || len(n.reliefs) != 1 {
			t.Fatalf("pass %d: told %d times, %d reclaims", i, told, len(n.reliefs))
		}
	}
	n.pods = append(n.pods, testPod("new", testGiB))
	if p := n.at(g, time.Minute); told != 1 || p.Stop != nil || p.Held != HeldReclaiming || len(n.reliefs) != 2 {
		t.Errorf("told %d times; for the next stop: %+v, held by %q, %d reclaims", told, p.Stop, p.Held, len(n.reliefs))
	}
}

// A reclaim that relieves in time stops nobody, nor does one that relieves while it goes on.
func TestPassHardMemoryRelievedByReclaim(t *testing.T) {
	for name, after := range map[string]struct {
		took  time.Duration
		ended bool
	}{"quick": {20 * time.Millisecond, true}, "goes on": {hardReliefWait, false}} {
		g, n := newPassGuard(t, memoryHard)
		n.swapping = true
		n.set(policy.MemoryAvailable, testGiB-1)
		n.at(g, 0)
		if after.ended {
			close(n.reliefs[0].done)
		}
		n.set(policy.MemoryAvailable, 2*testGiB)
		for _, d := range []time.Duration{after.took, time.Second} {
			if p := n.at(g, d); p.Stop != nil || p.Held != "" || len(n.stops) != 0 {
				t.Errorf("%s, after %v: %+v, held by %q", name, d, p.Stop, p.Held)
			}
		}
	}
}

// A soft stop waits for its reclaim to the end. A hard one that is due meanwhile does not
// wait anew.
func TestPassSoftMemoryWaitsForReclaim(t *testing.T) {
	g, n := newPassGuard(t, softAndHard)
	n.swapping = true
	n.set(policy.MemoryAvailable, 2*testGiB-1)
	n.at(g, 0)
	for _, d := range []time.Duration{10 * time.Second, time.Minute} {
		if p := n.at(g, d); p.Stop != nil || p.Held != HeldReclaiming || len(n.reliefs) != 1 {
			t.Errorf("after %v: %+v, held by %q, %d reclaims", d, p.Stop, p.Held, len(n.reliefs))
		}
	}
	if d := g.Pause(); d != heldPause {
		t.Errorf("the loop sleeps for %v", d)
	}
	n.set(policy.MemoryAvailable, testGiB-1)
	if p := n.at(g, time.Minute+time.Second); p.Stop == nil || p.Stop.Kind != "hard" || len(n.reliefs) != 1 {
		t.Errorf("hard: %+v, held by %q, %d reclaims", p.Stop, p.Held, len(n.reliefs))
	}
}

// clockNode is a fake node on the bubble's clock.
type clockNode struct {
	*fakeNode
	start time.Time
}

func (n clockNode) Now() time.Duration { return time.Since(n.start) }
func (n clockNode) Observe(obs *policy.Observations) {
	n.now = n.Now()
	n.fakeNode.Observe(obs)
}

// The loop wakes by itself when the time of a reclaim is over.
func TestLoopEndsTheWaitForReclaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, fake := newPassGuard(t, memoryHard)
		fake.swapping = true
		fake.set(policy.MemoryAvailable, 0)
		n := clockNode{fake, time.Now()}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var stopped []time.Duration
		l := Loop{Guard: New(g.cfg, n, n, n, n, policy.NewRestraint("boot")), After: func(p *Pass) {
			if p.Stop != nil {
				stopped = append(stopped, p.At)
			}
		}}
		l.Run(ctx)
		if !slices.Equal(stopped, []time.Duration{hardReliefWait}) {
			t.Errorf("stopped after %v", stopped)
		}
	})
}
