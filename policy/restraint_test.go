package policy

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"
)

const second = time.Second

var (
	testBudget = BudgetConfig{
		Hard: Bucket{Burst: 3, Every: 30 * second}, Soft: Bucket{Burst: 2, Every: 5 * minute}, PerHour: 20, Breaker: 3,
	}
	testBackoff = BackoffConfig{First: 10 * second, Max: 5 * minute, Reset: 10 * minute}
)

func restrained() *Restraint {
	r := NewRestraint("boot")
	r.Configure(testBudget, testBackoff)
	return r
}

// stopOf returns a stop for memory of a sandbox that is older than the boot. Such a stop is in back-off
// only after a stop of the same sandbox.
func stopOf(kind Kind, sandbox string) *Stop {
	return &Stop{Workload: "of " + sandbox, Sandbox: sandbox, Kind: kind, Created: -1, Signal: MemoryAvailable, Expected: 100, Need: 50}
}

// try begins a stop unless the restraint holds it back.
func try(r *Restraint, s *Stop, now time.Duration) Held {
	held := r.Check(s, now)
	if held.By == "" {
		r.Begin(*s, now)
	}
	return held
}

// finish begins, ends and judges a stop after which back of its expected 100 came back. meanwhile is how
// much the use outside the pods grew.
func finish(r *Restraint, s *Stop, back, meanwhile int64, now time.Duration) {
	s.Outside = Known(-7) // negative values stay negative
	r.Begin(*s, now)
	r.End(s.Sandbox, back)
	r.Judge(s.Pool, func(Signal) Amount { return Known(-7 + meanwhile) }, Known(1000), now)
}

// restart saves and restores the restraint, as in a crash loop.
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
	r := restrained()
	for _, v := range []struct {
		at   time.Duration
		kind Kind
		held string
		wait time.Duration
	}{
		{0, Hard, "", 0}, {0, Hard, "", 0}, {0, Hard, "", 0}, {0, Hard, HeldBudget, 30 * second},
		{0, Soft, "", 0}, {0, Soft, "", 0}, {0, Soft, HeldBudget, 300 * second},
		{29 * second, Hard, HeldBudget, second}, {30 * second, Hard, "", 0}, {31 * second, Hard, HeldBudget, 29 * second},
		{90 * second, Hard, "", 0}, {90 * second, Hard, "", 0}, {90 * second, Hard, HeldBudget, 30 * second},
		{299 * second, Soft, HeldBudget, second}, {300 * second, Soft, "", 0}, {300 * second, Soft, HeldBudget, 300 * second},
	} {
		if held, want := try(r, stopOf(v.kind, v.at.String()+string(rune('a'+len(r.stops)))), v.at), (Held{By: v.held, RetryAfter: v.wait}); held != want {
			t.Fatalf("at %s %s: %+v, want %+v", v.at, v.kind, held, want)
		}
	}
}

// Soft stops, limits and admission share the soft bucket; a drain takes no budget.
func TestBudgetOfCauses(t *testing.T) {
	for cause, want := range map[Cause]int{CausePressure: 1, CauseLimit: 1, CauseAdmission: 1, CauseDrain: 2} {
		r := restrained()
		s := stopOf(Soft, "a")
		s.Cause = cause
		if held := try(r, s, 0); held.By != "" || r.Status(0).Soft.Left != want || r.Status(0).Hard.Left != 3 {
			t.Errorf("%s: held by %q, left %+v, want %d soft", cause, held.By, r.Status(0), want)
		}
		for _, id := range []string{"b", "c"} {
			r.Begin(*stopOf(Soft, id), 0)
		}
		s = stopOf(Soft, "d")
		s.Cause = cause
		if held := r.Check(s, 0).By; (held == "") != (cause == CauseDrain) {
			t.Errorf("%s without budget: held by %q", cause, held)
		}
	}
}

