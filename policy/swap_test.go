package policy

import (
	"math"
	"slices"
	"testing"
	"time"
)

// candidatesOf lists the candidates of a ranking without the excluded pods.
func candidatesOf(ranked []Ranked) []string {
	return ids(slices.DeleteFunc(slices.Clone(ranked), func(r Ranked) bool { return r.Excluded != "" }))
}

// A full swap is no shortage: its threshold is due only while memory is below the stall floor, and lacks what lacks to that, or
// to itself, whichever is less.
func TestSwapIsEvidence(t *testing.T) {
	hard := Threshold{Signal: SwapAvailable, Value: Bytes(512 * mi), MinReclaim: Bytes(mi)}
	settings := Settings{StallFloor: Percent(20)}
	for _, v := range []struct {
		name          string
		swap          int64
		memory        Observation
		due           bool
		lack, deficit int64
	}{
		{"at the floor", 0, read(200*mi, 1000*mi), false, 0, 0},
		{"below it", 0, read(200*mi-20, 1000*mi), true, 20, 20},
		{"swap lacks less", 512*mi - 3, read(0, 1000*mi), true, mi + 3, 3},
		{"in the minimum reclaim", 512*mi + 3, read(0, 1000*mi), true, mi - 3, mi - 3},
		{"memory unknown", 0, Observation{}, false, 0, 0},
	} {
		obs := one(SwapAvailable, read(v.swap, gi))
		obs[MeminfoAvailable] = v.memory
		before := one(SwapAvailable, read(0, gi))
		before[MeminfoAvailable] = v.memory
		state, _ := Evaluate(State{}, []Threshold{hard}, settings, before, 0)
		_, p := Evaluate(state, []Threshold{hard}, settings, obs, second)
		if len(p.Met) != 1 || p.Met[0].Due != v.due || p.Met[0].WarnOnly == v.due || p.Conditions.Has(MemoryPressure) != v.due {
			t.Fatalf("%s: %+v", v.name, p)
		}
		if m := p.Met[0]; m.Lack != v.lack || m.Deficit != v.deficit {
			t.Errorf("%s: lacks %d, deficit %d", v.name, m.Lack, m.Deficit)
		}
	}
}

// observed returns what is available of swap and of memory.
func observed(swap, memory int64) *Observations {
	obs := one(SwapAvailable, read(swap, gi))
	obs[MeminfoAvailable] = read(memory, 4*gi)
	return obs
}

// The pod that pushes others into swap is stopped, not one that was pushed.
func TestPodsThatArePushedIntoSwap(t *testing.T) {
	idle := func(id string, swap int64) Candidate {
		return Candidate{ID: id, Created: -1, Priority: -1, Memory: Known(200*mi - swap), Swap: Known(swap)}
	}
	q := lacking(SwapAvailable, 100*mi)
	q.Samples = &Samples{}
	q.Now = minute
	before := []Candidate{idle("a", 0), idle("b", 0), {ID: "leak", Created: -1, Memory: Known(100 * mi), Swap: Known(0)}}
	q.Samples.Add(q.Now-second, observed(700*mi, 400*mi), before, Amount{})
	q.Observed = observed(300*mi, 400*mi)
	now := []Candidate{idle("a", 190*mi), idle("b", 180*mi), {ID: "leak", Created: -1, Memory: Known(500 * mi), Swap: Known(0)}}
	if d := Decide(now, q); d.Victim == nil || d.Victim.ID != "leak" || d.Why != ByCulprit || d.Pool != PoolMemory {
		t.Errorf("chose %+v", d.Victim)
	}
}

// What stays in swap costs no pod while memory and swap last: no stop of a pod brings it back. That holds for a culprit, too:
// if so little lacks that a slow pod would be one, it is not urgent. It is urgent only if both fall, by the last second and by the
// last ten: memory that is freed again within seconds is not a leak, and neither is one that has ended.
func TestSwapThatLasts(t *testing.T) {
	const left = 600 * mi
	for _, v := range []struct {
		name         string
		levels       []int64 // above what is left now, a second apart; the last is of a second ago
		lacks        int64
		wantsNothing bool
	}{
		{"nothing falls", []int64{0}, 100 * mi, true},
		{"a slow leak", []int64{81 * mi, 72 * mi, 63 * mi, 54 * mi, 45 * mi, 36 * mi, 27 * mi, 18 * mi, 9 * mi}, 100 * mi, true},
		{"a slow leak, little lacks", []int64{81 * mi, 72 * mi, 63 * mi, 54 * mi, 45 * mi, 36 * mi, 27 * mi, 18 * mi, 9 * mi}, 5 * mi, true},
		{"a leak", []int64{108 * mi, 96 * mi, 84 * mi, 72 * mi, 60 * mi, 48 * mi, 36 * mi, 24 * mi, 12 * mi}, 100 * mi, false},
		{"a leak, little lacks", []int64{108 * mi, 96 * mi, 84 * mi, 72 * mi, 60 * mi, 48 * mi, 36 * mi, 24 * mi, 12 * mi}, 5 * mi, false},
		{"a fast leak", []int64{100 * mi}, 100 * mi, false},
		{"what comes and goes", []int64{30 * mi, 0, 30 * mi, 0, 30 * mi}, 100 * mi, true},
		{"what was taken and has come back", []int64{0, -400 * mi, -400 * mi, 12 * mi}, 100 * mi, true},
		{"a leak that has ended", []int64{400 * mi, 200 * mi, 0, 0}, 100 * mi, true},
	} {
		used := func(level int64) []Candidate {
			return []Candidate{{ID: "a", Created: -1, Memory: Known(500*mi - level), Swap: Known(300 * mi)}}
		}
		q := lacking(SwapAvailable, v.lacks)
		q.Samples, q.Now = &Samples{}, minute
		for i, level := range v.levels {
			at := q.Now - time.Duration(len(v.levels)-i)*second
			q.Samples.Add(at, observed(200*mi, left-200*mi+level), used(level), Amount{})
		}
		q.Observed = observed(200*mi, left-200*mi)
		d := Decide(used(0), q)
		if held := d.Victim == nil && d.Held == HeldRecovers; held != v.wantsNothing || (d.Victim == nil) != v.wantsNothing {
			t.Errorf("%s: held by %q, victim %+v", v.name, d.Held, d.Victim)
		}
		q.Samples.Slept(10*minute, q.Now+10*minute)
		q.Now += 10 * minute
		if again := Decide(used(0), q); (again.Victim == nil) != v.wantsNothing {
			t.Errorf("%s, after a sleep: held by %q, victim %+v", v.name, again.Held, again.Victim)
		}
	}
}

