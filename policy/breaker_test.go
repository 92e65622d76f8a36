package policy

import (
	"slices"
	"testing"
	"time"
)

// A stop was fruitless if less than half of its expected yield came back from the victim itself, or if what
// is used outside the unprotected pods has grown meanwhile by at least half of what came back.
func TestFruitless(t *testing.T) {
	for _, v := range []struct {
		name                    string
		expected, back, outside int64
		want                    bool
	}{
		{"half came back", 100, 50, 0, false},
		{"less than half came back", 100, 49, 0, true},
		{"half of an odd yield", 101, 50, 0, true},
		{"outside grew by half of it", 100, 80, 40, true},
		{"outside grew by less", 100, 80, 39, false},
		{"outside grew by half of an odd amount", 100, 81, 41, true},
		{"outside grew by less than half of an odd amount", 100, 81, 40, false},
		{"outside shrank", 100, 80, -1000, false},
		{"outside shrank, and less than half came back", 100, 10, -1000, true},
	} {
		r, s := restrained(), stopOf(Hard, "a")
		s.Expected = v.expected
		finish(r, s, v.back, v.outside, 0)
		if got := &r.stops[0]; got.Fruitless != v.want || !got.Judged || (r.breakers[PoolMemory].Fruitless == 1) != v.want {
			t.Errorf("%s: %+v, counted %d", v.name, got, r.breakers[PoolMemory].Fruitless)
		}
	}
}

// Where the use outside is not known, only what came back counts.
func TestFruitlessOfUnknownOutside(t *testing.T) {
	for _, v := range []struct{ before, after Amount }{{Known(0), Amount{}}, {Amount{}, Known(1000)}, {Amount{}, Amount{}}} {
		r, s := restrained(), stopOf(Hard, "a")
		s.Outside = v.before
		r.Begin(*s, 0)
		r.End("a", 80)
		r.Judge(PoolMemory, func(Signal) Amount { return v.after }, Amount{}, 0)
		if s := &r.stops[0]; !s.Judged || s.Fruitless {
			t.Errorf("%+v: %+v", v, s)
		}
	}
}

// A stop is judged once, when it is over, by the signal that it was for.
func TestJudgedOnce(t *testing.T) {
	r := restrained()
	asked := 0
	judge := func(p Pool) bool {
		r.Judge(p, func(s Signal) Amount {
			if asked++; s != MeminfoAvailable {
				t.Errorf("judged by %s", s)
			}
			return Known(0)
		}, Known(0), 0)
		return len(r.stops) > 0 && r.stops[0].Judged
	}
	if judge(PoolMemory) {
		t.Error("judged before any stop")
	}
	s := stopOf(Hard, "a")
	s.Signal = MeminfoAvailable
	r.Begin(*s, 0)
	limit := stopOf(Soft, "b")
	limit.Cause = CauseLimit
	r.Begin(*limit, 0)
	if judge(PoolMemory) {
		t.Error("judged in flight")
	}
	r.End("a", 0)
	if judge(PoolPIDs) {
		t.Error("judged for another pool")
	}
	for range 5 {
		judge(PoolMemory)
	}
	if b := r.breakers[PoolMemory]; asked != 1 || b.Fruitless != 1 || r.stops[1].Judged {
		t.Errorf("judged %d times, counted %d, the limit's stop: %+v", asked, b.Fruitless, r.stops[1])
	}
}

// Three fruitless stops in a row open the pool's breaker.
func TestBreaker(t *testing.T) {
	r := restrained()
	disk := func() *Stop {
		s := stopOf(Hard, "a")
		s.Pool, s.Signal = PoolNodeBytes, NodeFSAvailable
		return s
	}
	held := func(now time.Duration) string { s := disk(); s.CameBack = true; return r.Check(s, now).By }
	for i, back := range []int64{0, 0, 100, 0, 0, 0} {
		if finish(r, disk(), back, 0, 0); (held(0) == HeldBreaker) != (i == 5) {
			t.Fatalf("after stop %d: held by %q", i+1, held(0))
		}
	}
	s := stopOf(Hard, "b")
	s.CameBack = true
	if got := r.Check(s, 0); got.By != "" {
		t.Errorf("another pool is held by %q", got.By)
	}
	for _, cause := range []Cause{CauseLimit, CauseAdmission, CauseDrain} {
		s := disk()
		s.Kind, s.Cause, s.Sandbox, s.Workload = Soft, cause, "c", "c"
		if got := r.Check(s, 0); got.By != "" {
			t.Errorf("a stop for a %s is held by %q", cause, got.By)
		}
	}
	if r = restart(t, r, minute); held(minute) != HeldBreaker {
		t.Error("a restart closes the breaker")
	}
	r.Configure(BudgetConfig{Hard: Bucket{1, 0}}, testBackoff)
	if got := held(minute); got != "" {
		t.Errorf("switched off: held by %q", got)
	}
}

