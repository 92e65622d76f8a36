package guard

import (
	"testing"
	"time"

	"github.com/criguard/criguard/policy"
)

const (
	disksAlone = "[eviction.hard]\n\"memory.available\" = \"0%\"\n"
	twoOfADisk = disksAlone + "\"nodefs.available\" = \"10Gi\"\n\"nodefs.inodesFree\" = \"1000\"\n"
)

// stops makes a pass that stops somebody, and ends that stop.
func stops(t *testing.T, g *Guard, n *fakeNode, d time.Duration) *StopView {
	t.Helper()
	p := n.at(g, d)
	if p.Stop == nil {
		t.Fatalf("nobody was stopped, held by %q", p.Held)
	}
	n.end(n.stops[0])
	return p.Stop
}

// stopsBig is stops for the pod that uses most.
func stopsBig(t *testing.T, g *Guard, n *fakeNode) {
	t.Helper()
	if s := stops(t, g, n, 0); s.Pod != "d/big" {
		t.Fatalf("full disk: %+v", s)
	}
}

// A pod that filled a disk had taken more than was measured of it. While its files are
// being deleted nobody else goes, though all that was expected is back, nor for another
// signal of the same disk; and what was measured before it was stopped serves no other stop.
func TestPassWaitsForAllFilesOfADisk(t *testing.T) {
	g, n := newPassGuard(t, disksAlone+"\"nodefs.available\" = \"10Gi\"\n\"imagefs.available\" = \"5Gi\"\n")
	both := func(available int64) {
		n.set(policy.NodeFSAvailable, available)
		n.set(policy.ImageFSAvailable, available)
	}
	both(0)
	stopsBig(t, g, n)
	reclaims := len(n.reclaimed)
	for i := range 36 { // a quarter of a GiB every 2 s, of which 4 GiB were known
		both(int64(i+1) * testGiB / 4)
		if p := n.at(g, time.Duration(1+2*i)*time.Second); p.Stop != nil || p.Held != HeldInFlight || len(p.Settled) > 0 {
			t.Fatalf("%d quarters of a GiB back: %+v, held by %q, settled %+v", i+1, p.Stop, p.Held, p.Settled)
		}
	}
	both(9*testGiB + 4096) // such little comes and goes all the time
	if p := n.at(g, 76*time.Second); len(p.Settled) != 1 || p.Stop == nil || p.Stop.Pod != "d/small" {
		t.Errorf("5 s after the last of it: %+v, settled %+v", p.Stop, p.Settled)
	}
	if len(n.reclaimed) == reclaims {
		t.Error("the second stop came of what was measured before the first")
	}
}

// A pod takes bytes and inodes of a disk, which do not come back together.
func TestPassWaitsForInodesToo(t *testing.T) {
	g, n := newPassGuard(t, twoOfADisk)
	n.set(policy.NodeFSAvailable, 0)
	n.set(policy.NodeFSInodesFree, 0)
	stopsBig(t, g, n)
	n.set(policy.NodeFSAvailable, 12*testGiB)
	for i := range 20 {
		n.set(policy.NodeFSInodesFree, int64(10*i))
		if p := n.at(g, time.Duration(1+2*i)*time.Second); p.Stop != nil || len(p.Settled) > 0 {
			t.Fatalf("%d inodes back: %+v, settled %+v", 10*i, p.Stop, p.Settled)
		}
	}
	n.set(policy.NodeFSInodesFree, 2000)
	if p := n.at(g, 41*time.Second); len(p.Settled) != 1 || p.Stop != nil {
		t.Errorf("all is back: %+v, settled %+v", p.Stop, p.Settled)
	}
}

// What was measured before a stop for a disk's bytes serves none for its inodes.
func TestPassMeasuresAnewForInodes(t *testing.T) {
	g, n := newPassGuard(t, twoOfADisk)
	n.slow = true
	n.set(policy.NodeFSAvailable, 0)
	n.set(policy.NodeFSInodesFree, 0)
	n.at(g, 0)
	if len(n.reliefs) != 2 {
		t.Fatalf("%d reclaims", len(n.reliefs))
	}
	for _, r := range n.reliefs {
		close(r.done)
	}
	stopsBig(t, g, n)
	n.set(policy.NodeFSAvailable, 12*testGiB)
	n.at(g, time.Second)
	if p := n.at(g, 32*time.Second); p.Stop != nil || p.Held != HeldReclaiming || len(n.reliefs) != 3 {
		t.Errorf("inodes after the stop for bytes: %+v, held by %q, %d reclaims", p.Stop, p.Held, len(n.reliefs))
	}
}

