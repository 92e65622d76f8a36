package policy

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"
)

var (
	testBudget = BudgetConfig{
		Hard: Bucket{Burst: 3, Every: 30 * time.Second}, Soft: Bucket{Burst: 2, Every: 5 * minute}, PerHour: 20, Breaker: 3,
	}
	testBackoff = BackoffConfig{First: 10 * time.Second, Max: 5 * minute, Reset: 10 * minute}
)

func restrained() *Restraint {
	r := NewRestraint("boot")
	r.Configure(testBudget, testBackoff)
	return r
}

// stop checks and takes.
func stop(r *Restraint, kind Kind, workload string, now time.Duration) string {
	held := r.Check(kind, MemoryAvailable, workload, now)
	if held.By == "" {
		r.Take(kind, MemoryAvailable, workload, now)
	}
	return held.By
}

// restart saves and loads, as a crash loop does.
func restart(t testing.TB, r *Restraint, now time.Duration) *Restraint {
	t.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	n, err := LoadRestraint(data, "boot", now)
	if err != nil {
		t.Fatal(err)
	}
	n.Configure(r.budget, r.backoff)
	return n
}

func TestBudgetBuckets(t *testing.T) {
	const s = time.Second
	r := restrained()
	for _, v := range []struct {
		at   time.Duration
		kind Kind
		held string
		wait time.Duration
	}{
		{0, Hard, "", 0}, {0, Hard, "", 0}, {0, Hard, "", 0}, {0, Hard, HeldBudget, 30 * s},
		{0, Soft, "", 0}, {0, Soft, "", 0}, {0, Soft, HeldBudget, 300 * s},
		{29 * s, Hard, HeldBudget, s}, {30 * s, Hard, "", 0}, {31 * s, Hard, HeldBudget, 29 * s},
		{90 * s, Hard, "", 0}, {90 * s, Hard, "", 0}, {90 * s, Hard, HeldBudget, 30 * s},
		{299 * s, Soft, HeldBudget, s}, {300 * s, Soft, "", 0}, {300 * s, Soft, HeldBudget, 300 * s},
	} {
		held := r.Check(v.kind, MemoryAvailable, "", v.at)
		if want := (Held{v.held, v.wait}); held != want {
			t.Fatalf("at %s %s: %+v, want %+v", v.at, v.kind, held, want)
		}
		if held.By == "" {
			r.Take(v.kind, MemoryAvailable, "", v.at)
		}
	}
}

func TestBudgetPerHour(t *testing.T) {
	r := restrained()
	r.Configure(BudgetConfig{Hard: Bucket{1, 0}, Soft: Bucket{1, 0}, PerHour: 20}, BackoffConfig{})
	for i := range 20 {
		if held := stop(r, Kind(i%2), "", time.Duration(i)*time.Second); held != "" {
			t.Fatalf("stop %d is held by %q", i, held)
		}
	}
	if held := r.Check(Hard, MemoryAvailable, "", 20*time.Second); held != (Held{HeldBudget, time.Hour - 20*time.Second}) {
		t.Errorf("the 21st: %+v", held)
	}
	if held := r.Check(Soft, MemoryAvailable, "", time.Hour-1); held.By != HeldBudget {
		t.Errorf("just before the hour: %+v", held)
	}
	if held := stop(r, Soft, "", time.Hour); held != "" {
		t.Errorf("after an hour held by %q", held)
	}
	if held := r.Check(Soft, MemoryAvailable, "", time.Hour); held != (Held{HeldBudget, time.Second}) {
		t.Errorf("then the cap slides: %+v", held)
	}
	r.Configure(BudgetConfig{Hard: Bucket{1, 0}, PerHour: 5}, BackoffConfig{})
	if held := r.Check(Hard, MemoryAvailable, "", time.Hour); held != (Held{HeldBudget, 16 * time.Second}) {
		t.Errorf("with a lower cap: %+v", held) // the fifth last was stopped at 16 s
	}
	r.Configure(BudgetConfig{Hard: Bucket{1, 0}}, BackoffConfig{})
	if held := stop(r, Hard, "", time.Hour); held != "" {
		t.Errorf("without a cap held by %q", held)
	}
	for range 3 * maxRecent {
		r.Take(Hard, MemoryAvailable, "", time.Hour)
	}
	if len(r.recent) != maxRecent {
		t.Errorf("%d stops are remembered", len(r.recent))
	}
}

