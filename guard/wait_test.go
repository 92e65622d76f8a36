package guard

import (
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/policy"
)

const testMiB = 1 << 20

// returnedGuard has stopped "big", which has come back as a small pod and is in its
// back-off, and is short of memory once more: 80 of 100 MiB are available.
func returnedGuard(t *testing.T) (*Guard, *fakeNode) {
	t.Helper()
	g, n := newPassGuard(t, "[eviction.hard]\n\"memory.available\" = \"100Mi\"\n")
	n.set(policy.MemoryAvailable, 50*testMiB)
	if p := n.at(g, 0); p.Stop == nil || p.Stop.Pod != "d/big" {
		t.Fatalf("at first: %+v, held by %q", p.Stop, p.Held)
	}
	n.end(n.stops[0])
	n.set(policy.MemoryAvailable, 4*testGiB)
	if p := n.at(g, time.Second); len(p.Settled) != 1 {
		t.Fatalf("settled %+v", p.Settled)
	}
	again := testPod("big", 300*testMiB)
	again.ID, again.Created = "big-again", time.Hour+2*time.Second
	n.pods = append(n.pods, again)
	n.set(policy.MemoryAvailable, 80*testMiB)
	if p := n.at(g, 3*time.Second); p.Stop != nil || p.Held != HeldBackoff {
		t.Fatalf("once more: %+v, held by %q", p.Stop, p.Held)
	}
	return g, n
}

func (n *fakeNode) grow(id string, by int64) {
	for i := range n.pods {
		if n.pods[i].ID == id {
			n.pods[i].Memory.Value += by
		}
	}
}

// A pod that was stopped and has come back is waited for as long as it may be the cause,
// and no longer.
func TestPassWaitsForTheCauseAlone(t *testing.T) {
	for _, c := range []struct {
		name       string
		big, small int64 // MiB that each takes in the wait
		fresh      int64 // MiB of a pod that starts in it
		stopped    string
	}{
		{name: "it grows itself", big: 45, small: 5},
		{name: "nobody does", small: 12},
		{name: "another one", small: 40, stopped: "d/small"},
		{name: "both", big: 60, small: 41, stopped: "d/small"},
		{name: "one that started meanwhile", fresh: 45, stopped: "d/fresh"},
		{name: "a small one that started meanwhile", fresh: 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, n := returnedGuard(t)
			n.grow("big-again", c.big*testMiB)
			n.grow("small", c.small*testMiB)
			if c.fresh > 0 {
				p := testPod("fresh", c.fresh*testMiB)
				p.Created = time.Hour + 4*time.Second
				n.pods = append(n.pods, p)
			}
			n.set(policy.MemoryAvailable, max(80-c.big-c.small-c.fresh, 1)*testMiB)
			p := n.at(g, 5*time.Second)
			got := ""
			if p.Stop != nil {
				got = p.Stop.Pod
			}
			if got != c.stopped || got == "" && p.Held != HeldBackoff {
				t.Errorf("stopped %q, held by %q, want %q", got, p.Held, c.stopped)
			}
			if c.stopped == "" {
				if p := n.at(g, 11*time.Second); p.Stop == nil || p.Stop.Pod != "d/big" {
					t.Errorf("after the back-off: %+v, held by %q", p.Stop, p.Held)
				}
			}
		})
	}
}

// What grew before the wait, or in an earlier one, proves nothing.
func TestPassForgetsTheWait(t *testing.T) {
	g, n := returnedGuard(t)
	n.set(policy.MemoryAvailable, 4*testGiB)
	n.at(g, 4*time.Second)
	n.grow("small", testGiB)
	n.set(policy.MemoryAvailable, 90*testMiB)
	if p := n.at(g, 5*time.Second); p.Stop != nil || p.Held != HeldBackoff {
		t.Errorf("stopped %+v, held by %q", p.Stop, p.Held)
	}
}

// A hard memory threshold ends the grace period of the pod that ranks first also where that
// is being stopped for something else, and kills it then.
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
			g, n := newPassGuard(t, "[eviction]\nmax_pod_grace_period = \"30s\"\n[eviction.hard]\n\"memory.available\" = \"1Gi\"\n"+hard+disk)
			n.pods[1].Memory = policy.Known(200 * testMiB)
			n.set(policy.NodeFSAvailable, 0)
			n.at(g, 0)
			n.at(g, time.Second)
			if len(n.stops) != 1 || n.stops[0].order.Pod.Name != "big" || n.stops[0].order.Direct {
				t.Fatalf("for the disk: %+v", n.stops)
			}
			n.set(policy.MemoryAvailable, testGiB/2)
			if p := n.at(g, 2*time.Second); p.Escalated != "d/big" || p.Held != HeldInFlight || !n.stops[0].direct || len(n.stops) != 1 {
				t.Errorf("escalated %q, held by %q, direct %v, %d stops", p.Escalated, p.Held, n.stops[0].direct, len(n.stops))
			}
			if p := n.at(g, 3*time.Second); p.Escalated != "" || n.stops[0].escalated != 1 {
				t.Errorf("escalated %d times", n.stops[0].escalated)
			}
		})
	}
}

