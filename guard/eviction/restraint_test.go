package eviction

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// softStop returns a Manager with a soft stop of "big" in flight. Its hard threshold is met next, because
// "big" has taken more.
func softStop(t *testing.T, more string) (*Manager, *fakeNode) {
	t.Helper()
	g, n := newManager(t, softAndHard+more)
	n.set(policy.MemoryAvailable, 2*testGiB-1)
	wantHeld(t, n.at(g, 0), api.HeldGrace)
	if p := n.at(g, 10*time.Second); stopped(&p) != "d/big" || p.Stop.Kind != "soft" {
		t.Fatalf("stopped %+v, held by %q", p.Stop, p.Held)
	}
	return g, n
}

// If a hard threshold is due while a soft stop is in flight that reaches its need / 20, the stop becomes hard
// and takes a hard token.
func TestEscalationTakesAHardToken(t *testing.T) {
	g, n := softStop(t, "")
	n.leak("big", testGiB-1)
	p := n.at(g, 11*time.Second)
	wantHeld(t, p, api.HeldInFlight)
	if p.Escalated != "d/big" || n.stops[0].escalated != 1 || !n.stops[0].direct || len(n.stops) != 1 {
		t.Fatalf("escalated %q, %d stops", p.Escalated, len(n.stops))
	}
	if b := g.restraint.Status(n.now); b.Hard.Left != 2 || b.Soft.Left != 2 {
		t.Errorf("%d hard and %d soft stops left", b.Hard.Left, b.Soft.Left)
	}
	if p := n.at(g, 12*time.Second); p.Escalated != "" || n.stops[0].escalated != 1 {
		t.Error("escalated twice")
	}
}

// An escalation is never held for lack of a token.
func TestEscalationIsNeverHeld(t *testing.T) {
	g, n := softStop(t, "[budget]\nhard = {burst = 1, every = \"1h\"}\n")
	g.restraint.Begin(policy.Stop{Sandbox: "x", Pool: policy.PoolPIDs, Over: true, Judged: true}, n.now)
	if b := g.restraint.Status(n.now); b.Hard.Left != 0 {
		t.Fatalf("%d hard stops left", b.Hard.Left)
	}
	n.leak("big", testGiB-1)
	if p := n.at(g, 11*time.Second); p.Escalated != "d/big" {
		t.Errorf("escalated %q, held by %q", p.Escalated, p.Held)
	}
}

// A soft stop's pod that is listed no more has ended. The hard threshold waits for its memory, and no pod is stopped in its
// place.
func TestHardThresholdWaitsForTheMemoryOfAnEndedPod(t *testing.T) {
	for _, c := range []struct {
		left policy.Amount
		want string
	}{
		{policy.Known(3 * testGiB), ""}, {policy.Amount{}, ""}, {policy.Known(0), "d/small"},
	} {
		g, n := softStop(t, "")
		n.pods = n.pods[1:]
		n.remains["big"] = c.left
		n.leak("small", testGiB/2)
		p := n.at(g, 10500*time.Millisecond)
		if c.want != "" {
			wantStop(t, p, c.want)
			continue
		}
		wantHeld(t, p, api.HeldInFlight)
		if p.Escalated != "d/big" {
			t.Errorf("%+v left: escalated %q", c.left, p.Escalated)
		}
	}
}

// If the soft stop's pod does not reach the hard need / 20, the hard threshold chooses for itself, and the
// soft stop no longer counts as in flight, in this pass or a later one.
func TestHardThresholdDoesNotWaitForASmallSoftStop(t *testing.T) {
	for _, budget := range []bool{true, false} {
		g, n := softStop(t, "[budget]\nhard = {burst = 1, every = \"1m\"}\n")
		if !budget {
			g.restraint.Begin(policy.Stop{Sandbox: "x", Pool: policy.PoolPIDs, Over: true, Judged: true}, n.now)
		}
		// "big" has become small, and "small" has taken all that.
		n.grow("big", 10*testMiB-4*testGiB)
		n.grow("small", 4*testGiB-10*testMiB)
		n.leak("small", testGiB/2)
		n.pods[1].Priority, n.pods[1].Created = 1, time.Hour+time.Second
		p := n.at(g, 10500*time.Millisecond) // too early to see who the culprit is
		if n.stops[0].escalated != 0 {
			t.Fatalf("escalated %q", p.Escalated)
		}
		if budget {
			wantStop(t, p, "d/small")
			continue
		}
		wantHeld(t, p, api.HeldBudget)
		wantHeld(t, n.at(g, 10600*time.Millisecond), api.HeldBudget)
		n.set(policy.MemoryAvailable, testGiB+testMiB)
		wantStop(t, n.at(g, 10700*time.Millisecond), "d/small") // for the soft threshold
	}
}