// PerHour counts hard stops and all others separately.
func TestBudgetPerHour(t *testing.T) {
	none := BudgetConfig{Hard: Bucket{1, 0}, Soft: Bucket{1, 0}}
	capped := none
	capped.PerHour = 20
	r := restrained()
	r.Configure(capped, BackoffConfig{})
	for i := range 20 {
		if held := try(r, stopOf(Hard, ""), time.Duration(i)*second); held.By != "" {
			t.Fatalf("stop %d: %+v", i, held)
		}
	}
	if held := r.Check(stopOf(Hard, ""), 20*second); held != (Held{By: HeldBudget, RetryAfter: time.Hour - 20*second}) {
		t.Errorf("the 21st: %+v", held)
	}
	if held := r.Check(stopOf(Soft, ""), 20*second); held.By != "" {
		t.Errorf("a soft one: %+v", held)
	}
	if held := r.Check(stopOf(Hard, ""), time.Hour-1); held.By != HeldBudget {
		t.Errorf("just before the hour: %+v", held)
	}
	if held := try(r, stopOf(Hard, ""), time.Hour); held.By != "" {
		t.Errorf("after an hour: %+v", held)
	}
	if held := r.Check(stopOf(Hard, ""), time.Hour); held != (Held{By: HeldBudget, RetryAfter: second}) {
		t.Errorf("then the cap slides: %+v", held)
	}
	capped.PerHour = 5
	r.Configure(capped, BackoffConfig{})
	if held := r.Check(stopOf(Hard, ""), time.Hour); held != (Held{By: HeldBudget, RetryAfter: 16 * second}) {
		t.Errorf("with a lower cap: %+v", held) // the fifth last stop was at 16 s
	}
	r.Configure(none, BackoffConfig{})
	if held := try(r, stopOf(Hard, ""), time.Hour); held.By != "" {
		t.Errorf("without a cap: %+v", held)
	}
	for range 3 * maxStops {
		r.Begin(*stopOf(Hard, ""), time.Hour)
	}
	if len(r.stops) != maxStops {
		t.Errorf("%d stops are remembered", len(r.stops))
	}
}

func TestBudgetZero(t *testing.T) {
	var r Restraint
	if held := r.Check(stopOf(Hard, "a"), 0); held.By != HeldBudget {
		t.Errorf("a restraint without limits allows a stop: %+v", held)
	}
	r.Configure(BudgetConfig{Hard: Bucket{Burst: -1, Every: second}, Soft: Bucket{Burst: 1}}, BackoffConfig{})
	if held := r.Check(stopOf(Hard, "a"), 0); held != (Held{By: HeldBudget}) {
		t.Errorf("a burst below 1 allows a stop: %+v", held)
	}
	for range 100 {
		if held := try(&r, stopOf(Soft, "a"), 0); held.By != "" {
			t.Fatalf("without a rate: %+v", held)
		}
	}
}

// A stop of a sandbox that came back is free. At a hard threshold, a culprit takes a token if there is one,
// and neither the budget nor the breaker holds it; at a soft threshold they do.
func TestBudgetOfCulpritsAndReturned(t *testing.T) {
	for _, v := range []struct {
		name              string
		kind              Kind
		culprit, cameBack bool
		spent, open       bool
		held              string
		token             bool
	}{
		{"any pod", Hard, false, false, false, false, "", true},
		{"any pod without budget", Hard, false, false, true, false, HeldBudget, false},
		{"any pod, breaker open", Hard, false, false, false, true, HeldBreaker, false},
		{"came back", Hard, false, true, false, false, "", false},
		{"came back, without budget", Hard, false, true, true, false, "", false},
		{"came back, breaker open", Hard, false, true, false, true, HeldBreaker, false},
		{"came back, soft, without budget", Soft, false, true, true, false, "", false},
		{"culprit", Hard, true, false, false, false, "", true},
		{"culprit without budget", Hard, true, false, true, false, "", false},
		{"culprit, breaker open", Hard, true, false, false, true, "", true},
		{"culprit that came back", Hard, true, true, false, false, "", false},
		{"soft culprit", Soft, true, false, false, false, "", true},
		{"soft culprit without budget", Soft, true, false, true, false, HeldBudget, false},
		{"soft culprit, breaker open", Soft, true, false, false, true, HeldBreaker, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			r := restrained()
			if v.spent {
				for i := range 3 {
					r.Begin(*stopOf(v.kind, string(rune('x'+i))), 0)
				}
			}
			if v.open {
				r.breakers[PoolMemory] = breaker{Fruitless: 3}
			}
			s := stopOf(v.kind, "a")
			s.Culprit, s.CameBack = v.culprit, v.cameBack
			before := len(r.taken(v.kind))
			held := try(r, s, second)
			if held.By != v.held || (len(r.taken(v.kind)) > before) != v.token {
				t.Errorf("held by %q, %d tokens taken; want %q, %t", held.By, len(r.taken(v.kind))-before, v.held, v.token)
			}
		})
	}
}