// A soft stop delays no hard one of the same disk while the pod runs, and does while its
// files are being deleted.
func TestPassSoftDiskStopIsDeleting(t *testing.T) {
	g, n := newPassGuard(t, `[eviction]
max_pod_grace_period = "20s"
[eviction.hard]
"memory.available" = "0%"
"nodefs.available" = "0%"
"nodefs.inodesFree" = "1000"
[eviction.soft]
"nodefs.available" = "10Gi"
[eviction.soft_grace_period]
"nodefs.available" = "1s"
`)
	n.set(policy.NodeFSAvailable, testGiB)
	n.set(policy.NodeFSInodesFree, 2000)
	n.at(g, 0)
	if s := stops(t, g, n, time.Second); s.Grace == 0 {
		t.Fatalf("soft: %+v", s)
	}
	n.at(g, 2*time.Second)
	n.set(policy.NodeFSInodesFree, 0)
	if p := n.at(g, 3*time.Second); p.Stop != nil || p.Held != HeldInFlight {
		t.Errorf("inodes while the pod is being deleted: %+v, held by %q", p.Stop, p.Held)
	}
}

// Nobody is stopped on the ground of a reclaim that was cut short or has not measured.
func TestPassInconclusiveReclaim(t *testing.T) {
	g, n := newPassGuard(t, disksAlone+"\"nodefs.available\" = \"10Gi\"\n")
	n.set(policy.NodeFSAvailable, 0)
	n.cut = true
	for i := range 3 {
		if p := n.at(g, time.Duration(i)*time.Second); p.Stop != nil || p.Held != HeldReclaiming || len(n.reliefs) != i+1 {
			t.Fatalf("%+v, held by %q, %d reclaims", p.Stop, p.Held, len(n.reliefs))
		}
	}
	n.cut = false
	stopsBig(t, g, n)
}

// What a slow disk was before a reclaim ended does not say that the reclaim was in vain.
func TestPassWaitsForASlowDisk(t *testing.T) {
	g, n := newPassGuard(t, disksAlone+"\"nodefs.available\" = \"10Gi\"\n")
	n.set(policy.NodeFSAvailable, 0)
	n.diskLag = time.Second
	if p := n.at(g, 0); p.Stop != nil || p.Held != HeldReclaiming {
		t.Errorf("%+v, held by %q", p.Stop, p.Held)
	}
	n.diskLag = 0
	stopsBig(t, g, n)
}

// Who fills a disk is not known while the runtime does not tell, and nobody would delete
// what a stopped pod leaves.
func TestPassDiskWithoutARuntime(t *testing.T) {
	g, n := newPassGuard(t, disksAlone+"\"nodefs.available\" = \"10Gi\"\n")
	for i := range n.pods {
		n.pods[i].Disk, n.pods[i].Inodes = policy.DiskUsage{}, policy.DiskUsage{}
	}
	n.set(policy.NodeFSAvailable, 0)
	n.down = true
	if p := n.at(g, 0); p.Stop != nil || p.Held != HeldUnlisted {
		t.Errorf("%+v, held by %q", p.Stop, p.Held)
	}
	n.down = false
	if p := n.at(g, time.Second); p.Stop == nil {
		t.Errorf("a runtime that tells of nobody what it uses: held by %q", p.Held)
	}
}