func TestBudgetZero(t *testing.T) {
	var r Restraint
	if held := r.Check(Hard, MemoryAvailable, "a", 0); held.By != HeldBudget {
		t.Errorf("a restraint without bounds allows a stop: %+v", held)
	}
	r.Configure(BudgetConfig{Hard: Bucket{Burst: -1, Every: time.Second}, Soft: Bucket{Burst: 1}}, BackoffConfig{})
	if held := r.Check(Hard, MemoryAvailable, "a", 0); held != (Held{By: HeldBudget}) {
		t.Errorf("a burst below 1 allows a stop: %+v", held)
	}
	for range 100 {
		if held := stop(&r, Soft, "a", 0); held != "" {
			t.Fatalf("without a rate held by %q", held)
		}
	}
}

func TestBackoff(t *testing.T) {
	r := restrained()
	r.Configure(BudgetConfig{Hard: Bucket{Burst: 1}}, testBackoff)
	now := time.Duration(0)
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		want *= time.Second
		if held := stop(r, Hard, "a", now); held != "" {
			t.Fatalf("at %s held by %q", now, held)
		}
		if held := r.Check(Hard, MemoryAvailable, "a", now); held != (Held{HeldBackoff, want}) {
			t.Errorf("at %s: %+v, want %s", now, held, want)
		}
		if r.CheckWorkload("a", now+want-1) != HeldBackoff || r.CheckWorkload("b", now+want-1) != "" {
			t.Errorf("at %s it ends early, or holds another", now)
		}
		if now += want; r.CheckWorkload("a", now) != "" {
			t.Errorf("at %s it goes on", now)
		}
	}
	now += 10*minute - 300*time.Second - 1 // the last one was 300 s ago
	stop(r, Hard, "a", now)
	if held := r.Check(Hard, MemoryAvailable, "a", now); held.RetryAfter != 300*time.Second {
		t.Errorf("just before the reset it waits %s", held.RetryAfter)
	}
	now += 10 * minute
	stop(r, Hard, "a", now)
	if held := r.Check(Hard, MemoryAvailable, "a", now); held.RetryAfter != 10*time.Second {
		t.Errorf("after the reset it waits %s", held.RetryAfter)
	}
	if len(r.workloads) != 1 {
		t.Errorf("remembers %v", r.workloads)
	}
}

func TestBackoffConfigs(t *testing.T) {
	for _, v := range []struct {
		name   string
		config BackoffConfig
		count  int
		want   time.Duration
	}{
		{"more stops than can double", BackoffConfig{First: 1, Max: math.MaxInt64}, maxInARow, math.MaxInt64},
		{"a maximum below the first", BackoffConfig{First: 10, Max: 5}, 3, 10},
		{"an odd maximum", BackoffConfig{First: 10, Max: 45}, 3, 40},
		{"an odd maximum reached", BackoffConfig{First: 10, Max: 45}, 4, 45},
		{"no maximum", BackoffConfig{First: 10}, 9, 10},
	} {
		if got := v.config.wait(stopped{Count: v.count}); got != v.want {
			t.Errorf("%s: %d, want %d", v.name, got, v.want)
		}
	}
	// A reset shorter than the back-off does not cut it short.
	r := restrained()
	r.Configure(testBudget, BackoffConfig{First: minute, Max: minute, Reset: time.Second})
	stop(r, Hard, "a", 0)
	if r.CheckWorkload("a", minute-1) == "" || r.CheckWorkload("a", minute) != "" {
		t.Error("the back-off is not a minute")
	}
	// Switched off, it holds nobody and remembers nobody.
	r = restrained()
	r.Configure(testBudget, BackoffConfig{})
	stop(r, Hard, "a", 0)
	if r.CheckWorkload("a", 0) != "" || r.AnyStopped() || r.Returned("a", 1) {
		t.Error("back-off is not off")
	}
	// Also for what was stopped before it was switched off.
	r.Configure(testBudget, testBackoff)
	stop(r, Hard, "a", 0)
	r.Configure(testBudget, BackoffConfig{Reset: time.Hour})
	if r.CheckWorkload("a", 1) != "" || r.AnyStopped() || r.Returned("a", 1) {
		t.Error("back-off is not off for what was stopped before")
	}
}

