package eviction

import (
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

const memoryAndPIDs = memoryHard + "\"pid.available\" = \"10\"\n"

// After a restart, only the pool of a stop in flight waits.
func TestRestartWaitsOnlyForThePoolOfTheStop(t *testing.T) {
	g, n := newManager(t, memoryAndPIDs)
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.now += time.Second
	g = restarted(t, g, n)
	wantHeld(t, n.at(g, time.Second), api.HeldInFlight)
	n.pods[1].PIDs = policy.Known(500)
	n.obs[policy.PIDAvailable] = policy.Observation{Available: 5, Capacity: 1000, Status: policy.OK}
	if p := n.at(g, 2*time.Second); stopped(&p) != "d/small" || p.Stop.Signal != "pid.available" {
		t.Errorf("stopped %+v, held by %q", p.Stop, p.Held)
	}
}

// A stop in flight for memory holds neither the reclaim of a disk after a restart, nor the stop that follows from it.
func TestRestartReclaimsAnotherPoolAtOnce(t *testing.T) {
	for _, slow := range []bool{false, true} {
		g, n := newManager(t, memoryHard+"\"nodefs.available\" = \"1Gi\"\n")
		n.pods[1].Disk = diskBytes(8 * testGiB)
		n.set(policy.MemoryAvailable, testGiB/2)
		wantStop(t, n.at(g, 0), "d/big")
		n.now += time.Second
		g = restarted(t, g, n)
		wantHeld(t, n.at(g, time.Second), api.HeldInFlight)
		reclaims := len(n.reclaimed)
		n.slow = slow
		n.set(policy.NodeFSAvailable, testGiB/2)
		p := n.at(g, 2*time.Second)
		if len(n.reclaimed) != reclaims+1 || n.reclaimed[reclaims].Signal != policy.NodeFSAvailable {
			t.Fatalf("reclaims: %+v", n.reclaimed[reclaims:])
		}
		if slow {
			wantHeld(t, p, api.HeldInFlight)
			close(n.reliefs[reclaims].done)
			p = n.at(g, 3*time.Second)
		}
		if wantStop(t, p, "d/small"); p.Stop.Signal != "nodefs.available" || g.restraint.Unfinished(policy.PoolMemory) == nil {
			t.Errorf("stopped %+v", p.Stop)
		}
	}
}

// After a restart, a pool waits only for the sandbox of the stop in flight: until it is not listed, or holds
// nothing any more.
func TestRestartWaitsOnlyForThatSandbox(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fakeNode)
		want   string
	}{
		"it is still there":     {func(*fakeNode) {}, ""},
		"it is not listed":      {func(n *fakeNode) { n.pods = n.pods[1:] }, "d/small"},
		"it holds nothing":      {func(n *fakeNode) { n.remains["big"], n.pods[0].Memory = policy.Known(0), policy.Known(0) }, "d/small"},
		"others come and go":    {func(n *fakeNode) { n.pods[1].ID = "other" }, ""},
		"nothing is listed yet": {func(n *fakeNode) { n.pods, n.listedAt = nil, -1 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g, n := newManager(t, memoryHard)
			n.podsMemory = policy.Known(5 * testGiB)
			n.set(policy.MemoryAvailable, testGiB/2)
			wantStop(t, n.at(g, 0), "d/big")
			n.now += time.Second
			g = restarted(t, g, n)
			c.change(n)
			if p := n.at(g, 2*time.Second); c.want == "" {
				wantHeld(t, p, api.HeldInFlight)
			} else {
				wantStop(t, p, c.want)
			}
		})
	}
}

// A sandbox whose processes the run before has killed is stopped all the same, but no pool waits for that. One whose containers
// have ended tells nothing of its class, and has no cgroup.
func TestRestartStopsAnEmptySandbox(t *testing.T) {
	for name, empty := range map[string]func(*fakeNode){
		"without processes": func(n *fakeNode) { n.remains["big"] = policy.Known(0) },
		"without containers": func(n *fakeNode) {
			n.pods[0].Containers, n.pods[0].Protection, n.remains["big"] = nil, inventory.ProtectedUnclassified, policy.Amount{}
		},
	} {
		g, n := newManager(t, memoryHard)
		n.set(policy.MemoryAvailable, testGiB/2)
		wantStop(t, n.at(g, 0), "d/big")
		empty(n)
		n.now += time.Second
		g = restarted(t, g, n)
		n.set(policy.MemoryAvailable, 8*testGiB)
		if n.at(g, time.Second); len(n.stops) != 2 || n.stops[1].order.Pod.ID != "big" || g.pools[policy.PoolMemory].flight != nil {
			t.Fatalf("%s: stops %+v", name, n.stops)
		}
		n.stops[1].outcome.Nothing = true
		n.kill(n.stops[1])
		p := n.at(g, 2*time.Second)
		if wantSettled(t, p, 1); p.Settled[0].Result.Freed != 4*testGiB || g.restraint.Status(n.now).Hard.Left != 2 {
			t.Errorf("%s: settled %+v, budget %+v", name, p.Settled[0].Result, g.restraint.Status(n.now).Hard)
		}
	}
}

// A stop for a disk that is taken over removes no logs from another device: the pod is not measured yet.
func TestRestartKeepsLogsOfAnotherDevice(t *testing.T) {
	for _, apart := range []bool{false, true} {
		g, n := newManager(t, "[eviction.hard]\n\"nodefs.available\" = \"1Gi\"\n")
		n.pods[0].Disk.LogsApart = apart
		n.set(policy.NodeFSAvailable, testGiB/2)
		wantStop(t, n.at(g, 0), "d/big")
		restartKeepsLogs(t, g, n, apart)
	}
}

