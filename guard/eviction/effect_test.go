package eviction

import (
	"fmt"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// The next victim of a pool is chosen when the last stop is over: its cgroups are empty, and its charge has
// stopped falling for 50 ms.
func TestOneStopInFlightPerPool(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, 0); stopped(&p) != "d/big" || p.Stop.Grace != 0 || !n.stops[0].order.Direct {
		t.Fatalf("hard memory: %+v, held by %q", p.Stop, p.Held)
	}
	wantHeld(t, n.at(g, time.Second), api.HeldInFlight) // it has not ended
	n.kill(n.stops[0])
	for i, left := range []int64{3 * testGiB, 2 * testGiB, testGiB, testGiB / 2} {
		n.remains["big"] = policy.Known(left)
		p := n.at(g, 2*time.Second+time.Duration(i)*40*time.Millisecond)
		wantHeld(t, p, api.HeldInFlight)
		wantSettled(t, p, 0)
	}
	const last = 2*time.Second + 120*time.Millisecond
	wantHeld(t, n.at(g, last+chargeStill-time.Millisecond), api.HeldInFlight)
	p := n.at(g, last+chargeStill)
	wantSettled(t, p, 1)
	if r := p.Settled[0].Result; r.Freed != 4*testGiB-testGiB/2 || !p.Settled[0].Helped() {
		t.Errorf("freed %d, helped %v", r.Freed, p.Settled[0].Helped())
	}
	if p.Stop == nil {
		t.Errorf("no next victim: held by %q", p.Held)
	}
}

// A pod that grew past its expected yield before it died is waited for like any other.
func TestChargeMayExceedTheExpectedYield(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.kill(n.stops[0])
	for i, left := range []int64{7 * testGiB, 6 * testGiB, 5 * testGiB} {
		n.remains["big"] = policy.Known(left)
		wantHeld(t, n.at(g, time.Duration(i+1)*40*time.Millisecond), api.HeldInFlight)
	}
	n.remains["big"] = policy.Known(0)
	p := n.at(g, 160*time.Millisecond)
	if wantSettled(t, p, 1); p.Settled[0].Result.Freed != 4*testGiB {
		t.Errorf("freed %d", p.Settled[0].Result.Freed)
	}
}

// A charge that is still falling is waited for at most stop_timeout after the cgroups are empty.
func TestStopTimeoutEndsTheWaitForTheCharge(t *testing.T) {
	g, n := newManager(t, "eviction.stop_timeout = '1s'\n"+memoryHard)
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.kill(n.stops[0])
	for i := range int64(50) {
		n.remains["big"] = policy.Known(4*testGiB - i*testMiB)
		wantHeld(t, n.at(g, time.Second+time.Duration(i)*20*time.Millisecond), api.HeldInFlight)
	}
	n.remains["big"] = policy.Known(3 * testGiB)
	wantSettled(t, n.at(g, 2*time.Second), 1)
}

// Processes that do not die end the wait, and that sandbox is skipped for a minute.
func TestProcessesThatDoNotDieEndTheWait(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	close(n.stops[0].done)
	p := n.at(g, 10*time.Second)
	wantSettled(t, p, 1)
	wantStop(t, p, "d/small")
	if p.Settled[0].Helped() || p.Ranked[len(p.Ranked)-1].Excluded != policy.ExcludedSurvived {
		t.Errorf("settled %+v, ranked %+v", p.Settled[0].Result, p.Ranked)
	}
	n.end(n.stops[1])
	wantHeld(t, n.at(g, 20*time.Second), api.HeldOutside)
	wantStop(t, n.at(g, 10*time.Second+survivedPenalty), "d/big")
}

// The node's signal is not consulted: another leak may have taken the bytes, and then it is next.
func TestNodeSignalIsNotConsultedForAStop(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.end(n.stops[0])
	n.leak("small", testGiB/4) // less is available than before the stop
	p := n.at(g, 2*time.Second)
	wantSettled(t, p, 1)
	wantStop(t, p, "d/small")
	if r := p.Settled[0].Result; r.Freed != 4*testGiB {
		t.Errorf("freed %d", r.Freed)
	}
}

// A signal that recovers does not end the wait for a stop whose cgroups are not empty.
func TestRecoveredSignalDoesNotEndAStop(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.set(policy.MemoryAvailable, 12*testGiB)
	wantSettled(t, n.at(g, time.Second), 0)
	n.set(policy.MemoryAvailable, testGiB/2)
	wantHeld(t, n.at(g, 1010*time.Millisecond), api.HeldInFlight)
}

