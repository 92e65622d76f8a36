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
	if p := n.at(g, 2*time.Second+wait); p.Alarm != "" || p.Held != api.HeldReclaiming || wait >= ReclaimTimeout {
		t.Fatalf("after %s: alarm %q, held by %q", wait, p.Alarm, p.Held)
	}
	n.reliefs[0].over = true
	if p := n.at(g, 3*time.Second+wait); p.Held != api.HeldUnknown {
		t.Errorf("when it takes too long: held by %q", p.Held)
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