// One for the disk on which the logs are removes them.
func TestRestartDiscardsLogsBesideLayers(t *testing.T) {
	g, n := newManager(t, "[eviction.hard]\n\"imagefs.available\" = \"1Gi\"\n")
	n.layout, n.pods[0].Disk.LogsPlace = policy.DedicatedImageFS, policy.LogsPlace{LogsApart: true, LogsWith: policy.ContainerFSAvailable}
	n.set(policy.ImageFSAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	restartKeepsLogs(t, g, n, false)
}

// restartKeepsLogs restarts the service a second after the last pass, before the pod is measured, and checks that the stop which
// continues removes the pod's logs only from the device of nodefs.
func restartKeepsLogs(t *testing.T, g *Manager, n *fakeNode, apart bool) {
	t.Helper()
	n.pods[0].Disk = policy.DiskUsage{}
	n.now += time.Second
	g = restarted(t, g, n)
	n.at(g, n.now+time.Second-time.Hour)
	if len(n.stops) != 2 || n.stops[1].order.DiscardLogs == apart {
		t.Errorf("logs on another device %t: stops %+v", apart, n.stops)
	}
}

// A hard stop that a crash interrupted, perhaps before it reached a process, is repeated after the restart,
// without another charge, and has an outcome for the record of its begin.
func TestRestartRepeatsAHardStop(t *testing.T) {
	for name, nothing := range map[string]bool{"the run before did not kill": false, "the run before killed": true} {
		t.Run(name, func(t *testing.T) {
			g, n := newManager(t, memoryHard)
			n.set(policy.MemoryAvailable, testGiB/2)
			wantStop(t, n.at(g, 0), "d/big")
			began, left := g.LastID, g.restraint.Status(n.now).Hard.Left
			n.now += time.Second
			g = restarted(t, g, n)
			wantHeld(t, n.at(g, 2*time.Second), api.HeldInFlight)
			if len(n.stops) != 2 || !n.stops[1].order.Direct || n.stops[1].order.Pod.ID != "big" || n.stops[1].order.Grace != 0 {
				t.Fatalf("stops %+v", n.stops)
			}
			n.stops[1].outcome.Nothing = nothing
			n.free(8 * testGiB)
			p := n.at(g, 3*time.Second)
			wantSettled(t, p, 1)
			if v := p.Settled[0]; v.Pass != began || v.Kind != "hard" || v.Result.Freed != v.Expected || g.restraint.Status(n.now).Hard.Left != left {
				t.Errorf("settled %+v, %+v, budget %+v", v, v.Result, g.restraint.Status(n.now).Hard)
			}
		})
	}
}

// A hard stop is not repeated if the service was not running for 10 s: the node has changed since, and its
// sandbox is a candidate like any other.
func TestRestartRepeatsNoOldHardStop(t *testing.T) {
	for _, late := range []bool{false, true} {
		g, n := newManager(t, memoryHard)
		n.set(policy.MemoryAvailable, testGiB/2)
		wantStop(t, n.at(g, 0), "d/big")
		n.now += 10*time.Second - 1
		if late {
			n.now++
		}
		g = restarted(t, g, n)
		if p := g.Pass(t.Context(), "test"); late {
			wantSettled(t, p, 1)
			if wantStop(t, p, "d/big"); p.Settled[0].Result.Emptied || len(p.Settled[0].Result.Errors) != 1 {
				t.Errorf("settled %+v", p.Settled[0].Result)
			}
			if b := g.restraint.Status(n.now); b.Hard.LastHour != 1 {
				t.Errorf("a stop that killed nothing took budget: %+v", b.Hard)
			}
		} else {
			wantHeld(t, p, api.HeldInFlight)
		}
	}
}

// A hard stop is not repeated while the node has recovered without it. For 10 s its processes may still be ending, so a threshold
// that is met again stops no other pod.
func TestRestartRepeatsNoNeedlessHardStop(t *testing.T) {
	for _, c := range []struct {
		again bool
		swap  int64 // available; a threshold of swap can wait
	}{{false, 2 * testGiB}, {false, 0}, {true, 2 * testGiB}} {
		g, n := newManager(t, memoryHard+"'swap.available' = '1Gi'\n")
		n.set(policy.SwapAvailable, c.swap)
		full := g.restraint.Status(n.now).Hard.Left
		n.set(policy.MemoryAvailable, testGiB/2)
		wantStop(t, n.at(g, 0), "d/big")
		n.now += time.Second
		g = restarted(t, g, n)
		n.set(policy.MemoryAvailable, 8*testGiB)
		n.set(policy.MeminfoAvailable, 2*testGiB)
		wantSettled(t, n.at(g, time.Second), 0)
		if len(n.stops) != 1 {
			t.Fatalf("%d stops", len(n.stops))
		}
		if c.again {
			n.set(policy.MemoryAvailable, testGiB/2)
			wantHeld(t, n.at(g, 10*time.Second-1), api.HeldInFlight)
			if len(n.stops) != 2 || n.stops[1].order.Pod.ID != "big" {
				t.Errorf("stops %+v", n.stops)
			}
			continue
		}
		p := n.at(g, 10*time.Second)
		if wantSettled(t, p, 1); len(n.stops) != 1 || p.Settled[0].Result.Emptied || len(p.Settled[0].Result.Errors) != 1 || g.restraint.Status(n.now).Hard.Left != full {
			t.Errorf("%d stops, settled %+v", len(n.stops), p.Settled[0].Result)
		}
	}
}

// For a disk, the stop of an earlier run is repeated for 30 s: its containers may not have been removed. Then its
// effect is waited for as usual: its files have to be deleted.
func TestRestartRepeatsADiskStop(t *testing.T) {
	for _, late := range []bool{false, true} {
		g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"1Gi\"\n")
		n.set(policy.NodeFSAvailable, 0)
		wantStop(t, n.at(g, 0), "d/big")
		n.now += diskEffectWait - 1
		if late {
			n.now++
		}
		g = restarted(t, g, n)
		p := g.Pass(t.Context(), "test")
		if late {
			wantStop(t, p, "d/big")
			continue
		}
		if wantHeld(t, p, api.HeldInFlight); !n.stops[1].order.Discard {
			t.Errorf("the stop leaves the containers: %+v", n.stops[1].order)
		}
		n.stops[1].outcome.Nothing = true // the run before killed
		n.kill(n.stops[1])
		n.at(g, diskEffectWait)
		wantHeld(t, n.at(g, 2*diskEffectWait-1), api.HeldInFlight)
		wantSettled(t, n.at(g, 2*diskEffectWait), 1)
	}
}

