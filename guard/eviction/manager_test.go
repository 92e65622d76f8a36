package eviction

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

func TestPassSoftThenEscalated(t *testing.T) {
	g, n := newManager(t, softAndHard)
	n.set(policy.MemoryAvailable, testGiB+1)
	if p := n.at(g, 0); p.Stop != nil || p.Held != api.HeldGrace {
		t.Fatalf("at once: stop %v, held by %q", p.Stop, p.Held)
	}
	p := n.at(g, 10*time.Second)
	if p.Stop == nil || p.Stop.Pod != "d/big" || time.Duration(p.Stop.Grace) != 20*time.Second || n.stops[0].order.Direct {
		t.Fatalf("after the grace period: %+v", p.Stop)
	}
	n.set(policy.MemoryAvailable, testGiB-1)
	p = n.at(g, 11*time.Second)
	if p.Escalated != "d/big" || n.stops[0].escalated != 1 || len(n.stops) != 1 {
		t.Fatalf("hard during the soft stop: escalated %q, %d stops", p.Escalated, len(n.stops))
	}
	if p = n.at(g, 12*time.Second); p.Escalated != "" || n.stops[0].escalated != 1 {
		t.Error("escalated twice")
	}
}

// A soft stop of a pod that an operator protects meanwhile continues, but is not cut short.
func TestPassNeverEscalatesProtected(t *testing.T) {
	g, n := newManager(t, softAndHard)
	n.set(policy.MemoryAvailable, testGiB+1)
	n.at(g, 0)
	n.at(g, 10*time.Second)
	for i := range n.pods {
		if n.pods[i].ID == n.stops[0].order.Pod.ID {
			n.pods[i].Protection = "test"
		}
	}
	n.set(policy.MemoryAvailable, testGiB-1)
	if p := n.at(g, 11*time.Second); p.Escalated != "" || n.stops[0].escalated != 0 || p.Stop == nil {
		t.Errorf("escalated %q, stopped %+v, held by %q", p.Escalated, p.Stop, p.Held)
	}
}

// If a node is suspended right after a soft threshold was met, no pod is stopped for the time asleep: the
// grace period continues where it was, and the record shows only the observed time.
func TestPassSuspendServesNoGrace(t *testing.T) {
	g, n := newManager(t, strings.Replace(softAndHard, `"10s"`, `"30s"`, 1))
	n.set(policy.MemoryAvailable, testGiB+1)
	n.at(g, 0)
	n.at(g, time.Second)
	const woken = 8 * time.Hour
	for d := time.Duration(0); d < 19*time.Second; d += time.Second {
		p := n.at(g, woken+d)
		if p.Stop != nil || p.Held != api.HeldGrace || time.Duration(p.Met[0].For) != 11*time.Second+d {
			t.Fatalf("%s after the suspend: stop %+v, held by %q, %+v", d, p.Stop, p.Held, p.Met)
		}
	}
	if p := n.at(g, woken+19*time.Second); p.Stop == nil || !strings.Contains(p.Stop.Reason, "for 30s") {
		t.Errorf("after the grace period: %+v, held by %q", p.Stop, p.Held)
	}
}

// A soft stop never delays a hard stop for another resource.
func TestPassSoftDoesNotDelayHard(t *testing.T) {
	g, n := newManager(t, softAndHard)
	n.set(policy.MemoryAvailable, testGiB+1)
	n.at(g, 0)
	n.at(g, 10*time.Second)
	n.pods[1].PIDs = policy.Known(200)
	n.obs[policy.PIDAvailable] = policy.Observation{Available: 1, Capacity: 32768, Status: policy.OK}
	if p := n.at(g, 11*time.Second); p.Stop == nil || p.Stop.Signal != "pid.available" || len(n.stops) != 2 {
		t.Errorf("PIDs during a soft memory stop: %+v", p.Stop)
	}
}

// If a hard and a soft threshold of a pool are due, only the hard one counts: its deficit, its need and its grace
// period.
func TestOnlyTheKindActedOnCounts(t *testing.T) {
	g, n := newManager(t, softAndHard)
	n.set(policy.MemoryAvailable, testGiB-testMiB)
	n.protect("test")
	wantHeld(t, n.at(g, 0), api.HeldProtected)
	n.protect("")
	p := n.at(g, 10*time.Second)
	due := slices.DeleteFunc(slices.Clone(g.pressure.Met), func(m policy.Met) bool { return !m.Due })
	if wantStop(t, p, "d/big"); len(due) != 2 || p.Need.Deficit != testMiB || p.Need.Need != testMiB || p.Stop.Kind != "hard" || p.Stop.Grace != 0 {
		t.Errorf("need %+v, stop %+v, due %+v", p.Need, p.Stop, due)
	}
}

