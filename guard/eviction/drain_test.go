package eviction

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// newDrainGuard returns a Manager of a node with seven pods of different priorities, one of them protected.
func newDrainGuard(t *testing.T, config string) (*Manager, *fakeNode) {
	t.Helper()
	g, n := newManager(t, config)
	n.pods = nil
	for _, p := range []struct {
		name     string
		priority int64
		stays    string
	}{{"high", 10, ""}, {"low", -10, ""}, {"mid", 0, ""}, {"static", -100, "static pod"}, {"lower", -20, ""}, {"five", 20, ""}, {"six", 30, ""}} {
		pod := testPod(p.name, testGiB)
		pod.Priority, pod.Protection, pod.Created = p.priority, p.stays, time.Minute
		n.pods = append(n.pods, pod)
	}
	return g, n
}

func stoppedPods(n *fakeNode) (names []string) {
	for _, s := range n.stops {
		names = append(names, s.order.Pod.Name)
	}
	return names
}

// A stop with a grace period asks the containers that have started since the listing to end, too.
func TestGraceOfANewContainer(t *testing.T) {
	for name, begin := range map[string]func(*Manager, *fakeNode){
		"drain": func(g *Manager, _ *fakeNode) {
			g.Orders.Drain = &api.Drain{Since: api.Duration(time.Hour), Grace: api.Duration(time.Minute)}
		},
		"stop": func(g *Manager, n *fakeNode) {
			g.StopPod(t.Context(), &n.pods[0], time.Minute, "test", &api.Pass{ID: 1})
		},
		"limit": func(_ *Manager, n *fakeNode) {
			n.pods[0].StorageLimit, n.pods[0].Disk = testMiB, diskBytes(2*testMiB)
		},
	} {
		g, n := newManager(t, "")
		n.pods = n.pods[:1]
		renewed := n.pods[0]
		renewed.Containers = []inventory.Container{{ID: "new"}}
		n.renewed = map[string]inventory.Pod{"big": renewed}
		begin(g, n)
		n.at(g, 0)
		if len(n.stops) != 1 || n.stops[0].order.Direct || n.stops[0].order.Pod.Containers[0].ID != "new" {
			t.Errorf("%s: stops %+v", name, n.stops)
		}
	}
}

// A drain stops the lowest priority first, four pods at a time, with a grace period, and no protected pod.
func TestDrainOrder(t *testing.T) {
	g, n := newDrainGuard(t, "")
	g.Orders.Drain = &api.Drain{Since: api.Duration(time.Hour), Grace: api.Duration(10 * time.Second), Reason: "new disk"}
	for i := range 10 {
		n.at(g, time.Duration(i)*10*time.Millisecond)
	}
	if got, want := stoppedPods(n), []string{"lower", "low", "mid", "high"}; !slices.Equal(got, want) {
		t.Fatalf("stopped %v, want %v", got, want)
	}
	for _, s := range n.stops {
		if o := s.order; o.Grace != 10*time.Second || o.Direct {
			t.Errorf("%s: %+v", o.Pod.Name, o)
		}
	}
	n.end(n.stops[1])
	p := n.at(g, time.Second)
	if len(p.Settled) != 1 || p.Settled[0].Pod != "d/low" || p.Stop == nil || p.Stop.Pod != "d/five" || !strings.Contains(p.Stop.Reason, "new disk") {
		t.Errorf("after one has ended: settled %+v, stop %+v", p.Settled, p.Stop)
	}
	for _, s := range n.stops {
		select {
		case <-s.done:
		default:
			n.end(s)
		}
	}
	for i := range 3 {
		n.at(g, 2*time.Second+time.Duration(i)*10*time.Millisecond)
		for _, s := range n.stops {
			select {
			case <-s.done:
			default:
				n.end(s)
			}
		}
	}
	n.at(g, 3*time.Second)
	if len(n.pods) != 1 || n.pods[0].Name != "static" || len(n.stops) != 6 {
		t.Errorf("left: %d pods after %d stops", len(n.pods), len(n.stops))
	}
	if left := g.restraint.Status(n.now).Soft.Left; left != 2 {
		t.Errorf("the drain took of the budget: %d left", left)
	}
}

