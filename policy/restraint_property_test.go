package policy

import (
	"encoding/json"
	"reflect"
	"strconv"
	"testing"
	"time"
)

// An undone stop does not count, and the stops before and after it still do.
func TestUndo(t *testing.T) {
	r := restrained()
	fresh := r.Status(0)
	r.Begin(*stopOf(Hard, "a"), 0)
	if r.Undo("b"); r.Status(0).Hard.Left != 2 {
		t.Error("an unknown stop is undone")
	}
	r.Undo("a")
	r.Undo("a")
	if got := r.Status(0); !reflect.DeepEqual(got, fresh) || r.Unfinished(PoolMemory) != nil {
		t.Errorf("undone %+v, want %+v", got, fresh)
	}
	for undo, want := range map[string]WorkloadView{"a": {"w", 2, second, 19 * second}, "b": {"w", 1, 5 * second, 5 * second}} {
		r = restrained()
		for i, id := range []string{"a", "b"} {
			s := stopOf(Hard, id)
			s.Workload = "w"
			r.Begin(*s, time.Duration(4*i)*second)
		}
		r.Undo(undo)
		if got := r.Status(5 * second); len(got.Workloads) != 1 || got.Workloads[0] != want || got.Hard.Left != 2 {
			t.Errorf("without %s: %+v", undo, got)
		}
	}
	// A stop that took no token gives none back.
	r = restrained()
	for i := range 3 {
		r.Begin(*stopOf(Hard, strconv.Itoa(i)), 0)
	}
	s := stopOf(Hard, "free")
	s.CameBack = true
	r.Begin(*s, 0)
	if r.Undo("free"); r.Status(0).Hard.Left != 0 {
		t.Error("a free stop gave a token back")
	}
}

// TestUndoIsAsIfNotTaken: after an undo, the bucket has neither an extra token nor a missing one.
func TestUndoIsAsIfNotTaken(t *testing.T) {
	rnd := source(10)
	undone := 0
	for range 10_000 {
		a, b := restrained(), restrained()
		var now time.Duration
		victim := strconv.Itoa(rnd.IntN(6))
		for i := range 6 {
			now += time.Duration(1+rnd.IntN(40)) * second
			s := stopOf(pick(rnd, Hard, Hard, Soft), strconv.Itoa(i))
			s.CameBack = rnd.IntN(5) == 0
			if held := try(a, s, now); held.By == "" && s.Sandbox != victim {
				b.Begin(*s, now)
			}
		}
		if len(a.stops) == len(b.stops) {
			continue
		}
		undone++
		a.Undo(victim)
		for range 3 {
			if x, y := a.Status(now), b.Status(now); !reflect.DeepEqual(x, y) {
				t.Fatalf("undone %+v, want %+v", x, y)
			}
			now += time.Duration(rnd.IntN(20)) * second
		}
	}
	if undone < 5000 {
		t.Errorf("only %d stops were undone", undone)
	}
}

