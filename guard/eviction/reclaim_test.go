package eviction

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/hook"
	"github.com/criguard/criguard/policy"
)

// The reclaim of every due pool starts in the pass that finds it due, whatever is in flight.
func TestReclaimOfEveryDuePoolStarts(t *testing.T) {
	g, n := newManager(t, memoryHard+"\"swap.available\" = \"1Gi\"\n\"pid.available\" = \"100\"\n\"nodefs.available\" = \"1Gi\"\n\"nodefs.inodesFree\" = \"100\"\n")
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	for _, s := range []policy.Signal{policy.PIDAvailable, policy.NodeFSAvailable, policy.NodeFSInodesFree} {
		n.set(s, 0)
	}
	n.slow, n.swapping, n.reclaimed = true, true, nil
	n.at(g, time.Second)
	var got []policy.Signal
	for _, m := range n.reclaimed {
		got = append(got, m.Signal)
	}
	want := []policy.Signal{policy.PIDAvailable, policy.NodeFSAvailable, policy.NodeFSInodesFree}
	if !slices.Equal(got, want) {
		t.Errorf("reclaims of %v, want %v", got, want)
	}
	if n.at(g, 2*time.Second); len(n.reclaimed) != len(want) {
		t.Errorf("%d reclaims while they run", len(n.reclaimed))
	}
}

// A device with two thresholds reclaims to the larger need.
func TestDeviceReclaimsToTheLargerNeed(t *testing.T) {
	for _, c := range []struct {
		layout      policy.Layout
		node, image int64 // available
		want        []policy.Signal
	}{
		{policy.SingleFS, testGiB, testGiB, []policy.Signal{policy.ImageFSAvailable}},
		{policy.SingleFS, 0, 0, []policy.Signal{policy.ImageFSAvailable}},
		{policy.SingleFS, 0, 7 * testGiB / 2, []policy.Signal{policy.NodeFSAvailable}},
		{policy.DedicatedImageFS, testGiB, testGiB, []policy.Signal{policy.NodeFSAvailable, policy.ImageFSAvailable}},
	} {
		g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"2Gi\"\n\"imagefs.available\" = \"4Gi\"\n")
		n.layout, n.slow = c.layout, true
		n.set(policy.NodeFSAvailable, c.node)
		n.set(policy.ImageFSAvailable, c.image)
		n.at(g, 0)
		var got []policy.Signal
		for _, m := range n.reclaimed {
			got = append(got, m.Signal)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s with %d and %d available: reclaims of %v, want %v", c.layout, c.node, c.image, got, c.want)
		}
	}
}

// A stop waits at most 150 ms for a reclaim for memory and PIDs at a hard threshold. The loop wakes up
// by then.
func TestHardStopWaits150msForReclaim(t *testing.T) {
	for s, name := range map[policy.Signal]string{policy.MemoryAvailable: "memory", policy.PIDAvailable: "pid"} {
		t.Run(name, func(t *testing.T) {
			g, n := newManager(t, memoryHard+"\"swap.available\" = \"1Gi\"\n\"pid.available\" = \"100\"\n")
			n.swapping = true
			n.pods[0].PIDs, n.pods[0].Swap = policy.Known(200), policy.Known(testGiB)
			n.set(s, 0)
			wantHeld(t, n.at(g, 0), api.HeldReclaiming)
			if d := g.Pause(); d != hardReclaimWait {
				t.Errorf("the loop sleeps for %v", d)
			}
			wantHeld(t, n.at(g, 150*time.Millisecond-1), api.HeldReclaiming)
			if d := g.Pause(); d != minPause {
				t.Errorf("the loop sleeps for %v then", d)
			}
			wantStop(t, n.at(g, 150*time.Millisecond), "d/big")
			if d := g.Pause(); d < heldPause {
				t.Errorf("the loop sleeps for %v, with nothing to wait for", d)
			}
		})
	}
}

