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
		leak.CameBack = r.CameBack(PoolMemory, leak.Workload, leak.Created, 0, now)
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