// With noise or in quick succession, each stop may seem to have helped. As many as open the breaker open it together if
// the use outside has grown, since the first of them began, by at least half of what came back from all.
func TestBreakerJudgesStopsTogether(t *testing.T) {
	type stop struct{ outside, after int64 } // what is used outside when it begins, and when it is judged
	for _, v := range []struct {
		name  string
		stops []stop
		want  int // fruitless stops in a row, after all of them
	}{
		{"each by itself", []stop{{0, 50}, {100, 150}, {200, 250}}, 3},
		{"the last one shows it", []stop{{0, 0}, {0, 0}, {101, 150}}, 3},
		{"all in quick succession", []stop{{0, 49}, {49, 98}, {101, 150}}, 3},
		{"less than half", []stop{{0, 49}, {49, 98}, {100, 149}}, 0},
		{"two are not enough", []stop{{0, 0}, {51, 100}}, 0},
		{"only the last three count", []stop{{0, 0}, {1000, 1000}, {1000, 1000}, {1000, 1000}, {1149, 1149}}, 0},
		{"a drop for a moment ends the row", []stop{{0, 50}, {100, 150}, {200, 149}}, 0},
		{"the breaker stays open", []stop{{0, 0}, {0, 0}, {101, 150}, {150, 150}}, 3},
		{"it closes once stops help", []stop{{0, 0}, {0, 0}, {101, 150}, {150, 150}, {150, 150}, {150, 150}}, 0},
	} {
		for _, restarted := range []bool{false, true} {
			r := restrained()
			for _, s := range v.stops {
				o := stopOf(Hard, "a")
				o.Outside = Known(s.outside)
				r.Begin(*o, 0)
				r.End("a", 100)
				r.Judge(PoolMemory, func(Signal) Amount { return Known(s.after) }, Known(1000), 0)
				if restarted {
					r = restart(t, r, 0)
				}
			}
			if got := r.breakers[PoolMemory].Fruitless; got != v.want {
				t.Errorf("%s, restarted %t: %d fruitless in a row, want %d", v.name, restarted, got, v.want)
			}
		}
	}
	r := restrained() // they are judged by the signal of the first
	for i, signal := range []Signal{MeminfoAvailable, MemoryAvailable, MemoryAvailable} {
		o := stopOf(Hard, "a")
		o.Signal, o.Outside = signal, Known(0)
		r.Begin(*o, 0)
		r.End("a", 100)
		r.Judge(PoolMemory, func(s Signal) Amount {
			return Known(map[Signal]int64{MeminfoAvailable: 75 * int64(i), MemoryAvailable: 0}[s])
		}, Known(1000), 0)
		if got, want := r.breakers[PoolMemory].Fruitless, []int{0, 0, 3}[i]; got != want {
			t.Errorf("after the stop for %s: %d fruitless in a row, want %d", signal, got, want)
		}
	}
}

// look makes the passes of a time in which no threshold is met.
func look(r *Restraint, from, to time.Duration) {
	for at := from; at < to; at += unseenAfter {
		r.Status(at)
	}
	r.Status(to)
}

// The count outlives the episode by the reset, and a restart. The breaker closes when that time is over, or
// when the unprotected pods' usage has grown by the need since it opened.
func TestBreakerCloses(t *testing.T) {
	for _, fruitless := range []int{2, 3} { // a count below the breaker outlives the episode, too
		for _, restarted := range []bool{false, true} {
			r := restrained()
			for range fruitless {
				finish(r, stopOf(Hard, "a"), 0, 0, minute)
			}
			for at := minute; at <= 20*minute; at += minute { // the passes of the episode
				r.Episode(PoolMemory, Known(1000), at)
			}
			at := 25 * minute
			look(r, 20*minute, at)
			if restarted {
				r = restart(t, r, at)
			}
			if look(r, at, 30*minute); r.breakers[PoolMemory].Fruitless != fruitless {
				t.Errorf("restarted %t: the count of %d does not last for the reset", restarted, fruitless)
			}
			if v := r.Status(30*minute + 1); r.breakers[PoolMemory].Fruitless != 0 || len(v.Breakers) > 0 {
				t.Errorf("restarted %t: the count of %d outlives the reset", restarted, fruitless)
			}
		}
	}
	for _, v := range []struct {
		name  string
		pods  Amount
		close bool
	}{
		{"grown by the need", Known(1050), true},
		{"grown by less", Known(1049), false},
		{"shrunk", Known(0), false},
		{"unknown", Amount{}, false},
	} {
		for _, fruitless := range []int{2, 3} {
			r := restrained()
			for range fruitless {
				finish(r, stopOf(Hard, "a"), 0, 0, 0)
			}
			want := v.close && fruitless == 3
			r = restart(t, r, second)
			if closed := r.Episode(PoolMemory, v.pods, second); closed != want || (r.breakers[PoolMemory].Fruitless == 0) != want {
				t.Errorf("%s, after %d: closed %t, counts %d", v.name, fruitless, closed, r.breakers[PoolMemory].Fruitless)
			}
			if r.Episode(PoolMemory, v.pods, second) {
				t.Errorf("%s: reported twice", v.name)
			}
		}
	}
	// A culprit's fruitless stop while the breaker is open does not count as its opening.
	r := restrained()
	for range 3 {
		finish(r, stopOf(Hard, "a"), 0, 0, 0)
	}
	r.Begin(*stopOf(Hard, "b"), 0)
	r.End("b", 0)
	r.Judge(PoolMemory, func(Signal) Amount { return Amount{} }, Known(1040), 0)
	if !r.Episode(PoolMemory, Known(1050), second) {
		t.Error("the breaker stays open though the pods have grown by the need since it opened")
	}
}