// A reclaim that runs beside several stops is started once and recorded once, when it ends.
func TestLongReclaimIsRecordedOnce(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.swapping = true
	n.set(policy.MemoryAvailable, 0)
	n.at(g, 0)
	wantStop(t, n.at(g, hardReclaimWait), "d/big")
	n.end(n.stops[0])
	n.grow("small", 4*testGiB) // takes what came back
	wantStop(t, n.at(g, time.Second), "d/small")
	n.free(0)
	recorded := 0
	n.reliefs[0].steps = []string{"memory"}
	for i := range 20 {
		if i == 10 {
			close(n.reliefs[0].done)
		}
		p := n.at(g, 2*time.Second+time.Duration(i)*100*time.Millisecond)
		recorded += len(p.Reclaimed)
		if (recorded > 0) != (i >= 10) || i < 10 && len(n.reliefs) != 1 {
			t.Fatalf("pass %d: recorded %d times, %d reclaims", i, recorded, len(n.reliefs))
		}
	}
	if recorded != 1 {
		t.Errorf("recorded %d times", recorded)
	}
}

// A signal that crosses its threshold again and again records only one reclaim that removes nothing in each episode.
func TestNeedlessReclaimIsRecordedOnceInAnEpisode(t *testing.T) {
	g, n := newDiskManager(t)
	n.pods = nil
	at, recorded := time.Duration(0), 0
	pass := func(available int64) {
		at += time.Second
		n.set(policy.NodeFSAvailable, available)
		p := n.at(g, at)
		recorded += len(p.Reclaimed)
	}
	for episode := range 2 {
		for range 10 {
			pass(0)
			r := n.reliefs[len(n.reliefs)-1]
			r.steps = []string{"logs"}
			close(r.done)
			pass(0)
			pass(2 * testGiB)
		}
		if recorded != episode+1 {
			t.Errorf("episode %d: recorded %d times", episode, recorded)
		}
		at += episodeGap
		pass(2 * testGiB)
	}
}

// The record of a reclaim names the steps that would help, but are switched off.
func TestReclaimRecordsWhatIsOff(t *testing.T) {
	for text, want := range map[string][]string{
		memoryHard: nil, memoryHard + "[images]\nprune = 'never'\n": {"images"}, memoryHard + "[containers]\ngc = false\n": {"containers", "sandboxes", "logs"},
	} {
		g, n := newManager(t, text)
		n.slow = true
		n.set(policy.NodeFSAvailable, 0)
		n.at(g, 0)
		n.reliefs[0].steps = []string{"logs"}
		close(n.reliefs[0].done)
		if p := n.at(g, time.Second); len(p.Reclaimed) != 1 || !slices.Equal(p.Reclaimed[0].Off, want) {
			t.Errorf("%s: %+v", text, p.Reclaimed)
		}
	}
}

// A stop needs a reclaim that ended after the last stop for the pool.
func TestStopNeedsAReclaimAfterTheLastStop(t *testing.T) {
	for name, set := range map[string]func(*fakeNode){
		"memory": func(n *fakeNode) { n.set(policy.MemoryAvailable, testGiB/2) },
		"a disk": func(n *fakeNode) { n.set(policy.NodeFSAvailable, testGiB/2) },
	} {
		t.Run(name, func(t *testing.T) {
			g, n := newManager(t, memoryHard+"\"nodefs.available\" = \"1Gi\"\n")
			set(n)
			wantStop(t, n.at(g, 0), "d/big")
			n.slow, n.swapping = true, true
			n.stops[0].outcome.Returned = true
			n.end(n.stops[0])
			p := n.at(g, 10*time.Millisecond)
			wantSettled(t, p, 1)
			wantHeld(t, p, api.HeldReclaiming)
			close(n.reliefs[1].done)
			wantStop(t, n.at(g, 20*time.Millisecond), "d/small")
		})
	}
}

// If a reclaim relieves the signal in time, no pod is stopped, even if the reclaim is still running.
func TestPassHardMemoryRelievedByReclaim(t *testing.T) {
	for name, after := range map[string]struct {
		took  time.Duration
		ended bool
	}{"quick": {20 * time.Millisecond, true}, "goes on": {hardReclaimWait, false}} {
		g, n := newManager(t, memoryHard)
		n.swapping = true
		n.set(policy.MemoryAvailable, testGiB-1)
		n.at(g, 0)
		if after.ended {
			close(n.reliefs[0].done)
		}
		n.set(policy.MemoryAvailable, 2*testGiB)
		for _, d := range []time.Duration{after.took, time.Second} {
			if p := n.at(g, d); p.Stop != nil || p.Held != "" || len(n.stops) != 0 {
				t.Errorf("%s, after %v: %+v, held by %q", name, d, p.Stop, p.Held)
			}
		}
	}
}