// A soft stop's pod that is listed with no container is ending. Its memory counts as what the stop gives back until the stop is
// over, not as what outlives it.
func TestHardThresholdWaitsForTheMemoryOfAnEndingPod(t *testing.T) {
	for _, s := range []struct {
		left int64
		want string
	}{
		{3 * testGiB, ""}, {testMiB, "d/small"},
	} {
		g, n := softStop(t, "")
		n.pods[0].Containers, n.pods[0].IdleCgroup = nil, "/kubepods/podbig"
		n.remains["big"] = policy.Known(s.left)
		n.leak("small", testGiB/2)
		p := n.at(g, 10500*time.Millisecond)
		if s.want != "" {
			wantStop(t, p, s.want)
			continue
		}
		wantHeld(t, p, api.HeldInFlight)
		if p.Escalated != "d/big" {
			t.Errorf("%d left: escalated %q", s.left, p.Escalated)
		}
	}
}

// A hard threshold waits for the files in memory of a soft stop's pod whose processes have ended: no container uses them any more,
// and the runtime is about to unmount them.
func TestHardThresholdWaitsForFilesInMemory(t *testing.T) {
	g, n := softStop(t, "")
	n.grow("big", -4*testGiB)
	n.remains = map[string]policy.Amount{"big": policy.Known(2 * testGiB)}
	n.grow("small", 4*testGiB-10*testMiB)
	n.leak("small", testGiB/2)
	wantHeld(t, n.at(g, 10500*time.Millisecond), api.HeldInFlight)
}

// While a hard threshold of a pool is due and held, its soft thresholds do nothing.
func TestHeldHardThresholdHoldsTheSoftOnes(t *testing.T) {
	g, n := newManager(t, softAndHard+"[budget]\nhard = {burst = 1, every = \"1h\"}\n")
	g.restraint.Begin(policy.Stop{Sandbox: "x", Pool: policy.PoolPIDs, Over: true, Judged: true}, time.Hour)
	n.set(policy.MemoryAvailable, testGiB-1)
	for _, at := range []time.Duration{0, 10 * time.Second, 20 * time.Second} {
		wantHeld(t, n.at(g, at), api.HeldBudget)
	}
}

// cameBack returns a Manager that has stopped "big" after first, and a sandbox of the same workload that has
// come back since and no longer grows. The threshold is clear, by a little. Five seconds have passed.
func cameBack(t *testing.T, conf string, first time.Duration) (*Manager, *fakeNode) {
	t.Helper()
	g, n := newManager(t, conf)
	n.podsMemory = policy.Known(5 * testGiB) // other pods take what comes back
	n.set(policy.MemoryAvailable, testGiB/2)
	for at := time.Duration(0); at < first; at += 5 * time.Second {
		wantHeld(t, n.at(g, at), api.HeldGrace)
	}
	wantStop(t, n.at(g, first), "d/big")
	n.free(testGiB + testMiB)
	wantSettled(t, n.at(g, first+time.Second), 1)
	n.now += 3 * time.Second
	n.appear("big", "big-again", 300*testMiB)
	wantHeld(t, n.at(g, first+5*time.Second), "")
	return g, n
}

// lacking is what is available when the threshold of cameBack is met again.
const lacking = testGiB - 100*testMiB

const softMemory = "[eviction.hard]\n\"memory.available\" = \"0%\"\n[eviction.soft]\n\"memory.available\" = \"1Gi\"\n[eviction.soft_grace_period]\n\"memory.available\" = \"1m\"\n"