// The files of a pod that is not listed any more may still be being deleted. As without the restart, no other pod is stopped
// while free space rises.
func TestRestartWaitsForFilesThatAreBeingDeleted(t *testing.T) {
	for _, c := range []struct {
		name  string
		down  time.Duration
		rises int
		over  time.Duration // after the restart
	}{
		{"it rises", 10 * time.Second, 100, 100*time.Second + diskStill},
		{"it does not rise any more", diskEffectWait, 0, diskStill},
		{"less time has passed", diskEffectWait - 8*time.Second, 0, 8 * time.Second},
		{"it has had enough time", diskRisingWait, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"1Gi\"\n")
			n.set(policy.NodeFSAvailable, 0)
			wantStop(t, n.at(g, 0), "d/big")
			n.end(n.stops[0])
			n.now += c.down
			g = restarted(t, g, n)
			at := c.down
			for ; at < c.down+c.over; at += time.Second {
				if at-c.down <= time.Duration(c.rises)*time.Second {
					n.set(policy.NodeFSAvailable, int64(c.rises)*testMiB/10+int64(at-c.down)/int64(time.Second)*8*testMiB)
				}
				wantHeld(t, n.at(g, at), api.HeldInFlight)
			}
			p := n.at(g, at)
			wantSettled(t, p, 1)
			if p.Stop == nil {
				p = n.at(g, at+time.Second)
			}
			wantStop(t, p, "d/small")
		})
	}
}

// A soft stop in flight continues over a restart, whether the service ended in order or crashed: with the
// rest of its grace period, without another stop or charge, and with an outcome for the record of its begin.
func TestRestartTakesOverASoftStop(t *testing.T) {
	for name, end := range map[string]func(*Manager) api.Pass{
		"a crash":            func(*Manager) api.Pass { return api.Pass{} },
		"an end in order":    func(g *Manager) api.Pass { return g.Conclude() },
		"before the outcome": func(g *Manager) api.Pass { close(g.flights[0].job.(*fakeStop).done); return g.Conclude() },
	} {
		t.Run(name, func(t *testing.T) {
			g, n := softStop(t, "")
			began, left := g.LastID, g.restraint.Status(n.now).Soft.Left
			n.now += 4 * time.Second
			wantSettled(t, end(g), 0)
			g = restarted(t, g, n)
			n.listedAt = -1
			wantSettled(t, n.at(g, 15*time.Second), 0)
			n.listedAt = n.now
			n.pods[0].Protection = inventory.ProtectedUnclassified // a slow runtime has not said what it is
			wantSettled(t, n.at(g, 15500*time.Millisecond), 0)
			n.pods[0].Protection = ""
			wantHeld(t, n.at(g, 16*time.Second), api.HeldInFlight)
			if len(n.stops) != 2 || n.stops[1].order.Grace != 14*time.Second || g.restraint.Status(n.now).Soft.Left != left {
				t.Fatalf("%d stops, budget %+v", len(n.stops), g.restraint.Status(n.now))
			}
			n.stops[1].outcome.Result.EmptiedIn = api.Duration(2 * time.Second)
			n.free(8 * testGiB)
			p := n.at(g, 18*time.Second)
			wantSettled(t, p, 1)
			v := p.Settled[0]
			if v.Pass != began || v.Pod != "d/big" || v.Grace != api.Duration(20*time.Second) || time.Duration(v.Result.EmptiedIn) != 8*time.Second || v.Result.DeadIn != 0 {
				t.Errorf("settled %+v, %+v", v, v.Result)
			}
			if p := n.at(g, 19*time.Second); len(p.Settled) > 0 || g.restraint.Unfinished(policy.PoolMemory) != nil {
				t.Errorf("settled again: %+v", p.Settled)
			}
		})
	}
}

// A hard threshold does not wait until the runtime says what the pod of such a stop is.
func TestRestartWaitsForNoClassAtAHardThreshold(t *testing.T) {
	g, n := softStop(t, "")
	g = restarted(t, g, n)
	n.pods[0].Protection = inventory.ProtectedUnclassified
	wantSettled(t, n.at(g, 15*time.Second), 0)
	n.leak("small", testGiB-testMiB)
	wantStop(t, n.at(g, 16*time.Second), "d/small")
}

// A soft stop that cannot be taken over has an outcome, too. One whose outcome was recorded has no second one.
func TestRestartRecordsASoftStop(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*Manager, *fakeNode)
		emptied bool
		settled int
	}{
		"the pod is gone":       {func(_ *Manager, n *fakeNode) { n.pods = n.pods[1:] }, true, 1},
		"it is long past":       {func(_ *Manager, n *fakeNode) { n.now += time.Hour }, false, 1},
		"it is protected now":   {func(_ *Manager, n *fakeNode) { n.protect("test") }, false, 1},
		"its outcome was known": {func(g *Manager, n *fakeNode) { n.end(n.stops[0]); g.Conclude() }, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g, n := softStop(t, "")
			n.now += time.Second
			c.change(g, n)
			g = restarted(t, g, n)
			n.set(policy.MemoryAvailable, 8*testGiB)
			p := g.Pass(t.Context(), "test")
			wantSettled(t, p, c.settled)
			if len(n.stops) != 1 || c.settled > 0 && (p.Settled[0].Result.Emptied != c.emptied || p.Settled[0].Pod != "d/big" || p.Settled[0].UID != "big") {
				t.Errorf("%d stops, settled %+v", len(n.stops), p.Settled)
			}
		})
	}
}

// After a restart, a hard threshold ends the grace period of the soft stop that was taken over.
func TestRestartEscalatesASoftStop(t *testing.T) {
	g, n := softStop(t, "")
	n.now += time.Second
	g = restarted(t, g, n)
	n.leak("big", testGiB-1)
	p := n.at(g, 11500*time.Millisecond)
	wantHeld(t, p, api.HeldInFlight)
	if p.Escalated != "d/big" || n.stops[1].escalated != 1 {
		t.Errorf("escalated %q", p.Escalated)
	}
}

// Observe mode in between leaves no stop to take over.
func TestObserveModeTakesNothingOver(t *testing.T) {
	g, n := softStop(t, "")
	observe := g.cfg
	observe.Mode = config.ModeObserve
	enforce := g.cfg
	g.SetConfig(observe)
	n.free(8 * testGiB)
	wantSettled(t, n.at(g, 11*time.Second), 1)
	g.SetConfig(enforce)
	wantSettled(t, n.at(g, 12*time.Second), 0)
}

// After a restart, episodes begin again: a sandbox that came back before is a pod like any other, while the
// budget and the breaker continue.
func TestRestartBeginsEpisodesAgain(t *testing.T) {
	g, n := cameBack(t, memoryHard, 0)
	left := g.restraint.Status(n.now).Hard.Left
	n.now += time.Second
	g = restarted(t, g, n)
	n.set(policy.MemoryAvailable, lacking)
	wantStop(t, n.at(g, 7*time.Second), "d/small")
	if got := g.restraint.Status(n.now).Hard.Left; left != 2 || got != 1 {
		t.Errorf("%d hard stops left, then %d; want 2, then 1", left, got)
	}
}