// A drain stops a pod of unknown class last among those of its priority.
func TestDrainOrderOfUnknownClass(t *testing.T) {
	pods := []inventory.Pod{testPod("unknown", 1), testPod("guaranteed", 1), testPod("best effort", 1)}
	pods[0].QoS, pods[1].QoS = policy.QoSUnknown, policy.Guaranteed
	for i, want := range []string{"best effort", "guaranteed", "unknown"} {
		if got := drainOrder(pods)[i].Name; got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
}

// A drain also stops pods that start during it. A pod that comes back is stopped after a longer wait each
// time.
func TestDrainStopsNewcomers(t *testing.T) {
	g, n := newDrainGuard(t, "")
	n.pods = nil
	g.Orders.Drain = &api.Drain{Since: api.Duration(time.Hour), Grace: api.Duration(time.Second)}
	var at []time.Duration
	for i := range 120 {
		now := time.Duration(i+1) * time.Second
		if len(n.pods) == 0 {
			pod := testPod("again", 1)
			pod.Created = time.Hour + now
			pod.ID += now.String() // a new sandbox of the same workload
			n.pods = append(n.pods, pod)
		}
		before := len(n.stops)
		n.at(g, now)
		if len(n.stops) > before {
			at = append(at, now)
			n.end(n.stops[before])
		}
	}
	want := []time.Duration{time.Second, 11 * time.Second, 31 * time.Second, 71 * time.Second}
	if !slices.Equal(at, want) {
		t.Errorf("stopped at %v, want %v", at, want)
	}
	g.Orders.Drain = nil
	if n.at(g, time.Hour); len(n.stops) != len(at) {
		t.Error("stopped after undrain")
	}
}

// A drain retries a pod that outlived its stop, but not at once.
func TestDrainTriesAgain(t *testing.T) {
	g, n := newDrainGuard(t, "")
	n.pods = n.pods[:1]
	g.Orders.Drain = &api.Drain{Since: api.Duration(time.Hour), Grace: api.Duration(time.Second)}
	n.at(g, 0)
	close(n.stops[0].done)
	p := n.at(g, time.Second)
	if len(p.Settled) != 1 || p.Settled[0].Result.Emptied {
		t.Errorf("settled %+v", p.Settled)
	}
	if n.at(g, 30*time.Second); len(n.stops) != 1 {
		t.Error("tried again at once")
	}
	if n.at(g, 2*time.Minute); len(n.stops) != 2 {
		t.Error("not tried again")
	}
}

// A hard threshold ends the grace period of a drained pod that ranks first. If another pod ranks first,
// that pod is stopped at once.
func TestDrainDoesNotDelayHard(t *testing.T) {
	g, n := newDrainGuard(t, softAndHard)
	n.pods = n.pods[1:2] // low
	big := testPod("big", 8*testGiB)
	big.Priority = -50
	g.Orders.Drain = &api.Drain{Since: api.Duration(time.Hour), Grace: api.Duration(30 * time.Second)}
	n.at(g, 0)
	g.Orders.Drain = nil
	n.pods = append(n.pods, big)
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, time.Second); p.Stop == nil || p.Stop.Pod != "d/big" {
		t.Fatalf("stopped %+v, want d/big beside the drain", p.Stop)
	}

	g, n = newDrainGuard(t, softAndHard)
	n.pods = n.pods[1:2]
	g.Orders.Drain = &api.Drain{Since: api.Duration(time.Hour), Grace: api.Duration(30 * time.Second)}
	n.at(g, 0)
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, time.Second); p.Escalated != "d/low" || len(n.stops) != 1 || n.stops[0].escalated != 1 {
		t.Errorf("escalated %q, %d stops", p.Escalated, len(n.stops))
	}
}

// If a drain can stop another pod, the next pass follows at once, but not while criguard is paused.
func TestDrainPace(t *testing.T) {
	g, n := newDrainGuard(t, "")
	g.Orders.Drain = &api.Drain{Since: api.Duration(time.Hour), Grace: api.Duration(time.Second)}
	n.at(g, 0)
	if got := g.Pause(); got != minPause {
		t.Errorf("pause of %s with more to stop, want %s", got, minPause)
	}
	g.Orders.Pause = &api.Pause{Since: api.Duration(time.Hour), Until: api.Duration(2 * time.Hour)}
	n.at(g, time.Second)
	if got := g.Pause(); got < 100*time.Millisecond {
		t.Errorf("pause of %s while paused", got)
	}
}

// While the runtime is away, a drain begins no stop: the pod would be killed without being told to end.
func TestDrainWithoutARuntime(t *testing.T) {
	g, n := newDrainGuard(t, "")
	g.Orders.Drain = &api.Drain{Since: api.Duration(time.Hour), Grace: api.Duration(time.Second)}
	n.at(g, 0)
	n.down = true
	for i := range 10 {
		n.at(g, time.Duration(i)*time.Second)
	}
	if len(n.stops) != 1 {
		t.Errorf("%d stops, want 1", len(n.stops))
	}
	n.down = false
	if n.at(g, 10*time.Second); len(n.stops) != 2 {
		t.Errorf("when it is back, %d stops, want 2", len(n.stops))
	}
}