func TestBackoff(t *testing.T) {
	r := restrained()
	r.Configure(BudgetConfig{Hard: Bucket{Burst: 1}, Soft: Bucket{Burst: 1}}, testBackoff)
	now, a := time.Duration(0), stopOf(Soft, "a")
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		want *= second
		if held := try(r, a, now); held.By != "" {
			t.Fatalf("at %s: %+v", now, held)
		}
		r.End("a", 100)
		if held := r.Check(a, now); held != (Held{By: HeldBackoff, RetryAfter: want}) {
			t.Errorf("at %s: %+v, want %s", now, held, want)
		}
		if r.Check(a, now+want-1).By != HeldBackoff || r.Check(stopOf(Soft, "b"), now+want-1).By != "" {
			t.Errorf("at %s it ends early, or holds another", now)
		}
		if now += want; r.Check(a, now).By != "" {
			t.Errorf("at %s it goes on", now)
		}
	}
	now += 10*minute - 300*second - 1 // the last stop was 300 s ago
	for _, want := range []time.Duration{300 * second, 10 * second} {
		try(r, a, now)
		r.End("a", 100)
		if held := r.Check(a, now); held.RetryAfter != want {
			t.Errorf("it waits %s, want %s", held.RetryAfter, want)
		}
		now += 10 * minute
	}
}

// Back-off applies to soft stops, limits, admission and pods that arrive during a drain. A hard threshold
// never waits for it.
func TestBackoffOfCauses(t *testing.T) {
	for _, v := range []struct {
		cause Cause
		kind  Kind
		want  string
	}{
		{CausePressure, Hard, ""}, {CausePressure, Soft, HeldBackoff}, {CauseLimit, Soft, HeldBackoff},
		{CauseAdmission, Soft, HeldBackoff}, {CauseDrain, Soft, HeldBackoff},
	} {
		for name, s := range map[string]Stop{
			"arrived later":  {Sandbox: "b", Created: second + 1},
			"same sandbox":   {Sandbox: "a", Created: -1},
			"unknown age":    {Sandbox: "b"},
			"was there":      {Sandbox: "b", Created: second},
			"older than the": {Sandbox: "b", Created: -1},
		} {
			r := restrained()
			first := stopOf(Hard, "a")
			r.Begin(*first, second)
			s.Workload, s.Cause, s.Kind = first.Workload, v.cause, v.kind
			want := v.want
			if s.Sandbox == "b" && s.Created != 0 && s.Created <= second {
				want = "" // another replica that was there at the stop
			}
			if held := r.Check(&s, 2*second); held.By != want {
				t.Errorf("%s, %s, %s: held by %q, want %q", v.cause, v.kind, name, held.By, want)
			}
		}
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
		if got := v.config.wait(v.count); got != v.want {
			t.Errorf("%s: %d, want %d", v.name, got, v.want)
		}
	}
	// A reset shorter than the back-off does not shorten it.
	r, a := restrained(), stopOf(Soft, "a")
	r.Configure(testBudget, BackoffConfig{First: 2 * minute, Max: 2 * minute, Reset: second})
	r.Begin(*a, 0)
	if r.End("a", 0); r.Check(a, 2*minute-1).By == "" || r.Check(a, 2*minute).By != "" {
		t.Error("the back-off is not two minutes")
	}
	// If back-off is switched off, no workload counts, not even one that was stopped before.
	r = restrained()
	r.Begin(*a, 0)
	r.Configure(testBudget, BackoffConfig{Reset: time.Hour})
	r.Begin(*a, 0)
	came, _ := r.CameBack(PoolMemory, a.Workload, 1, 0, 1)
	if came || r.Check(stopOf(Soft, "b"), 0).By != HeldBudget || r.Check(a, 1).By == HeldBackoff || r.Status(1).Workloads != nil {
		t.Error("back-off is not off")
	}
}