// TestBudgetProperty: for any sequence of stops, undone stops, restarts and clock jumps, no stretch of
// elapsed time has more stops that take budget than it allows, and no soft stop comes within its workload's
// back-off. Only forward movement of the clock counts as elapsed time.
func TestBudgetProperty(t *testing.T) {
	rnd := source(11)
	stops := 0
	for range 3000 {
		r := restrained()
		budget := BudgetConfig{
			Hard:    Bucket{1 + rnd.IntN(3), time.Duration(1+rnd.IntN(60)) * second},
			Soft:    Bucket{1 + rnd.IntN(2), time.Duration(1+rnd.IntN(600)) * second},
			PerHour: rnd.IntN(8),
		}
		r.Configure(budget, testBackoff)
		var now, passed, last time.Duration
		var history [kindCount][]time.Duration // times passed at the stops
		workloads := map[string]time.Duration{}
		for i := range 60 {
			switch rnd.IntN(24) {
			case 0, 1:
				now += time.Duration(rnd.IntN(3)) * time.Hour
			case 2, 3:
				now -= time.Duration(rnd.Int64N(int64(now) + 1))
			case 4:
				r = restart(t, r, now)
				passed += max(now-last, 0)
				last = now
			default:
				now += time.Duration(rnd.IntN(20)) * second
			}
			s := Stop{
				Workload: pick(rnd, "a", "b", strconv.Itoa(i)), Sandbox: strconv.Itoa(i), Kind: Kind(rnd.IntN(2)),
				Culprit: rnd.IntN(8) == 0, CameBack: rnd.IntN(8) == 0,
			}
			held := try(r, &s, now)
			passed += max(now-last, 0)
			last = now
			if held.By != "" {
				continue
			}
			stops++
			before, again := workloads[s.Workload]
			if s.Kind == Soft && again && passed-before < testBackoff.First {
				t.Fatalf("%s was stopped again after %s", s.Workload, passed-before)
			}
			if !r.stops[len(r.stops)-1].Token {
				if !s.Culprit && !s.CameBack {
					t.Fatalf("%+v took no token", s)
				}
				workloads[s.Workload] = passed
				continue
			}
			h := append(history[s.Kind], passed)
			b, hour := budget.of(s.Kind), 0
			for i := range h {
				if n, most := len(h)-i, b.Burst+int((passed-h[i])/b.Every); n > most {
					t.Fatalf("%d %s stops within %s: at most %d", n, s.Kind, passed-h[i], most)
				}
				if passed-h[i] < time.Hour {
					hour++
				}
			}
			if budget.PerHour > 0 && hour > budget.PerHour {
				t.Fatalf("%d %s stops within an hour: at most %d", hour, s.Kind, budget.PerHour)
			}
			if rnd.IntN(8) == 0 {
				r.Undo(s.Sandbox)
				continue
			}
			history[s.Kind], workloads[s.Workload] = h, passed
		}
	}
	if stops < 50_000 {
		t.Errorf("only %d stops: the property was hardly tried", stops)
	}
}

// TestClockBack: if the clock goes back, with or without a restart, everything is as if it had happened that much
// earlier.
func TestClockBack(t *testing.T) {
	history := func(at time.Duration) *Restraint {
		r := restrained()
		for range 3 {
			finish(r, stopOf(Hard, "a"), 0, 0, at)
		}
		r.Begin(*stopOf(Soft, "b"), at)
		return r
	}
	want, early := history(minute), history(time.Hour)
	want.Status(minute)
	early.Status(minute)
	x, err := json.Marshal(early)
	if y, wrong := json.Marshal(want); err != nil || wrong != nil || string(x) != string(y) {
		t.Errorf("gone back %s, %v; want %s, %v", x, err, y, wrong)
	}
	r := history(time.Hour)
	for _, restarted := range []bool{false, true} {
		now := 10 * second
		if restarted {
			r = restart(t, r, now)
		}
		a, b := stopOf(Soft, "a"), stopOf(Hard, "b")
		b.Pool, b.Signal = PoolPIDs, PIDAvailable
		if held := r.Check(b, now); held != (Held{By: HeldBudget, RetryAfter: 30 * second}) {
			t.Errorf("restarted %t: budget %+v", restarted, held)
		}
		a.Cause = CauseLimit
		if held := r.Check(a, now); held != (Held{By: HeldBackoff, RetryAfter: 40 * second}) {
			t.Errorf("restarted %t: back-off %+v", restarted, held)
		}
		if held := r.Check(stopOf(Hard, "c"), now); held.By != HeldBreaker {
			t.Errorf("restarted %t: breaker %+v", restarted, held)
		}
		if v := r.Status(now); len(v.Breakers) != 1 || len(v.Workloads) != 2 || v.Workloads[0].Ago != 0 {
			t.Errorf("restarted %t: %+v", restarted, v)
		}
	}
}