// One stop is in flight per pool: it counts until it is over, whatever is stopped for other pools or causes.
func TestUnfinished(t *testing.T) {
	r := restrained()
	disk, limit := stopOf(Hard, "disk"), stopOf(Soft, "limit")
	disk.Pool, limit.Cause = PoolNodeBytes, CauseLimit
	if r.Unfinished(PoolMemory) != nil || r.Stopped(PoolMemory, 0, 0) {
		t.Error("a stop before the first")
	}
	r.Begin(*stopOf(Hard, "memory"), 2*second)
	r.Begin(*disk, 3*second)
	r.Begin(*limit, 3*second)
	for _, restarted := range []bool{false, true} {
		if restarted {
			r = restart(t, r, 3*second)
		}
		for pool, want := range map[Pool]string{PoolMemory: "memory", PoolNodeBytes: "disk", PoolPIDs: ""} {
			got := ""
			s := r.Unfinished(pool)
			if s != nil {
				got = s.Sandbox
			}
			if got != want || s != nil && s.At != map[Pool]time.Duration{PoolMemory: 2 * second, PoolNodeBytes: 3 * second}[pool] {
				t.Errorf("restarted %t: in flight for %s is %+v, want %q", restarted, pool, s, want)
			}
		}
	}
	for episode, want := range map[time.Duration]bool{2 * second: true, 2*second + 1: false} {
		if got := r.Stopped(PoolMemory, episode, 3*second); got != want {
			t.Errorf("stopped in the episode from %s: %t", episode, got)
		}
	}
	r.Status(time.Hour) // a stop in flight is not forgotten
	r.End("memory", 100)
	if s := r.Unfinished(PoolMemory); s != nil || r.Unfinished(PoolNodeBytes) == nil {
		t.Errorf("after its end in flight: %+v", s)
	}
}

// A pool waits for a stop of another cause, too, once that is recorded, and for one stop at most. A restart changes neither.
func TestAwaited(t *testing.T) {
	r := restrained()
	for i, cause := range []Cause{CauseLimit, CauseCommand} {
		s := stopOf(Soft, string(cause))
		s.Cause, s.Pass, s.Expected, s.Kept = cause, uint64(i+1), 0, 0
		r.Begin(*s, 0)
		s.Pool, s.Signal, s.Expected, s.Kept = PoolMemory, MemoryAvailable, 100, 10
		r.Await(s)
	}
	r.Begin(*stopOf(Hard, "between"), second)
	r.End("between", 1)
	r.Await(stopOf(Hard, "between")) // is over
	for _, restarted := range []bool{false, true} {
		if restarted {
			r = restart(t, r, 2*second)
		}
		s := r.Unfinished(PoolMemory)
		if s == nil || s.Sandbox != "command" || s.Signal != MemoryAvailable || s.Expected != 100 || s.Kept != 10 {
			t.Fatalf("restarted %t: in flight is %+v", restarted, s)
		}
		if left := r.Ordered(); restarted && (len(left) != 1 || left[0].Sandbox != "limit") || !restarted && len(left) > 0 {
			t.Errorf("restarted %t: no pool waits for %+v", restarted, left)
		}
	}
	if r.End("command", 40); r.Unfinished(PoolMemory) != nil {
		t.Error("in flight although it is over")
	}
}