// If a process outside all pods pushes them into swap, none of them is stopped.
func TestPodsThatAreNoCauseOfSwap(t *testing.T) {
	idle := func(swap int64) []Candidate {
		return []Candidate{{ID: "a", Created: -1, Memory: Known(200*mi - swap), Swap: Known(swap)}, {ID: "b", Created: -1, Memory: Known(100 * mi), Swap: Known(0)}}
	}
	q := lacking(SwapAvailable, 100*mi)
	q.Samples, q.Now = &Samples{}, minute
	q.Samples.Add(q.Now-second, observed(700*mi, 400*mi), idle(0), Known(300*mi))
	q.Observed = observed(500*mi, 400*mi)
	d := Decide(idle(200*mi), q)
	if d.Victim != nil || d.Held != HeldOutside || d.Fill != 200*mi || d.Outside != 200*mi || d.Need != 300*mi {
		t.Errorf("held by %q, victim %+v, %+v", d.Held, d.Victim, d.Lack)
	}
}

// In a stall, tasks wait for pages that were swapped out, and those still count for the pod: for its usage
// as ranked, and for what its stop gives back. The same holds for swap.
func TestRankForStallsAndSwap(t *testing.T) {
	pods := []Candidate{
		{ID: "resident", Memory: Known(gi), Swap: Known(0)}, {ID: "not accounted", Memory: Known(2 * gi)},
		{ID: "pushed out", Memory: Known(50 * mi), ActiveFile: 10 * mi, Swap: Known(4 * gi)},
		{ID: "huge", Memory: Known(math.MaxInt64), Swap: Known(1), Priority: 1},
		{ID: "wrong", Memory: Known(2 * mi), Swap: Known(math.MinInt64)}, {ID: "unknown", Swap: Known(gi)},
	}
	for _, s := range []Signal{MemoryStall, IOStall, SwapAvailable} {
		ranked := Rank(pods, s, SingleFS, nil)
		if got, want := candidatesOf(ranked), []string{"pushed out", "not accounted", "resident", "wrong", "huge"}; !slices.Equal(got, want) {
			t.Errorf("%s ranked %v, want %v", s, got, want)
		}
		if r := ranked[0]; r.Usage != 4*gi+50*mi || r.Yield != 4*gi+40*mi || ranked[4].Usage != math.MaxInt64 || ranked[3].Usage != 2*mi {
			t.Errorf("%+v", ranked)
		}
	}
	ranked := Rank(pods[:3], MemoryAvailable, SingleFS, nil)
	if got, want := ids(ranked), []string{"not accounted", "resident", "pushed out"}; !slices.Equal(got, want) || ranked[2].Yield != 40*mi {
		t.Errorf("for memory ranked %v", got)
	}
}

// After a delay of criguard, a leak that went on meanwhile is urgent at once.
func TestSwapDoesNotLastAfterADelay(t *testing.T) {
	t.Parallel()
	reading := func(now time.Duration) *Observations { // falls by 256 MiB a second
		available := int64(12<<30) - int64((now-time.Hour)/time.Second)<<28
		return &Observations{
			MemoryAvailable:  {Available: available, Capacity: 16 << 30, Status: OK},
			MeminfoAvailable: {Available: available, Capacity: 16 << 30, Status: OK},
			SwapAvailable:    {Available: 1 << 20, Capacity: 8 << 30, Status: OK},
		}
	}
	for _, delay := range []time.Duration{0, 14 * time.Second} {
		var s Samples
		now := time.Hour
		for range 16 {
			s.Add(now, reading(now), nil, Amount{})
			now += time.Second
		}
		s.Late(delay)
		now += delay
		s.Note(now, reading(now), nil, Amount{}) // as for a decision
		if s.Lasts(SwapAvailable, reading(now), now) {
			t.Errorf("after a delay of %v, %d MiB last at %d MiB a second", delay, reading(now)[MeminfoAvailable].Available>>20, s.Fill(SwapAvailable, reading(now), now)>>20)
		}
	}
}
