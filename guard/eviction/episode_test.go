package eviction

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// An episode begins when a threshold is first met and ends when none has been met for 30 s.
func TestEpisodeEndsAfter30s(t *testing.T) {
	for gap, ends := range map[time.Duration]bool{episodeGap - 1: false, episodeGap: true} {
		g, n := newManager(t, softAndHard)
		n.set(policy.MemoryAvailable, 2*testGiB-1) // in its grace period
		n.at(g, 0)
		n.set(policy.MemoryAvailable, 8*testGiB)
		n.at(g, time.Second)
		n.set(policy.MemoryAvailable, 2*testGiB-1)
		n.at(g, gap)
		want := time.Hour
		if ends {
			want += gap
		}
		if st := g.pools[policy.PoolMemory]; !st.episode || st.began != want {
			t.Errorf("clear for %s: an episode: %t, since %s; want since %s", gap, st.episode, st.began, want)
		}
	}
}

// Pools have episodes of their own.
func TestEpisodesArePerPool(t *testing.T) {
	g, n := newManager(t, memoryHard+"\"nodefs.available\" = \"1Gi\"\n")
	n.set(policy.NodeFSAvailable, testGiB/2)
	n.at(g, 0)
	for i := range policy.PoolCount {
		if g.pools[i].episode != (i == policy.PoolNodeBytes) {
			t.Errorf("%s has an episode: %t", i, g.pools[i].episode)
		}
	}
}

// A stall above the stall floor only warns: it starts no episode and raises no alarm.
func TestWarnOnlyStartsNoEpisode(t *testing.T) {
	g, n := newManager(t, "eviction.hard.'memory.stall' = '80%'\n")
	n.set(policy.MeminfoAvailable, 12*testGiB)
	n.obs[policy.MemoryStall] = policy.Observation{Available: 500_000, Capacity: 1_000_000, Status: policy.OK}
	p := n.at(g, 0)
	wantHeld(t, p, api.HeldStallFloor)
	if g.pools[policy.PoolMemory].episode || p.Alarm != "" || len(n.reliefs) > 0 {
		t.Errorf("alarm %q, %d reclaims, an episode: %t", p.Alarm, len(n.reliefs), g.pools[policy.PoolMemory].episode)
	}
}

// If no pod is stopped although a pool is due, an alarm is raised once per episode. The status shows it while
// the threshold is met.
func TestAlarmOncePerEpisode(t *testing.T) {
	for held, c := range map[string]struct {
		change func(*fakeNode)
		alarm  string
	}{
		api.HeldOutside:   {func(n *fakeNode) { n.pods = nil }, "memory: used outside pods: stopping pods would not relieve it"},
		api.HeldProtected: {func(n *fakeNode) { n.protect("test") }, "memory: used by protected pods: stopping the others would not relieve it"},
		api.HeldUnknown: {func(n *fakeNode) {
			for i := range n.pods {
				n.pods[i].Memory = policy.Amount{}
			}
		}, "memory: no pod is stopped, because the usage of a pod is unknown"},
	} {
		t.Run(held, func(t *testing.T) {
			g, n := newManager(t, memoryHard)
			c.change(n)
			alarms := func() string {
				return strings.Join(g.Status(func(policy.Signal) string { return "" }, false).Alarms, "; ")
			}
			for i, at := range []time.Duration{0, time.Minute} {
				n.set(policy.MemoryAvailable, testGiB/2)
				p := n.at(g, at)
				wantHeld(t, p, held)
				if p.Alarm != c.alarm || p.AlarmBy != "memory.available:hard" || p.AlarmKind != api.AlarmNoRelief || alarms() != c.alarm {
					t.Errorf("episode %d: alarm %q by %q, status %q", i, p.Alarm, p.AlarmBy, alarms())
				}
				n.set(policy.MemoryAvailable, 8*testGiB)
				if p := n.at(g, at+time.Second); p.Alarm != "" || alarms() != "" {
					t.Errorf("when it is clear: alarm %q, status %q", p.Alarm, alarms())
				}
				n.set(policy.MemoryAvailable, testGiB/2)
				if p := n.at(g, at+15*time.Second); p.Alarm != "" || p.Held != held || alarms() != c.alarm {
					t.Errorf("in the same episode: alarm %q, held by %q, status %q", p.Alarm, p.Held, alarms())
				}
				n.set(policy.MemoryAvailable, 8*testGiB)
				if n.at(g, at+45*time.Second); alarms() != "" {
					t.Errorf("after the episode: %q", alarms())
				}
			}
		})
	}
}

// If the kernel does not account the memory of any pod, no pod is stopped: its usage is unknown. A pod whose
// usage is known is stopped if it can bring relief.
func TestPassWithoutTheMemoryController(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.set(policy.MemoryAvailable, testGiB-1)
	n.pods[0].Memory = policy.Amount{}
	wantStop(t, n.at(g, 0), "d/small")
}