func TestDrainNeverInObserveMode(t *testing.T) {
	g, n := newDrainGuard(t, `mode = "observe"`)
	g.Orders.Drain = &api.Drain{Since: api.Duration(time.Hour)}
	if p := n.at(g, 0); p.Stop != nil || len(n.stops) != 0 {
		t.Errorf("stopped %+v", p.Stop)
	}
}

func TestDrainPlan(t *testing.T) {
	g, n := newDrainGuard(t, "")
	n.pods[0].Grace = 3 * time.Second
	plan := g.Plan(n.pods, 10*time.Second)
	var names []string
	for _, p := range plan.Pods {
		names = append(names, p.Pod)
	}
	if want := []string{"d/lower", "d/low", "d/mid", "d/high", "d/five", "d/six", "d/static"}; !slices.Equal(names, want) || plan.Left != 6 {
		t.Errorf("plan %v, %d left", names, plan.Left)
	}
	if p := plan.Pods; time.Duration(p[3].Grace) != 3*time.Second || time.Duration(p[0].Grace) != 10*time.Second || p[6].Stays != "static pod" || p[0].Stays != "" {
		t.Errorf("plan %+v", p)
	}
}

// A paused Manager observes and records, but acts on no threshold, limit or admission rule and on no drain.
// The pause ends by itself.
func TestPassPaused(t *testing.T) {
	g, n := newManager(t, "[admission]\nmode = \"stop\"\n[[limit]]\nname = \"*\"\nephemeral_storage = \"1\"\n"+softAndHard)
	for i := range n.pods {
		n.pods[i].StorageLimit = 1
	}
	g.Orders = api.Orders{Pause: &api.Pause{Since: api.Duration(time.Hour), Until: api.Duration(time.Hour + time.Minute)}, Drain: &api.Drain{Since: api.Duration(time.Hour)}}
	n.set(policy.MemoryAvailable, testGiB/2)
	n.set(policy.NodeFSAvailable, 1)
	for _, after := range []time.Duration{0, 30 * time.Second, time.Minute - 1} {
		p := n.at(g, after)
		if held := g.RankNow(t.Context(), policy.MemoryAvailable).Held; held == nil || held.Reason != api.HeldPaused {
			t.Errorf("after %s: the ranking says that %+v holds the stop", after, held)
		}
		if p.Stop != nil || len(n.stops) != 0 || len(n.reliefs) != 0 || p.Held != api.HeldPaused || !p.Conditions.Has(policy.MemoryPressure) {
			t.Fatalf("after %s: %+v, %d stops, %d reclaims", after, p, len(n.stops), len(n.reliefs))
		}
	}
	p := n.at(g, time.Minute)
	if p.Command == nil || p.Command.Command != api.CommandResume || p.Command.By != nil || g.Orders.Pause != nil {
		t.Errorf("after the pause: %+v", p.Command)
	}
	if len(n.reliefs) != 0 || !g.again {
		t.Errorf("%d reclaims while garbage collection is still paused, and again at once: %t", len(n.reliefs), g.again)
	}
	if p := n.at(g, time.Minute+minPause); p.Stop == nil || len(n.reliefs) == 0 {
		t.Errorf("after the pause: %+v, %d reclaims", p.Stop, len(n.reliefs))
	}
}

// A stop that an operator asked for takes no budget, and delays no other stop of the workload.
func TestStopPod(t *testing.T) {
	g, n := newDrainGuard(t, "")
	pod := n.pods[0]
	p := api.Pass{ID: 7, At: api.Duration(n.now)}
	g.StopPod(t.Context(), &pod, 5*time.Second, "by root", &p)
	if len(n.stops) != 1 || n.stops[0].order.Grace != 5*time.Second || n.stops[0].order.Direct || p.Stop.Pod != pod.FullName() {
		t.Fatalf("%d stops, %+v", len(n.stops), p.Stop)
	}
	n.end(n.stops[0])
	settled := n.at(g, time.Second).Settled
	if len(settled) != 1 || settled[0].Pass != 7 || settled[0].Kind != api.KindCommand || !settled[0].Result.Emptied {
		t.Errorf("settled %+v", settled)
	}
	if b := g.restraint.Status(n.now); b.Soft.Left != 2 || b.Soft.LastHour != 0 {
		t.Errorf("budget %+v", b.Soft)
	}
	again := recordOf(&pod, policy.CauseLimit)
	if held := g.restraint.Check(&again, n.now); held.By != "" {
		t.Errorf("the workload's next stop is held back: %+v", held)
	}
}