// A stop for one pool never delays another pool that it does not relieve: not while the pod ends, and not while its files
// are deleted.
func TestStopNeverDelaysAnotherPool(t *testing.T) {
	set := map[string]func(*fakeNode){
		"memory": func(n *fakeNode) { n.set(policy.MemoryAvailable, testGiB/2) },
		"pids": func(n *fakeNode) {
			n.obs[policy.PIDAvailable] = policy.Observation{Available: 95, Capacity: 1000, Status: policy.OK}
		},
		"bytes": func(n *fakeNode) { n.set(policy.NodeFSAvailable, testGiB/2) },
		"inodes": func(n *fakeNode) {
			n.obs[policy.NodeFSInodesFree] = policy.Observation{Available: 60, Capacity: 1000, Status: policy.OK}
		},
	}
	for first, setFirst := range set {
		for then, setThen := range set {
			if first == then {
				continue
			}
			t.Run(first+" then "+then, func(t *testing.T) {
				g, n := newManager(t, memoryHard+"\"pid.available\" = \"100\"\n\"nodefs.available\" = \"1Gi\"\n\"nodefs.inodesFree\" = \"100\"\n")
				switch first { // its stop gives back less than the other pool of the disk lacks
				case "bytes":
					n.pods[0].Inodes = diskBytes(39)
				case "inodes":
					n.pods[0].Disk, n.pods[0].Inodes = diskBytes(100*testMiB), diskBytes(200)
				}
				setFirst(n)
				if p := n.at(g, 0); p.Stop == nil {
					t.Fatalf("held by %q", p.Held)
				}
				one := n.stops[0].order.Pod.ID
				for i := range n.pods { // the other pod is the victim of the other pool
					if p := &n.pods[i]; p.ID != one {
						p.Memory, p.PIDs, p.Disk, p.Inodes = policy.Known(8*testGiB), policy.Known(500), diskBytes(8*testGiB), diskBytes(500)
					}
				}
				setThen(n)
				if p := n.at(g, time.Second); p.Stop == nil {
					t.Errorf("held by %q while the first stop runs", p.Held)
				}
			})
		}
	}
}

// The time from the crossing to the end of the last process includes the grace period before the stop, and
// nothing after that end.
func TestDeadInIsFromTheCrossingToTheLastProcess(t *testing.T) {
	g, n := newManager(t, softAndHard)
	n.set(policy.MemoryAvailable, testGiB+1)
	n.at(g, 0)
	n.at(g, 10*time.Second)
	n.stops[0].outcome.Result.EmptiedIn = api.Duration(20 * time.Millisecond)
	n.free(8 * testGiB)
	p := n.at(g, 15*time.Second)
	if wantSettled(t, p, 1); time.Duration(p.Settled[0].Result.DeadIn) != 10*time.Second+20*time.Millisecond {
		t.Errorf("settled %+v", p.Settled[0].Result)
	}
}

// A stop for a disk is over as soon as its files are known to be deleted.
func TestDiskStopIsOverWhenItsFilesAreDeleted(t *testing.T) {
	g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"4Gi\"\n")
	n.set(policy.NodeFSAvailable, 0)
	wantStop(t, n.at(g, 0), "d/big")
	n.stops[0].outcome.Returned = true
	n.end(n.stops[0])
	n.set(policy.NodeFSAvailable, 7*testGiB/2)
	p := n.at(g, time.Second)
	wantSettled(t, p, 1)
	wantStop(t, p, "d/small")
}

// While nothing comes back, the wait for the deletion ends after 30 s.
func TestDiskStopIsGivenUpAfter30s(t *testing.T) {
	g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"1Gi\"\n")
	n.set(policy.NodeFSAvailable, 0)
	wantStop(t, n.at(g, 0), "d/big")
	n.end(n.stops[0])
	wantHeld(t, n.at(g, time.Second), api.HeldInFlight)
	wantHeld(t, n.at(g, diskEffectWait), api.HeldInFlight)
	p := n.at(g, time.Second+diskEffectWait)
	wantSettled(t, p, 1)
	if p.Settled[0].Helped() {
		t.Errorf("settled %+v", p.Settled[0].Result)
	}
}

// A suspend is no time in which files are deleted.
func TestDiskStopOverASuspend(t *testing.T) {
	for _, slept := range []time.Duration{20 * time.Second, time.Hour} {
		g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"6Gi\"\n")
		n.set(policy.NodeFSAvailable, testGiB)
		wantStop(t, n.at(g, 0), "d/big")
		n.end(n.stops[0])
		wantHeld(t, n.at(g, time.Second), api.HeldInFlight)
		wantHeld(t, n.at(g, 2*time.Second), api.HeldInFlight)
		n.set(policy.NodeFSAvailable, testGiB+testGiB/8)
		n.sleep(g, slept)
		wantHeld(t, n.at(g, slept+2*time.Second), api.HeldInFlight)
		wantHeld(t, n.at(g, slept+diskEffectWait), api.HeldInFlight)
		wantSettled(t, n.at(g, slept+time.Second+diskEffectWait), 1)
	}
}

// All that was expected may be back before the last file is deleted. A stop is over once the filesystem has not risen for
// 5 s, if most of it is back.
func TestDiskStopIsOverWhenTheDiskRisesNoLonger(t *testing.T) {
	g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"6Gi\"\n")
	n.set(policy.NodeFSAvailable, testGiB)
	wantStop(t, n.at(g, 0), "d/big")
	n.end(n.stops[0])
	wantHeld(t, n.at(g, time.Second), api.HeldInFlight)
	n.set(policy.NodeFSAvailable, 5*testGiB)
	for _, at := range []time.Duration{2 * time.Second, 2*time.Second + diskStill - 1} {
		wantHeld(t, n.at(g, at), api.HeldInFlight)
	}
	wantSettled(t, n.at(g, 2*time.Second+diskStill), 1)
}