// A stop that killed nothing costs no budget, and the next pod is stopped.
func TestPassNothingKilled(t *testing.T) {
	g, n := newManager(t, softAndHard)
	n.set(policy.MemoryAvailable, testGiB/2)
	n.at(g, 0)
	n.stops[0].outcome.Nothing = true
	close(n.stops[0].done)
	p := n.at(g, time.Second)
	if p.Stop == nil || p.Stop.Pod != "d/small" {
		t.Fatalf("next: %+v", p.Stop)
	}
	if left := g.restraint.Status(n.now).Hard.Left; left != 2 {
		t.Errorf("%d of 3 hard stops left, want 2: the one that killed nothing is given back", left)
	}
}

// A query for the eviction order does not ask the runtime.
func TestRankDoesNotList(t *testing.T) {
	g, n := newManager(t, softAndHard)
	n.hidden = []inventory.Pod{testPod("new", 6*testGiB)}
	n.at(g, 0)
	if r := g.RankNow(t.Context(), policy.MemoryAvailable); n.listed != 0 || len(r.Pods) != 2 || r.Pods[0].Pod != "d/big" || r.Available != 8*testGiB {
		t.Errorf("%d fresh listings for %+v", n.listed, r)
	}
}

// The eviction order knows what stops have done to the pods, also while no threshold is met.
func TestRankAfterAStop(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.kill(n.stops[0])
	n.set(policy.MemoryAvailable, 8*testGiB)
	n.at(g, 0)
	wantSettled(t, n.at(g, chargeStill), 1)
	r := g.RankNow(t.Context(), policy.MemoryAvailable)
	i := slices.IndexFunc(r.Pods, func(p api.RankedView) bool { return p.Pod == "d/big" })
	if len(r.Pods) != 2 || i < 0 || r.Pods[i].Excluded != policy.ExcludedEnded {
		t.Errorf("%+v", r.Pods)
	}
}

// If a container was started in place of a listed one, the new container is stopped, unless the pod is gone
// or protected by then.
func TestPassContainerRestarted(t *testing.T) {
	for name, tt := range map[string]struct {
		renew func(*inventory.Pod)
		want  string
	}{
		"its new container": {func(p *inventory.Pod) { p.Containers = []inventory.Container{{ID: "new"}} }, "new"},
		"protected":         {func(p *inventory.Pod) { p.Protection = "critical" }, ""},
		"another sandbox":   {func(p *inventory.Pod) { p.ID = "big2" }, ""},
	} {
		g, n := newManager(t, softAndHard)
		n.pods[0].Containers = []inventory.Container{{ID: "old"}}
		renewed := n.pods[0]
		tt.renew(&renewed)
		n.renewed = map[string]inventory.Pod{"big": renewed}
		n.set(policy.MemoryAvailable, testGiB/2)
		p := n.at(g, 0)
		switch {
		case n.listed != 1:
			t.Errorf("%s: listed afresh %d times", name, n.listed)
		case tt.want == "" && (p.Stop != nil || p.Held != ""):
			t.Errorf("%s: stopped %+v, held by %q", name, p.Stop, p.Held)
		case tt.want != "" && (p.Stop == nil || n.stops[0].order.Pod.Containers[0].ID != tt.want):
			t.Errorf("%s: stopped %+v", name, p.Stop)
		}
	}
}

// If a container was started in place of a listed one and the runtime does not answer, the stop kills whatever runs in
// the pod's cgroup. Otherwise it would kill nothing, again and again.
func TestPassContainerRestartedUnlisted(t *testing.T) {
	for name, set := range map[string]func(*fakeNode){"": func(*fakeNode) {}, "down": func(n *fakeNode) { n.down = true }, "busy": func(n *fakeNode) { n.busy = true }} {
		g, n := newManager(t, softAndHard)
		n.pods[0].Cgroup = "/kubepods/podbig"
		n.renewed, n.listedAt = map[string]inventory.Pod{"big": n.pods[0]}, n.now-time.Second
		set(n)
		n.set(policy.MemoryAvailable, testGiB/2)
		wantStop(t, n.at(g, 0), "d/big")
		if got := n.stops[0].order.Unlisted; (name != "") != slices.Equal(got, []string{"/kubepods/podbig/new"}) {
			t.Errorf("runtime %s: kills %q", name, got)
		}
	}
}