// An operator's stop of the pod that must be stopped for hard memory is waited for like any other stop, and
// limits are enforced meanwhile.
func TestStopPodUnderPressure(t *testing.T) {
	g, n := newManager(t, memoryHard)
	pod := n.pods[0]
	p := api.Pass{ID: 7, At: api.Duration(n.now)}
	g.StopPod(t.Context(), &pod, time.Hour, "by root", &p)
	n.set(policy.MemoryAvailable, testGiB/2)
	wantHeld(t, n.at(g, 0), api.HeldInFlight)
	if !n.stops[0].direct {
		t.Error("the stop was not escalated")
	}
	n.kill(n.stops[0])
	n.remains["big"] = policy.Known(3 * testGiB)
	wantHeld(t, n.at(g, 10*time.Millisecond), api.HeldInFlight)
	n.remains["big"] = policy.Known(0)
	n.set(policy.MemoryAvailable, 8*testGiB)
	if wantSettled(t, n.at(g, 20*time.Millisecond), 1); len(n.stops) != 1 {
		t.Errorf("%d stops", len(n.stops))
	}
}

// A soft threshold does not wait for an operator's stop whose grace period is longer than that of its own
// stops, and a pod that fills the memory meanwhile is found.
func TestSoftWaitsForNoLongGrace(t *testing.T) {
	for grace, want := range map[time.Duration]string{time.Hour: "d/small", 20 * time.Second: ""} {
		g, n := newManager(t, softAndHard)
		n.pods[0].Grace = grace
		g.StopPod(t.Context(), &n.pods[0], grace, "by root", &api.Pass{ID: 7, At: api.Duration(n.now)})
		n.set(policy.MemoryAvailable, 3*testGiB/2)
		if n.at(g, 0); g.Snapshot().Relieving {
			t.Error("an operator's stop relieves before a threshold waits for it")
		}
		wantHeld(t, n.at(g, 10*time.Second), api.HeldInFlight)
		if got := g.Snapshot().Relieving; got != (want == "") {
			t.Errorf("with a grace period of %s: relieving %t", grace, got)
		}
		n.grow("small", 8*testGiB)
		p := n.at(g, 11*time.Second)
		if stopped(&p) != want || n.stops[0].escalated != 0 {
			t.Errorf("with a grace period of %s: stopped %q, held by %q, %d escalations", grace, stopped(&p), p.Held, n.stops[0].escalated)
		}
	}
}

// A drained pod whose stop a threshold waited for is not stopped again, and takes no hard budget.
func TestDrainStopsNoPodTwiceUnderPressure(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.pods = n.pods[:1]
	g.Orders.Drain = &api.Drain{Since: api.Duration(time.Hour), Grace: api.Duration(30 * time.Second)}
	before := g.restraint.Status(n.now).Hard.Left
	n.at(g, 0)
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, time.Second); p.Escalated != "d/big" {
		t.Fatalf("escalated %q, held by %q", p.Escalated, p.Held)
	}
	if left := g.restraint.Status(n.now).Hard.Left; left != before {
		t.Errorf("%d hard stops are left of %d", left, before)
	}
	n.kill(n.stops[0])
	n.remains["big"] = policy.Known(0)
	n.set(policy.MemoryAvailable, 8*testGiB)
	if p := n.at(g, 2*time.Second); len(p.Settled) != 1 || len(n.stops) != 1 {
		t.Errorf("settled %+v, %d stops", p.Settled, len(n.stops))
	}
}

// A drain does not stop a sandbox again that a stop for a threshold has emptied and that is still listed.
func TestDrainStopsNoEmptiedPod(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.pods = n.pods[:1]
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.kill(n.stops[0])
	n.remains["big"] = policy.Known(0)
	n.set(policy.MemoryAvailable, 8*testGiB)
	g.Orders.Drain = &api.Drain{Since: api.Duration(time.Hour), Grace: api.Duration(30 * time.Second)}
	wantSettled(t, n.at(g, time.Second), 1)
	n.at(g, 2*time.Second)
	if len(n.stops) != 1 {
		t.Errorf("%d stops", len(n.stops))
	}
}