// An open breaker stays open over a restart.
func TestRestartKeepsTheBreaker(t *testing.T) {
	g, n := newManager(t, memoryHard+"[budget]\nhard.burst = 10\n")
	fruitless(t, g, n)
	wantHeld(t, n.at(g, 30*time.Millisecond), api.HeldBreaker)
	n.now += time.Second
	g = restarted(t, g, n)
	wantHeld(t, n.at(g, 2*time.Second), api.HeldBreaker)
}

// A breaker that has been needed for long is not out of date, also if the service was killed, the machine slept, or no stop was made
// meanwhile.
func TestOldBreakerStays(t *testing.T) {
	for name, gap := range map[string]func(*testing.T, *Manager, *fakeNode) *Manager{
		"killed": killed,
		"away":   func(t *testing.T, g *Manager, n *fakeNode) *Manager { n.now += time.Hour; return killed(t, g, n) },
		"slept":  func(_ *testing.T, g *Manager, n *fakeNode) *Manager { n.sleep(g, time.Hour); return g },
		"in observe mode": func(_ *testing.T, g *Manager, n *fakeNode) *Manager {
			cfg := g.cfg
			cfg.Mode = config.ModeObserve
			g.SetConfig(cfg)
			for range 12 {
				n.now += time.Minute
				g.Pass(t.Context(), "test")
			}
			cfg.Mode = config.ModeEnforce
			g.SetConfig(cfg)
			return g
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, n := newManager(t, memoryHard+"[budget]\nhard.burst = 10\n")
			fruitless(t, g, n)
			for at := 30 * time.Millisecond; at < 11*time.Minute; at += 10 * time.Second {
				if wantHeld(t, n.at(g, at), api.HeldBreaker); g.Unsaved() {
					n.save(t, g)
				}
			}
			g = gap(t, g, n)
			wantHeld(t, n.at(g, n.now-time.Hour+time.Second), api.HeldBreaker)
		})
	}
}

// The count of fruitless stops continues over a restart.
func TestRestartKeepsTheCountOfFruitlessStops(t *testing.T) {
	g, n := newManager(t, memoryHard+"[budget]\nhard.burst = 10\n")
	fruitless(t, g, n) // the third of them is not judged yet
	n.at(g, 25*time.Millisecond)
	g = restarted(t, g, n)
	if n.at(g, 40*time.Millisecond); len(g.restraint.Status(n.now).Breakers) != 1 {
		t.Errorf("budget %+v", g.restraint.Status(n.now))
	}
}

// Just after a restart, it is known which pod grows: the samples of the run before count.
func TestRestartKnowsWhoGrows(t *testing.T) {
	for name, c := range map[string]struct {
		created time.Duration // of the leak
		forget  bool          // the samples are lost
		want    string
	}{
		"an old sandbox":  {time.Minute, false, "d/leak"},
		"a young sandbox": {time.Hour + time.Second, false, "d/leak"},
		"no samples":      {time.Minute, true, "d/big"},
	} {
		t.Run(name, func(t *testing.T) {
			g, n := newManager(t, memoryHard)
			n.pods = append(n.pods, testPod("leak", testMiB))
			n.pods[2].Priority, n.pods[2].Created = 1, c.created
			n.at(g, 2*time.Second)
			n.leak("leak", testGiB/2)
			n.now += 1500 * time.Millisecond
			if g = restarted(t, g, n); c.forget {
				g.samples = policy.Samples{}
			}
			wantStop(t, n.at(g, 3500*time.Millisecond), c.want)
		})
	}
}

// bigStopped returns a node on which a stop of "big" is in flight, with a pod "leak" that ranks last.
func bigStopped(t *testing.T) (g *Manager, n *fakeNode) {
	t.Helper()
	g, n = newManager(t, memoryHard)
	n.pods = append(n.pods, testPod("leak", testMiB))
	n.pods[0].Priority, n.pods[1].Priority, n.pods[2].Priority = -2, -1, 1
	n.set(policy.MemoryAvailable, testGiB+testMiB)
	n.at(g, 0)
	n.set(policy.MemoryAvailable, testGiB-testMiB)
	wantStop(t, n.at(g, time.Second), "d/big")
	return g, n
}

// After a restart right after a stop, what that gave back does not hide who takes it: the memory seems not to have been filled since.
func TestRestartKnowsWhatAStopGaveBack(t *testing.T) {
	g, n := bigStopped(t)
	n.free(5*testGiB - testMiB)
	if wantSettled(t, n.at(g, 1500*time.Millisecond), 1); !g.Sampled() {
		t.Error("what the stop gave back is not saved at once")
	}
	g = restarted(t, g, n)
	n.leak("leak", testGiB-2*testMiB)
	wantStop(t, n.at(g, 2400*time.Millisecond), "d/leak")
}

// The same if the earlier run did not see the end of the stop.
func TestRestartKnowsWhatAnUnseenStopGaveBack(t *testing.T) {
	for name, end := range map[string]func(*fakeNode){
		"gone":           func(n *fakeNode) { n.pods = n.pods[1:] },
		"without a task": func(n *fakeNode) { n.pods[0].PIDs = policy.Known(0) },
	} {
		t.Run(name, func(t *testing.T) {
			g, n := bigStopped(t)
			g = restarted(t, g, n)
			n.set(policy.MemoryAvailable, 5*testGiB)
			n.grow("big", -4*testGiB)
			end(n)
			n.at(g, 2*time.Second)
			n.leak("leak", testGiB-2*testMiB)
			wantStop(t, n.at(g, 2400*time.Millisecond), "d/leak")
		})
	}
}

// A pod that is older than the first listing of a new service has not grown by all that it uses.
func TestNoSampleBeforeTheFirstListing(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.pods = append(n.pods, testPod("leak", testMiB))
	n.pods[0].Created, n.pods[2].Created, n.pods[2].Priority = n.now-time.Second, n.now-time.Second, 1
	pods := n.pods
	n.pods, n.listedAt = nil, -1
	n.set(policy.MemoryAvailable, 3*testGiB/2)
	n.at(g, 0)
	n.at(g, 800*time.Millisecond)
	n.pods, n.listedAt = pods, n.now
	n.at(g, 810*time.Millisecond)
	n.leak("leak", testGiB*9/10)
	if p := n.at(g, 1700*time.Millisecond); p.Need == nil || p.Need.Culprit != "" {
		t.Errorf("need %+v", p.Need)
	}
}