// One pass stops at most one pod: memory before PIDs before disks. If another pool is due, the next pass
// follows at once.
func TestOnePassStopsOnePod(t *testing.T) {
	g, n := newManager(t, memoryHard+"\"pid.available\" = \"10\"\n\"nodefs.available\" = \"1Gi\"\n")
	n.pods = append(n.pods, testPod("third", 2*testGiB))
	n.set(policy.NodeFSAvailable, testGiB/2)
	n.obs[policy.PIDAvailable] = policy.Observation{Available: 5, Capacity: 1000, Status: policy.OK}
	n.set(policy.MemoryAvailable, testGiB/2)
	for i, want := range []string{"memory.available", "pid.available", "nodefs.available"} {
		p := n.at(g, time.Duration(i)*5*time.Millisecond)
		if p.Stop == nil || p.Stop.Signal != want || len(n.stops) != i+1 {
			t.Fatalf("pass %d: stopped %+v, held by %q, %d stops", i, p.Stop, p.Held, len(n.stops))
		}
		if d := g.Pause(); d != minPause {
			t.Errorf("pass %d: the loop sleeps for %s", i, d)
		}
		n.pods = n.pods[: 3-i-1 : 3-i-1]
		for j := range n.pods { // the pod that is stopped is not the next victim
			n.pods[j].ID += "'"
		}
	}
}

// Pods are sampled with every listing, every second while a threshold of memory, swap or PIDs is nearer than
// a fifth of the capacity, and otherwise every few seconds. Memory and swap are sampled more often while the fastest
// fill could reach a threshold within a second. No other signal counts.
func TestPodsAreSampled(t *testing.T) {
	const (
		conf = memoryHard + "\"swap.available\" = \"1Gi\"\n\"pid.available\" = \"1000\"\n\"nodefs.available\" = \"1Gi\"\n\"memory.stall\" = \"10%\"\n"
		near = testGiB + 16*testGiB/5 // of 16 GiB
	)
	for _, c := range []struct {
		name      string
		signal    policy.Signal
		available int64
		listings  bool
		want      int // measurements within 10 s of a pass every 100 ms
	}{
		{"far away", policy.MemoryAvailable, 8 * testGiB, false, 2},
		{"at a fifth", policy.MemoryAvailable, near, false, 2},
		{"near", policy.MemoryAvailable, near - 1, false, 10},
		{"at a second of the fastest fill", policy.MemoryAvailable, 2 * testGiB, false, 10},
		{"close", policy.MemoryAvailable, 2*testGiB - 1, false, 34},
		{"swap at a fifth", policy.SwapAvailable, near, false, 2},
		{"swap near", policy.SwapAvailable, near - 1, false, 10},
		{"swap close", policy.SwapAvailable, 2*testGiB - 1, false, 34},
		{"PIDs at a fifth", policy.PIDAvailable, 1000 + 32768/5, false, 2},
		{"PIDs near", policy.PIDAvailable, 1000 + 32768/5 - 1, false, 10},
		{"PIDs are never close", policy.PIDAvailable, 1000, false, 10},
		{"a disk", policy.NodeFSAvailable, testGiB, false, 2},
		{"a stall", policy.MemoryStall, 32768 / 10, false, 2},
		{"listed all the time", policy.MemoryAvailable, 8 * testGiB, true, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, n := newManager(t, conf)
			for _, s := range []policy.Signal{policy.SwapAvailable, policy.NodeFSAvailable} {
				n.set(s, 16*testGiB)
			}
			for _, s := range []policy.Signal{policy.PIDAvailable, policy.MemoryStall} {
				n.obs[s] = policy.Observation{Available: 32768, Capacity: 32768, Status: policy.OK}
			}
			n.obs[c.signal].Available = c.available
			for i := range 100 {
				if c.listings {
					n.listedAt = time.Hour + time.Duration(i)
				}
				n.at(g, time.Duration(i)*100*time.Millisecond)
			}
			if n.measured != c.want || g.pressure.Met != nil {
				t.Errorf("%d measurements, want %d; met %+v", n.measured, c.want, g.pressure.Met)
			}
		})
	}
}

// The status no longer says why no pod is stopped once one is.
func TestAlarmOfTheStatusEndsWithAStop(t *testing.T) {
	g, n := newManager(t, memoryHard)
	alarms := func() []string { return g.Status(func(policy.Signal) string { return "" }, false).Alarms }
	n.set(policy.MemoryAvailable, testGiB/2)
	n.protect("test")
	if n.at(g, 0); len(alarms()) != 1 {
		t.Fatalf("alarms %q", alarms())
	}
	n.protect("")
	if wantStop(t, n.at(g, time.Second), "d/big"); len(alarms()) != 0 {
		t.Errorf("alarms %q after a stop", alarms())
	}
}