// What another pod writes meanwhile hides nothing of what has come back: that pod is next, and the stop has helped.
func TestDiskStopBesideAnotherWriter(t *testing.T) {
	g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"6Gi\"\n")
	n.set(policy.NodeFSAvailable, testGiB)
	wantStop(t, n.at(g, 0), "d/big")
	n.end(n.stops[0])
	n.at(g, time.Second)
	n.set(policy.NodeFSAvailable, 5*testGiB-testGiB/8)
	n.at(g, 2*time.Second)
	for at := 3 * time.Second; at < 2*time.Second+diskStill; at += time.Second {
		n.set(policy.NodeFSAvailable, n.obs[policy.NodeFSAvailable].Available-testGiB)
		wantHeld(t, n.at(g, at), api.HeldInFlight)
	}
	p := n.at(g, 2*time.Second+diskStill)
	if wantSettled(t, p, 1); p.Settled[0].Result.Freed != 4*testGiB-testGiB/8 {
		t.Errorf("freed %d", p.Settled[0].Result.Freed)
	}
}

// A pod that filled a disk had used more than was measured. While its files are being deleted, no other pod
// is stopped, not even for another signal of the same disk or when all expected bytes are back.
// Measurements from before the stop serve no later stop.
func TestPassWaitsForAllFilesOfADisk(t *testing.T) {
	g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"9728Mi\"\n\"imagefs.available\" = \"9728Mi\"\n")
	both := func(available int64) {
		n.set(policy.NodeFSAvailable, available)
		n.set(policy.ImageFSAvailable, available)
	}
	both(5 * testGiB)
	wantStop(t, n.at(g, 0), "d/big")
	n.end(n.stops[0])
	reclaims := len(n.reclaimed)
	for i := range 17 { // 0.25 GiB come back every 4 s, of which only 4 GiB were measured
		both(5*testGiB + int64(i+1)*testGiB/4)
		p := n.at(g, time.Duration(1+4*i)*time.Second)
		wantHeld(t, p, api.HeldInFlight)
		wantSettled(t, p, 0)
	}
	both(9*testGiB + testGiB/4 + 4096) // any node has changes as small as this
	p := n.at(g, 70*time.Second)
	wantSettled(t, p, 1)
	wantStop(t, p, "d/small")
	if len(n.reclaimed) == reclaims {
		t.Error("the second stop is based on what was measured before the first")
	}
}

// While free space still rises, a disk is waited for up to 10 minutes.
func TestDiskThatRisesIsAwaitedFor10m(t *testing.T) {
	g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"4Gi\"\n")
	n.set(policy.NodeFSAvailable, 0)
	wantStop(t, n.at(g, 0), "d/big")
	n.end(n.stops[0])
	n.at(g, time.Second)
	for at := 2 * time.Second; at < diskRisingWait; at += 4 * time.Second {
		rises := (4*testGiB - n.obs[policy.NodeFSAvailable].Available) / 99
		n.set(policy.NodeFSAvailable, n.obs[policy.NodeFSAvailable].Available+rises)
		wantHeld(t, n.at(g, at), api.HeldInFlight)
	}
	wantSettled(t, n.at(g, time.Second+diskRisingWait), 1)
}

// A pod uses bytes and inodes of a disk, which do not come back at the same time.
func TestPassWaitsForInodesToo(t *testing.T) {
	g, n := newManager(t, twoOfADisk)
	n.pods[0].Inodes = diskBytes(200)
	n.set(policy.NodeFSAvailable, 0)
	n.obs[policy.NodeFSInodesFree] = policy.Observation{Available: 10, Capacity: 10000, Status: policy.OK}
	wantStop(t, n.at(g, 0), "d/big")
	n.kill(n.stops[0])
	n.set(policy.NodeFSAvailable, 12*testGiB)
	for i := range int64(20) {
		n.obs[policy.NodeFSInodesFree].Available = 10 + 4*i
		p := n.at(g, time.Duration(1+2*i)*time.Second)
		wantHeld(t, p, api.HeldInFlight)
		wantSettled(t, p, 0)
	}
	n.obs[policy.NodeFSInodesFree].Available = 2000
	p := n.at(g, 41*time.Second)
	wantSettled(t, p, 1)
	wantHeld(t, p, "")
}

