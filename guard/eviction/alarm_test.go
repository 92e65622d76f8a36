package eviction

import (
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/hook"
	"github.com/criguard/criguard/guard/metrics"
	"github.com/criguard/criguard/guard/metrics/metricstest"
	"github.com/criguard/criguard/policy"
)

// The alarm event names the threshold for which no pod can be stopped, not the threshold that is held back
// first.
func TestHookEventOfAnAlarm(t *testing.T) {
	g, n := newManager(t, "[eviction.hard]\n\"memory.available\" = \"0%\"\n\"nodefs.available\" = \"1Gi\"\n"+
		"[eviction.soft]\n\"memory.available\" = \"1Gi\"\n[eviction.soft_grace_period]\n\"memory.available\" = \"1h\"\n")
	n.set(policy.MemoryAvailable, testGiB/2)
	n.set(policy.NodeFSAvailable, 0)
	n.protect("test")
	p := n.at(g, 0)
	if p.HeldBy != "memory.available:soft" {
		t.Fatalf("held back first: %q", p.HeldBy)
	}
	events := hook.Payloads(&p, p.Conditions, config.ModeEnforce)
	if e := events[len(events)-1]; e.Event != config.EventAlarm || e.Alarm.Threshold != "nodefs.available:hard" || !strings.HasPrefix(e.Alarm.Reason, "nodefs bytes: ") {
		t.Errorf("event %+v, alarm %+v", e, e.Alarm)
	}
}

// The metrics have the alarms of the pools as long as the status has them.
func TestMetricsOfAnAlarm(t *testing.T) {
	g, n := newManager(t, softAndHard)
	m := metrics.New("test", cgroup.BootTime)
	n.set(policy.MemoryAvailable, testGiB/2)
	n.protect("test")
	want := func(memory string) {
		t.Helper()
		p := n.at(g, 0)
		m.Observe(&p, g.Snapshot())
		metricstest.Want(t, m, map[string]string{`alarm{pool="memory"}`: memory, `alarm{pool="pid"}`: "0"})
	}
	want("1")
	n.set(policy.MemoryAvailable, 8*testGiB)
	n.at(g, episodeGap)
	want("0")
}

// While a pool's reclaim is still running, no alarm says that stopping pods does not relieve it: the reclaim may.
func TestNoAlarmDuringTheReclaim(t *testing.T) {
	g, n := newDiskManager(t)
	for i := range n.pods {
		n.pods[i].Disk = policy.DiskUsage{}
	}
	for i, available := range []int64{2 * testGiB, testGiB + 1, testGiB / 2} {
		n.set(policy.NodeFSAvailable, available)
		n.at(g, time.Duration(i)*time.Second)
	}
	wait := g.reclaimWait(policy.PoolNodeBytes, g.pressure.Met[0])
	n.set(policy.NodeFSAvailable, testGiB/4)
	if p := n.at(g, 2*time.Second+wait); p.Alarm != "" || p.Held != api.HeldReclaiming || wait >= ReclaimTimeout {
		t.Fatalf("after %s: alarm %q, held by %q", wait, p.Alarm, p.Held)
	}
	n.reliefs[0].over = true
	n.set(policy.NodeFSAvailable, testGiB/8)
	if p := n.at(g, 3*time.Second+wait); p.Held != api.HeldUnknown {
		t.Errorf("when it takes too long: held by %q", p.Held)
	}
}

// What begins outside the pods looks like a leak for a second. While the pods give back all that lacks, it holds the stop back
// without an alarm. The alarm is raised when they do not any more.
func TestNoAlarmForABurst(t *testing.T) {
	for name, c := range map[string]struct {
		left  func(second int64) int64 // GiB available
		alarm int64                    // in that second; 0 = none, a pod is stopped when the burst is over
	}{
		"a burst": {func(s int64) int64 { return 9 - min(s, 1)*2 }, 0},
		"a leak":  {func(s int64) int64 { return 9 - s }, 7}, // the pods have 5 GiB
	} {
		g, n := newManager(t, "[eviction.hard]\n\"memory.available\" = \"8Gi\"\n[rank]\nmemory = [\"usage\"]\n")
		g.FollowTrace() // sample every pass
		var p api.Pass
		for s := int64(0); s < 8 && p.Stop == nil && p.Alarm == ""; s++ {
			n.set(policy.MemoryAvailable, c.left(s)*testGiB)
			p = n.at(g, time.Duration(s)*time.Second)
			if alarms := g.Status(func(policy.Signal) string { return "" }, false).Alarms; (p.Alarm != "") != (len(alarms) > 0) || (p.Alarm != "") != (s > 0 && s == c.alarm) {
				t.Errorf("%s, after %d s: alarm %q, status %q", name, s, p.Alarm, alarms)
			}
			if out := c.left(s) < 8 && p.Stop == nil; out && p.Held != api.HeldOutside {
				t.Errorf("%s, after %d s: held by %q", name, s, p.Held)
			}
		}
		if (p.Stop != nil) != (c.alarm == 0) {
			t.Errorf("%s: stopped %+v, held by %q", name, p.Stop, p.Held)
		}
	}
}