// A sandbox that came back is considered first, if it reaches need / 20. A stop of it is free.
func TestCameBackIsConsideredFirst(t *testing.T) {
	g, n := cameBack(t, memoryHard, 0)
	left := g.restraint.Status(n.now).Hard.Left
	n.set(policy.MemoryAvailable, lacking)
	p := n.at(g, 7*time.Second)
	wantStop(t, p, "d/big")
	if !strings.Contains(p.Stop.Reason, "was stopped for it and came back") || g.restraint.Status(n.now).Hard.Left != left {
		t.Errorf("reason %q, %d of %d left", p.Stop.Reason, g.restraint.Status(n.now).Hard.Left, left)
	}
	g, n = cameBack(t, memoryHard, 0)
	n.grow("big-again", 2*testMiB-300*testMiB)
	n.set(policy.MemoryAvailable, lacking)
	wantStop(t, n.at(g, 7*time.Second), "d/small")
}

// A decision that lists the pods takes time. The clock has not gone back after it, neither for the stop nor for the next pool: a stop
// of the episode's first pass stays one of that episode.
func TestStopsKeepTheirTimeWhileADecisionLists(t *testing.T) {
	g, n := newManager(t, memoryHard+"\"pid.available\" = \"100\"\n")
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.free(9 * testGiB / 2)
	n.leak("small", testGiB/2)
	n.hidden, n.onListing = []inventory.Pod{testPod("new", 6*testGiB)}, func() { n.now += time.Second }
	p := n.at(g, time.Second)
	if wantStop(t, p, "d/new"); n.listed != 1 {
		t.Fatalf("listed %d times", n.listed)
	}
	n.free(testGiB / 2)
	n.foreign, n.obs[policy.PIDAvailable] = 100*testGiB, policy.Observation{Available: 50, Capacity: 32768, Status: policy.OK}
	if n.at(g, 3*time.Second); n.listed < 2 {
		t.Fatalf("listed %d times", n.listed)
	}
	if came, _ := g.restraint.CameBack(policy.PoolMemory, "d/big", n.now, time.Hour, n.now); !came {
		t.Error("the first stop belongs to no episode any more")
	}
}

// A sandbox that came back needs no new grace period, because the episode continues. Reclaim still comes
// first. After 30 s without pressure, the episode is over, even if the condition still holds.
func TestCameBackNeedsNoGracePeriod(t *testing.T) {
	const conf = softMemory + "[backoff]\nfirst = \"1s\"\n"
	g, n := cameBack(t, conf, time.Minute)
	n.set(policy.MemoryAvailable, lacking)
	n.swapping = true
	wantHeld(t, n.at(g, 67*time.Second), api.HeldReclaiming)
	close(n.reliefs[len(n.reliefs)-1].done)
	wantStop(t, n.at(g, 68*time.Second), "d/big")

	g, n = cameBack(t, conf, time.Minute)
	n.at(g, 91*time.Second)
	n.set(policy.MemoryAvailable, lacking)
	if wantHeld(t, n.at(g, 93*time.Second), api.HeldGrace); !g.pressure.Conditions.Has(policy.MemoryPressure) {
		t.Error("the condition is over, too")
	}
}

// A pod that did not come back waits for its grace period, whatever was stopped before.
func TestOthersNeedTheirGracePeriod(t *testing.T) {
	g, n := cameBack(t, softMemory, time.Minute)
	n.pods = n.pods[:1]
	n.set(policy.MemoryAvailable, lacking)
	wantHeld(t, n.at(g, 67*time.Second), api.HeldGrace)
}

// A stop records its workload and how long that is in back-off.
func TestStopRecordsItsBackoff(t *testing.T) {
	g, n := newManager(t, memoryHard+"[backoff]\nfirst = \"40s\"\n")
	n.set(policy.MemoryAvailable, testGiB/2)
	p := n.at(g, 0)
	if wantStop(t, p, "d/big"); p.Stop.Workload != "d/big" || time.Duration(p.Stop.Backoff) != 40*time.Second {
		t.Errorf("recorded %+v", p.Stop)
	}
}

// After a stop by an operator, no stop of the workload waits.
func TestStopByAnOperatorRecordsNoBackoff(t *testing.T) {
	g, n := newManager(t, "")
	p := api.Pass{ID: g.NextID(), At: api.Duration(n.now)}
	g.StopPod(t.Context(), &n.pods[0], 0, "by root", &p)
	if wantStop(t, p, "d/big"); p.Stop.Workload != "" || p.Stop.Backoff != 0 {
		t.Errorf("workload %q, back-off %s", p.Stop.Workload, time.Duration(p.Stop.Backoff))
	}
}