// A soft stop waits until its reclaim ends, for at most a minute. A hard stop that becomes due meanwhile does
// not wait again.
func TestPassSoftMemoryWaitsForReclaim(t *testing.T) {
	for _, hard := range []bool{true, false} {
		g, n := newManager(t, softAndHard)
		n.swapping = true
		n.set(policy.MemoryAvailable, 2*testGiB-1)
		n.at(g, 0)
		for _, d := range []time.Duration{10 * time.Second, 70*time.Second - 1} {
			wantHeld(t, n.at(g, d), api.HeldReclaiming)
		}
		at := 70 * time.Second
		if hard {
			at = 40 * time.Second
			n.leak("big", testGiB-1)
		}
		if p := n.at(g, at); p.Stop == nil || (p.Stop.Kind == "hard") != hard || len(n.reliefs) != 1 {
			t.Errorf("hard %t: %+v, held by %q, %d reclaims", hard, p.Stop, p.Held, len(n.reliefs))
		}
	}
}

// For a disk, a stop waits for a reclaim at most available ÷ fill − horizon, within 2 s and 60 s.
func TestDiskWaitsForReclaimByItsFill(t *testing.T) {
	for _, c := range []struct {
		name string
		fill int64 // per second
		want time.Duration
	}{
		{"it does not fill", 0, 60 * time.Second},
		{"it fills slowly", 30 * testMiB, 60 * time.Second},
		{"it is full after 40 s", 100 * testMiB, 30 * time.Second},
		{"it is full after 11 s", 4000 * testMiB / 11, 2 * time.Second},
		{"it is full at once", testGiB, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, n := newDiskManager(t)
			g.FollowTrace() // sample every pass
			const left = 4000 * testMiB
			g.cfg.Eviction.Thresholds[1].Value = policy.Bytes(left + 1)
			g.derived.valid = false
			n.set(policy.NodeFSAvailable, left+5*c.fill)
			n.at(g, 0)
			n.set(policy.NodeFSAvailable, left)
			n.at(g, 5*time.Second)
			m := g.pressure.Met[0]
			if got := g.reclaimWait(policy.PoolNodeBytes, m); got < c.want-time.Millisecond || got > c.want+10*time.Millisecond {
				t.Errorf("waits for %s, want %s", got, c.want)
			}
		})
	}
}

// A disk that gets full while the reclaim goes on does not fill any more, and one whose writer pauses does not for a while. Neither
// makes the stop wait longer. If the disk has hardly filled since the reclaim began, it does wait.
func TestFullDiskWaitsForReclaimNoLonger(t *testing.T) {
	const at, slice = 2 * time.Second, 250 * time.Millisecond
	steady := func(from, perSecond int64, until time.Duration) func(time.Duration) int64 {
		return func(d time.Duration) int64 { return max(from-int64(min(d, until)/time.Millisecond)*perSecond/1000, 0) }
	}
	for name, c := range map[string]struct {
		left  func(time.Duration) int64
		stops bool
	}{
		"it is full after half a second":        {steady(testGiB-1, 2*testGiB, time.Hour), true},
		"it was full before":                    {steady(0, 0, 0), true},
		"a file system keeps the last bytes":    {steady(testGiB-1, 2*testGiB-20*testMiB, 500*time.Millisecond), true},
		"its writer pauses after half a second": {steady(testGiB-1, 800*testMiB, 500*time.Millisecond), true},
		"its writer has ended":                  {steady(testGiB-1, 100*testMiB, 250*time.Millisecond), false},
		"it does not fill":                      {steady(testGiB-1, 0, 0), false},
		"the reclaim frees as much":             {func(d time.Duration) int64 { return testGiB/2 - int64(d/slice)%2*testMiB }, false},
	} {
		t.Run(name, func(t *testing.T) {
			g, n := newDiskManager(t)
			g.FollowTrace() // sample every pass
			for d := time.Duration(0); d < at; d += slice {
				n.set(policy.NodeFSAvailable, c.left(d))
				wantHeld(t, n.at(g, d), api.HeldReclaiming)
			}
			n.set(policy.NodeFSAvailable, c.left(at))
			if c.stops {
				wantStop(t, n.at(g, at), "d/big")
			} else {
				wantHeld(t, n.at(g, at), api.HeldReclaiming)
				wantHeld(t, n.at(g, ReclaimTimeout-1), api.HeldReclaiming)
			}
		})
	}
}