// A stop for the bytes of a disk that gives back all that its inodes need is in flight for them, too. Otherwise, while its files
// are still being deleted, another pod would be stopped for the inodes. If it gives back less, it delays nothing.
func TestAStopForBytesThatFreesTheInodes(t *testing.T) {
	for _, c := range []struct {
		name      string
		inodes    policy.DiskUsage // of the pod that is stopped for the bytes
		volumes   bool             // a kubelet keeps its volumes
		needed    bool             // another stop
		escalates bool
	}{
		{"all that is needed", diskBytes(90), false, false, false},
		{"less", diskBytes(89), false, true, false},
		{"unknown", policy.DiskUsage{}, false, true, false},
		{"only what a kubelet keeps", policy.DiskUsage{Rootfs: policy.Exactly(0), Logs: policy.Exactly(0), Volumes: policy.Exactly(90)}, true, true, false},
		{"after its grace period", diskBytes(90), false, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf := twoOfADisk
			if c.escalates {
				conf = disksAlone + "\"nodefs.inodesFree\" = \"100\"\n[eviction.soft]\n\"nodefs.available\" = \"4Gi\"\n[eviction.soft_grace_period]\n\"nodefs.available\" = \"1s\"\n"
			}
			g, n := newManager(t, conf)
			n.pods[0].Inodes = c.inodes
			if c.volumes {
				g.restraint.Begin(policy.Stop{UID: "big", Sandbox: "before", Cause: policy.CauseLimit}, time.Hour)
			}
			n.obs[policy.NodeFSInodesFree] = policy.Observation{Available: 1000, Capacity: 10000, Status: policy.OK}
			n.set(policy.NodeFSAvailable, 3*testGiB)
			n.at(g, 0)
			n.at(g, time.Second)
			if len(n.stops) != 1 || n.stops[0].order.Pod.ID != "big" {
				t.Fatalf("%d stops", len(n.stops))
			}
			n.obs[policy.NodeFSInodesFree].Available = 10
			p := n.at(g, 2*time.Second)
			if n.end(n.stops[0]); !c.needed {
				wantHeld(t, p, api.HeldInFlight)
				wantHeld(t, n.at(g, 3*time.Second), api.HeldInFlight)
				n.stops[0].outcome.Returned = true
				n.set(policy.NodeFSAvailable, 12*testGiB)
				p = n.at(g, 4*time.Second) // the inodes are still needed
				wantSettled(t, p, 1)
			}
			if (n.stops[0].escalated > 0) != c.escalates {
				t.Errorf("escalated %d times", n.stops[0].escalated)
			}
			for at := 5 * time.Second; p.Stop == nil && at < 12*time.Second; at += time.Second {
				p = n.at(g, at) // it measures again first
			}
			wantStop(t, p, "d/small")
		})
	}
}

// Measurements from before a stop for a disk's bytes do not serve a stop for its inodes.
func TestPassMeasuresAgainForInodes(t *testing.T) {
	g, n := newManager(t, twoOfADisk)
	n.pods[0].Inodes = diskBytes(200)
	n.slow = true
	n.set(policy.NodeFSAvailable, 0)
	n.obs[policy.NodeFSInodesFree] = policy.Observation{Available: 10, Capacity: 10000, Status: policy.OK}
	n.at(g, 0)
	if len(n.reliefs) != 2 {
		t.Fatalf("%d reclaims", len(n.reliefs))
	}
	for _, r := range n.reliefs {
		close(r.done)
	}
	wantStop(t, n.at(g, time.Second), "d/big")
	n.kill(n.stops[0])
	n.set(policy.NodeFSAvailable, 12*testGiB)
	wantHeld(t, n.at(g, 2*time.Second), api.HeldInFlight)
	n.stops[0].outcome.Returned = true
	wantHeld(t, n.at(g, 3*time.Second), api.HeldReclaiming)
	if len(n.reliefs) != 3 {
		t.Errorf("%d reclaims", len(n.reliefs))
	}
}

// When the service ends, it is too early to judge whether a stop helped. The next run waits for its effect.
func TestConcludeJudgesNoStop(t *testing.T) {
	g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"4Gi\"\n[budget]\nbreaker = 1\n")
	n.set(policy.NodeFSAvailable, 0)
	wantStop(t, n.at(g, 0), "d/big")
	n.end(n.stops[0])
	p := g.Conclude()
	wantSettled(t, p, 1)
	if p.Settled[0].Result == nil {
		t.Fatalf("settled %+v", p.Settled)
	}
	if s := g.restraint.Unfinished(policy.PoolNodeBytes); s == nil || s.Judged || len(g.restraint.Status(n.now).Breakers) > 0 {
		t.Errorf("unfinished %+v, budget %+v", s, g.restraint.Status(n.now))
	}
}

// If the end of the service cuts a stop short, the pod was already asked to terminate. So the stop keeps
// its budget, although it has killed nothing yet, and the next run takes it over.
func TestConcludeReturnsNothing(t *testing.T) {
	for name, end := range map[string]func(*Manager, *fakeNode) api.Pass{
		"the service goes on": func(g *Manager, n *fakeNode) api.Pass { return n.at(g, time.Second) },
		"the service ends":    func(g *Manager, _ *fakeNode) api.Pass { return g.Conclude() },
	} {
		t.Run(name, func(t *testing.T) {
			g, n := newManager(t, memoryHard)
			n.set(policy.MemoryAvailable, testGiB/2)
			full := g.restraint.Status(n.now).Hard.Left
			n.at(g, 0)
			n.stops[0].outcome.Nothing = true
			close(n.stops[0].done)
			n.set(policy.MemoryAvailable, 8*testGiB)
			p, left := end(g, n), g.restraint.Status(n.now).Hard.Left
			if name == "the service ends" {
				full--
				wantSettled(t, p, 0)
			} else {
				wantSettled(t, p, 1)
			}
			if left != full {
				t.Errorf("%v are left, want %v", left, full)
			}
		})
	}
}