// A soft stop that was escalated gets no grace period from the next run of the service.
func TestRestartOfAnEscalatedStop(t *testing.T) {
	g, n := softStop(t, "")
	g.cfg.Eviction.DirectKill = config.DirectKillFallback
	n.leak("big", testGiB-1)
	if p := n.at(g, 11500*time.Millisecond); p.Escalated != "d/big" || n.stops[0].direct {
		t.Fatalf("escalated %q, directly %t", p.Escalated, n.stops[0].direct)
	}
	n.now += time.Second
	g = restarted(t, g, n)
	n.at(g, 12500*time.Millisecond)
	if len(n.stops) != 2 || n.stops[1].order.Grace != 0 {
		t.Errorf("%d stops, the last with %s of grace", len(n.stops), n.stops[len(n.stops)-1].order.Grace)
	}
}

// A stop for a stall, whose window has no reading yet, goes on at once if another threshold of the pool is due.
func TestRestartDuringAStall(t *testing.T) {
	g, n := newManager(t, "eviction.stall_floor = '8Gi'\n[eviction.hard]\n\"memory.available\" = \"1Gi\"\n\"memory.stall\" = \"50%\"\n")
	n.set(policy.MeminfoAvailable, 2*testGiB)
	n.obs[policy.MemoryStall] = policy.Observation{Available: 10, Capacity: 100, Status: policy.OK}
	wantStop(t, n.at(g, 0), "d/big")
	g = restarted(t, g, n)
	n.obs[policy.MemoryStall] = policy.Observation{}
	n.set(policy.MemoryAvailable, testGiB/2)
	if n.at(g, time.Second); len(n.stops) != 2 {
		t.Errorf("%d stops", len(n.stops))
	}
}

// Whether a stop of an earlier run is still needed is not known before its signal was read.
func TestRestartWaitsForTheSignal(t *testing.T) {
	g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"1Gi\"\n")
	n.set(policy.NodeFSAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	g = restarted(t, g, n)
	n.obs[policy.NodeFSAvailable] = policy.Observation{}
	wantSettled(t, n.at(g, time.Second), 0)
	n.set(policy.NodeFSAvailable, testGiB/2)
	if p := n.at(g, 2*time.Second); len(p.Settled) != 0 || len(n.stops) != 2 {
		t.Errorf("settled %+v after %d stops", p.Settled, len(n.stops))
	}
}

// After a restart, a pool waits for the stop for the other pool of its device, too, although what the pod used is not known any
// more.
func TestRestartWaitsForTheInodesOfAStop(t *testing.T) {
	g, n := newManager(t, twoOfADisk)
	n.pods[0].Inodes = diskBytes(90)
	n.obs[policy.NodeFSInodesFree] = policy.Observation{Available: 10, Capacity: 10000, Status: policy.OK}
	n.set(policy.NodeFSAvailable, 3*testGiB)
	wantStop(t, n.at(g, 0), "d/big")
	n.end(n.stops[0])
	wantHeld(t, n.at(g, time.Second), api.HeldInFlight)
	g = restarted(t, g, n)
	for s := int64(2); s < 25; s++ { // its files are being deleted
		n.set(policy.NodeFSAvailable, 3*testGiB+10*s*testMiB)
		n.obs[policy.NodeFSInodesFree].Available = 10 + 3*s
		wantHeld(t, n.at(g, time.Duration(s)*time.Second), api.HeldInFlight)
	}
}

// byOperator is how an operator has a pod stopped: by a command, or by a drain.
var byOperator = map[string]func(t *testing.T, g *Manager, n *fakeNode){
	api.KindCommand: func(t *testing.T, g *Manager, n *fakeNode) {
		t.Helper()
		g.StopPod(t.Context(), &n.pods[0], 20*time.Second, "by root", &api.Pass{ID: g.NextID(), At: api.Duration(n.now)})
	},
	api.KindDrain: func(_ *testing.T, g *Manager, n *fakeNode) {
		g.Orders.Drain = &api.Drain{Since: api.Duration(time.Hour), Grace: api.Duration(20 * time.Second)}
		n.at(g, 0)
	},
}

// A stop that an operator required continues over a restart like a soft stop: until the same deadline, with one outcome, for the
// record of its begin. A drain does not begin it again.
func TestRestartContinuesAnOperatorsStop(t *testing.T) {
	ends := map[string]func(*Manager) api.Pass{
		"a crash":         func(*Manager) api.Pass { return api.Pass{} },
		"an end in order": func(g *Manager) api.Pass { close(g.flights[0].job.(*fakeStop).done); return g.Conclude() },
	}
	for kind, begin := range byOperator {
		for name, end := range ends {
			t.Run(kind+" over "+name, func(t *testing.T) {
				g, n := newManager(t, "")
				n.pods = n.pods[:1]
				begin(t, g, n)
				began := g.LastID
				n.now += 4 * time.Second
				wantSettled(t, end(g), 0)
				orders := g.Orders
				g = restarted(t, g, n)
				g.Orders, g.LastID = orders, began+1
				pods := n.pods
				n.pods, n.listedAt = nil, -1
				wantSettled(t, n.at(g, 5*time.Second), 0)
				n.pods, n.listedAt = pods, n.now
				n.pods[0].Protection = inventory.ProtectedUnclassified // a slow runtime has not said what it is
				wantSettled(t, n.at(g, 5500*time.Millisecond), 0)
				n.pods[0].Protection = ""
				n.at(g, 6*time.Second)
				if len(n.stops) != 2 || n.stops[1].order.Grace != 14*time.Second || n.stops[1].order.Pod.ID != "big" || n.stops[1].order.Direct {
					t.Fatalf("%d stops, the last: %+v", len(n.stops), n.stops[len(n.stops)-1].order)
				}
				n.end(n.stops[1])
				p := n.at(g, 8*time.Second)
				wantSettled(t, p, 1)
				if v := p.Settled[0]; v.Pass != began || v.Pod != "d/big" || v.Kind != kind || v.Signal != kind || !v.Result.Emptied || v.Grace != api.Duration(20*time.Second) {
					t.Errorf("settled %+v, %+v", v, v.Result)
				}
				g = restarted(t, g, n)
				if wantSettled(t, n.at(g, 9*time.Second), 0); len(n.stops) != 2 {
					t.Errorf("%d stops", len(n.stops))
				}
			})
		}
	}
}