// A sandbox came back if it is younger than the stop of its workload for this pool, in this episode, and
// within the reset of that stop.
func TestCameBack(t *testing.T) {
	const at = minute
	other := func(s *Stop) { s.Pool, s.Signal = PoolNodeBytes, NodeFSAvailable }
	for _, v := range []struct {
		name             string
		change           func(*Stop)
		created, episode time.Duration
		now              time.Duration
		want             bool
	}{
		{"younger", nil, at + 1, 0, at + 2, true},
		{"created at the stop", nil, at, 0, at + 2, false},
		{"older than the boot", nil, -at, 0, at + 2, false},
		{"episode that began with the stop", nil, at + 1, at, at + 2, true},
		{"another episode", nil, at + 1, at + 1, at + 2, false},
		{"another pool", other, at + 1, 0, at + 2, false},
		{"another workload", func(s *Stop) { s.Workload = "b" }, at + 1, 0, at + 2, false},
		{"a limit", func(s *Stop) { s.Cause = CauseLimit }, at + 1, 0, at + 2, false},
		{"an admission", func(s *Stop) { s.Cause = CauseAdmission }, at + 1, 0, at + 2, false},
		{"a drain", func(s *Stop) { s.Cause = CauseDrain }, at + 1, 0, at + 2, false},
		{"just within the reset", nil, at + 1, 0, at + 10*minute - 1, true},
		{"after the reset", nil, at + 1, 0, at + 10*minute, false},
	} {
		s := stopOf(Hard, "a")
		s.Workload = "a"
		if v.change != nil {
			v.change(s)
		}
		r := restrained()
		r.Begin(*s, at)
		if got, _ := restart(t, r, at).CameBack(PoolMemory, "a", v.created, v.episode, v.now); got != v.want {
			t.Errorf("%s: %t after a restart", v.name, got)
		}
		if got, _ := r.CameBack(PoolMemory, "a", v.created, v.episode, v.now); got != v.want {
			t.Errorf("%s: %t", v.name, got)
		}
	}
	r := restrained()
	r.Configure(testBudget, BackoffConfig{First: second, Max: second, Reset: 5 * second})
	r.Begin(*stopOf(Hard, "a"), 0)
	if came, _ := r.CameBack(PoolMemory, "of a", 1, 0, 5*second); came {
		t.Error("with a short reset, the workload still counts")
	}
}

// After a fruitless stop its workload is neither free nor considered first, and what it used then is no growth.
func TestFruitlessIsNotConsideredFirst(t *testing.T) {
	r := restrained()
	for i, v := range []struct {
		back int64
		want bool
		had  int64
	}{{100, true, 0}, {49, false, 100}, {50, true, 0}} {
		now := time.Duration(i+1) * second
		finish(r, stopOf(Hard, "a"), v.back, 0, now)
		if got, had := r.CameBack(PoolMemory, "of a", now+1, 0, now+1); got != v.want || had != v.had {
			t.Errorf("stop %d: came back %t, had %d", i+1, got, had)
		}
		if _, had := r.CameBack(PoolMemory, "of a", now, 0, now+1); had != 0 { // another replica, which is no younger
			t.Errorf("stop %d: another replica had %d", i+1, had)
		}
	}
}