// A stop waits for a reclaim that empties a full disk in time: a pod's files would be deleted only after those that were removed.
func TestFullDiskWaitsForReclaimThatEmptiesIt(t *testing.T) {
	const begins = 5 * time.Second
	for name, c := range map[string]struct {
		perSecond int64         // that comes back
		lasts     time.Duration // of that
		reserved  int64         // of that, what only root may use
		taken     int64         // after 3 s, by others at once
		stops     time.Duration // after the reclaim has begun
	}{
		"a gigabyte within 10 s":              {103 * testMiB, 10 * time.Second, 0, 0, ReclaimTimeout},
		"root's reserve comes back before":    {103 * testMiB, time.Hour, 2 * testGiB, 0, ReclaimTimeout},
		"a tenth of it within a minute":       {2 * testMiB, time.Hour, testGiB, 0, ReclaimTimeout},
		"hardly anything":                     {1 * testMiB, time.Hour, testGiB, 0, minDiskReclaimWait},
		"it frees 40 MiB and then no more":    {10 * testMiB, 4 * time.Second, testGiB, 0, 23500 * time.Millisecond},
		"others take some at once":            {103 * testMiB, time.Hour, 2 * testGiB, 200 * testMiB, ReclaimTimeout},
		"it frees nothing, or others use all": {0, 0, 0, 0, minDiskReclaimWait},
	} {
		t.Run(name, func(t *testing.T) {
			g, n := newDiskManager(t)
			if c.taken > 0 {
				g.FollowTrace() // sample every pass
			}
			n.set(policy.NodeFSAvailable, 8*testGiB)
			n.at(g, 0)
			for d := time.Duration(0); ; d += 250 * time.Millisecond {
				back := int64(min(d, c.lasts)/time.Millisecond) * c.perSecond / 1000
				if d >= 3*time.Second {
					back -= c.taken
				}
				n.set(policy.NodeFSAvailable, max(back-c.reserved, 0))
				n.obs[policy.NodeFSAvailable].Reserved = min(back, c.reserved)
				if p := n.at(g, begins+d); d == c.stops {
					wantStop(t, p, "d/big")
					return
				} else if p.Stop != nil {
					t.Fatalf("stopped %s after %v, want a stop after %v", p.Stop.Pod, d, c.stops)
				} else if len(g.pressure.Met) == 0 {
					return // relieved
				}
			}
		})
	}
}

// While the machine sleeps, a reclaim does not go on, and uses up none of its time.
func TestDiskWaitsForReclaimThroughASleep(t *testing.T) {
	const slept = 2 * time.Hour
	g, n := newDiskManager(t)
	n.set(policy.NodeFSAvailable, testGiB/2)
	wantHeld(t, n.at(g, 0), api.HeldReclaiming)
	n.sleep(g, slept)
	wantHeld(t, n.at(g, slept+time.Second), api.HeldReclaiming)
	wantHeld(t, n.at(g, slept+ReclaimTimeout-1), api.HeldReclaiming)
	wantStop(t, n.at(g, slept+ReclaimTimeout), "d/big")
}

// The wait of a full disk being short, its pods may still be as they were measured long before. Then it goes on.
func TestFullDiskWaitsForMeasurements(t *testing.T) {
	g, n := newDiskManager(t)
	n.diskAge = measuredBefore + minDiskReclaimWait + 1
	n.set(policy.NodeFSAvailable, 0)
	n.at(g, 0)
	wantHeld(t, n.at(g, minDiskReclaimWait), api.HeldReclaiming)
	n.diskAge = measuredBefore + minDiskReclaimWait
	wantStop(t, n.at(g, minDiskReclaimWait), "d/big")
}

// A pod that was never measured may be the one that has filled the disk: no other pod is stopped before the measurement of
// the reclaim has had its time.
func TestFullDiskWaitsForAPodThatWasNeverMeasured(t *testing.T) {
	for name, c := range map[string]struct {
		hide  func(*fakeNode)
		show  func(*fakeNode)
		after string // the pod that is stopped once it is measured
	}{
		"unknown": {
			func(n *fakeNode) { n.pods[1].Disk = policy.DiskUsage{} }, func(n *fakeNode) { n.pods[1].Disk = diskBytes(8 * testGiB) }, "d/small",
		},
		"not asked for": {func(n *fakeNode) { n.unasked = true }, func(n *fakeNode) { n.unasked = false }, "d/big"},
		"never":         {func(n *fakeNode) { n.unasked = true }, nil, "d/big"},
	} {
		g, n := newDiskManager(t)
		c.hide(n)
		n.set(policy.NodeFSAvailable, 0)
		for _, at := range []time.Duration{0, minDiskReclaimWait, measuredWithin - 1} {
			if p := n.at(g, at); p.Stop != nil || p.Held != api.HeldReclaiming {
				t.Errorf("%s, after %s: stopped %+v, held by %q", name, at, p.Stop, p.Held)
			}
		}
		at := measuredWithin
		if c.show != nil {
			at -= 1
			c.show(n)
		}
		if p := n.at(g, at); stopped(&p) != c.after || len(n.reliefs) != 1 {
			t.Errorf("%s: stopped %q, held by %q, %d reclaims", name, stopped(&p), p.Held, len(n.reliefs))
		}
	}
}