// A hard threshold never waits for a back-off. A soft one does.
func TestBackoffAppliesToSoftStops(t *testing.T) {
	g, n := cameBack(t, memoryHard, 0)
	n.set(policy.MemoryAvailable, lacking)
	wantStop(t, n.at(g, 7*time.Second), "d/big")

	g, n = cameBack(t, softMemory, time.Minute)
	n.set(policy.MemoryAvailable, lacking)
	wantHeld(t, n.at(g, 67*time.Second), api.HeldBackoff)
	wantHeld(t, n.at(g, 70*time.Second-1), api.HeldBackoff)
	wantStop(t, n.at(g, 70*time.Second), "d/big")
}

// The back-off applies to limits and to pods that start under pressure, too.
func TestBackoffAppliesToLimitsAndAdmission(t *testing.T) {
	for name, conf := range map[string]string{
		"limit":     "[[limit]]\nname = \"*\"\nephemeral_storage = \"2Gi\"\n",
		"admission": "admission.mode = \"stop\"\n",
	} {
		g, n := newManager(t, conf+memoryHard)
		n.protect("test")
		n.set(policy.MemoryAvailable, testGiB/2)
		n.at(g, 0)
		var at []string
		for i := range 40 {
			n.now = time.Hour + time.Duration(i+1)*time.Second
			if len(n.pods) == 2 {
				n.appear("again", fmt.Sprint("again-", i), 0)
				n.pods[2].StorageLimit, n.pods[2].Disk = 2*testGiB, diskBytes(3*testGiB)
			}
			if p := n.at(g, time.Duration(i+1)*time.Second); p.Stop != nil {
				at = append(at, fmt.Sprint(i+1))
				n.end(n.stops[len(n.stops)-1])
			}
		}
		// The first pass after a stop settles it. The soft budget has two tokens.
		if got := strings.Join(at, " "); got != "1 11" {
			t.Errorf("%s: stopped at %s", name, got)
		}
	}
}

// per_hour counts hard stops and all others separately.
func TestPerHourCountsKindsSeparately(t *testing.T) {
	g, n := newManager(t, softAndHard+"[budget]\nper_hour = 1\n")
	g.restraint.Begin(policy.Stop{Sandbox: "x", Kind: policy.Soft, Pool: policy.PoolPIDs, Over: true, Judged: true}, time.Hour)
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.free(testGiB/2 + 4*testGiB)
	n.at(g, 100*time.Millisecond)
	n.leak("small", testGiB-1)
	wantHeld(t, n.at(g, 200*time.Millisecond), api.HeldBudget)
}

// fruitless makes stops whose memory something outside the pods takes at once, until the breaker holds.
func fruitless(t *testing.T, g *Manager, n *fakeNode) {
	t.Helper()
	n.pods = nil
	for i := range 6 {
		n.pods = append(n.pods, testPod(fmt.Sprint("p", i), testGiB))
	}
	n.set(policy.MemoryAvailable, testGiB/2)
	for i := range 3 {
		if p := n.at(g, time.Duration(i)*10*time.Millisecond); p.Stop == nil {
			t.Fatalf("stop %d is held by %q", i, p.Held)
		}
		n.free(testGiB / 2)
	}
}

// A pass that is held back by the budget says how long that lasts; one that begins a stop or waits for one
// does not.
func TestHoldSaysHowLong(t *testing.T) {
	g, n := newManager(t, memoryHard+"[budget]\nhard = {burst = 1, every = \"30s\"}\n")
	g.restraint.Begin(policy.Stop{Sandbox: "x", Pool: policy.PoolPIDs, Over: true, Judged: true}, time.Hour)
	n.set(policy.MemoryAvailable, testGiB-1)
	for _, c := range []struct {
		at   time.Duration
		held string
		want time.Duration
	}{
		{10 * time.Second, api.HeldBudget, 20 * time.Second}, {29 * time.Second, api.HeldBudget, time.Second},
		{30 * time.Second, "", 0}, {31 * time.Second, api.HeldInFlight, 0},
	} {
		if p := n.at(g, c.at); p.Held != c.held || time.Duration(p.NextStopIn) != c.want {
			t.Errorf("at %s: held by %q, next stop in %s, want %q and %s", c.at, p.Held, time.Duration(p.NextStopIn), c.held, c.want)
		}
	}
}