// A stop of another cause whose pod a threshold of memory has chosen, too, removes the layers in memory as a stop for it does.
func TestLayersInMemoryOfAStopThatJoins(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.inMemory, n.pods[0].Grace = true, time.Hour
	g.StopPod(t.Context(), &n.pods[0], time.Hour, "by root", &api.Pass{ID: 7, At: api.Duration(n.now)})
	if n.stops[0].order.Discard {
		t.Fatal("an operator's stop removes containers")
	}
	n.set(policy.MemoryAvailable, testGiB/2)
	wantHeld(t, n.at(g, time.Second), api.HeldInFlight)
	if !n.stops[0].order.Discard {
		t.Error("the containers stay")
	}
	n.remains["big"], n.stops[0].outcome.Shared = policy.Known(3*testGiB), true
	n.kill(n.stops[0])
	n.stops[0].outcome.Result.Confirmed = true
	n.at(g, time.Second)
	wantHeld(t, n.at(g, time.Second+sharedStill-time.Millisecond), api.HeldInFlight)
	n.remains["big"] = policy.Known(0)
	wantSettled(t, n.at(g, time.Second+sharedStill), 1)
}

// Memory in files comes back only when the runtime has stopped the sandbox. A stop that would give little back without it
// waits for that, but not long.
func TestSharedMemoryIsAwaited(t *testing.T) {
	for _, c := range []struct {
		name      string
		left      int64
		confirmed bool
		inMemory  bool          // the layers
		over      time.Duration // after the processes have ended
	}{
		{"until the runtime confirms", 3 * testGiB, true, false, chargeStill},
		{"for a second", 3 * testGiB, false, false, sharedStill},
		{"not for the smaller part", testGiB, false, false, chargeStill},
		{"for the layers in memory, which the runtime removes", 3 * testGiB, true, true, sharedStill},
	} {
		g, n := newManager(t, memoryHard)
		n.inMemory = c.inMemory
		n.set(policy.MemoryAvailable, testGiB/2)
		wantStop(t, n.at(g, 0), "d/big")
		if order := n.stops[0].order; order.Discard != c.inMemory {
			t.Errorf("%s: its containers are removed: %t", c.name, order.Discard)
		}
		n.remains["big"], n.stops[0].outcome.Shared = policy.Known(c.left), true
		n.kill(n.stops[0])
		n.stops[0].outcome.Result.Confirmed = c.confirmed && c.inMemory
		n.at(g, 0)
		if c.over > chargeStill {
			wantHeld(t, n.at(g, c.over-time.Millisecond), api.HeldInFlight)
		}
		n.stops[0].outcome.Result.Confirmed = c.confirmed
		if p := n.at(g, c.over); len(p.Settled) != 1 {
			t.Errorf("%s: not over after %s", c.name, c.over)
		}
	}
}

// A kubelet that starts a stopped pod again keeps its volumes. Another stop would not free them, so the next victim is a pod
// whose stop does.
func TestVolumesThatAStopLeft(t *testing.T) {
	for _, uid := range []string{"big", "other"} {
		g, n := newManager(t, twoOfADisk)
		big := &n.pods[0]
		big.Disk = policy.DiskUsage{Rootfs: policy.Exactly(100 * testMiB), Logs: policy.Exactly(0), Volumes: policy.Exactly(50 * testGiB)}
		n.pods[1].Disk = diskBytes(20 * testGiB)
		back := *big
		back.ID, back.UID, back.Created, back.Disk.Rootfs = "again", uid, time.Hour+time.Second, policy.Exactly(0)
		n.set(policy.NodeFSAvailable, 3*testGiB)
		n.obs[policy.NodeFSInodesFree] = policy.Observation{Available: 1000, Capacity: 2000, Status: policy.OK}
		wantStop(t, n.at(g, 0), "d/big")
		n.end(n.stops[0])
		n.pods = append(n.pods, back)
		var p api.Pass
		for at := time.Second; p.Stop == nil && at < time.Minute; at += time.Second {
			p = n.at(g, at)
		}
		if want := map[string]string{"big": "small", "other": "again"}[uid]; p.Stop == nil || p.Stop.Sandbox != want {
			t.Errorf("with the UID %s: stopped %+v, held by %q, want %s", uid, p.Stop, p.Held, want)
		}
	}
}

// For as long as a pod is back with its volumes, a stop of it gives nothing back of them: it is stopped once, not whenever the record
// of the stop would expire.
func TestVolumesThatAStopLeftStay(t *testing.T) {
	g, n := newManager(t, "eviction.hard.'nodefs.available' = '4Gi'\n")
	n.pods = n.pods[:1]
	n.pods[0].Disk = policy.DiskUsage{Rootfs: policy.Exactly(0), Logs: policy.Exactly(0), Volumes: policy.Exactly(50 * testGiB)}
	n.set(policy.NodeFSAvailable, 3*testGiB)
	back := n.pods[0]
	stops := 0
	for at := time.Duration(0); at < 75*time.Minute; at += time.Second {
		if at == 35*time.Minute {
			at += 15 * time.Minute
			n.now = time.Hour + at
			g = killed(t, g, n)
		}
		p := n.at(g, at)
		if g.Unsaved() {
			n.save(t, g)
		}
		if p.Stop != nil {
			stops++
			n.end(n.stops[len(n.stops)-1])
			for over := at + diskEffectWait; at < over; {
				at += time.Second
				n.at(g, at)
			}
			n.sleep(g, 15*time.Minute)
			at += 15*time.Minute + time.Second
			back.ID, back.Created = fmt.Sprint("again-", stops), time.Hour+at
			n.pods, n.listedAt = append(n.pods, back), time.Hour+at
		}
	}
	if stops != 1 {
		t.Errorf("%d stops, want one", stops)
	}
}