// A stop for a disk no longer waits once its time is over, even if the reclaim still runs.
func TestDiskStopsWithoutItsReclaim(t *testing.T) {
	g, n := newDiskManager(t)
	n.set(policy.NodeFSAvailable, testGiB/2)
	wantHeld(t, n.at(g, 0), api.HeldReclaiming)
	wantHeld(t, n.at(g, 60*time.Second-1), api.HeldReclaiming)
	wantStop(t, n.at(g, 60*time.Second), "d/big")
	if len(n.reliefs) != 1 {
		t.Errorf("%d reclaims", len(n.reliefs))
	}
}

// A measurement from before the reclaim does not show which pod has filled the disk since: the stop waits until the pods are
// measured again, also after a stop that a job outlasts.
func TestDiskStopRestsOnNewMeasurements(t *testing.T) {
	g, n := newDiskManager(t)
	n.diskAge = ReclaimTimeout + measuredBefore + 1
	n.set(policy.NodeFSAvailable, testGiB/2)
	n.at(g, 0)
	wantHeld(t, n.at(g, ReclaimTimeout), api.HeldReclaiming)
	n.diskAge = ReclaimTimeout // measured as the reclaim began
	wantStop(t, n.at(g, ReclaimTimeout+time.Second), "d/big")
	n.end(n.stops[0])
	n.stops[0].outcome.Returned = true
	n.at(g, ReclaimTimeout+2*time.Second)
	n.diskAge = 2*time.Second + measuredBefore
	wantHeld(t, n.at(g, ReclaimTimeout+3*time.Second), api.HeldReclaiming)
	n.diskAge = 0
	wantStop(t, n.at(g, ReclaimTimeout+4*time.Second), "d/small")
}

// Observe mode removes nothing. If what it would have removed is enough, it reports no stop that enforce mode would not make.
func TestObserveModeReportsNoNeedlessStop(t *testing.T) {
	for _, would := range []bool{false, true} {
		g, n := newManager(t, "mode = 'observe'\n"+disksAlone+"\"nodefs.available\" = \"1Gi\"\n")
		n.slow = true
		n.set(policy.NodeFSAvailable, testGiB/2)
		n.at(g, 0)
		n.reliefs[0].would = would
		close(n.reliefs[0].done)
		if p := n.at(g, time.Second); (p.Stop == nil) != would || would && p.Held != api.HeldObserve {
			t.Errorf("a reclaim would be enough %t: stopped %+v, held by %q", would, p.Stop, p.Held)
		}
	}
}

// A reclaim that takes too long raises one alarm, in the record and in the status, until a reclaim for the
// pool ends in time. It no longer holds the stop.
func TestOverdueReclaimRaisesAnAlarm(t *testing.T) {
	g, n := newManager(t, "[eviction.hard]\n\"nodefs.available\" = \"1Gi\"\n")
	n.slow = true
	n.set(policy.NodeFSAvailable, 0)
	if p := n.at(g, 0); p.Stop != nil || p.Alarm != "" || p.Held != api.HeldReclaiming {
		t.Fatalf("at once: %+v", p)
	}
	n.reliefs[0].over = true
	p := n.at(g, ReclaimTimeout)
	if p.Alarm != "nodefs.available: a reclaim has taken longer than 1m; stops no longer wait for it" || p.AlarmBy != "nodefs.available:hard" || p.AlarmKind != api.AlarmReclaim {
		t.Errorf("overdue: alarm %q by %q", p.Alarm, p.AlarmBy)
	}
	wantStop(t, p, "d/big")
	if events := hook.Payloads(&p, p.Conditions, config.ModeEnforce); len(events) == 0 || events[len(events)-1].Alarm == nil || events[len(events)-1].Alarm.Reason != p.Alarm {
		t.Errorf("hooks: %+v", events)
	}
	alarms := func() []string { return g.Status(func(policy.Signal) string { return "" }, false).Alarms }
	if p := n.at(g, ReclaimTimeout+time.Second); p.Alarm != "" || len(alarms()) != 1 || alarms()[0] != "nodefs.available: a reclaim has taken longer than 1m; stops no longer wait for it" {
		t.Errorf("one second later: alarm %q, status %q", p.Alarm, alarms())
	}
	n.slow = false
	close(n.reliefs[0].done)
	n.stops[0].outcome.Returned = true
	n.end(n.stops[0])
	for at := ReclaimTimeout + 2*time.Second; len(n.reliefs) < 2; at += time.Second {
		n.at(g, at)
	}
	if len(alarms()) != 0 {
		t.Errorf("the alarm goes on though a reclaim ended in time: %q", alarms())
	}
}