// An operator's stop that is not to be continued has an outcome, too. Observe mode continues none.
func TestRestartRecordsAnOperatorsStop(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*Manager, *fakeNode)
		emptied bool
		settled int
	}{
		"the pod is gone":                 {func(_ *Manager, n *fakeNode) { n.pods = n.pods[1:] }, true, 1},
		"another sandbox is in its place": {func(_ *Manager, n *fakeNode) { n.pods[0].ID = "other" }, true, 1},
		"it is protected now":             {func(_ *Manager, n *fakeNode) { n.protect("test") }, false, 1},
		"it should have ended before":     {func(_ *Manager, n *fakeNode) { n.now += 20*time.Second + takeOverWithin }, false, 1},
		"its outcome is known":            {func(g *Manager, n *fakeNode) { n.end(n.stops[0]); g.Conclude() }, false, 0},
		"in observe mode":                 {func(g *Manager, _ *fakeNode) { g.cfg.Mode = config.ModeObserve }, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g, n := newManager(t, "")
			byOperator[api.KindCommand](t, g, n)
			n.now += time.Second
			c.change(g, n)
			g = restarted(t, g, n)
			p := g.Pass(t.Context(), "test")
			wantSettled(t, p, c.settled)
			if len(n.stops) != 1 || c.settled > 0 && (p.Settled[0].Result.Emptied != c.emptied || p.Settled[0].Pod != "d/big") {
				t.Errorf("%d stops, settled %+v", len(n.stops), p.Settled)
			}
			wantSettled(t, g.Pass(t.Context(), "test"), 0)
		})
	}
}

// A stop that the configuration requires continues over a restart, too: the pod has got its signal, and another decision would take
// the budget again.
func TestRestartContinuesAnEnforcedStop(t *testing.T) {
	for kind, signal := range map[string]string{api.KindLimit: api.SignalLimit, api.KindAdmission: policy.MemoryPressure.String()} {
		for name, end := range map[string]func(*Manager) api.Pass{
			"a crash":         func(*Manager) api.Pass { return api.Pass{} },
			"an end in order": func(g *Manager) api.Pass { close(g.flights[0].job.(*fakeStop).done); return g.Conclude() },
		} {
			t.Run(kind+" over "+name, func(t *testing.T) {
				g, n := newManager(t, "admission.mode = 'stop'\n[eviction.soft]\n\"memory.available\" = \"1Gi\"\n[eviction.soft_grace_period]\n\"memory.available\" = \"1h\"\n")
				n.pods = n.pods[:1]
				if kind == api.KindLimit {
					n.pods[0].StorageLimit = 2 * testGiB
				} else {
					n.set(policy.MemoryAvailable, testGiB/2)
					n.at(g, 0)
					n.pods[0].Created = n.now + time.Second
				}
				if p := n.at(g, 2*time.Second); p.Stop == nil || p.Stop.Kind != kind {
					t.Fatalf("stopped %+v, held by %q", p.Stop, p.Held)
				}
				began, left := g.LastID, g.restraint.Status(n.now).Soft.Left
				n.now += time.Second
				wantSettled(t, end(g), 0)
				g = restarted(t, g, n)
				g.LastID = began + 1
				n.at(g, 4*time.Second)
				if now := g.restraint.Status(n.now).Soft.Left; len(n.stops) != 2 || now != left {
					t.Fatalf("%d stops, %d soft stops are left of %d", len(n.stops), now, left)
				}
				n.end(n.stops[1])
				p := n.at(g, 5*time.Second)
				wantSettled(t, p, 1)
				if v := p.Settled[0]; v.Pass != began || v.Kind != kind || v.Signal != signal || !v.Result.Emptied {
					t.Errorf("settled %+v, %+v", v, v.Result)
				}
			})
		}
	}
}

// Memory waits for a stop of another cause that it has made hard. The next run of the service waits for it as well, although
// another pod ranks first by now, and finishes it at once.
func TestRestartAwaitsAStopOfAnotherCause(t *testing.T) {
	for cause, begin := range map[string]func(*testing.T, *Manager, *fakeNode){
		api.KindLimit:   func(_ *testing.T, g *Manager, n *fakeNode) { n.pods[0].StorageLimit = 2 * testGiB; n.at(g, 0) },
		api.KindCommand: byOperator[api.KindCommand],
	} {
		t.Run(cause, func(t *testing.T) {
			g, n := newManager(t, memoryHard)
			begin(t, g, n)
			n.set(policy.MemoryAvailable, testGiB/2)
			if p := n.at(g, time.Second); p.Escalated != "d/big" {
				t.Fatalf("escalated %q, held by %q", p.Escalated, p.Held)
			}
			n.now += time.Second
			g = restarted(t, g, n)
			n.pods[1].Memory = policy.Known(5 * testGiB)
			wantHeld(t, n.at(g, 3*time.Second), api.HeldInFlight)
			if len(n.stops) != 2 || n.stops[1].order.Pod.ID != "big" || n.stops[1].order.Grace != 0 || !n.stops[1].order.Direct {
				t.Fatalf("%d stops, the last: %+v", len(n.stops), n.stops[len(n.stops)-1].order)
			}
			n.end(n.stops[1])
			if p := n.at(g, 4*time.Second); len(p.Settled) != 1 || p.Settled[0].Kind != cause {
				t.Errorf("settled %+v", p.Settled)
			}
		})
	}
}

// A disk waits for what a stop by an operator leaves there, too, although its processes had ended when the service ended in order.
func TestRestartAwaitsTheFilesOfAnOperatorsStop(t *testing.T) {
	for kind, begin := range byOperator {
		t.Run(kind, func(t *testing.T) {
			g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"1Gi\"\n")
			begin(t, g, n)
			g.Orders.Drain = nil
			n.set(policy.NodeFSAvailable, testGiB/2)
			if p := n.at(g, time.Second); p.Escalated != "d/big" {
				t.Fatalf("escalated %q, held by %q", p.Escalated, p.Held)
			}
			n.end(n.stops[0])
			n.now += time.Second
			wantSettled(t, g.Conclude(), 1)
			g = restarted(t, g, n)
			wantHeld(t, n.at(g, 3*time.Second), api.HeldInFlight)
			n.set(policy.NodeFSAvailable, 5*testGiB)
			wantSettled(t, n.at(g, 4*time.Second), 0)
			if g.restraint.Unfinished(policy.PoolNodeBytes) != nil {
				t.Error("it is not over")
			}
		})
	}
}

