package guard

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/policy"
)

// newDrainGuard is a guard over pods of three priorities, one of them protected.
func newDrainGuard(t *testing.T, config string) (*Guard, *fakeNode) {
	t.Helper()
	g, n := newPassGuard(t, config)
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

// Lowest priority first, four at a time, gently, and never what is protected.
func TestDrainOrder(t *testing.T) {
	g, n := newDrainGuard(t, "")
	g.orders.Drain = &Drain{Since: time.Hour, Grace: 10 * time.Second, Reason: "new disk"}
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

// What comes during a drain is stopped, too, and each time it comes back after a
// longer wait.
func TestDrainStopsNewcomers(t *testing.T) {
	g, n := newDrainGuard(t, "")
	n.pods = nil
	g.orders.Drain = &Drain{Since: time.Hour, Grace: time.Second}
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
	g.orders.Drain = nil
	if n.at(g, time.Hour); len(n.stops) != len(at) {
		t.Error("stopped after undrain")
	}
}

// One that outlives its stop is tried again, not at once.
func TestDrainTriesAgain(t *testing.T) {
	g, n := newDrainGuard(t, "")
	n.pods = n.pods[:1]
	g.orders.Drain = &Drain{Since: time.Hour, Grace: time.Second}
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

// A hard threshold ends the grace of a drained pod that ranks first, and takes
// another one at once where that ranks first.
func TestDrainDoesNotDelayHard(t *testing.T) {
	g, n := newDrainGuard(t, softAndHard)
	n.pods = n.pods[1:2] // low
	big := testPod("big", 8*testGiB)
	big.Priority = -50
	g.orders.Drain = &Drain{Since: time.Hour, Grace: 30 * time.Second}
	n.at(g, 0)
	g.orders.Drain = nil
	n.pods = append(n.pods, big)
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, time.Second); p.Stop == nil || p.Stop.Pod != "d/big" {
		t.Fatalf("stopped %+v, want d/big beside the drain", p.Stop)
	}

	g, n = newDrainGuard(t, softAndHard)
	n.pods = n.pods[1:2]
	g.orders.Drain = &Drain{Since: time.Hour, Grace: 30 * time.Second}
	n.at(g, 0)
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, time.Second); p.Escalated != "d/low" || len(n.stops) != 1 || n.stops[0].escalated != 1 {
		t.Errorf("escalated %q, %d stops", p.Escalated, len(n.stops))
	}
}

// A drain that can go on is looked at again at once, but not while it is paused.
func TestDrainPace(t *testing.T) {
	g, n := newDrainGuard(t, "")
	g.orders.Drain = &Drain{Since: time.Hour, Grace: time.Second}
	n.at(g, 0)
	if got := g.Pause(); got != minPause {
		t.Errorf("pause of %s with more to stop, want %s", got, minPause)
	}
	g.orders.Pause = &Pause{Since: time.Hour, Until: 2 * time.Hour}
	n.at(g, time.Second)
	if got := g.Pause(); got < 100*time.Millisecond {
		t.Errorf("pause of %s while paused", got)
	}
}

func TestDrainNeverInObserveMode(t *testing.T) {
	g, n := newDrainGuard(t, `mode = "observe"`)
	g.orders.Drain = &Drain{Since: time.Hour}
	if p := n.at(g, 0); p.Stop != nil || len(n.stops) != 0 {
		t.Errorf("stopped %+v", p.Stop)
	}
}

func TestDrainPlan(t *testing.T) {
	g, n := newDrainGuard(t, "")
	n.pods[0].Grace = 3 * time.Second
	plan := g.planDrain(n.pods, 10*time.Second)
	var names []string
	for _, p := range plan.Pods {
		names = append(names, p.Pod)
	}
	if want := []string{"d/lower", "d/low", "d/mid", "d/high", "d/five", "d/six", "d/static"}; !slices.Equal(names, want) || plan.Left != 6 {
		t.Errorf("plan %v, %d left", names, plan.Left)
	}
	if p := plan.Pods; p[3].Grace != 3*time.Second || p[0].Grace != 10*time.Second || p[6].Stays != "static pod" || p[0].Stays != "" {
		t.Errorf("plan %+v", p)
	}
}

// A paused guard sees and tells, and acts on nothing, whatever asks for it; the
// pause ends by itself.
func TestPassPaused(t *testing.T) {
	g, n := newPassGuard(t, "[admission]\nmode = \"stop\"\n[[limit]]\nname = \"*\"\nephemeral_storage = \"1\"\n"+softAndHard)
	for i := range n.pods {
		n.pods[i].StorageLimit = 1
	}
	g.orders = Orders{Pause: &Pause{Since: time.Hour, Until: time.Hour + time.Minute}, Drain: &Drain{Since: time.Hour}}
	n.set(policy.MemoryAvailable, testGiB/2)
	n.set(policy.NodeFSAvailable, 1)
	for _, after := range []time.Duration{0, 30 * time.Second, time.Minute - 1} {
		p := n.at(g, after)
		if p.Stop != nil || len(n.stops) != 0 || len(n.reliefs) != 0 || p.Held != HeldPaused || !p.Conditions.Has(policy.MemoryPressure) {
			t.Fatalf("after %s: %+v, %d stops, %d reclaims", after, p, len(n.stops), len(n.reliefs))
		}
	}
	p := n.at(g, time.Minute)
	if p.Stop == nil || p.Command == nil || p.Command.Command != CommandResume || p.Command.By != nil || g.orders.Pause != nil {
		t.Errorf("after the pause: %+v, %+v", p.Stop, p.Command)
	}
}