// clockNode is a fakeNode on the bubble's clock.
type clockNode struct {
	*fakeNode
	start time.Time
}

func (n clockNode) Now() time.Duration { return time.Since(n.start) }
func (n clockNode) Observe(obs *policy.Observations) {
	n.now = n.Now()
	n.fakeNode.Observe(obs)
}

// The loop wakes up by itself when the wait for a reclaim is over.
func TestLoopEndsTheWaitForReclaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, fake := newManager(t, memoryHard)
		fake.swapping = true
		fake.set(policy.MemoryAvailable, 0)
		n := clockNode{fake, time.Now()}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var stopped []time.Duration
		l := Loop{Guard: New(g.cfg, n, n, n, n, nil, policy.NewRestraint("boot")), After: func(p *api.Pass) {
			if p.Stop != nil {
				stopped = append(stopped, time.Duration(p.At))
			}
		}}
		l.Run(ctx)
		if !slices.Equal(stopped, []time.Duration{hardReclaimWait}) {
			t.Errorf("stopped after %v", stopped)
		}
	})
}

// What a dry run of observe mode found holds no stop of enforce mode.
func TestEnforceModeTrustsNoDryRun(t *testing.T) {
	for _, ends := range []string{"before the switch", "after it"} {
		g, n := newManager(t, "mode = 'observe'\n"+disksAlone+"\"nodefs.available\" = \"1Gi\"\n")
		n.slow = true
		n.set(policy.NodeFSAvailable, testGiB/2)
		n.at(g, 0)
		n.reliefs[0].would = true
		if ends == "before the switch" {
			close(n.reliefs[0].done)
			wantHeld(t, n.at(g, time.Second), api.HeldObserve)
		}
		enforce := g.cfg
		enforce.Mode = config.ModeEnforce
		g.SetConfig(enforce)
		if ends == "after it" {
			close(n.reliefs[0].done)
			n.at(g, time.Second)
		}
		n.at(g, 2*time.Second)
		if p := n.at(g, 2*time.Second+ReclaimTimeout); p.Stop == nil {
			t.Errorf("%s: held by %q", ends, p.Held)
		}
	}
}

// No stop follows from a reclaim under a configuration that is not in force any more: the images that may be removed
// now may be enough.
func TestReloadRepeatsTheReclaim(t *testing.T) {
	for _, ended := range []bool{false, true} { // before the reload
		g, n := newDiskManager(t)
		n.set(policy.NodeFSAvailable, testGiB/2)
		n.at(g, 0)
		if ended {
			g.restraint.Begin(policy.Stop{Sandbox: "x", Pool: policy.PoolPIDs, Over: true, Judged: true}, n.now)
			g.cfg.Budget.Hard.Burst = 1
			g.SetConfig(g.cfg)
			close(n.reliefs[0].done)
			wantHeld(t, n.at(g, time.Second), api.HeldBudget)
		}
		cfg := g.cfg
		cfg.Images.Prune, cfg.Budget.Hard.Burst = config.PruneAlways, 10
		g.SetConfig(cfg)
		if !ended {
			close(n.reliefs[0].done)
		}
		if wantHeld(t, n.at(g, 2*time.Second), api.HeldReclaiming); len(n.reliefs) != 2 {
			t.Errorf("ended %t: %d reclaims", ended, len(n.reliefs))
		}
	}
}