// A stall of before a stop for memory is no reason for the next one.
func TestStopForgetsTheStall(t *testing.T) {
	for backs, want := range map[bool]int{true: 1, false: 0} {
		g, n := newManager(t, memoryHard)
		n.set(policy.MemoryAvailable, testGiB/4)
		wantStop(t, n.at(g, 0), "d/big")
		if backs {
			n.end(n.stops[0])
		} else {
			n.kill(n.stops[0]) // and it still holds everything
		}
		n.at(g, 0)
		if n.at(g, chargeStill); n.forgot != want {
			t.Errorf("it gave memory back: %t, forgotten %d times", backs, n.forgot)
		}
	}
}

// leavesMemory returns a node on which a stop of the larger pod has left 3 GiB in the pod's volumes, and that pod.
func leavesMemory(t *testing.T) (g *Manager, n *fakeNode, pod inventory.Pod) {
	t.Helper()
	g, n = newManager(t, memoryHard)
	n.set(policy.MemoryAvailable, testGiB/4)
	wantStop(t, n.at(g, 0), "d/big")
	n.remains["big"] = policy.Known(3 * testGiB)
	pod = n.pods[0]
	n.end(n.stops[0])
	n.set(policy.MemoryAvailable, 2*testGiB)
	n.at(g, 0)
	wantSettled(t, n.at(g, chargeStill), 1)
	return g, n, pod
}

// So does memory in its emptyDirs: what a stop left counts neither as given back by the next one nor as growth of the new sandbox,
// unless the pod has freed it meanwhile.
func TestMemoryThatAStopLeft(t *testing.T) {
	for _, c := range []struct {
		name, uid string
		emptied   bool
		want      string
	}{
		{"a pod that a kubelet has started again", "big", false, "small"},
		{"one that has emptied its volumes", "big", true, "again"},
		{"a replacement", "other", false, "again"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, n, again := leavesMemory(t)
			again.ID, again.UID, again.Created, again.Memory = "again", c.uid, time.Hour+2*time.Second, policy.Known(3*testGiB+10*testMiB)
			n.set(policy.MemoryAvailable, testGiB/2)
			n.pods = append([]inventory.Pod{again}, n.pods...)
			g.Orders.Pause = &api.Pause{Until: api.Duration(2 * time.Hour)}
			n.at(g, 3*time.Second)
			if c.emptied {
				n.pods[0].Memory = policy.Known(10 * testMiB)
			}
			n.at(g, 4*time.Second)
			n.pods[0].Memory = policy.Known(3*testGiB + 20*testMiB)
			n.at(g, 5*time.Second)
			g = restarted(t, g, n)
			p := n.at(g, 6*time.Second)
			if p.Stop == nil || p.Stop.Sandbox != c.want {
				t.Fatalf("stopped %+v, held by %q, want %s; need %+v", p.Stop, p.Held, c.want, p.Need)
			}
			if c.want == "again" {
				return
			}
			// The pod itself gives back what it has taken since.
			n.free(testGiB / 2)
			n.pods[0].Memory = policy.Known(5 * testGiB)
			if p = n.at(g, 7*time.Second); p.Stop == nil || p.Stop.Expected != 2*testGiB {
				t.Fatalf("stopped %+v, held by %q", p.Stop, p.Held)
			}
			n.remains["again"] = policy.Known(3 * testGiB)
			n.end(n.stops[len(n.stops)-1])
			if p = n.at(g, 8*time.Second); len(p.Settled) != 1 || p.Settled[0].Result.Freed != 2*testGiB {
				t.Errorf("settled %+v", p.Settled)
			}
		})
	}
}

// A pool does not wait for a stop for the other pool of its device that gives it nothing: its own signal does not rise.
func TestAStopForBytesWhoseInodesDoNotComeBack(t *testing.T) {
	g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"4Gi\"\n\"nodefs.inodesFree\" = \"50000\"\n")
	n.pods[0].Inodes, n.pods[1].Inodes = diskBytes(60000), diskBytes(900000)
	inodes := func(free int64) {
		n.obs[policy.NodeFSInodesFree] = policy.Observation{Available: free, Capacity: 1000000, Status: policy.OK}
	}
	inodes(100000)
	n.set(policy.NodeFSAvailable, 3*testGiB)
	wantStop(t, n.at(g, 0), "d/big")
	n.end(n.stops[0])
	for s := int64(1); s < 11; s++ {
		inodes(100000 - 5000*s)
		n.set(policy.NodeFSAvailable, 3*testGiB+5*s*testMiB)
		n.at(g, time.Duration(s)*time.Second)
	}
	inodes(45000)
	wantStop(t, n.at(g, 11*time.Second), "d/small")
}