// A service that restarts goes on waiting for what an earlier run has stopped: longest
// where files have to be deleted.
func TestPassInheritsTheWait(t *testing.T) {
	restraint := policy.NewRestraint("boot")
	restraint.Take(policy.Hard, policy.NodeFSAvailable, "d/gone", time.Hour)
	_, n := newPassGuard(t, "")
	n.now = time.Hour + time.Second
	cfg := goodConfig(t, "[eviction.hard]\n\"memory.available\" = \"1Gi\"\n\"nodefs.available\" = \"10Gi\"\n")
	g := New(cfg, n, n, n, n, restraint)
	n.set(policy.NodeFSAvailable, 0)
	if p := n.at(g, 89*time.Second); p.Stop != nil || p.Held != HeldInFlight {
		t.Errorf("disk: %+v, held by %q", p.Stop, p.Held)
	}
	n.set(policy.MemoryAvailable, 0)
	if p := n.at(g, 89*time.Second); p.Stop == nil || p.Stop.Signal != "memory.available" {
		t.Errorf("memory: %+v, held by %q", p.Stop, p.Held)
	}
	n.set(policy.MemoryAvailable, 8*testGiB)
	n.end(n.stops[0])
	if p := n.at(g, 91*time.Second); p.Stop == nil || p.Stop.Signal != "nodefs.available" {
		t.Errorf("disk after it: %+v, held by %q", p.Stop, p.Held)
	}
}

// The end of the service is no time to judge whether a stop for a disk helped.
func TestConcludeBooksNothingAsFruitless(t *testing.T) {
	g, n := newPassGuard(t, disksAlone+"\"nodefs.available\" = \"10Gi\"\n[budget]\nbreaker = 1\n")
	n.set(policy.NodeFSAvailable, 0)
	stopsBig(t, g, n)
	p := g.conclude()
	if len(p.Settled) != 1 || p.Settled[0].Result == nil {
		t.Fatalf("settled %+v", p.Settled)
	}
	if held := g.restraint.Check(policy.Hard, policy.NodeFSAvailable, "", n.now); held.By == HeldBreaker {
		t.Error("the breaker is open")
	}
}

// A stop that the end of the service cut short has told its pod to end: that it killed
// nothing yet gives nothing back to the budget.
func TestConcludeReturnsNothing(t *testing.T) {
	for name, end := range map[string]func(*Guard, *fakeNode) Pass{
		"the service goes on": func(g *Guard, n *fakeNode) Pass { return n.at(g, time.Second) },
		"the service ends":    func(g *Guard, _ *fakeNode) Pass { return g.conclude() },
	} {
		t.Run(name, func(t *testing.T) {
			g, n := newPassGuard(t, "[eviction.hard]\n\"memory.available\" = \"1Gi\"\n")
			n.set(policy.MemoryAvailable, testGiB/2)
			full := g.restraint.Status(n.now).Hard.Left
			n.at(g, 0)
			n.stops[0].outcome.Nothing = true
			close(n.stops[0].done)
			n.set(policy.MemoryAvailable, 8*testGiB)
			p := end(g, n)
			if len(p.Settled) != 1 {
				t.Fatalf("settled %+v", p.Settled)
			}
			left := g.restraint.Status(n.now).Hard.Left
			if ends := name == "the service ends"; ends != (left < full) {
				t.Errorf("%v of %v are left", left, full)
			}
		})
	}
}

// What is stopped for the configuration's sake frees nothing that anybody waits for.
func TestAdmissionStopIsNotWaitedFor(t *testing.T) {
	g, n := newPassGuard(t, `[admission]
mode = "stop"
[eviction.hard]
"memory.available" = "0%"
"nodefs.available" = "0%"
[eviction.soft]
"nodefs.available" = "10Gi"
[eviction.soft_grace_period]
"nodefs.available" = "1h"
`)
	n.set(policy.NodeFSAvailable, testGiB)
	n.at(g, 0)
	late := testPod("late", 0)
	late.Created = time.Hour + time.Second
	n.pods = append(n.pods, late)
	if s := stops(t, g, n, 2*time.Second); s.Kind != kindAdmission {
		t.Fatalf("%+v", s)
	}
	if p := n.at(g, 3*time.Second); len(p.Settled) != 1 {
		t.Errorf("settled %+v", p.Settled)
	}
}