func TestBreaker(t *testing.T) {
	r := restrained()
	judge := func(moved ...bool) string {
		for _, m := range moved {
			r.Judge(NodeFSAvailable, m)
		}
		return r.Check(Hard, NodeFSAvailable, "", 0).By
	}
	if held := judge(false, false, true, false, false); held != "" {
		t.Errorf("two in a row: held by %q", held)
	}
	if held := judge(false); held != HeldBreaker {
		t.Errorf("three in a row: held by %q", held)
	}
	if held := r.Check(Hard, MemoryAvailable, "", 0); held.By != "" {
		t.Errorf("another signal is held by %q", held.By)
	}
	if held := r.CheckBudget(Hard, "", 0); held.By != "" {
		t.Errorf("the budget alone is held by %q", held.By)
	}
	if r = restart(t, r, minute); r.Check(Hard, NodeFSAvailable, "", minute).By != HeldBreaker {
		t.Error("a restart closes the breaker")
	}
	if held := r.Status(minute); !slices.Equal(held.Breakers, []Signal{NodeFSAvailable}) {
		t.Errorf("shows %v", held.Breakers)
	}
	if r.Cleared(MemoryAvailable) {
		t.Error("a closed breaker has changed")
	}
	if r.Check(Hard, NodeFSAvailable, "", minute).By != HeldBreaker {
		t.Error("another signal's clearing closes the breaker")
	}
	if !r.Cleared(NodeFSAvailable) || r.Cleared(NodeFSAvailable) {
		t.Error("that a breaker closes is not told, or told twice")
	}
	if held := judge(false, false); held != "" {
		t.Errorf("after it was clear: held by %q", held)
	}
	r.Configure(BudgetConfig{Hard: Bucket{1, 0}}, testBackoff)
	if held := judge(false, false, false); held != "" {
		t.Errorf("switched off: held by %q", held)
	}
}

func TestHoldDown(t *testing.T) {
	r := restrained()
	r.Take(Hard, MemoryAvailable, "a", minute)
	type want struct{ returned, memory, stall, disk bool }
	check := func(when string, created time.Duration, w want) {
		t.Helper()
		got := want{
			r.Returned("a", created), r.HoldDown(MemoryAvailable, "a", created),
			r.HoldDown(MemoryStall, "a", created), r.HoldDown(NodeFSAvailable, "a", created),
		}
		if got != w {
			t.Errorf("%s: %+v, want %+v", when, got, w)
		}
	}
	check("created before the stop", minute-1, want{})
	check("created at the stop", minute, want{})
	check("created before the boot", -minute, want{})
	check("created after the stop", minute+1, want{returned: true, memory: true, stall: true})
	if r.Returned("b", minute+1) || !r.AnyStopped() {
		t.Error("another workload has returned, or none was stopped")
	}
	if r.Ended(DiskPressure) {
		t.Error("there is nothing to end for another condition")
	}
	check("another condition has ended", minute+1, want{returned: true, memory: true, stall: true})
	r = restart(t, r, minute+1)
	if !r.Ended(MemoryPressure) || r.Ended(MemoryPressure) {
		t.Error("that a hold-down ends is not told, or told twice")
	}
	check("the condition has ended", minute+1, want{returned: true})
	r = restart(t, r, minute+1)
	check("and after a restart", minute+1, want{returned: true})
	r.Take(Hard, NodeFSAvailable, "a", 2*minute)
	check("stopped again, for another", 2*minute+1, want{returned: true, disk: true})
	r.CheckWorkload("a", 12*minute)
	check("forgotten", 12*minute, want{})
	if r.AnyStopped() {
		t.Error("some stop still counts")
	}
}