// Three fruitless stops in a row open the pool's breaker: no more stops for the pool, while reclaim continues
// and other pools are relieved. The alarm says "outside pods".
func TestThreeFruitlessStopsOpenTheBreaker(t *testing.T) {
	g, n := newManager(t, memoryHard+"\"pid.available\" = \"15\"\n")
	fruitless(t, g, n)
	p := n.at(g, 30*time.Millisecond)
	wantHeld(t, p, api.HeldBreaker)
	if !strings.Contains(p.Alarm, "outside pods") || p.AlarmKind != api.AlarmNoRelief || p.AlarmBy != "memory.available:hard" {
		t.Errorf("alarm %q by %q", p.Alarm, p.AlarmBy)
	}
	reclaims := len(n.reliefs)
	if p = n.at(g, 11*time.Second); p.Alarm != "" || len(n.reliefs) != reclaims+1 {
		t.Errorf("alarm %q again, %d reclaims more", p.Alarm, len(n.reliefs)-reclaims)
	}
	n.obs[policy.PIDAvailable] = policy.Observation{Available: 5, Capacity: 1000, Status: policy.OK}
	g.cfg.Budget.Hard.Burst = 10
	g.SetConfig(g.cfg)
	if p := n.at(g, 12*time.Second); p.Stop == nil || p.Stop.Signal != "pid.available" {
		t.Errorf("another pool: stopped %+v, held by %q", p.Stop, p.Held)
	}
}

// The breaker outlives the episode by backoff.reset. It closes after that, or when the unprotected pods have
// grown since it opened, by the need beyond what the last stops gave back: those that come back do not close it.
func TestBreakerCloses(t *testing.T) {
	const conf = memoryHard + "[budget]\nhard.burst = 10\n[backoff]\nmax = \"2m\"\nreset = \"2m\"\n"
	open := func(t *testing.T) (*Manager, *fakeNode) {
		g, n := newManager(t, conf)
		fruitless(t, g, n)
		wantHeld(t, n.at(g, 30*time.Millisecond), api.HeldBreaker)
		return g, n
	}
	t.Run("time", func(t *testing.T) {
		g, n := open(t)
		n.set(policy.MemoryAvailable, 8*testGiB)
		n.at(g, time.Second)
		n.at(g, 31*time.Second) // the episode ends
		n.set(policy.MemoryAvailable, testGiB/2)
		wantHeld(t, n.at(g, 100*time.Second), api.HeldBreaker)
		n.set(policy.MemoryAvailable, 8*testGiB)
		for at := 130 * time.Second; at < 270*time.Second; at += time.Minute {
			n.at(g, at)
		}
		n.set(policy.MemoryAvailable, testGiB/2)
		if p := n.at(g, 270*time.Second); p.Stop == nil {
			t.Errorf("held by %q", p.Held)
		}
	})
	t.Run("growth of the pods", func(t *testing.T) {
		g, n := open(t)
		n.grow("p5", 3*testGiB) // what the stops gave back
		wantHeld(t, n.at(g, 40*time.Millisecond), api.HeldBreaker)
		n.grow("p5", testGiB/2)
		g.RankNow(t.Context(), policy.MemoryAvailable)
		if b := g.restraint.Status(n.now).Breakers; len(b) != 1 {
			t.Errorf("a command has closed the breaker: open for %v", b)
		}
		if p := n.at(g, 50*time.Millisecond); p.Stop == nil || !g.Unsaved() {
			t.Errorf("held by %q", p.Held)
		}
	})
}

