package policy

import (
	"slices"
	"testing"
	"time"
)

// podsM returns the pods of the kubelet's manager tests.
func podsM() []Candidate {
	const low, normal, high = -1, 0, 1
	pod := func(id string, request, usage, priority int64) Candidate {
		return Candidate{ID: id, MemoryRequest: request * mi, Memory: Known(usage * mi), Priority: priority}
	}
	return []Candidate{
		pod("M0", 1024, 900, low), pod("M1", 100, 50, normal), pod("M2", 100, 400, normal), pod("M3", 0, 400, high), pod("M4", 0, 100, low),
	}
}

// TestVectorsI1: hard 1Gi, soft 2Gi with 2m grace, transition 5m. The victim is the pod above its
// request with the lowest priority, not the largest pod. The kubelet gives a hard stop a grace period
// of 1 s; ours stops at once.
func TestVectorsI1(t *testing.T) {
	ts := thresholds(t,
		map[string]string{"memory.available": "1Gi"}, map[string]string{"memory.available": "2Gi"},
		map[string]string{"memory.available": "2m"}, nil)
	const maxPodGrace = 5 * time.Second
	w := watch{ts: ts, settings: Settings{TransitionPeriod: 5 * minute, SoftForgive: 5 * time.Second}}
	now := time.Duration(0)
	for i, v := range []struct {
		wait                time.Duration
		available           int64
		pressure            bool
		victim              string
		kubelet, want       time.Duration // grace
		bestEffort, another bool          // admitted
	}{
		{0, 2 * gi, false, "", 0, 0, true, true},
		{minute, 1500 * mi, true, "", 0, 0, false, true},
		{3 * minute, 1500 * mi, true, "M4", maxPodGrace, maxPodGrace, false, true},
		{20 * minute, 3 * gi, false, "", 0, 0, true, true},
		{minute, 500 * mi, true, "M4", time.Second, 0, false, true},
		{minute, 2 * gi, true, "", 0, 0, false, true},
		{5 * minute, 2 * gi, false, "", 0, 0, true, true},
	} {
		now += v.wait
		p := w.at(now, one(MemoryAvailable, read(v.available, 2*v.available)))
		if got := p.Conditions.Has(MemoryPressure); got != v.pressure {
			t.Errorf("step %d: MemoryPressure %v, want %v", i+1, got, v.pressure)
		}
		victim, grace := "", time.Duration(0)
		for _, m := range p.Met {
			if !m.Due || victim != "" {
				continue
			}
			d := Decide(podsM(), Shortage{Due: []Met{m}, Observed: &Observations{}, Samples: &Samples{}})
			if victim = d.Victim.ID; m.Kind == Soft {
				grace = maxPodGrace
			}
		}
		if victim != v.victim || grace != v.want {
			t.Errorf("step %d: victim %q with grace %s, want %q with %s (the kubelet: %s)", i+1, victim, grace, v.victim, v.want, v.kubelet)
		}
		if be, bu := Admit(p.Conditions, BestEffort, false), Admit(p.Conditions, Burstable, false); be != v.bestEffort || bu != v.another {
			t.Errorf("step %d: admits BestEffort %v, Burstable %v; want %v, %v", i+1, be, bu, v.bestEffort, v.another)
		}
	}
}

func TestVectorsIRanking(t *testing.T) {
	want := []string{"M4", "M2", "M3", "M0", "M1"}
	if got := ids(Rank(podsM(), MemoryAvailable, SingleFS, nil)); !slices.Equal(got, want) {
		t.Errorf("ranked %v, want %v", got, want)
	}
}

// TestReturningScenario: a workload that restarts at once takes all the soft stops, at growing intervals and
// without more budget, and the pod of lower priority next to it survives.
func TestReturningScenario(t *testing.T) {
	r := restrained()
	leak := Candidate{ID: "leak", Workload: "default/leak", Memory: Known(900 * mi), Priority: 5}
	calm := Candidate{ID: "calm", Workload: "default/calm", Memory: Known(100 * mi)}
	q := lacking(MemoryAvailable, 200*mi)
	var stops []time.Duration
	for now := time.Duration(0); now <= 2*minute; now += second {
		leak.CameBack, leak.Had = r.CameBack(PoolMemory, leak.Workload, leak.Created, 0, now)
		cs := []Candidate{leak, calm}
		if now == 0 {
			cs = cs[:1] // it was alone at the first stop
		}
		d := Decide(cs, q)
		if d.Victim == nil || d.Victim.ID != leak.ID || d.Why != ByCameBack && now > 0 {
			t.Fatalf("at %s chose %+v", now, d)
		}
		s := Stop{Workload: leak.Workload, Sandbox: leak.ID, Created: leak.Created, Kind: Soft, CameBack: leak.CameBack}
		if held := try(r, &s, now); held.By == HeldBackoff {
			continue
		} else if held.By != "" {
			t.Fatalf("at %s: %+v", now, held)
		}
		stops = append(stops, now)
		leak.ID, leak.Created = leak.ID+"'", now+time.Millisecond
	}
	if want := []time.Duration{0, 10 * second, 30 * second, 70 * second}; !slices.Equal(stops, want) {
		t.Errorf("stopped at %v, want %v", stops, want)
	}
	if left := r.Status(0).Soft.Left; left != 1 {
		t.Errorf("%d soft stops are left", left)
	}
}