// When a soft stop in flight becomes hard, it takes a hard token if there is one, is never held for lack
// of one, and gives its soft token back.
func TestEscalate(t *testing.T) {
	for spent := range 4 {
		r := restrained()
		for i := range spent {
			r.Begin(*stopOf(Hard, string(rune('x'+i))), 0)
		}
		r.Begin(*stopOf(Soft, "a"), 0)
		r.Escalate("a", second)
		r.Escalate("a", second)
		r.Escalate("unknown", second)
		v := r.Status(second)
		if s := r.Unfinished(PoolMemory); s == nil || s.Kind != Hard || s.Token != (spent < 3) || v.Hard.Left != max(2-spent, 0) || v.Soft.Left != 2 {
			t.Errorf("after %d stops: %+v, left %+v and %+v", spent, s, v.Hard, v.Soft)
		}
	}
	r := restrained()
	r.Begin(*stopOf(Soft, "a"), 0)
	r.End("a", 100)
	if r.Escalate("a", second); r.Status(second).Hard.Left != 3 || r.Status(second).Soft.Left != 1 {
		t.Errorf("a stop that is over: %+v", r.Status(second))
	}
	byOperator := stopOf(Soft, "b")
	byOperator.Cause = CauseDrain
	r.Begin(*byOperator, second)
	if r.Escalate("b", second); r.Status(second).Hard.Left != 3 {
		t.Errorf("a stop by an operator: %+v", r.Status(second))
	}
}

func TestConfigure(t *testing.T) {
	r := restrained()
	for range 3 {
		r.Begin(*stopOf(Hard, ""), 0)
	}
	r.Check(stopOf(Hard, ""), 20*second)
	r.Configure(BudgetConfig{Hard: Bucket{2, 40 * second}}, testBackoff)
	if held := r.Check(stopOf(Hard, ""), 20*second); held != (Held{By: HeldBudget, RetryAfter: 20 * second}) {
		t.Errorf("a smaller budget: %+v", held)
	}
	r.Configure(BudgetConfig{Soft: Bucket{1, 0}}, testBackoff)
	r.Begin(*stopOf(Soft, ""), 20*second)
	r.Configure(BudgetConfig{Soft: Bucket{1, minute}}, testBackoff)
	if held := r.Check(stopOf(Soft, "another"), 20*second); held != (Held{By: HeldBudget, RetryAfter: minute}) {
		t.Errorf("a budget after none: %+v", held)
	}
	r.Configure(BudgetConfig{Hard: Bucket{5, 40 * second}}, testBackoff)
	if got := r.Status(20 * second).Hard; got != (BucketView{Left: 2, Burst: 5, LastHour: 3}) {
		t.Errorf("a larger budget: %+v", got)
	}
}

func TestStatus(t *testing.T) {
	r := restrained()
	r.Begin(*stopOf(Hard, "a"), 0)
	r.Begin(*stopOf(Soft, "b"), second)
	r.Begin(*stopOf(Soft, "c"), second)
	want := BudgetView{
		Hard: BucketView{Left: 2, Burst: 3, LastHour: 1}, Soft: BucketView{Left: 0, Burst: 2, Next: 296 * second, LastHour: 2}, PerHour: 20,
		Workloads: []WorkloadView{
			{"of b", 1, 4 * second, 6 * second}, {"of c", 1, 4 * second, 6 * second}, {"of a", 1, 5 * second, 5 * second},
		},
	}
	got := r.Status(5 * second)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	r.breakers[PoolPIDs].Fruitless, r.breakers[PoolNodeInodes].Fruitless = 3, 2
	if got := r.Status(5 * second).Breakers; !slices.Equal(got, []Pool{PoolPIDs}) {
		t.Errorf("open breakers: %v", got)
	}
	// The records expire after the reset, except those of stops in flight.
	r.End("a", 0)
	r.End("b", 0)
	for at, want := range map[time.Duration]int{10*minute - 1: 3, 10 * minute: 2, 10*minute + second: 1, time.Hour: 1} {
		if got := restart(t, r, 5*second).Status(at).Workloads; len(got) != want {
			t.Errorf("at %s: %v", at, got)
		}
	}
}