// A stop that no signal asked for counts towards the back-off, and neither begins a
// hold-down nor ends one.
func TestHoldDownIsOfSignals(t *testing.T) {
	for name, stop := range map[string]func(r *Restraint, now time.Duration){
		"with budget": func(r *Restraint, now time.Duration) { r.TakeBudget(Soft, "a", now) },
		"without":     func(r *Restraint, now time.Duration) { r.Remember("a", now) },
	} {
		r := restrained()
		stop(r, 0)
		for _, s := range Signals() {
			if r.HoldDown(s, "a", minute) {
				t.Errorf("%s: held down for %s", name, s)
			}
		}
		if !r.Returned("a", minute) || r.CheckWorkload("a", 1) != HeldBackoff {
			t.Errorf("%s: the stop does not count", name)
		}
		if left := r.Status(0).Soft.Left; (left == 2) != (name == "without") {
			t.Errorf("%s: %d soft stops left", name, left)
		}
		r.Take(Hard, NodeFSAvailable, "a", minute)
		stop(r, 2*minute)
		if !r.HoldDown(NodeFSAvailable, "a", 3*minute) {
			t.Errorf("%s: the hold-down for another stop has ended", name)
		}
	}
}

func TestReturn(t *testing.T) {
	r := restrained()
	fresh := r.Status(0)
	r.Take(Hard, MemoryAvailable, "a", 0)
	r.Return(Hard, MemoryAvailable, "a", 1) // not taken
	r.Return(Soft, MemoryAvailable, "a", 0) // nor that
	if r.Status(0).Hard.Left != 2 || r.CheckWorkload("a", 0) == "" {
		t.Error("what was not taken is returned")
	}
	r.Return(Hard, MemoryAvailable, "a", 0)
	r.Return(Hard, MemoryAvailable, "a", 0)
	if got := r.Status(0); !reflect.DeepEqual(got, fresh) {
		t.Errorf("after the return %+v, want %+v", got, fresh)
	}
	// A later stop of the workload goes on counting.
	r.Take(Hard, MemoryAvailable, "b", 0)
	r.Take(Hard, MemoryAvailable, "b", 4*time.Second)
	r.Return(Hard, MemoryAvailable, "b", 0)
	if got := r.Check(Soft, MemoryAvailable, "b", 5*time.Second); got.By != HeldBackoff || got.RetryAfter < 9*time.Second {
		t.Errorf("the later stop is held %+v", got)
	}
	// An earlier stop of the workload counts as before.
	r = restrained()
	r.Take(Hard, MemoryAvailable, "a", 0)
	r.Take(Hard, MemoryAvailable, "a", 4*time.Second)
	r.Return(Hard, MemoryAvailable, "a", 4*time.Second)
	if got := r.Status(5 * time.Second).Workloads; len(got) != 1 || got[0] != (WorkloadView{"a", 1, 5 * time.Second, 5 * time.Second}) {
		t.Errorf("the earlier stop is %+v", got)
	}
}