// What observe mode said restrains nothing once stops are made, and the stops that were
// made before it still do.
func TestPassObserveThenEnforce(t *testing.T) {
	const thresholds = "[eviction.hard]\n\"memory.available\" = \"1Gi\"\n"
	mode := func(m string) Config {
		cfg, err := ParseConfig("test", strings.NewReader("mode = \""+m+"\"\n"+thresholds))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	g, n := newPassGuard(t, thresholds)
	n.set(policy.MemoryAvailable, testGiB/2)
	n.at(g, 0)
	n.end(n.stops[0])
	n.set(policy.MemoryAvailable, 4*testGiB)
	n.at(g, time.Second)
	made := g.restraint.Status(n.now).Hard.Left
	g.SetConfig(mode("observe"))
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, 2*time.Second); p.Stop == nil || !p.Stop.DryRun || p.Stop.Pod != "d/small" {
		t.Fatalf("in observe mode: %+v, held by %q", p.Stop, p.Held)
	}
	g.SetConfig(mode("enforce"))
	if left := g.restraint.Status(n.now).Hard.Left; left != made {
		t.Errorf("%v hard stops are left, want %v", left, made)
	}
	again := testPod("big", 2*testGiB)
	again.ID, again.Created = "big-again", time.Hour+2*time.Second
	n.pods = append(n.pods, again)
	if p := n.at(g, 3*time.Second); p.Stop != nil || p.Held != HeldBackoff {
		t.Errorf("what was stopped is back: %+v, held by %q", p.Stop, p.Held)
	}
	n.pods = n.pods[:1]
	if p := n.at(g, 4*time.Second); p.Stop == nil || p.Stop.DryRun || p.Stop.Pod != "d/small" {
		t.Errorf("what was not stopped: %+v, held by %q", p.Stop, p.Held)
	}
}

// A pod that had ended before it was stopped for coming under pressure costs nothing.
func TestPassAdmissionOfNobody(t *testing.T) {
	g, n := newPassGuard(t, "admission.mode = 'stop'\n[eviction.hard]\n\"memory.available\" = \"1Gi\"\n")
	n.pods = n.pods[:1]
	n.pods[0].Protection = "test"
	n.set(policy.MemoryAvailable, testGiB/2)
	n.at(g, 0)
	before := g.restraint.Status(n.now).Soft.Left
	job := testPod("job", 1)
	job.Created = time.Hour + time.Second
	n.pods = append(n.pods, job)
	n.set(policy.MemoryAvailable, 4*testGiB)
	if p := n.at(g, 2*time.Second); p.Stop == nil || p.Stop.Kind != kindAdmission {
		t.Fatalf("stopped %+v, held by %q", p.Stop, p.Held)
	}
	n.stops[0].outcome.Nothing = true
	close(n.stops[0].done)
	if p := n.at(g, 3*time.Second); len(p.Settled) != 1 || p.Stop != nil {
		t.Errorf("settled %+v, stopped %+v", p.Settled, p.Stop)
	}
	if left := g.restraint.Status(n.now).Soft.Left; left != before {
		t.Errorf("%v soft stops are left of %v", left, before)
	}
}

// A back-off is for what was stopped and comes back. Another replica of the same workload,
// which was there all the time, waits for none; nor does the kernel.
func TestPassReplicaWaitsForNoBackoff(t *testing.T) {
	for name, c := range map[string]struct {
		created  time.Duration
		outlived bool
		stopped  bool
	}{
		"one that was there":             {time.Minute, false, true},
		"one that came back":             {time.Hour + 2*time.Second, false, false},
		"one of which nobody knows when": {0, false, false},
		"one that outlived its stop":     {time.Minute, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			g, n := newPassGuard(t, "[eviction.hard]\n\"memory.available\" = \"1Gi\"\n")
			n.pods[0].Workload, n.pods[0].Created = "d/app", time.Minute
			n.set(policy.MemoryAvailable, testGiB/2)
			if p := n.at(g, 0); p.Stop == nil || p.Stop.Pod != "d/big" {
				t.Fatalf("at first: %+v, held by %q", p.Stop, p.Held)
			}
			if c.outlived {
				close(n.stops[0].done)
			} else {
				n.end(n.stops[0])
				replica := testPod("replica", 4*testGiB)
				replica.Workload, replica.Created = "d/app", c.created
				n.pods = append(n.pods, replica)
			}
			n.set(policy.MemoryAvailable, 4*testGiB)
			n.at(g, 3*time.Second)
			n.set(policy.MemoryAvailable, testGiB/2)
			p := n.at(g, 9*time.Second)
			if c.stopped != (p.Stop != nil) || p.Stop == nil && p.Held != HeldBackoff {
				t.Errorf("stopped %+v, held by %q", p.Stop, p.Held)
			}
			if p := n.at(g, 11*time.Second); !c.stopped && p.Stop == nil {
				t.Errorf("after the back-off: held by %q", p.Held)
			}
		})
	}
}