// A stop is remembered as long as its token is missing, also after the hour and the reset.
func TestRecordsLastAsLongAsTheBudget(t *testing.T) {
	r := restrained()
	r.Configure(BudgetConfig{Hard: Bucket{2, 2 * time.Hour}, Soft: testBudget.Soft}, testBackoff)
	for i, v := range []struct {
		at   time.Duration
		wait time.Duration // 0 = a stop begins
	}{{0, 0}, {0, 0}, {time.Hour, time.Hour}, {2 * time.Hour, 0}, {3 * time.Hour, time.Hour}, {4 * time.Hour, 0}, {5 * time.Hour, time.Hour}} {
		s := stopOf(Hard, strconv.Itoa(i))
		look(r, r.now, v.at)
		if held := try(r, s, v.at); held.RetryAfter != v.wait || (held.By != "") != (v.wait > 0) {
			t.Errorf("stop %d at %s: %+v, want to wait %s", i, v.at, held, v.wait)
		}
		r.End(s.Sandbox, 100)
	}
	look(r, r.now, 9*time.Hour)
	if r.Begin(*stopOf(Soft, "late"), 9*time.Hour); len(r.stops) != 1 {
		t.Errorf("once all tokens are back, %d stops are remembered", len(r.stops))
	}
}

// What the last stop of a pod for memory left of it counts for its next sandbox, unless that stop is not over. Any stop shows
// that a pod in another sandbox has kept its volumes.
func TestStopsByPod(t *testing.T) {
	kept := func(uid, sandbox string, pool Pool, cause Cause, kept int64) Stop {
		return Stop{UID: uid, Workload: uid, Sandbox: sandbox, Pool: pool, Cause: cause, Kept: kept, Over: true}
	}
	begun := kept("begun", "begun-2", PoolMemory, CausePressure, 2)
	begun.Over = false
	r := NewRestraint("")
	r.Configure(BudgetConfig{}, BackoffConfig{Reset: minute})
	r.Begin(kept("old", "old-1", PoolMemory, CausePressure, 1), 0)
	for i, s := range []Stop{
		kept("twice", "twice-1", PoolMemory, CausePressure, 1),
		kept("begun", "begun-1", PoolMemory, CausePressure, 1),
		kept("disk", "disk-1", PoolNodeBytes, CausePressure, 1),
		kept("drained", "drained-1", PoolMemory, CauseDrain, 1),
		kept("", "bare", PoolMemory, CausePressure, 1),
		kept("twice", "twice-2", PoolMemory, CausePressure, 2),
		begun,
	} {
		r.Begin(s, time.Duration(i+1)*second)
	}
	for _, c := range []struct {
		uid, sandbox string
		kept         int64
		keepsVolumes bool
	}{
		{"twice", "twice-3", 2, true},
		{"twice", "twice-2", 1, true},
		{"begun", "begun-3", 1, true},
		{"disk", "disk-2", 0, true},
		{"disk", "disk-1", 0, false},
		{"drained", "drained-2", 0, true},
		{"old", "old-2", 0, false}, // forgotten
		{"new", "new-1", 0, false},
		{"", "another", 0, false},
	} {
		stops := r.ByPod(minute)
		if k, v := stops.KeptMemory(c.uid, c.sandbox, Amount{}), stops.KeepsVolumes(c.uid, c.sandbox); k != c.kept || v != c.keepsVolumes {
			t.Errorf("%s in %s: kept %d of its memory, want %d; kept its volumes: %t, want %t", c.uid, c.sandbox, k, c.kept, v, c.keepsVolumes)
		}
	}
	if stops := r.ByPod(minute); stops.KeptMemory("twice", "twice-3", Known(1)) != 1 || stops.KeptMemory("twice", "twice-3", Known(5)) != 1 {
		t.Error("what is left is more than what the pod has used since")
	}
}