// A stop for a limit that a disk waits for removes no logs from another device, either.
func TestRestartKeepsLogsOfALimitOnAnotherDevice(t *testing.T) {
	for _, apart := range []bool{false, true} {
		g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"1Gi\"\n")
		n.pods[0].StorageLimit, n.pods[0].Disk.LogsApart = 2*testGiB, apart
		wantStop(t, n.at(g, 0), "d/big")
		n.set(policy.NodeFSAvailable, testGiB/2)
		if n.at(g, time.Second); g.pools[policy.PoolNodeBytes].flight == nil || n.stops[0].order.DiscardLogs == apart {
			t.Fatalf("logs on another device %t: %+v", apart, n.stops[0].order)
		}
		restartKeepsLogs(t, g, n, apart)
	}
}

// A soft stop that its pool waits for no longer, because a hard threshold has chosen another pod, continues over a restart, too.
func TestRestartContinuesASmallSoftStop(t *testing.T) {
	g, n := softStop(t, "")
	began := g.LastID
	n.grow("big", 10*testMiB-4*testGiB)
	n.grow("small", 4*testGiB-10*testMiB)
	n.leak("small", testGiB/2)
	wantStop(t, n.at(g, 10500*time.Millisecond), "d/small")
	n.now += time.Second
	last := g.LastID
	g = restarted(t, g, n)
	g.LastID = last
	wantHeld(t, n.at(g, 12*time.Second), api.HeldInFlight)
	if len(n.stops) != 4 || n.stops[2].order.Pod.ID != "small" || n.stops[3].order.Pod.ID != "big" || n.stops[3].order.Grace != 18*time.Second {
		t.Fatalf("%d stops, the last: %+v", len(n.stops), n.stops[len(n.stops)-1].order)
	}
	if f := g.pools[policy.PoolMemory].flight; f == nil || f.stop.Sandbox != "small" {
		t.Errorf("memory waits for %+v", f)
	}
	n.end(n.stops[3])
	p := n.at(g, 13*time.Second)
	if wantSettled(t, p, 1); p.Settled[0].Pass != began || p.Settled[0].Kind != "soft" || p.Settled[0].Signal != "memory.available" {
		t.Errorf("settled %+v", p.Settled[0])
	}
	n.end(n.stops[2])
	wantSettled(t, n.at(g, 14*time.Second), 1)
}

// If it was for a disk, it still removes what the pod leaves there.
func TestRestartDiscardsWithASmallSoftStop(t *testing.T) {
	g, n := newManager(t, "[eviction.hard]\n\"memory.available\" = \"0%\"\n\"nodefs.available\" = \"1Gi\"\n"+
		"[eviction.soft]\n\"nodefs.available\" = \"2Gi\"\n[eviction.soft_grace_period]\n\"nodefs.available\" = \"0s\"\n")
	n.set(policy.NodeFSAvailable, 2*testGiB-1)
	wantStop(t, n.at(g, 0), "d/big")
	n.pods[0].Disk, n.pods[1].Disk = diskBytes(10*testMiB), diskBytes(5*testGiB)
	n.set(policy.NodeFSAvailable, testGiB/2)
	wantStop(t, n.at(g, time.Second), "d/small")
	n.now += time.Second
	g = restarted(t, g, n)
	n.at(g, 3*time.Second)
	if len(n.stops) != 4 || n.stops[3].order.Pod.ID != "big" || !n.stops[3].order.Discard || n.stops[3].order.Grace == 0 {
		t.Errorf("%d stops, the last: %+v", len(n.stops), n.stops[len(n.stops)-1].order)
	}
}

// A disk has chosen the pod that is being stopped for another reason, too, and waits for what the pod leaves there. It does so after
// a restart as well, whenever that comes.
func TestRestartAwaitsWhatAStopForAnotherPoolLeaves(t *testing.T) {
	const soft = "\"nodefs.available\" = \"0%\"\n[eviction.soft]\n\"nodefs.available\" = \"1Gi\"\n[eviction.soft_grace_period]\n\"nodefs.available\" = \"0s\"\n"
	begins := map[string]struct {
		conf  string
		begin func(*testing.T, *Manager, *fakeNode)
	}{
		"for memory": {memoryHard + "\"nodefs.available\" = \"1Gi\"\n", func(_ *testing.T, g *Manager, n *fakeNode) {
			n.leak("big", testGiB/2)
			n.at(g, 0)
		}},
		"for another device": {disksAlone + "\"nodefs.available\" = \"1Gi\"\n\"imagefs.available\" = \"1Gi\"\n", func(_ *testing.T, g *Manager, n *fakeNode) {
			n.layout, n.pods[0].Disk.Logs = policy.DedicatedImageFS, policy.Exactly(testGiB)
			n.pods[1].Disk.Logs = policy.Exactly(testGiB)
			nodefs := n.obs[policy.NodeFSAvailable]
			n.set(policy.NodeFSAvailable, 8*testGiB)
			n.set(policy.ImageFSAvailable, testGiB-100)
			n.at(g, 0)
			n.obs[policy.NodeFSAvailable] = nodefs
		}},
		"for a limit and then memory": {memoryHard + "\"nodefs.available\" = \"1Gi\"\n", func(_ *testing.T, g *Manager, n *fakeNode) {
			n.pods[0].StorageLimit, n.slow = 200*testMiB, true
			n.at(g, 0)
			n.slow = false
			n.leak("big", testGiB/2)
		}},
		"by an operator": {disksAlone + soft, func(t *testing.T, g *Manager, n *fakeNode) {
			n.pods[0].Grace = time.Hour
			g.StopPod(t.Context(), &n.pods[0], time.Hour, "by root", &api.Pass{ID: g.NextID(), At: api.Duration(n.now)})
		}},
	}
	ends := map[string]func(*Manager, *fakeNode){
		"while the pod ends":           func(_ *Manager, n *fakeNode) { n.end(n.stops[0]) },
		"when it has ended":            func(g *Manager, n *fakeNode) { n.end(n.stops[0]); n.at(g, 2*time.Second) },
		"in order, while the pod ends": func(g *Manager, n *fakeNode) { n.end(n.stops[0]); g.Conclude() },
		"in order, when it has ended":  func(g *Manager, n *fakeNode) { n.end(n.stops[0]); n.at(g, 2*time.Second); g.Conclude() },
	}
	for stop, b := range begins {
		for name, end := range ends {
			t.Run(stop+", "+name, func(t *testing.T) {
				g, n := newManager(t, b.conf)
				n.pods[0].Priority, n.pods[0].Disk = -1, diskBytes(300*testMiB)
				n.set(policy.NodeFSAvailable, testGiB/2)
				b.begin(t, g, n)
				wantHeld(t, n.at(g, time.Second), api.HeldInFlight)
				if len(n.stops) != 1 || n.stops[0].order.Pod.ID != "big" || len(g.flights[0].stop.Waits) == 0 || !g.Unsaved() {
					t.Fatalf("%d stops, in flight %+v", len(n.stops), g.flights[0].stop)
				}
				n.set(policy.MemoryAvailable, 5*testGiB)
				n.set(policy.ImageFSAvailable, 5*testGiB)
				if end(g, n); g.flights != nil && g.flights[0].ended != 0 && !g.relieving() {
					t.Error("nothing is being relieved")
				}
				n.now += time.Second
				g = restarted(t, g, n)
				for i := range 10 { // its files are being deleted
					n.set(policy.NodeFSAvailable, testGiB/2+int64(i)*10*testMiB)
					wantHeld(t, n.at(g, time.Duration(4+i)*time.Second), api.HeldInFlight)
				}
				wantStop(t, n.at(g, 13*time.Second+diskEffectWait), "d/small")
			})
		}
	}
}