// While a back-off is waited for, the loop looks as often as it takes to see the cause
// before memory is gone.
func TestPauseOfAWait(t *testing.T) {
	g, n := returnedGuard(t)
	if got, want := g.Pause(), 80*testMiB*time.Second/(2*minFill); got != want {
		t.Errorf("80 MiB left: %s, want %s", got, want)
	}
	n.set(policy.MemoryAvailable, testMiB)
	n.at(g, 5*time.Second)
	if got := g.Pause(); got != minPause {
		t.Errorf("1 MiB left: %s, want %s", got, minPause)
	}
}

// A pod that was stopped is dead before the runtime says so: to stop it again frees nothing.
func TestPassStopsNobodyTwice(t *testing.T) {
	g, n := newPassGuard(t, "[eviction.hard]\n\"memory.available\" = \"1Gi\"\n")
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

// However many replicas are stopped, those that come back are held: also one that came
// before another one was stopped.
func TestPassReplicasComeBack(t *testing.T) {
	g, n := newPassGuard(t, "[eviction.hard]\n\"memory.available\" = \"1Gi\"\n")
	replica := func(id string, created time.Duration) Pod {
		p := testPod(id, 4*testGiB)
		p.Workload, p.Created = "d/app", created
		return p
	}
	n.pods = []Pod{replica("first", time.Minute), replica("second", time.Minute)}
	for i := range 2 {
		n.set(policy.MemoryAvailable, testGiB/2)
		if p := n.at(g, time.Duration(i)*time.Second); p.Stop == nil {
			t.Fatalf("stop %d is held by %q", i, p.Held)
		}
		n.end(n.stops[i])
		n.set(policy.MemoryAvailable, 8*testGiB)
		n.at(g, time.Duration(i)*time.Second)
	}
	n.pods = []Pod{replica("first again", time.Hour+500*time.Millisecond)}
	n.set(policy.MemoryAvailable, testGiB/2)
	for at := 2 * time.Second; at < 20*time.Second; at += time.Second {
		if p := n.at(g, at); p.Stop != nil || p.Held != HeldBackoff {
			t.Fatalf("after %s: stopped %+v, held by %q", at, p.Stop, p.Held)
		}
	}
	if p := n.at(g, 21*time.Second); p.Stop == nil {
		t.Errorf("after the back-off: held by %q", p.Held)
	}
}

// What the cause of a shortage was stopped for is said as it was.
func TestPassSaysWhatTheCauseTook(t *testing.T) {
	g, n := returnedGuard(t)
	n.grow("small", 70*testMiB)
	n.set(policy.MemoryAvailable, 10*testMiB)
	p := n.at(g, 5*time.Second)
	if p.Stop == nil || !strings.Contains(p.Stop.Reason, "took 70Mi while another stop was waited for") {
		t.Errorf("%+v", p.Stop)
	}
}

// A run of the service does not know which sandbox an earlier one has stopped.
func TestPassBackoffOutlivesTheService(t *testing.T) {
	restraint := policy.NewRestraint("boot")
	cfg := goodConfig(t, "[eviction.hard]\n\"memory.available\" = \"1Gi\"\n")
	_, n := newPassGuard(t, "")
	restraint.Configure(cfg.Budget.Policy(), cfg.Backoff.Policy())
	restraint.Take(policy.Hard, policy.PIDAvailable, "d/big", time.Hour-time.Second)
	g := New(cfg, n, n, n, n, restraint)
	n.pods[0].Created = time.Minute
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, 7*time.Second); p.Stop != nil || p.Held != HeldBackoff {
		t.Errorf("stopped %+v, held by %q", p.Stop, p.Held)
	}
	if p := n.at(g, 10*time.Second); p.Stop == nil {
		t.Errorf("held by %q", p.Held)
	}
}

// A wait ends with what it is for: nobody is looked for in a hurry, or taken for the cause,
// when the budget is spent.
func TestPauseAfterAWait(t *testing.T) {
	g, n := newPassGuard(t, "[eviction.hard]\n\"memory.available\" = \"100Mi\"\n[budget]\nhard = {burst = 1, every = \"1h\"}\n")
	n.set(policy.MemoryAvailable, 50*testMiB)
	n.at(g, 0)
	n.end(n.stops[0])
	n.set(policy.MemoryAvailable, 4*testGiB)
	n.at(g, time.Second)
	again := testPod("big", 300*testMiB)
	again.ID, again.Created = "big-again", time.Hour+2*time.Second
	n.pods = append(n.pods, again)
	n.set(policy.MemoryAvailable, 80*testMiB)
	if p := n.at(g, 3*time.Second); p.Held != HeldBackoff || g.Pause() >= heldPause {
		t.Fatalf("held by %q, pause %s", p.Held, g.Pause())
	}
	if p := n.at(g, 12*time.Second); p.Held != HeldBudget || g.Pause() != heldPause {
		t.Errorf("held by %q, pause %s", p.Held, g.Pause())
	}
}
