package eviction

import (
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// spend uses up the only token of a kind, or opens memory's breaker by a fruitless stop. It needs a budget with a burst
// of 1 and a breaker of 1.
func spend(g *Manager, n *fakeNode, kind policy.Kind, held string) {
	s := policy.Stop{Sandbox: "x", Kind: kind, Pool: policy.PoolPIDs, Over: true, Judged: true}
	if held == api.HeldBreaker {
		s = policy.Stop{Sandbox: "x", Kind: kind, Expected: 1, Over: true}
	}
	g.restraint.Begin(s, n.now)
	g.restraint.Judge(policy.PoolMemory, func(policy.Signal) policy.Amount { return policy.Amount{} }, policy.Amount{}, n.now)
}

const oneStop = "[budget]\nbreaker = 1\nhard = {burst = 1, every = \"1h\"}\nsoft = {burst = 1, every = \"1h\"}\n"

// At a hard threshold, neither budget nor breaker holds a culprit. At a soft one, both do.
func TestCulpritAtAHardThresholdIsNeverHeld(t *testing.T) {
	for _, c := range []struct{ kind, held, want string }{
		{"hard", "budget", ""}, {"hard", "breaker", ""}, {"soft", "budget", api.HeldBudget}, {"soft", "breaker", api.HeldBreaker},
	} {
		t.Run(c.kind+" "+c.held, func(t *testing.T) {
			conf := memoryHard
			if c.kind == "soft" {
				conf = strings.Replace(softMemory, "1m", "0s", 1)
			}
			g, n := newManager(t, conf+oneStop)
			n.at(g, 0)
			spend(g, n, map[string]policy.Kind{"hard": policy.Hard, "soft": policy.Soft}[c.kind], c.held)
			n.leak("small", testGiB/2) // 7.5 GiB within a second: faster than any other pod could make up for
			if p := n.at(g, time.Second); c.want == "" {
				wantStop(t, p, "d/small")
				if !strings.Contains(p.Stop.Reason, "fills it: grew by 7.5Gi/s") || p.Need.Culprit != "d/small" {
					t.Errorf("reason %q, need %+v", p.Stop.Reason, p.Need)
				}
			} else {
				wantHeld(t, p, c.want)
			}
		})
	}
}

// Memory that another stop gives back does not hide a leak that continues: within a second, the pods that rank before it seem to
// carry it.
func TestCulpritRightAfterAnotherStop(t *testing.T) {
	for _, slept := range []time.Duration{0, time.Hour} {
		g, n := newManager(t, memoryHard)
		n.appear("leaky", "leaky", testGiB)
		n.pods[2].Created, n.pods[2].Priority = time.Minute, 10
		n.set(policy.MemoryAvailable, 2*testGiB)
		n.at(g, 0)
		n.leak("big", testGiB/2)
		wantStop(t, n.at(g, time.Second), "d/big")
		n.at(g, time.Second+sampleClose) // takes a sample
		n.free(6 * testGiB)              // all of its 5.5 GiB
		wantSettled(t, n.at(g, time.Second+2*sampleClose), 1)
		n.sleep(g, slept)
		n.leak("leaky", testGiB-100*testMiB)
		wantStop(t, n.at(g, slept+2*time.Second+2*sampleClose), "d/leaky")
	}
}

// Files in memory that the containers of a pod have left do not make it a candidate while none runs, nor a culprit when the next
// one starts.
func TestPodBetweenTwoContainers(t *testing.T) {
	for _, starts := range []bool{false, true} {
		g, n := newManager(t, memoryHard)
		small := &n.pods[1]
		containers := small.Containers
		small.Containers, small.IdleCgroup = nil, "/kubepods/podsmall"
		n.at(g, 0)
		if starts {
			small.Containers, small.IdleCgroup = containers, ""
		}
		n.leak("big", testGiB/2)
		p := n.at(g, time.Second)
		if wantStop(t, p, "d/big"); p.Need.Culprit != "d/big" {
			t.Errorf("starts %t: culprit %q", starts, p.Need.Culprit)
		}
		for _, r := range p.Ranked {
			if r.Pod == "d/small" && (r.Usage != testGiB || (r.Frees == testGiB) != starts || (r.Excluded == "") != starts) {
				t.Errorf("starts %t: %+v", starts, r)
			}
		}
		if got := g.measured(n.Inventory(t.Context(), 0), n.now)[1].PIDs.Value != 0; got != starts {
			t.Errorf("starts %t: it has tasks: %t", starts, got)
		}
	}
}

// A culprit waits its turn while the pods that rank before it can carry the pool for 60 s. If budget or breaker holds
// them at a hard threshold, the culprit is stopped in their place. At a soft threshold, or within its request, it is
// not.
func TestCulpritIsStoppedInPlaceOfPodsThatAreHeld(t *testing.T) {
	for _, c := range []struct {
		name, conf, held string
		kind             policy.Kind
		request          int64 // of the culprit
		want             string
	}{
		{"no restraint", memoryHard, "", policy.Hard, 0, "d/big"},
		{"budget", memoryHard, api.HeldBudget, policy.Hard, 0, "d/small"},
		{"breaker", memoryHard, api.HeldBreaker, policy.Hard, 0, "d/small"},
		{"budget, within its request", memoryHard, api.HeldBudget, policy.Hard, 8 * testGiB, ""},
		{"breaker, within its request", memoryHard, api.HeldBreaker, policy.Hard, 8 * testGiB, ""},
		{"budget, soft", strings.Replace(softMemory, "1m", "0s", 1), api.HeldBudget, policy.Soft, 0, ""},
		{"breaker, soft", strings.Replace(softMemory, "1m", "0s", 1), api.HeldBreaker, policy.Soft, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, n := newManager(t, c.conf+oneStop)
			n.pods[0].Priority, n.pods[1].MemoryRequest = -1, c.request
			n.set(policy.MemoryAvailable, testGiB+40*testMiB)
			n.at(g, 0)
			if c.held != "" {
				spend(g, n, c.kind, c.held)
			}
			n.leak("small", testGiB-10*testMiB) // 50 MiB/s, of which 4 GiB carry 60 s
			p := n.at(g, time.Second)
			if c.want == "" {
				wantHeld(t, p, c.held)
			} else {
				wantStop(t, p, c.want)
			}
			if p.Need.Culprit != "d/small" || c.want == "d/small" && !strings.Contains(p.Stop.Reason, "fills it: grew by 50Mi/s") {
				t.Errorf("need %+v, stopped %+v", p.Need, p.Stop)
			}
		})
	}
}

// While the budget holds the other pods at a hard threshold, a pod that is too slow for a culprit is stopped once it
// uses up what is left within ten seconds. The breaker, which does not end with time, holds it.
func TestSlowLeakIsStoppedBeforeMemoryRunsOut(t *testing.T) {
	for _, c := range []struct {
		held string
		left int64
		want string
	}{
		{api.HeldBudget, 490 * testMiB, "d/small"},
		{api.HeldBudget, 510 * testMiB, ""},
		{api.HeldBreaker, 490 * testMiB, ""},
	} {
		g, n := newManager(t, memoryHard+oneStop)
		n.pods[0].Priority = -1
		n.set(policy.MemoryAvailable, c.left+50*testMiB)
		spend(g, n, policy.Hard, c.held)
		n.at(g, 0)
		n.leak("small", c.left) // 50 MiB/s, of a need of more than 500 MiB
		p := n.at(g, time.Second)
		if c.want == "" {
			wantHeld(t, p, c.held)
			continue
		}
		wantStop(t, p, c.want)
		if p.Need.Culprit != "d/small" || !strings.Contains(p.Stop.Reason, "fills it: grew by 50Mi/s") {
			t.Errorf("need %+v, stopped %+v", p.Need, p.Stop)
		}
	}
}