// A disk that needs nothing of the pod any more when its stop is over for memory, or gets nothing, does not wait for it. The record
// says so for the next run of the service.
func TestDiskNeedsNothingOfAStopForMemory(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(*Manager, *fakeNode)
		waits string // the disk, for this sandbox
	}{
		"it has recovered": {func(_ *Manager, n *fakeNode) { n.set(policy.NodeFSAvailable, 2*testGiB); n.end(n.stops[0]) }, ""},
		"it has stopped another": {func(g *Manager, n *fakeNode) {
			n.pods[1].Priority = -2
			n.at(g, 1500*time.Millisecond)
			n.end(n.stops[0])
		}, "small"},
		"the stop has failed": {func(_ *Manager, n *fakeNode) { close(n.stops[0].done) }, "small"},
	} {
		t.Run(name, func(t *testing.T) {
			g, n := stoppedOnAShortDisk(t, 3*testGiB)
			n.at(g, time.Second)
			n.set(policy.MemoryAvailable, 5*testGiB)
			c.end(g, n)
			n.at(g, 2*time.Second)
			waits, recorded := "", ""
			if f := g.pools[policy.PoolNodeBytes].flight; f != nil {
				waits = f.order.Pod.ID
			}
			g.restraint.End("small", 0)
			if s := g.restraint.Unfinished(policy.PoolNodeBytes); s != nil {
				recorded = s.Sandbox
			}
			if waits != c.waits || recorded != "" {
				t.Errorf("waits for %q, want %q; recorded for %q", waits, c.waits, recorded)
			}
		})
	}
}

// After a restart, a hard stop for memory continues although memory has recovered, if a disk still needs the files of its pod.
func TestRestartContinuesAStopThatADiskNeeds(t *testing.T) {
	g, n := stoppedOnAShortDisk(t, 300*testMiB)
	wantHeld(t, n.at(g, time.Second), api.HeldInFlight)
	left := g.restraint.Status(n.now).Hard.Left
	n.now += time.Second
	g = restarted(t, g, n)
	n.set(policy.MemoryAvailable, 5*testGiB)
	wantHeld(t, n.at(g, 3*time.Second), api.HeldInFlight)
	if len(n.stops) != 2 || n.stops[1].order.Pod.ID != "big" || g.restraint.Status(n.now).Hard.Left != left {
		t.Errorf("stops %+v, budget %+v", n.stops, g.restraint.Status(n.now).Hard)
	}
}

// One that another reason repeats first counts only once, in the budget and in the history.
func TestRestartStopsAPodForAnotherReason(t *testing.T) {
	for _, drained := range []bool{false, true} {
		g, n := newManager(t, memoryAndPIDs)
		want := g.restraint.Status(n.now).Hard.Left
		n.set(policy.MemoryAvailable, testGiB/2)
		wantStop(t, n.at(g, 0), "d/big")
		n.now += time.Second
		g = restarted(t, g, n)
		n.set(policy.MemoryAvailable, 8*testGiB)
		if wantSettled(t, n.at(g, time.Second), 0); drained {
			g.Orders.Drain = &api.Drain{Since: api.Duration(n.now)}
			n.pods[1].Protection = "test"
		} else {
			want-- // a drain takes nothing
			n.pods[0].PIDs = policy.Known(500)
			n.obs[policy.PIDAvailable] = policy.Observation{Available: 5, Capacity: 1000, Status: policy.OK}
		}
		p := n.at(g, 2*time.Second)
		wantStop(t, p, "d/big")
		if wantSettled(t, p, 1); !p.Settled[0].Result.NotContinued || g.restraint.Status(n.now).Hard.Left != want {
			t.Errorf("drained %v: settled %+v, budget %+v", drained, p.Settled[0].Result, g.restraint.Status(n.now).Hard)
		}
		n.end(n.stops[1])
		n.obs[policy.PIDAvailable] = policy.Observation{}
		wantSettled(t, n.at(g, 3*time.Second), 1)
		if s := g.restraint.Unfinished(policy.PoolMemory); s != nil {
			t.Errorf("drained %v: unfinished %+v", drained, s)
		}
	}
}

// The end of a condition that an earlier run recorded is recorded once, when a service that has just started can read its
// signals. A condition that holds again has not ended.
func TestConditionsOverARestart(t *testing.T) {
	memory, pids := policy.ConditionsOf(policy.MemoryPressure), policy.ConditionsOf(policy.PIDPressure)
	for _, held := range []policy.Conditions{memory, pids} {
		g, n := newManager(t, memoryAndPIDs)
		g.Continue(41, false, memory|pids)
		if held == memory {
			n.set(policy.MemoryAvailable, testGiB/2)
		} else {
			n.obs[policy.PIDAvailable] = policy.Observation{Available: 5, Capacity: 1000, Status: policy.OK}
		}
		for _, c := range []struct {
			at    time.Duration
			begun bool
			ended policy.Conditions
		}{{0, true, 0}, {firstListing - 1, false, 0}, {firstListing, false, (memory | pids) &^ held}, {2 * firstListing, false, 0}} {
			if p := n.at(g, c.at); p.Conditions != held || p.Changed != (c.begun || c.ended != 0) || p.Ended() != c.ended {
				t.Errorf("%s holds, at %s: %s, changed %t, ended %s, want %s", held, c.at, p.Conditions, p.Changed, p.Ended(), c.ended)
			}
		}
	}
}