// That an operator protects a pod, or does so no more, is no growth of what is used outside the pods: stops before that were not
// fruitless because of it.
func TestProtectionIsNoGrowth(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after string // protection of the large pod
		created       time.Duration
		restart       bool
		want          string
	}{
		{"protected", "", "operator", 0, false, ""},
		{"protected no more", "operator", "", 0, false, ""},
		{"the same", "operator", "operator", 0, false, ""},
		{"a new pod that is protected, and takes what came back", "", "operator", time.Hour + time.Second, false, api.HeldBreaker},
		{"protected over a restart", "", "operator", 0, true, ""},
		{"protected no more over a restart", "operator", "", 0, true, ""},
		{"the same over a restart", "operator", "operator", 0, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, n := newManager(t, memoryHard+"[budget]\nbreaker = 1\n")
			large := testPod("large", 6*testGiB)
			large.Protection, large.Created = c.before, cmp.Or(c.created, large.Created)
			if c.created == 0 {
				n.pods = append(n.pods, large)
			}
			n.set(policy.MemoryAvailable, testGiB/2)
			n.pods[0].Priority = -1
			wantStop(t, n.at(g, 0), "d/big")
			n.free(testGiB/2 + 4*testGiB)
			n.at(g, 500*time.Millisecond)
			if c.created != 0 {
				n.pods = append(n.pods, large)
				n.listedAt = time.Hour + time.Second
				n.at(g, time.Second)
			}
			if c.created == 0 {
				n.listedAt = time.Hour + 10*time.Second
			}
			n.at(g, 10*time.Second)
			if c.restart {
				g = restarted(t, g, n)
			}
			n.pods[len(n.pods)-1].Protection = c.after
			n.listedAt = time.Hour + 11*time.Second
			n.at(g, 11*time.Second)
			if c.created != 0 { // it has taken what came back
				n.set(policy.MemoryAvailable, testGiB/2)
			} else {
				n.leak("small", testGiB/2)
			}
			if p := n.at(g, 40*time.Second); p.Held != c.want || c.want == "" && p.Stop == nil {
				t.Errorf("stopped %+v, held by %q, want %q", p.Stop, p.Held, c.want)
			}
		})
	}
}

// Nor is what a pod takes whose class was not known at the stop, because it had no container yet: it was protected only for lack of
// knowledge.
func TestPodThatStartsIsNoGrowth(t *testing.T) {
	g, n := newManager(t, memoryHard+"[budget]\nbreaker = 1\n")
	late := testPod("late", 0)
	late.Protection = inventory.ProtectedUnclassified
	n.pods = append(n.pods, late)
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.free(testGiB/2 + 4*testGiB)
	n.at(g, 500*time.Millisecond)
	n.at(g, 10*time.Second)
	n.pods[1].Protection = ""
	n.leak("late", testGiB+testGiB/2)
	n.listedAt = time.Hour + 11*time.Second
	n.at(g, 11*time.Second)
	n.leak("small", testGiB/2)
	if p := n.at(g, 40*time.Second); p.Stop == nil {
		t.Errorf("held by %q", p.Held)
	}
}

// On a disk, a pod that becomes protected may not have been measured for a while.
func TestProtectionIsNoGrowthOfADisk(t *testing.T) {
	g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"1Gi\"\n[budget]\nbreaker = 1\n")
	n.pods = append(n.pods, testPod("large", 6*testGiB))
	n.pods[0].Priority = -1
	n.set(policy.NodeFSAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.end(n.stops[0])
	n.set(policy.NodeFSAvailable, testGiB/2+4*testGiB)
	for i := range 60 {
		n.at(g, time.Duration(i+1)*time.Second)
	}
	disk := n.pods[1].Disk
	n.pods[1].Disk, n.pods[1].Protection = policy.DiskUsage{}, "operator"
	n.listedAt = time.Hour + 61*time.Second
	n.at(g, 61*time.Second)
	n.pods[1].Disk = disk
	n.pods[0].Disk = diskBytes(testGiB + 4*testGiB)
	n.set(policy.NodeFSAvailable, testGiB/2)
	if p := n.at(g, 100*time.Second); p.Stop == nil {
		t.Errorf("held by %q", p.Held)
	}
}

// Nor is it if the next stop comes before the pods are sampled.
func TestProtectionEndsRightBeforeAStop(t *testing.T) {
	g, n := newManager(t, memoryHard+"[budget]\nbreaker = 1\n")
	n.pods = append(n.pods, testPod("large", 6*testGiB))
	n.pods[0].Priority = -1
	n.pods[0].Protection, n.pods[2].Protection, n.pods[1].Memory = "operator", "operator", policy.Known(0)
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, 0); p.Stop != nil {
		t.Fatalf("stopped %+v", p.Stop)
	}
	n.pods[0].Protection, n.pods[2].Protection = "", ""
	wantStop(t, n.at(g, time.Second), "d/big")
	n.free(testGiB/2 + 4*testGiB)
	n.at(g, 2*time.Second)
	n.at(g, 10*time.Second)
	n.leak("large", testGiB/2)
	if p := n.at(g, 40*time.Second); p.Stop == nil {
		t.Errorf("held by %q", p.Held)
	}
}

