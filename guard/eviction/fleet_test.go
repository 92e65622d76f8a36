package eviction

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// fakeFleet holds every stop while held is set, and remembers the pods for which it is asked.
type fakeFleet struct {
	held  policy.Held
	asked []string
	on    func() // called by Permit
}

func (f *fakeFleet) Permit(s *policy.Stop) policy.Held {
	f.asked = append(f.asked, fmt.Sprintf("%s %s%s", s.Sandbox, s.Kind, s.Cause))
	if f.on != nil {
		f.on()
	}
	return f.held
}

var partial = policy.Held{By: api.HeldFleet, Detail: "zone z1 is partial: 0/s", RetryAfter: 30 * time.Second}

// inFleet lets a Manager ask a fleet.
func inFleet(g *Manager) *fakeFleet {
	f := &fakeFleet{held: partial}
	g.fleet = f
	return f
}

// A soft stop waits for the permit, and takes no budget before.
func TestSoftStopWaitsForThePermit(t *testing.T) {
	g, n := newManager(t, softAndHard)
	f := inFleet(g)
	n.set(policy.MemoryAvailable, 2*testGiB-1)
	wantHeld(t, n.at(g, 0), api.HeldGrace)
	if len(f.asked) != 0 {
		t.Fatalf("asked %v during the grace period", f.asked)
	}
	for _, at := range []time.Duration{10 * time.Second, 20 * time.Second} {
		p := n.at(g, at)
		wantHeld(t, p, api.HeldFleet)
		if p.HeldDetail != partial.Detail || p.HeldBy != "memory.available:soft" || time.Duration(p.NextStopIn) != partial.RetryAfter {
			t.Errorf("held by %q of %q, for %s", p.HeldDetail, p.HeldBy, p.NextStopIn)
		}
	}
	if b := g.restraint.Status(n.now); b.Soft.Left != b.Soft.Burst {
		t.Errorf("%d of %d soft stops left", b.Soft.Left, b.Soft.Burst)
	}
	want := api.Hold{Threshold: "memory.available:soft", Reason: api.HeldFleet, Detail: partial.Detail}
	if r := g.RankNow(t.Context(), policy.MemoryAvailable); r.Held == nil || *r.Held != want || len(g.Holds()) != 1 || g.Holds()[0] != want {
		t.Errorf("ranking held by %+v, all %+v", r.Held, g.Holds())
	}
	if st := g.Status(func(policy.Signal) string { return "" }, false); len(st.Alarms) != 0 {
		t.Errorf("alarms: %q", st.Alarms)
	}
	f.held = policy.Held{}
	wantStop(t, n.at(g, 30*time.Second), "d/big")
	if got := strings.Join(f.asked, ", "); got != "big soft, big soft, big soft" {
		t.Errorf("asked: %s", got)
	}
}

// A permit is not used if the signal has recovered when it is there.
func TestSignalIsReadAgainAfterThePermit(t *testing.T) {
	g, n := newManager(t, softAndHard)
	f := inFleet(g)
	f.held, f.on = policy.Held{}, func() { n.set(policy.MemoryAvailable, 3*testGiB) }
	n.set(policy.MemoryAvailable, 2*testGiB-1)
	n.at(g, 0)
	p := n.at(g, 10*time.Second)
	wantHeld(t, p, "")
	if len(f.asked) != 1 || len(n.stops) != 0 {
		t.Errorf("asked %v, %d stops", f.asked, len(n.stops))
	}
}