// Each due threshold is asked for its culprit by itself: that a stall lacks much more than memory hides no leak.
func TestCulpritForOneOfTheThresholds(t *testing.T) {
	pods := func(leak int64) []Candidate {
		return []Candidate{
			{ID: "idle", Created: -1, Priority: -1, Memory: Known(200 * mi)},
			{ID: "leak", Created: -1, Priority: 9, Memory: Known(leak)},
		}
	}
	for _, stalled := range []bool{false, true} {
		q := lacking(MemoryAvailable, 10*mi)
		if stalled {
			q.Due = append(q.Due, Met{Threshold: Threshold{Signal: MemoryStall}, Due: true, Deficit: 156 * mi, Lack: 3127 * mi})
		}
		reading := func(memory int64) *Observations {
			obs := one(MemoryAvailable, read(memory, 16*gi))
			obs[MeminfoAvailable] = read(memory+60*mi, 16*gi)
			return obs
		}
		q.Now, q.Observed = minute, reading(90*mi)
		q.Samples.Add(q.Now-second, reading(390*mi), pods(2700*mi), Amount{})
		if d := Decide(pods(3000*mi), q); d.Victim == nil || d.Victim.ID != "leak" || d.Why != ByCulprit || d.Need != 310*mi || d.Met.Signal != MemoryAvailable {
			t.Errorf("stalled %t: need %d MiB for %s, victim %+v", stalled, d.Need/mi, d.Met.Signal, d.Victim)
		}
	}
}

// A stall has no amount of its own. What fills its pool, and what is taken outside the pods, is counted as memory.
func TestStallCountsMemory(t *testing.T) {
	for _, v := range []struct {
		grown  int64 // by the leak, within a second
		victim string
		held   string
	}{{300 * mi, "leak", ""}, {0, "", HeldOutside}} {
		pods := func(leak int64) []Candidate {
			return []Candidate{{ID: "idle", Created: -1, Memory: Known(100 * mi)}, {ID: "leak", Created: -1, Priority: 10, Memory: Known(leak)}}
		}
		q := lacking(MemoryStall, 22*mi)
		q.Due[0].Lack = 200 * mi
		q.Now, q.Observed = minute, one(MeminfoAvailable, read(400*mi, 4*gi))
		q.Samples.Add(q.Now-second, one(MeminfoAvailable, read(700*mi, 4*gi)), pods(1000*mi-v.grown), Amount{})
		if d := Decide(pods(1000*mi), q); id(d.Victim) != v.victim || d.Held != v.held || d.Fill != 300*mi {
			t.Errorf("the leak grew by %d MiB: held by %q, victim %+v, %+v", v.grown/mi, d.Held, d.Victim, d.Lack)
		}
	}
}

// A pod that reads files does not fill memory: the page cache that it uses comes back without a stop. Another pod is the
// culprit, however slowly it grows.
func TestPageCacheIsNoGrowth(t *testing.T) {
	pods := func(cache, leak int64) []Candidate {
		return []Candidate{
			{ID: "reader", Created: -1, Priority: 100, Memory: Known(30*mi + cache), ActiveFile: cache},
			{ID: "leak", Created: -1, Memory: Known(leak)},
		}
	}
	q := lacking(MeminfoAvailable, 20*mi)
	q.Now, q.Observed = minute, one(MeminfoAvailable, read(480*mi, 4*gi))
	q.Samples.Add(q.Now-second, one(MeminfoAvailable, read(485*mi, 4*gi)), pods(0, 195*mi), Amount{})
	d := Decide(pods(60*mi, 200*mi), q)
	if d.Victim == nil || d.Victim.ID != "leak" || d.Outside != 0 || d.Ranked[1].Growth != Known(0) {
		t.Errorf("%d MiB/s outside, victim %+v, ranked %+v", d.Outside/mi, d.Victim, d.Ranked)
	}
}

// The kernel takes back the pods' page cache while pods leak. What they leak is not taken outside of them, though their
// working sets stay the same: by the sum of the pods, and by the pods cgroup.
func TestPageCacheThatIsTakenBack(t *testing.T) {
	pods := func(leak, cache int64) (cs []Candidate) {
		for _, name := range []string{"a", "b", "c"} {
			cs = append(cs, Candidate{ID: name, Created: -1, Memory: Known(leak + cache), ActiveFile: cache})
		}
		return cs
	}
	for _, cgroup := range []Amount{{}, Known(1200 * mi)} {
		q := lacking(MeminfoAvailable, 50*mi)
		q.Now, q.Observed, q.Pods = minute, one(MeminfoAvailable, read(450*mi, 4*gi)), cgroup
		q.Samples.Add(q.Now-second, one(MeminfoAvailable, read(549*mi, 4*gi)), pods(267*mi, 133*mi), cgroup)
		if d := Decide(pods(300*mi, 100*mi), q); d.Victim == nil || d.Fill != 99*mi || d.Outside != 0 {
			t.Errorf("cgroup %+v: held by %q, %+v", cgroup, d.Held, d.Lack)
		}
	}
}