// Nor does it wait for one on another device, whose stop deletes no file on its own.
func TestAStopForAnotherDevice(t *testing.T) {
	g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"4Gi\"\n\"imagefs.available\" = \"4Gi\"\n\"containerfs.available\" = \"4Gi\"\n[containers]\ngc = false\n")
	n.layout = policy.DedicatedImageFS
	n.pods[0].Disk.Volumes = policy.Exactly(4 * testGiB)
	n.pods[1].Disk = diskBytes(3 * testGiB)
	for s, available := range map[policy.Signal]int64{policy.NodeFSAvailable: 3 * testGiB, policy.ImageFSAvailable: 10 * testGiB, policy.ContainerFSAvailable: 10 * testGiB} {
		n.set(s, available)
	}
	wantStop(t, n.at(g, 0), "d/big")
	n.end(n.stops[0])
	n.set(policy.ImageFSAvailable, 2*testGiB)
	n.set(policy.ContainerFSAvailable, 2*testGiB)
	wantStop(t, n.at(g, time.Second), "d/small")
}

// A sandbox is listed before its first container, and seems to use nothing then. What a stop left in the pod is not forgotten.
func TestMemoryThatAStopLeftInABareSandbox(t *testing.T) {
	g, n, again := leavesMemory(t)
	containers := again.Containers
	again.ID, again.Created, again.Containers, again.Memory = "again", time.Hour+4*time.Second, nil, policy.Known(0)
	n.pods = append([]inventory.Pod{again}, n.pods...)
	n.listedAt = time.Hour + 4*time.Second
	n.at(g, 4*time.Second)
	n.pods[0].Containers, n.pods[0].Memory = containers, policy.Known(3*testGiB+20*testMiB)
	n.listedAt = time.Hour + 5*time.Second
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, 5*time.Second); stopped(&p) == "d/big" {
		t.Errorf("stopped for what no stop gives back: %s", p.Stop.Reason)
	}
}

// Until the pods are listed again, a sandbox that a stop has ended is no candidate: its cgroup may still hold what is in its
// volumes, and another stop would find no process. The kubelet may have started a container in it by then.
func TestASandboxThatAStopHasEnded(t *testing.T) {
	for again, want := range map[string]string{"no": "d/small", "yes": "d/big", "no, but a container has started": "d/big"} {
		g, n := newManager(t, memoryHard)
		n.set(policy.MemoryAvailable, testGiB/2)
		wantStop(t, n.at(g, 0), "d/big")
		n.kill(n.stops[0])
		n.pods[0].Memory, n.remains["big"] = policy.Known(3*testGiB), policy.Known(3*testGiB)
		n.at(g, 0)
		still := chargeStill
		switch again {
		case "no":
		case "yes":
			n.listedAt = time.Hour + chargeStill
		default:
			n.renewed = map[string]inventory.Pod{"big": n.pods[0]}
			n.at(g, chargeStill)
			still = sharedStill // the runtime ends it
		}
		p := n.at(g, still)
		wantSettled(t, p, 1)
		if stopped(&p) != want {
			t.Errorf("listed again: %s: stopped %q, held by %q, want %s", again, stopped(&p), p.Held, want)
		}
	}
}

// During the grace period of a stop, a kubelet starts a container again that has ended before the others. An escalation ends that, too,
// and while it holds the memory, its pod has not ended, although it was listed with it.
func TestAContainerThatStartsDuringAStop(t *testing.T) {
	g, n := newManager(t, softAndHard)
	n.set(policy.MemoryAvailable, testGiB+testGiB/2)
	n.at(g, 0)
	p := n.at(g, time.Minute)
	wantStop(t, p, "d/big")
	n.pods[0].Containers = []inventory.Container{{ID: "big-2"}}
	n.listedAt = time.Hour + time.Minute + time.Second
	n.leak("big", testGiB/2)
	if p = n.at(g, time.Minute+2*time.Second); p.Escalated != "d/big" || len(n.stops[0].found) != 1 {
		t.Fatalf("escalated %q with %q, held by %q", p.Escalated, n.stops[0].found, p.Held)
	}
	n.kill(n.stops[0])
	for _, after := range []time.Duration{2*time.Second + 1, 2*time.Second + chargeStill + 1, 3*time.Second + 1} {
		p = n.at(g, time.Minute+after)
		if stopped(&p) == "d/small" {
			t.Fatalf("after %s: stopped d/small in its place", after)
		}
	}
	wantStop(t, p, "d/big")
}

// While the runtime does not list pods, one that a stop has ended stays so, however long that lasts.
func TestEndedForAsLongAsNothingIsListed(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.pods = append(n.pods, testPod("third", 2*testGiB))
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.kill(n.stops[0])
	n.pods[0].Memory, n.remains["big"] = policy.Known(3*testGiB), policy.Known(3*testGiB)
	others := 0
	n.at(g, 0)
	n.set(policy.MemoryAvailable, 4*testGiB)
	n.at(g, chargeStill)
	for at := time.Second; at < 5*time.Minute; at += time.Second {
		if n.set(policy.MemoryAvailable, testGiB/2); at < 2*time.Minute {
			n.set(policy.MemoryAvailable, 4*testGiB)
		}
		p := n.at(g, at)
		if p.Stop == nil {
			continue
		}
		if others++; p.Stop.Pod == "d/big" {
			t.Fatalf("after %s: stopped again", at)
		}
		n.end(n.stops[len(n.stops)-1])
	}
	if others != 2 {
		t.Errorf("stopped %d others", others)
	}
}