// A signal that is held back or cannot be read does not affect the others.
func TestPassSignalsAreIndependent(t *testing.T) {
	g, n := newManager(t, "[eviction.hard]\n\"memory.available\" = \"1Gi\"\n\"nodefs.available\" = \"1Gi\"\n\"pid.available\" = \"100\"\n")
	n.slow = true
	n.set(policy.NodeFSAvailable, testGiB/2)
	n.obs[policy.MemoryAvailable].Status = policy.Failed
	if p := n.at(g, 0); p.Held != api.HeldReclaiming || len(n.stops) != 0 {
		t.Fatalf("disk: held by %q, %d stops", p.Held, len(n.stops))
	}
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, time.Second); p.Stop == nil || p.Stop.Signal != "memory.available" {
		t.Errorf("memory while the disk is being reclaimed: %+v", p.Stop)
	}
}

// A stall with memory to spare stops no pod, neither one that has come back nor a new one. It does not
// shorten the grace period of a stop in flight.
func TestPassStallWarns(t *testing.T) {
	stall := policy.Observation{Available: 500_000, Capacity: 1_000_000, Status: policy.OK}
	const (
		hardMemory = "eviction.hard.'memory.available' = '1Gi'\n"
		softMemory = "eviction.soft.'memory.available' = '2Gi'\neviction.soft_grace_period.'memory.available' = '10s'\n"
		hardStall  = "eviction.hard.'memory.stall' = '80%'\n"
		softStall  = "eviction.soft.'memory.stall' = '80%'\neviction.soft_grace_period.'memory.stall' = '1m'\n"
	)
	setup := func(t *testing.T, conf string) (*Manager, *fakeNode) {
		g, n := newManager(t, conf)
		n.set(policy.MeminfoAvailable, 12*testGiB)
		return g, n
	}
	t.Run("returned", func(t *testing.T) {
		g, n := setup(t, hardMemory+softStall)
		n.set(policy.MemoryAvailable, testGiB/2)
		n.at(g, 0)
		n.end(n.stops[0])
		n.set(policy.MemoryAvailable, 12*testGiB)
		n.at(g, time.Second)
		back := testPod("big", testGiB)
		back.ID, back.Created = "again", time.Hour+2*time.Second
		n.pods = append(n.pods, back)
		n.obs[policy.MemoryStall] = stall
		if p := n.at(g, 20*time.Second); p.Stop != nil || p.Held != api.HeldGrace || !g.pressure.Met[0].WarnOnly {
			t.Errorf("stopped %+v, held by %q", p.Stop, p.Held)
		}
	})
	t.Run("new", func(t *testing.T) {
		g, n := setup(t, "admission.mode = 'stop'\n"+hardStall)
		n.obs[policy.MemoryStall] = stall
		n.at(g, 0)
		late := testPod("late", 1)
		late.Created = time.Hour + time.Second
		n.pods = append(n.pods, late)
		if p := n.at(g, 2*time.Second); p.Stop != nil || p.Held != api.HeldStallFloor || p.Conditions != 0 {
			t.Errorf("stopped %+v, held by %q, conditions %q", p.Stop, p.Held, p.Conditions)
		}
		n.set(policy.MeminfoAvailable, testGiB)
		if p := n.at(g, 3*time.Second); p.Held != api.HeldOutside || p.Conditions != policy.ConditionsOf(policy.MemoryPressure) {
			t.Errorf("just taken outside the pods: held by %q, conditions %q", p.Held, p.Conditions)
		}
		if p := n.at(g, 20*time.Second); p.Stop == nil {
			t.Errorf("below the floor: held by %q", p.Held)
		}
	})
	t.Run("under way", func(t *testing.T) {
		g, n := setup(t, softMemory+hardStall)
		n.set(policy.MemoryAvailable, testGiB+1)
		n.at(g, 0)
		n.at(g, 10*time.Second)
		n.obs[policy.MemoryStall] = stall
		if p := n.at(g, 11*time.Second); p.Escalated != "" || n.stops[0].escalated != 0 {
			t.Errorf("escalated %q", p.Escalated)
		}
	})
}

