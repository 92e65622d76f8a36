package policy

import (
	"testing"
	"time"
)

// TestBudgetProperty: whatever the order of stops, returns, restarts and jumps of
// the clock, no stretch of time that passed sees more stops than the budget
// allows. Time that passed is what the clock went forward.
func TestBudgetProperty(t *testing.T) {
	type taken struct{ passed, at time.Duration }
	rnd := source(11)
	stops := 0
	for range 10_000 {
		r := restrained()
		budget := BudgetConfig{
			Hard:    Bucket{1 + rnd.IntN(3), time.Duration(1+rnd.IntN(60)) * time.Second},
			Soft:    Bucket{1 + rnd.IntN(2), time.Duration(1+rnd.IntN(600)) * time.Second},
			PerHour: rnd.IntN(8),
		}
		r.Configure(budget, testBackoff)
		var now, passed, last time.Duration
		var history [kindCount][]taken
		var workloads = map[string][]time.Duration{}
		for range 60 {
			switch rnd.IntN(12) {
			case 0:
				now += time.Duration(rnd.IntN(3)) * time.Hour
			case 1:
				now -= time.Duration(rnd.Int64N(int64(now) + 1))
			case 2:
				r = restart(t, r, now)
				passed += max(now-last, 0)
				last = now
			default:
				now += time.Duration(rnd.IntN(20)) * time.Second
			}
			kind, workload := Kind(rnd.IntN(2)), pick(rnd, "", "a", "b")
			held := stop(r, kind, workload, now)
			passed += max(now-last, 0)
			last = now
			if held != "" {
				continue
			}
			stops++
			if workload != "" {
				w := workloads[workload]
				if n := len(w); n > 0 && passed-w[n-1] < testBackoff.First {
					t.Fatalf("%s was stopped again after %s", workload, passed-w[n-1])
				}
				workloads[workload] = append(w, passed)
			}
			h := append(history[kind], taken{passed, now})
			history[kind] = h
			b := budget.of(kind)
			for i := range h {
				if n, most := len(h)-i, b.Burst+int((passed-h[i].passed)/b.Every); n > most {
					t.Fatalf("%d %s stops within %s: at most %d", n, kind, passed-h[i].passed, most)
				}
			}
			hour := 0
			for _, list := range history {
				for _, s := range list {
					if passed-s.passed < time.Hour {
						hour++
					}
				}
			}
			if budget.PerHour > 0 && hour > budget.PerHour {
				t.Fatalf("%d stops within an hour: at most %d", hour, budget.PerHour)
			}
			if workload == "" && rnd.IntN(4) == 0 {
				r.Return(kind, MemoryAvailable, workload, now)
				history[kind] = h[:len(h)-1]
			}
		}
	}
	if stops < 50_000 {
		t.Errorf("only %d stops: the property was hardly tried", stops)
	}
}