// After a fruitless stop, its workload is neither free nor considered first.
func TestFruitlessWorkloadIsLikeAnyOther(t *testing.T) {
	g, n := cameBack(t, memoryHard, 0)
	n.set(policy.MemoryAvailable, lacking)
	// "big" gave back 4 GiB, and something outside the pods has taken them.
	g.restraint.Judge(policy.PoolMemory, func(policy.Signal) policy.Amount { return policy.Known(1 << 50) }, policy.Amount{}, n.now)
	wantStop(t, n.at(g, 7*time.Second), "d/small")
}

// After a fruitless stop, the memory that its workload takes again when it comes back makes it no culprit, which neither budget nor
// breaker would hold. What it takes beyond that does.
func TestFruitlessWorkloadIsNoCulpritByComingBack(t *testing.T) {
	g, n := newManager(t, memoryHard+"[budget]\nbreaker = 1\n")
	n.set(policy.MemoryAvailable, testGiB+testMiB)
	n.at(g, 0)
	n.set(policy.MemoryAvailable, testGiB-testMiB)
	wantStop(t, n.at(g, time.Second), "d/big")
	n.free(testGiB - testMiB) // something outside the pods has taken what came back
	n.at(g, 2*time.Second)
	wantHeld(t, n.at(g, 15*time.Second), api.HeldBreaker)
	n.at(g, 16*time.Second)
	n.now += time.Second
	n.appear("big", "big-again", 4*testGiB)
	wantHeld(t, n.at(g, 17100*time.Millisecond), api.HeldBreaker)
	n.leak("big-again", testGiB/2)
	wantStop(t, n.at(g, 17200*time.Millisecond), "d/big")
}

// A stop is fruitless if less than half of its expected yield came back from the victim itself.
func TestStopThatGivesLittleBackIsFruitless(t *testing.T) {
	for left, open := range map[int64]bool{2*testGiB - 1: false, 2 * testGiB: false, 2*testGiB + 1: true} {
		g, n := newManager(t, memoryHard+"[budget]\nbreaker = 1\n")
		n.podsMemory = policy.Known(5 * testGiB) // what came back is used by another pod
		n.set(policy.MemoryAvailable, testGiB/2)
		wantStop(t, n.at(g, 0), "d/big")
		n.free(testGiB / 2)
		n.remains["big"] = policy.Known(left)
		n.at(g, 10*time.Millisecond)
		n.at(g, 10*time.Millisecond+chargeStill)
		if got := len(g.restraint.Status(n.now).Breakers) > 0; got != open {
			t.Errorf("%d left of 4 GiB: breaker open: %t", left, got)
		}
	}
}

// A stop that is over is judged when the pool's next victim would be chosen, not before.
func TestStopIsJudgedWithTheNextVictim(t *testing.T) {
	g, n := newManager(t, memoryHard+"[budget]\nbreaker = 1\n")
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.free(testGiB / 2) // something outside the pods has taken what came back: it is fruitless
	n.protect("test")
	for _, at := range []time.Duration{time.Second, time.Minute} {
		wantHeld(t, n.at(g, at), api.HeldProtected)
		if b := g.restraint.Status(n.now).Breakers; len(b) > 0 {
			t.Fatalf("judged after %s: %+v", at, b)
		}
	}
	n.protect("")
	if wantHeld(t, n.at(g, 61*time.Second), api.HeldBreaker); len(g.restraint.Status(n.now).Breakers) != 1 {
		t.Errorf("budget %+v", g.restraint.Status(n.now))
	}
}

// Observe mode logs each stop once per episode and never judges it.
func TestObserveModeLogsEachStopOncePerEpisode(t *testing.T) {
	g, n := newManager(t, "mode = \"observe\"\n"+memoryHard+"[budget]\nbreaker = 1\n")
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, 0); stopped(&p) != "d/big" || !p.Stop.DryRun || len(n.stops) != 0 {
		t.Fatalf("first: %+v, %d stops", p.Stop, len(n.stops))
	}
	for i := range 5 {
		wantHeld(t, n.at(g, time.Duration(i+1)*time.Minute), api.HeldObserve)
	}
	n.set(policy.MemoryAvailable, 8*testGiB)
	for _, at := range []time.Duration{301 * time.Second, 331 * time.Second} {
		n.at(g, at)
	}
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, 400*time.Second); stopped(&p) != "d/big" || !p.Stop.DryRun {
		t.Errorf("in the next episode: %+v, held by %q", p.Stop, p.Held)
	}
}