// The same input gives the same record.
func TestPassIsDeterministic(t *testing.T) {
	var first string
	for range 20 {
		g, n := newManager(t, softAndHard)
		n.set(policy.MemoryAvailable, testGiB/2)
		p := n.at(g, 0)
		if got := fmt.Sprintf("%+v %+v", p.Stop.Reason, p.Ranked); first == "" {
			first = got
		} else if got != first {
			t.Fatalf("got %s, then %s", first, got)
		}
	}
}

// A stopped pod is dead before the runtime says so. Stopping it again would free nothing.
func TestPassStopsNobodyTwice(t *testing.T) {
	g, n := newManager(t, "[eviction.hard]\n\"memory.available\" = \"1Gi\"\n")
	n.pods[0].Created, n.pods[1].Created = time.Minute, time.Minute
	n.pods[1].MemoryRequest, n.pods[1].QoS = 2*testGiB, policy.Burstable
	n.set(policy.MemoryAvailable, testGiB/2)
	n.at(g, 0)
	n.stops[0].outcome.Result.Emptied = true
	close(n.stops[0].done)
	n.pods[0].Memory = policy.Known(24 << 10)
	n.set(policy.MemoryAvailable, testGiB-testMiB)
	n.at(g, time.Second)
	if p := n.at(g, 7*time.Second); p.Stop == nil || p.Stop.Pod != "d/small" {
		t.Errorf("stopped %+v, held by %q", p.Stop, p.Held)
	}
}

// A hard memory threshold ends the grace period of the pod that ranks first and kills the pod, even if it
// is being stopped for another reason.
func TestPassHardMemoryEscalatesAnyStop(t *testing.T) {
	for name, disk := range map[string]string{
		"a soft stop": "[eviction.soft]\n\"nodefs.available\" = \"1Gi\"\n[eviction.soft_grace_period]\n\"nodefs.available\" = \"1s\"\n",
		"a hard stop": "",
	} {
		t.Run(name, func(t *testing.T) {
			hard := "\"nodefs.available\" = \"1Gi\"\n"
			if disk != "" {
				hard = "\"nodefs.available\" = \"0%\"\n"
			}
			g, n := newManager(t, "[eviction]\nmax_pod_grace_period = \"30s\"\n[eviction.hard]\n\"memory.available\" = \"1Gi\"\n"+hard+disk)
			n.pods[1].Memory = policy.Known(200 * testMiB)
			n.set(policy.NodeFSAvailable, 0)
			n.at(g, 0)
			n.at(g, time.Second)
			if len(n.stops) != 1 || n.stops[0].order.Pod.Name != "big" || n.stops[0].order.Direct {
				t.Fatalf("for the disk: %+v", n.stops)
			}
			n.leak("big", testGiB/2)
			if p := n.at(g, 2*time.Second); p.Escalated != "d/big" || p.Held != api.HeldInFlight || !n.stops[0].direct || len(n.stops) != 1 {
				t.Errorf("escalated %q, held by %q, direct %v, %d stops", p.Escalated, p.Held, n.stops[0].direct, len(n.stops))
			}
			if p := n.at(g, 3*time.Second); p.Escalated != "" || n.stops[0].escalated != 1 {
				t.Errorf("escalated %d times", n.stops[0].escalated)
			}
		})
	}
}

// The thresholds are listed with their amounts on the node. Listing them changes no pass.
func TestThresholdsInForce(t *testing.T) {
	g, n := newManager(t, `[eviction.hard]
"memory.available" = "100Mi"
"nodefs.available" = "0%"
"nodefs.inodesFree" = "0%"
"imagefs.available" = "0%"
"imagefs.inodesFree" = "0%"
"pid.available" = "5%"
[eviction.soft]
"memory.available" = "50%"
[eviction.soft_grace_period]
"memory.available" = "1m30s"
`)
	n.set(policy.MemoryAvailable, testGiB)
	want := []string{"memory.available hard 100Mi", "memory.available soft 50% (8Gi) for 1m30s", "pid.available hard 5%"}
	if got := g.Thresholds(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if p := n.at(g, 0); !p.Changed || p.Held != api.HeldGrace {
		t.Errorf("the first pass: changed %t, held by %q", p.Changed, p.Held)
	}
}