// Nor does it once something else holds the stop back.
func TestAlarmOfTheStatusEndsWithItsReason(t *testing.T) {
	g, n := newManager(t, memoryHard+"[budget]\nhard.burst = 1\n")
	g.restraint.Begin(policy.Stop{Sandbox: "other", Kind: policy.Hard, Pool: policy.PoolPIDs, Over: true}, n.now)
	n.set(policy.MemoryAvailable, testGiB/2)
	n.protect("test")
	wantHeld(t, n.at(g, 0), api.HeldProtected)
	n.protect("")
	wantHeld(t, n.at(g, time.Second), api.HeldBudget)
	if st := g.Status(func(policy.Signal) string { return "" }, false); len(st.Alarms) != 0 {
		t.Errorf("alarms %q", st.Alarms)
	}
}

// Pressure that has ended while the pods were listed again raises no alarm.
func TestReliefDuringAListingRaisesNoAlarm(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.set(policy.MemoryAvailable, testGiB/2)
	n.pods, n.hidden = nil, n.pods
	n.onListing = func() { n.set(policy.MemoryAvailable, 8*testGiB) }
	if p := n.at(g, 0); p.Alarm != "" || p.Stop != nil {
		t.Errorf("alarm %q, stop %+v", p.Alarm, p.Stop)
	}
}

// Pressure that ends while the pass reclaims or lists holds nothing back: neither the record of the pass nor the status
// names a reason, there is nothing new for the history, and the alarm of an earlier pass ends with the next one.
func TestReliefDuringAPassHoldsNothingBack(t *testing.T) {
	for name, prepare := range map[string]func(n *fakeNode, relieved func()) Reclaimer{
		"by the reclaim": func(_ *fakeNode, relieved func()) Reclaimer { return reclaimerFunc(relieved) },
		"during the listing before the decision": func(n *fakeNode, relieved func()) Reclaimer {
			n.foreign, n.onListing = 6*testGiB, relieved
			return n
		},
		"during the listing before the stop": func(n *fakeNode, relieved func()) Reclaimer {
			n.renewed, n.onListing = map[string]inventory.Pod{"big": n.pods[0]}, relieved
			return n
		},
	} {
		g, n := newManager(t, memoryHard)
		n.set(policy.MemoryAvailable, testGiB/2)
		n.protect("test")
		wantHeld(t, n.at(g, 0), api.HeldProtected)
		n.protect("")
		relieved := false
		g.reclaimer = prepare(n, func() { relieved = true; n.set(policy.MemoryAvailable, 8*testGiB) })
		last := g.LastID
		p := n.at(g, g.cfg.Eviction.Interval)
		if !relieved || len(g.pressure.Met) == 0 {
			t.Fatalf("%s: relieved %t, met %v: want the relief within the pass", name, relieved, g.pressure.Met)
		}
		if p.Stop != nil || p.Held != "" || p.HeldBy != "" || len(g.Holds()) != 0 {
			t.Errorf("%s: stop %+v, held by %q at %q, holds %v", name, p.Stop, p.Held, p.HeldBy, g.Holds())
		}
		if r := g.RankNow(t.Context(), policy.MemoryAvailable); r.Held != nil {
			t.Errorf("%s: the ranking is held by %+v", name, r.Held)
		}
		if p.Alarm != "" || p.Notable() || g.LastID != last {
			t.Errorf("%s: alarm %q, notable %t, last record %d after %d", name, p.Alarm, p.Notable(), g.LastID, last)
		}
		if d := g.Pause(); d != minPause {
			t.Errorf("%s: the next pass is due in %s", name, d)
		}
		n.at(g, g.cfg.Eviction.Interval+minPause)
		if st := g.Status(func(policy.Signal) string { return "" }, false); len(st.Alarms) != 0 {
			t.Errorf("%s: alarms %q after the next pass", name, st.Alarms)
		}
	}
}

// reclaimerFunc is a Reclaimer that frees memory at once.
type reclaimerFunc func()

func (f reclaimerFunc) Reclaim(context.Context, policy.Met, policy.Layout, []inventory.Pod) ReliefJob {
	f()
	return Finished{}
}

// Observe mode reports a stop that a fresh listing delayed.
func TestObservedStopAfterAListing(t *testing.T) {
	g, n := newManager(t, "mode = 'observe'\n"+memoryHard)
	n.set(policy.MemoryAvailable, testGiB/2)
	n.renewed = map[string]inventory.Pod{"big": n.pods[0]}
	n.onListing = func() { n.set(policy.MemoryAvailable, 8*testGiB) }
	if p := n.at(g, 0); p.Stop != nil {
		t.Fatalf("stop %+v, although the pressure was over", p.Stop)
	}
	n.onListing = nil
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 20*time.Second), "d/big")
	wantHeld(t, n.at(g, 21*time.Second), api.HeldObserve)
}