// TestReturnIsAsIfNotTaken: a returned stop leaves no token behind that another
// one has earned, nor one that is missing.
func TestReturnIsAsIfNotTaken(t *testing.T) {
	rnd := source(10)
	for range 10_000 {
		a, b := restrained(), restrained()
		a.Configure(testBudget, BackoffConfig{})
		b.Configure(testBudget, BackoffConfig{})
		var now time.Duration
		victim := rnd.IntN(6)
		var taken time.Duration
		for i := range 6 {
			now += time.Duration(1+rnd.IntN(40)) * time.Second
			if a.Check(Hard, MemoryAvailable, "", now).By != "" {
				continue
			}
			a.Take(Hard, MemoryAvailable, "", now)
			if i == victim {
				taken = now
			} else {
				b.Take(Hard, MemoryAvailable, "", now)
			}
		}
		if taken == 0 {
			continue
		}
		a.Return(Hard, MemoryAvailable, "", taken)
		for range 3 {
			if x, y := a.Status(now), b.Status(now); !reflect.DeepEqual(x, y) {
				t.Fatalf("after a return %+v, want %+v", x, y)
			}
			now += time.Duration(rnd.IntN(20)) * time.Second
		}
	}
}

func TestClockBack(t *testing.T) {
	r := restrained()
	for range 3 {
		r.Take(Hard, MemoryAvailable, "a", time.Hour)
	}
	// It is as if all had happened that much earlier.
	want := restrained()
	for range 3 {
		want.Take(Hard, MemoryAvailable, "a", minute)
	}
	early := restrained()
	for range 3 {
		early.Take(Hard, MemoryAvailable, "a", time.Hour)
	}
	want.Status(minute)
	if early.Status(minute); !reflect.DeepEqual(early, want) {
		t.Errorf("gone back %+v, want %+v", early, want)
	}
	for _, restarted := range []bool{false, true} {
		now := 10 * time.Second
		if restarted {
			r = restart(t, r, now)
		}
		if held := r.Check(Hard, MemoryAvailable, "", now); held != (Held{HeldBudget, 30 * time.Second}) {
			t.Errorf("restarted %v: budget %+v", restarted, held)
		}
		if held := r.Check(Hard, MemoryAvailable, "a", now); held != (Held{HeldBackoff, 40 * time.Second}) {
			t.Errorf("restarted %v: back-off %+v", restarted, held)
		}
	}
}

func TestConfigure(t *testing.T) {
	r := restrained()
	for range 3 {
		stop(r, Hard, "", 0)
	}
	r.Check(Hard, MemoryAvailable, "", 20*time.Second)
	r.Configure(BudgetConfig{Hard: Bucket{2, 40 * time.Second}}, testBackoff)
	if held := r.Check(Hard, MemoryAvailable, "", 20*time.Second); held != (Held{HeldBudget, 20 * time.Second}) {
		t.Errorf("a smaller budget: %+v", held)
	}
	r.Configure(BudgetConfig{Soft: Bucket{1, 0}}, testBackoff)
	stop(r, Soft, "", 20*time.Second)
	r.Configure(BudgetConfig{Soft: Bucket{1, minute}}, testBackoff)
	if held := r.Check(Soft, MemoryAvailable, "", 20*time.Second); held != (Held{HeldBudget, minute}) {
		t.Errorf("a budget after none: %+v", held)
	}
	r.Configure(BudgetConfig{Hard: Bucket{5, 40 * time.Second}}, testBackoff)
	if got := r.Status(20 * time.Second).Hard; got != (BucketView{Left: 3, Burst: 5}) {
		t.Errorf("a larger budget: %+v", got)
	}
}

func TestStatus(t *testing.T) {
	r := restrained()
	stop(r, Hard, "default/a", 0)
	stop(r, Soft, "default/b", time.Second)
	stop(r, Soft, "default/c", time.Second)
	want := BudgetView{
		Hard: BucketView{Left: 2, Burst: 3}, Soft: BucketView{Left: 0, Burst: 2, Next: 296 * time.Second},
		LastHour: 3, PerHour: 20,
		Workloads: []WorkloadView{
			{"default/b", 1, 4 * time.Second, 6 * time.Second}, {"default/c", 1, 4 * time.Second, 6 * time.Second},
			{"default/a", 1, 5 * time.Second, 5 * time.Second},
		},
	}
	if got := r.Status(5 * time.Second); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