// A listing before the stop takes time, in which the permit may expire. The stop waits for another one.
func TestPermitExpiresDuringTheListing(t *testing.T) {
	for name, set := range map[string]func(n *fakeNode){
		"soft":  func(n *fakeNode) { n.set(policy.MemoryAvailable, 2*testGiB-1) },
		"limit": func(n *fakeNode) { n.pods[0].StorageLimit, n.pods[0].Disk = 2*testGiB, diskBytes(3*testGiB) },
	} {
		t.Run(name, func(t *testing.T) {
			g, n := newManager(t, softAndHard)
			f := inFleet(g)
			n.at(g, 0)
			set(n)
			n.at(g, time.Second)
			f.held, f.asked = policy.Held{}, nil
			n.renewed = map[string]inventory.Pod{"big": n.pods[0]}
			n.onListing = func() { f.held = partial }
			n.at(g, 20*time.Second)
			if len(n.stops) != 0 || len(f.asked) != 2 {
				t.Fatalf("%d stops, asked %v", len(n.stops), f.asked)
			}
			wantHeld(t, n.at(g, 21*time.Second), api.HeldFleet)
			f.held = policy.Held{}
			n.at(g, 22*time.Second)
			if len(n.stops) != 1 {
				t.Errorf("%d stops", len(n.stops))
			}
		})
	}
}

// The stops for which the fleet is asked, and those that do not know of it.
func TestOnlyGentleStopsAsk(t *testing.T) {
	limit := func(n *fakeNode) {
		for i := range n.pods {
			n.pods[i].StorageLimit = 2 * testGiB
		}
	}
	for _, tt := range []struct {
		name, conf string
		set        func(g *Manager, n *fakeNode)
		held       string // "" = a stop
		asked      string
	}{
		{name: "soft", set: func(_ *Manager, n *fakeNode) { n.set(policy.MemoryAvailable, 2*testGiB-1) }, held: api.HeldFleet, asked: "big soft"},
		{name: "limit", set: func(_ *Manager, n *fakeNode) { limit(n) }, held: api.HeldFleet, asked: "big softlimit"},
		{name: "hard", set: func(_ *Manager, n *fakeNode) { n.set(policy.MemoryAvailable, testGiB-1) }},
		{name: "hard, directly", conf: "eviction.direct_kill = 'hard-memory'\n", set: func(_ *Manager, n *fakeNode) { n.set(policy.MemoryAvailable, testGiB-1) }},
		{name: "drain", set: func(g *Manager, _ *fakeNode) { g.Orders.Drain = &api.Drain{} }},
		{name: "soft, in observe mode", conf: "mode = 'observe'\n", set: func(_ *Manager, n *fakeNode) { n.set(policy.MemoryAvailable, 2*testGiB-1) }},
		{name: "limit, in observe mode", conf: "mode = 'observe'\n", set: func(_ *Manager, n *fakeNode) { limit(n) }},
		{name: "soft, back-off", conf: "backoff.first = '1m'\n", set: func(g *Manager, n *fakeNode) {
			n.set(policy.MemoryAvailable, 2*testGiB-1)
			for i := range n.pods {
				n.pods[i].Created = 0
				g.restraint.Begin(policy.Stop{Workload: n.pods[i].Workload, Sandbox: "x", Pool: policy.PoolPIDs, Over: true, Judged: true}, n.now)
			}
		}, held: api.HeldBackoff},
		{name: "soft, open breaker", conf: "budget.breaker = 1\n", set: func(g *Manager, n *fakeNode) {
			none := func(policy.Signal) policy.Amount { return policy.Amount{} }
			n.set(policy.MemoryAvailable, 2*testGiB-1)
			g.restraint.Begin(policy.Stop{Sandbox: "x", Kind: policy.Soft, Expected: 1, Over: true}, n.now)
			g.restraint.Judge(policy.PoolMemory, none, policy.Amount{}, n.now)
		}, held: api.HeldBreaker},
		{name: "limit, budget", set: func(g *Manager, n *fakeNode) {
			limit(n)
			for range 2 {
				g.restraint.Begin(policy.Stop{Sandbox: "x", Kind: policy.Soft, Cause: policy.CauseLimit, Over: true, Judged: true}, n.now)
			}
		}, held: api.HeldBudget},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, n := newManager(t, tt.conf+softAndHard)
			f := inFleet(g)
			tt.set(g, n)
			p := n.at(g, 0)
			if p.Held == api.HeldGrace {
				p = n.at(g, 10*time.Second)
			}
			if p.Held != tt.held || (p.Stop == nil) != (tt.held != "") || strings.Join(f.asked, ", ") != tt.asked {
				t.Errorf("stopped %q, held by %q, asked %v; want %q, %q", stopped(&p), p.Held, f.asked, tt.held, tt.asked)
			}
		})
	}
}

