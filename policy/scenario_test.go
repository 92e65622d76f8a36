package policy

import (
	"slices"
	"testing"
	"time"
)

// podsM are the pods of the kubelet's manager tests.
func podsM() []Candidate {
	const low, normal, high = -1, 0, 1
	pod := func(id string, request, usage, priority int64) Candidate {
		return Candidate{ID: id, MemoryRequest: request * mi, Memory: Known(usage * mi), Priority: priority}
	}
	return []Candidate{
		pod("M0", 1024, 900, low), pod("M1", 100, 50, normal), pod("M2", 100, 400, normal), pod("M3", 0, 400, high), pod("M4", 0, 100, low),
	}
}

// TestVectorsI1: hard 1Gi, soft 2Gi with 2m grace, transition 5m. The victim is
// the pod above its request with the lowest priority, not the largest one. The
// kubelet gives a hard stop 1 s; ours is at once.
func TestVectorsI1(t *testing.T) {
	ts, err := ParseThresholds(
		map[string]string{"memory.available": "1Gi"}, map[string]string{"memory.available": "2Gi"},
		map[string]string{"memory.available": "2m"}, nil)
	if err != nil {
		t.Fatal(err)
	}
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
			chosen, _ := Choose(Rank(podsM(), m.Signal, SingleFS, nil, m.Deficit), m.Deficit, func(*Ranked) Standing { return Standing{} })
			if victim = chosen.ID; m.Kind == Soft {
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
	if got := ids(Rank(podsM(), MemoryAvailable, SingleFS, nil, 500*mi)); !slices.Equal(got, want) {
		t.Errorf("ranked %v, want %v", got, want)
	}
}

// TestHoldDownScenario: a workload that is started again at once takes the stops
// upon itself, further and further apart, and the pod beside it lives on.
func TestHoldDownScenario(t *testing.T) {
	r := NewRestraint("boot")
	r.Configure(BudgetConfig{Hard: Bucket{Burst: 100, Every: time.Second}},
		BackoffConfig{First: 10 * time.Second, Max: 5 * minute, Reset: 10 * minute})
	leak := Candidate{ID: "leak-0", Workload: "default/leak", Memory: Known(900), Priority: 5}
	calm := Candidate{ID: "calm", Workload: "default/calm", Memory: Known(100)}
	const deficit = 200
	var stops []time.Duration
	for now := time.Duration(0); now <= 2*minute; now += time.Second {
		standing := func(c *Ranked) Standing {
			return Standing{Held: r.CheckWorkload(c.Workload, now), Returned: r.HoldDown(MemoryAvailable, c.Workload, c.Created)}
		}
		cs := []Candidate{leak, calm}
		if now == 0 {
			cs = cs[:1] // it was alone when it was stopped first
		}
		victim, held := Choose(Rank(cs, MemoryAvailable, SingleFS, nil, deficit), deficit, standing)
		if victim == nil {
			if held != HeldBackoff {
				t.Fatalf("at %s held by %q", now, held)
			}
			continue
		}
		if victim.ID != leak.ID {
			t.Fatalf("at %s %s was stopped", now, victim.ID)
		}
		r.Take(Hard, MemoryAvailable, victim.Workload, now)
		stops = append(stops, now)
		leak.ID, leak.Created = leak.ID+"'", now+time.Millisecond
	}
	if want := []time.Duration{0, 10 * time.Second, 30 * time.Second, 70 * time.Second}; !slices.Equal(stops, want) {
		t.Errorf("stopped at %v, want %v", stops, want)
	}
}