// If a protected pod grows, the alarm and the record name it: it is neither outside the pods nor one that may be stopped.
func TestAlarmNamesTheProtectedPod(t *testing.T) {
	for name, c := range map[string]struct {
		uses, grows int64 // what the protected pod does, in MiB
		alarm       string
		named       string
	}{
		"it grows": {4096, 1280, "used by protected pods: stopping the others would not relieve it; d/big, which is protected, grows most", "d/big"},
		"it grows, and so does something else": {
			10, 700, "used outside the pods that may be stopped: stopping pods would not relieve it; d/big, which is protected, grows most", "d/big",
		},
		"something else grows": {10, 100, "used outside pods: stopping pods would not relieve it", ""},
	} {
		g, n := newManager(t, memoryHard)
		g.FollowTrace() // sample every pass
		n.pods = n.pods[:1]
		n.pods[0].Protection, n.pods[0].Memory = "test", policy.Known(c.uses*testMiB)
		n.set(policy.MemoryAvailable, 1280*testMiB)
		n.at(g, 0)
		n.set(policy.MemoryAvailable, 0)
		n.grow("big", c.grows*testMiB)
		p := n.at(g, time.Second)
		if p.Alarm != "memory: "+c.alarm || p.Need == nil || p.Need.Protected != c.named || c.named != "" && p.Need.ProtectedGrowth != c.grows*testMiB {
			t.Errorf("%s: alarm %q, held by %q, need %+v", name, p.Alarm, p.Held, p.Need)
		}
	}
}

// A hold in doubt that lasts is believed, so that no pool is held back for long without an alarm.
func TestDoubtIsBelieved(t *testing.T) {
	var d doubt
	decide := func(at time.Duration, held string, doubtful bool) (alarm bool) {
		return !d.holds(&choice{Decision: policy.Decision{Held: held, Doubtful: doubtful}, at: at}, &held)
	}
	for _, c := range []struct {
		at    time.Duration
		held  string
		alarm bool
	}{
		{0, api.HeldOutside, false}, {doubtFor - 1, api.HeldProtected, false}, {doubtFor, api.HeldOutside, true}, {2 * doubtFor, api.HeldOutside, true},
	} {
		if alarm := decide(c.at, c.held, true); alarm != c.alarm {
			t.Errorf("after %s: alarm %t", c.at, alarm)
		}
	}
	if !decide(3*doubtFor, api.HeldOutside, false) || decide(3*doubtFor+1, api.HeldOutside, true) {
		t.Error("a decision without doubt does not begin the time again")
	}
}

// While a protected pod grows and something else outside the pods does for a second each time, one reason holds the stop back.
func TestHoldDoesNotAlternate(t *testing.T) {
	g, n := newManager(t, "[eviction.hard]\n\"memory.available\" = \"8Gi\"\n")
	g.FollowTrace() // sample every pass
	n.protect("test")
	var h api.Hold
	changed, alarms := 0, 0
	n.set(policy.MemoryAvailable, 9*testGiB)
	for s := range 9 {
		if s%2 == 1 {
			n.leak("big", n.obs[policy.MemoryAvailable].Available-5*testGiB/4)
		} else if s > 0 {
			n.set(policy.MemoryAvailable, n.obs[policy.MemoryAvailable].Available-testGiB/2)
		}
		p := n.at(g, time.Duration(s)*time.Second)
		if h.Changed(&p) {
			changed++
		}
		if p.Alarm != "" {
			alarms++
		}
		if s > 0 && p.Held != api.HeldProtected {
			t.Errorf("after %d s: held by %q", s, p.Held)
		}
	}
	if changed != 1 || alarms != 1 {
		t.Errorf("%d entries, %d alarms", changed, alarms)
	}
}

// An alarm for a disk says that unused images were only too young to be removed.
func TestAlarmNamesYoungImages(t *testing.T) {
	g, n := newDiskManager(t)
	n.pods = nil
	n.set(policy.NodeFSAvailable, 0)
	n.at(g, 0)
	n.reliefs[0].young = 4
	close(n.reliefs[0].done)
	const want = "nodefs bytes: used outside pods: stopping pods would not relieve it; " +
		"4 unused images (440Mi) are too young to be removed: `criguard prune --ignore-age` removes them"
	if p := n.at(g, time.Second); p.Alarm != want {
		t.Errorf("alarm %q", p.Alarm)
	}
}

// The snapshot after a pass includes the conditions: hooks need them, because criguard starts no program
// while the node has no free tasks.
func TestSnapshotHasTheConditions(t *testing.T) {
	g, n := newManager(t, softAndHard)
	n.pods = nil
	n.obs[policy.PIDAvailable] = policy.Observation{Available: 1, Capacity: 1000, Status: policy.OK}
	n.at(g, 0)
	if st := g.Snapshot(); !st.Pressure.Conditions.Has(policy.PIDPressure) || st.InFlight != 0 {
		t.Errorf("%+v", st)
	}
}

// A signal that crosses its threshold again and again reports each reason for being held back only once.
func TestHoldOverManyCrossings(t *testing.T) {
	g, n := newDiskManager(t)
	for i := range n.pods {
		n.pods[i].Protection = "test"
	}
	var h api.Hold
	changed, at := 0, time.Duration(0)
	pass := func() {
		at += time.Second
		if p := n.at(g, at); h.Changed(&p) {
			changed++
		}
	}
	for i := range 10 {
		n.set(policy.NodeFSAvailable, 0)
		pass()
		close(n.reliefs[i].done)
		pass()
		n.set(policy.NodeFSAvailable, 2*testGiB)
		pass()
	}
	if changed != 2 { // reclaiming, then protected
		t.Errorf("changed %d times", changed)
	}
}

// counterOf returns the value of a counter or gauge, or the sample count of a histogram. labels are the
// label values, in alphabetical order of the label names.
func counterOf(t *testing.T, m *metrics.Metrics, name string, labels ...string) float64 {
	t.Helper()
	families, err := m.Own().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			var got []string
			for _, l := range metric.GetLabel() {
				got = append(got, l.GetValue())
			}
			if f.GetName() == name && strings.Join(got, " ") == strings.Join(labels, " ") {
				return metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	t.Fatalf("no metric %s %v", name, labels)
	return 0
}