// Stops that were only reported in observe mode do not restrain real stops. Real stops from before observe
// mode still count.
func TestPassObserveThenEnforce(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.free(4*testGiB + testGiB/2)
	n.at(g, time.Second)
	made := g.restraint.Status(n.now).Hard.Left
	g.SetConfig(configtest.Parse(t, "mode = \"observe\"\n"+memoryHard))
	n.leak("small", testGiB/2)
	if p := n.at(g, 1500*time.Millisecond); stopped(&p) != "d/small" || !p.Stop.DryRun {
		t.Fatalf("in observe mode: %+v, held by %q", p.Stop, p.Held)
	}
	g.SetConfig(configtest.Parse(t, memoryHard))
	if left := g.restraint.Status(n.now).Hard.Left; left != made {
		t.Errorf("%v hard stops are left, want %v", left, made)
	}
	n.appear("small", "small-2", 2*testGiB)
	n.appear("big", "big-again", testGiB)
	p := n.at(g, 1600*time.Millisecond)
	if wantStop(t, p, "d/big"); p.Stop.DryRun || g.restraint.Status(n.now).Hard.Left != made {
		t.Errorf("what was really stopped and came back: %+v, %d left", p.Stop, g.restraint.Status(n.now).Hard.Left)
	}
}

// Another replica of a workload that was stopped is a pod like any other: it takes a token.
func TestReplicaThatDidNotComeBackTakesAToken(t *testing.T) {
	g, n := newManager(t, memoryHard)
	replica := func(id string) inventory.Pod {
		p := testPod(id, 4*testGiB)
		p.Workload = "d/app"
		return p
	}
	n.pods = []inventory.Pod{replica("first"), replica("second")}
	for i, left := range []int{2, 1} {
		n.set(policy.MemoryAvailable, testGiB/2)
		if p := n.at(g, time.Duration(i)*10*time.Millisecond); p.Stop == nil {
			t.Fatalf("stop %d is held by %q", i, p.Held)
		}
		if got := g.restraint.Status(n.now).Hard.Left; got != left {
			t.Errorf("%d left after stop %d", got, i)
		}
		n.end(n.stops[i])
	}
}

// A stop in flight goes on as it began when the mode changes to observe.
func TestObserveModeEndsNoGracePeriod(t *testing.T) {
	conf := memoryHard + "[eviction.soft]\n\"memory.available\" = \"2Gi\"\n[eviction.soft_grace_period]\n\"memory.available\" = \"0s\"\n"
	for _, mode := range []config.Mode{config.ModeEnforce, config.ModeObserve} {
		g, n := newManager(t, conf)
		n.set(policy.MemoryAvailable, 2*testGiB-1)
		wantStop(t, n.at(g, 0), "d/big")
		cfg := g.cfg
		cfg.Mode = mode
		g.SetConfig(cfg)
		n.set(policy.MemoryAvailable, testGiB-1)
		p := n.at(g, time.Second)
		if escalated := n.stops[0].escalated > 0; escalated != (mode == config.ModeEnforce) || p.Stop != nil {
			t.Errorf("mode %s: escalated %t, stop %+v, held by %q", mode, escalated, p.Stop, p.Held)
		}
	}
}

// A stop is judged also if only another listing finds the next victim.
func TestStopIsJudgedWithAnUnlistedVictim(t *testing.T) {
	g, n := newManager(t, memoryHard+"[budget]\nbreaker = 1\n")
	n.pods = n.pods[:1]
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.remains["big"] = policy.Known(4 * testGiB) // nothing comes back
	n.kill(n.stops[0])
	n.pods = nil
	n.hidden = append(n.hidden, testPod("next", 3*testGiB))
	n.at(g, time.Second)
	p := n.at(g, 2*time.Second)
	wantHeld(t, p, policy.HeldBreaker)
}