// When a stop is over for its own pool, the disks that have chosen its pod, too, still wait for it, and its record lasts as long. A
// restart changes nothing.
func TestDisksAwaitTheSameStop(t *testing.T) {
	node, image := Wait{PoolNodeBytes, NodeFSAvailable, 7, 100}, Wait{PoolImageInodes, ImageFSInodesFree, 8, 200}
	waiting := func(r *Restraint) (disks []Pool) {
		for p := PoolNodeBytes; p < PoolCount; p++ {
			if s := r.Unfinished(p); s != nil && s.Sandbox == "a" && s.Pool == p && !s.Over {
				disks = append(disks, p)
			}
		}
		return disks
	}
	for name, end := range map[string]func(*Restraint){
		"over":      func(r *Restraint) { r.End("a", 50) },
		"undone":    func(r *Restraint) { r.Undo("a") },
		"each over": func(r *Restraint) { r.EndWait("a", PoolImageInodes) },
	} {
		r := restrained()
		r.Begin(*stopOf(Hard, "a"), 0)
		r.AwaitDisk("a", node)
		r.AwaitDisk("a", Wait{PoolImageInodes, ImageFSInodesFree, 1, 1})
		r.AwaitDisk("a", image) // it has chosen the pod again
		r.Begin(*stopOf(Hard, "b"), second)
		r.End("b", 100)
		r.AwaitDisk("b", node) // is over
		r = restart(t, r, 2*second)
		if s := r.Unfinished(PoolMemory); s == nil || s.Sandbox != "a" || len(waiting(r)) > 0 {
			t.Fatalf("in flight for memory: %+v, for disks: %v", s, waiting(r))
		}
		r.End("a", 300)
		r = restart(t, r, 3*second)
		r.Status(time.Hour)
		r.forget()
		if got := waiting(r); r.Unfinished(PoolMemory) != nil || !slices.Equal(got, []Pool{PoolNodeBytes, PoolImageInodes}) {
			t.Fatalf("in flight for %v", got)
		}
		s := r.Unfinished(PoolImageInodes)
		if s.Signal != ImageFSInodesFree || s.Available != 8 || s.Expected != 200 || !slices.Equal(s.Waits, []Wait{node}) {
			t.Errorf("in flight for imagefs: %+v", s)
		}
		if name == "each over" {
			if !r.EndWait("a", PoolNodeBytes) || r.EndWait("a", PoolNodeBytes) || !slices.Equal(waiting(r), []Pool{PoolImageInodes}) {
				t.Errorf("when it is over for nodefs, in flight for %v", waiting(r))
			}
		}
		if end(r); len(waiting(r)) > 0 || r.stops[0].Back != 300 {
			t.Errorf("%s: %+v", name, r.stops)
		}
	}
}

// A pod leaves page cache to the node when it ends, which counts as available: that is not taken outside the pods.
func TestPageCacheOfAVictim(t *testing.T) {
	pods := []Candidate{{ID: "victim", Memory: Known(600), ActiveFile: 300}, {ID: "other", Memory: Known(5400)}}
	before, after := one(MeminfoAvailable, read(90, 8000)), one(MeminfoAvailable, read(390, 8000))
	was := before.Outside(MeminfoAvailable, Unprotected(pods, MeminfoAvailable, SingleFS, Amount{}))
	if is := after.Outside(MeminfoAvailable, Unprotected(pods[1:], MeminfoAvailable, SingleFS, Amount{})); is != was {
		t.Errorf("outside the pods %d is used, after the stop %d", was.Value, is.Value)
	}
}

// What has grown outside the pods while nobody looked is not held against the next stops. In a trace, it is.
func TestBreakerAfterATimeUnseen(t *testing.T) {
	for name, want := range map[string]int{"unseen": 0, "restarted": 0, "in a trace": 3} {
		r, out := restrained(), int64(0)
		r.FollowTrace(name == "in a trace")
		stop := func(id string, now time.Duration) {
			o := stopOf(Hard, id)
			o.Outside = Known(out)
			r.Begin(*o, now)
			r.End(id, 100)
			r.Judge(PoolMemory, func(Signal) Amount { return Known(out) }, Known(1000), now)
		}
		stop("a", minute)
		stop("b", minute)
		if name == "restarted" {
			r = restart(t, r, 6*minute)
		}
		out = 1000
		stop("c", 6*minute)
		if got := r.breakers[PoolMemory].Fruitless; got != want {
			t.Errorf("%s: %d fruitless in a row, want %d", name, got, want)
		}
	}
}

// Without back-off, the breaker opens all the same, and stays open for as long as its threshold is met.
func TestBreakerWithoutBackoff(t *testing.T) {
	r := NewRestraint("boot")
	r.Configure(testBudget, BackoffConfig{})
	for i := range 3 {
		finish(r, stopOf(Hard, "a"), 0, 0, time.Duration(i)*second)
	}
	for now := 3 * second; now < 10*minute; now += 10 * second {
		r.Episode(PoolMemory, Known(1000), now)
		if held := r.Check(stopOf(Hard, "b"), now); held.By != HeldBreaker {
			t.Fatalf("at %s held by %q", now, held.By)
		}
	}
	look(r, 10*minute, 12*minute)
	if held := r.Check(stopOf(Hard, "b"), 12*minute); held.By == HeldBreaker {
		t.Error("the breaker stays open without an episode")
	}
}