// A reclaim serves one interval: while it is repeated, nobody is stopped on the ground of the
// one before.
func TestPassWaitsForTheRepeatedReclaim(t *testing.T) {
	g, n := newPassGuard(t, disksAlone+"\"nodefs.available\" = \"10Gi\"\n")
	n.set(policy.NodeFSAvailable, 0)
	protect := func(by string) {
		for i := range n.pods {
			n.pods[i].Protection = by
		}
	}
	protect("a rule")
	if p := n.at(g, 0); p.Stop != nil || p.Held != HeldProtected {
		t.Fatalf("%+v, held by %q", p.Stop, p.Held)
	}
	n.slow = true
	if p := n.at(g, time.Minute); p.Stop != nil || p.Held != HeldReclaiming {
		t.Fatalf("%+v, held by %q", p.Stop, p.Held)
	}
	protect("")
	if p := n.at(g, time.Minute+time.Second); p.Stop != nil || p.Held != HeldReclaiming {
		t.Errorf("while it goes on: %+v, held by %q", p.Stop, p.Held)
	}
	close(n.reliefs[len(n.reliefs)-1].done)
	if p := n.at(g, time.Minute+2*time.Second); p.Stop == nil {
		t.Errorf("after it: held by %q", p.Held)
	}
}

// A pod that ranks first and gives back little is no reason to watch another one take the
// rest for five seconds: that one is next. Who merely ranks next waits, and so does all else.
func TestPassStopsTheCauseBesideADeadPod(t *testing.T) {
	for name, c := range map[string]struct {
		hog, small int64 // MiB that they take while the stop settles
		left       int64 // MiB
		dead       bool
		stopped    string
	}{
		"nobody takes anything":                  {0, 0, 55, true, ""},
		"somebody takes half of what was left":   {30, 0, 25, true, "d/hog"},
		"he takes less":                          {24, 0, 31, true, ""},
		"two take it":                            {20, 20, 15, true, ""},
		"there is more than when the stop began": {30, 0, 60, true, ""},
		"the pod is not dead yet":                {30, 0, 25, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g, n := newPassGuard(t, "[eviction.hard]\n\"memory.available\" = \"100Mi\"\n")
			hog := testPod("hog", 6*testGiB)
			hog.MemoryRequest, hog.QoS = 8*testGiB, policy.Burstable
			n.pods = []Pod{testPod("first", 60*testMiB), testPod("small", 50*testMiB), hog}
			n.set(policy.MemoryAvailable, 60*testMiB)
			if p := n.at(g, 0); p.Stop == nil || p.Stop.Pod != "d/first" {
				t.Fatalf("stopped %+v, held by %q", p.Stop, p.Held)
			}
			if c.dead {
				n.end(n.stops[0])
			}
			// A drain is another matter, and as long as its grace.
			n.pods = append(n.pods, testPod("drained", 0))
			if name == "somebody takes half of what was left" {
				g.fly(t.Context(), &flight{view: &StopView{Kind: kindDrain, Sandbox: "drained"}, kind: policy.Soft, started: n.now}, n.pods[len(n.pods)-1], StopOrder{})
			}
			n.set(policy.MemoryAvailable, 55*testMiB)
			if p := n.at(g, 10*time.Millisecond); p.Stop != nil || p.Held != HeldInFlight {
				t.Fatalf("at once: %+v, held by %q", p.Stop, p.Held)
			}
			n.grow("hog", c.hog*testMiB)
			n.grow("small", c.small*testMiB)
			n.set(policy.MemoryAvailable, c.left*testMiB)
			p := n.at(g, 100*time.Millisecond)
			if got := stoppedBy(&p); got != c.stopped || got == "" && p.Held != HeldInFlight {
				t.Fatalf("stopped %q, held by %q, want %q", got, p.Held, c.stopped)
			}
			if c.stopped == "" {
				return
			}
			n.end(n.stops[2])
			n.grow("small", 200*testMiB)
			n.set(policy.MemoryAvailable, 5*testMiB)
			if p := n.at(g, 200*time.Millisecond); p.Stop != nil {
				t.Errorf("a third one: %+v", p.Stop)
			}
			n.set(policy.MemoryAvailable, 6*testGiB)
			if p := n.at(g, 300*time.Millisecond); len(p.Settled) != 2 {
				t.Errorf("settled %+v", p.Settled)
			}
		})
	}
}

func stoppedBy(p *Pass) string {
	if p.Stop == nil {
		return ""
	}
	return p.Stop.Pod
}