// A kubelet may start the pod again, in the same cgroup, while the effect of its stop is awaited. What the new sandbox takes came
// back before.
func TestWhatANewSandboxTakesMeanwhile(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.stops[0].outcome.Shared = true
	n.end(n.stops[0])
	for i, left := range []int64{3 * testGiB, testGiB, 3 * testGiB} {
		n.remains["big"] = policy.Known(left)
		p := n.at(g, time.Duration(i)*sharedStill/2)
		if wantSettled(t, p, i/2); i == 2 && p.Settled[0].Result.Freed != 3*testGiB {
			t.Errorf("freed %d", p.Settled[0].Result.Freed)
		}
	}
	if s := g.restraint.ByPod(n.now).KeptMemory("big", "again", policy.Amount{}); s != testGiB {
		t.Errorf("the stop left %d", s)
	}
}

// The runtime may unmount a pod's files in memory after the stop is over. That memory does not count as kept by the pod's volumes.
func TestMemoryThatTheRuntimeUnmountsLate(t *testing.T) {
	for _, left := range []int64{0, testGiB, 3 * testGiB} {
		g, n := newManager(t, memoryHard)
		n.set(policy.MemoryAvailable, testGiB/2)
		wantStop(t, n.at(g, 0), "d/big")
		kept := func() int64 { return g.restraint.ByPod(n.now).KeptMemory("big", "again", policy.Amount{}) }
		outcome := &n.stops[0].outcome
		outcome.Shared, n.remains["big"] = true, policy.Known(3*testGiB)
		n.end(n.stops[0])
		n.set(policy.MemoryAvailable, 2*testGiB)
		n.at(g, 0)
		if wantSettled(t, n.at(g, sharedStill), 1); kept() != 3*testGiB {
			t.Errorf("the stop left %d", kept())
		}
		outcome.Result.Confirmed, n.remains["big"] = true, policy.Known(left)
		if n.at(g, 2*time.Second); kept() != left || !g.unsaved && left < 3*testGiB {
			t.Errorf("%d are left, and the stop left %d", left, kept())
		}
		n.remains["big"] = policy.Known(0) // the volumes are emptied, which the pod's own reading shows
		if n.at(g, 3*time.Second); kept() != left {
			t.Errorf("read again after the runtime has stopped the sandbox: %d", kept())
		}
	}
}

// A suspend is no time in which the runtime unmounts files.
func TestMemoryThatComesBackAfterASuspend(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.stops[0].outcome.Shared, n.remains["big"] = true, policy.Known(3*testGiB)
	n.end(n.stops[0])
	n.set(policy.MemoryAvailable, 2*testGiB)
	n.at(g, 0)
	wantSettled(t, n.at(g, sharedStill), 1)
	const slept = 5 * time.Minute
	n.sleep(g, slept)
	n.at(g, slept+sharedStill)
	n.remains["big"] = policy.Known(testGiB)
	n.at(g, slept+2*sharedStill)
	if kept := g.restraint.ByPod(n.now).KeptMemory("big", "again", policy.Amount{}); kept != testGiB {
		t.Errorf("the stop left %d", kept)
	}
}

// It has come back when the stop is judged, if that is later: at the pool's next victim.
func TestJudgeAStopWithMemoryThatCameBackLate(t *testing.T) {
	for left, fruitless := range map[int64]bool{0: false, testGiB: false, 3 * testGiB: true} {
		g, n := newManager(t, "budget.breaker = 1\n"+memoryHard)
		n.set(policy.MemoryAvailable, testGiB/2)
		wantStop(t, n.at(g, 0), "d/big")
		n.stops[0].outcome.Shared, n.remains["big"] = true, policy.Known(3*testGiB)
		n.end(n.stops[0])
		n.set(policy.MemoryAvailable, 3*testGiB/2)
		n.at(g, 0)
		wantSettled(t, n.at(g, sharedStill), 1)
		n.stops[0].outcome.Result.Confirmed, n.remains["big"] = true, policy.Known(left)
		n.set(policy.MemoryAvailable, 9*testGiB/2-left)
		n.at(g, 2*time.Second)
		n.at(g, time.Minute-time.Second)
		n.leak("small", testGiB/2)
		wantStop(t, n.at(g, time.Minute), "d/small") // the culprit
		if open := g.restraint.Status(n.now).Breakers; (len(open) > 0) != fruitless {
			t.Errorf("%d are left: open breakers %v", left, open)
		}
	}
}

// If a pool waits for a stop that an operator began, what earlier stops have left does not count as not given back.
func TestWhatAnOperatorsStopLeaves(t *testing.T) {
	g, n := newManager(t, memoryHard)
	g.restraint.Begin(policy.Stop{UID: "big", Sandbox: "before", Expected: 3 * testGiB}, n.now)
	g.restraint.End("before", 0)
	n.pods[0].Memory = policy.Known(5 * testGiB)
	g.StopPod(t.Context(), &n.pods[0], time.Minute, "test", &api.Pass{At: api.Duration(n.now)})
	n.set(policy.MemoryAvailable, testGiB/2)
	wantHeld(t, n.at(g, time.Second), api.HeldInFlight)
	n.remains["big"] = policy.Known(3 * testGiB)
	n.end(n.stops[0])
	if p := n.at(g, 2*time.Second); len(p.Settled) != 1 || p.Settled[0].Result.Freed != 2*testGiB {
		t.Errorf("settled %+v", p.Settled)
	}
}