// The fleet is not asked for a stop that cannot bring relief: such a node would count as one that wants a stop. It is asked
// once a pod uses the disk.
func TestUselessStopAsksNoFleet(t *testing.T) {
	g, n := newManager(t, disksAlone+"[eviction.soft]\n\"nodefs.available\" = \"4Gi\"\n[eviction.soft_grace_period]\n\"nodefs.available\" = \"0s\"\n")
	f := inFleet(g)
	use := func(bytes int64) {
		for i := range n.pods {
			n.pods[i].Disk = diskBytes(bytes)
		}
	}
	use(0)
	n.set(policy.NodeFSAvailable, 2*testGiB) // above the default hard threshold, 10 %
	held := ""
	for i := range 5 {
		p := n.at(g, time.Duration(i)*time.Second)
		held = p.Held
		if p.Stop != nil || len(f.asked) > 0 {
			t.Fatalf("stopped %q, held by %q, asked %v", stopped(&p), p.Held, f.asked)
		}
	}
	if held != api.HeldOutside {
		t.Errorf("held by %q", held)
	}
	use(8 * testGiB)
	for i := range 20 {
		n.at(g, time.Duration(5+i)*time.Second)
	}
	if len(f.asked) == 0 {
		t.Error("asked for no stop that brings relief")
	}
}

// A pod that starts while its class is not admitted is stopped without a permit.
func TestAdmissionAsksNoFleet(t *testing.T) {
	g, n := newManager(t, "[admission]\nmode = \"stop\"\n[budget]\nbreaker = 0\n"+softAndHard)
	f := inFleet(g)
	n.set(policy.MemoryAvailable, testGiB+1)
	n.at(g, 0)
	n.set(policy.MemoryAvailable, 8*testGiB)
	late := testPod("late", 1)
	late.Created = time.Hour + time.Second
	n.pods = append(n.pods, late)
	wantStop(t, n.at(g, 2*time.Second), "d/late")
	if len(f.asked) != 0 {
		t.Errorf("asked %v", f.asked)
	}
}

// A hard threshold does not wait for the fleet: neither while a soft stop is held, nor to escalate one that is
// permitted.
func TestHardThresholdAsksNoFleet(t *testing.T) {
	for _, permitted := range []bool{false, true} {
		g, n := newManager(t, softAndHard)
		f := inFleet(g)
		if permitted {
			f.held = policy.Held{}
		}
		n.set(policy.MemoryAvailable, 2*testGiB-1)
		n.at(g, 0)
		n.at(g, 10*time.Second)
		asked := len(f.asked)
		f.held = partial
		n.leak("big", testGiB-1)
		p := n.at(g, 11*time.Second)
		if permitted != (p.Escalated == "d/big") || permitted == (p.Stop != nil) || len(f.asked) != asked {
			t.Errorf("permitted %t: stopped %+v, escalated %q, held by %q, asked %v", permitted, p.Stop, p.Escalated, p.Held, f.asked)
		}
	}
}

// A pool that the fleet holds back delays no other pool.
func TestFleetHoldsNoOtherPool(t *testing.T) {
	g, n := newManager(t, softAndHard)
	inFleet(g)
	n.set(policy.MemoryAvailable, 2*testGiB-1)
	n.at(g, 0)
	wantHeld(t, n.at(g, 10*time.Second), api.HeldFleet)
	n.set(policy.PIDAvailable, 99)
	p := n.at(g, 11*time.Second)
	if p.Stop == nil || p.Stop.Signal != policy.PIDAvailable.String() || p.Held != "" || p.HeldDetail != "" {
		t.Errorf("stopped %+v, held by %q: %q", p.Stop, p.Held, p.HeldDetail)
	}
}
