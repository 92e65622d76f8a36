package policy

import (
	"math"
	"slices"
	"testing"
)

// candidatesOf lists the candidates of a ranking without the excluded pods.
func candidatesOf(ranked []Ranked) []string {
	return ids(slices.DeleteFunc(slices.Clone(ranked), func(r Ranked) bool { return r.Excluded != "" }))
}

// Pods without swap are not candidates for it, however large they are.
func TestRankForSwap(t *testing.T) {
	web := func(id string) Candidate { return Candidate{ID: id, Memory: Known(gi), Swap: Known(0)} }
	inSwap := Candidate{ID: "in swap", Memory: Known(50 * mi), MemoryRequest: 100 * mi, Swap: Known(4 * gi)}
	pods := []Candidate{web("web1"), web("web2"), web("web3"), inSwap}
	ranked := Rank(pods, SwapAvailable, SingleFS, nil)
	if got := candidatesOf(ranked); !slices.Equal(got, []string{"in swap"}) {
		t.Fatalf("candidates %v", got)
	}
	first := ranked[0]
	if first.Usage != 4*gi || first.Yield != 4*gi || first.Request != 0 || first.ByMemory {
		t.Errorf("%+v", first)
	}
	if got := ranked[1].Excluded; got != ExcludedTooSmall {
		t.Errorf("without swap: excluded %q", got)
	}
	q := lacking(SwapAvailable, 512*mi)
	if d := Decide(pods, q); d.Victim == nil || d.Victim.ID != "in swap" || d.Pool != PoolSwap {
		t.Errorf("chose %+v", d)
	}
}

// A request covers memory only, so it does not protect a pod's swap; a priority does.
func TestRankForSwapOrder(t *testing.T) {
	pods := []Candidate{
		{ID: "within its request", Memory: Known(mi), MemoryRequest: gi, Swap: Known(900 * mi)},
		{ID: "over its request", Memory: Known(gi), Swap: Known(100 * mi)},
		{ID: "less", Memory: Known(mi), Swap: Known(90 * mi)},
		{ID: "low", Memory: Known(mi), Swap: Known(50 * mi), Priority: -1},
		{ID: "unknown", Memory: Known(9 * gi)},
		{ID: "idle", Memory: Known(9 * gi), Swap: Known(4096)},
	}
	want := []string{"low", "within its request", "over its request", "less"}
	if got := candidatesOf(Rank(pods, SwapAvailable, SingleFS, nil)); !slices.Equal(got, want) {
		t.Errorf("ranked %v, want %v", got, want)
	}
}

// If the kernel does not account for the pods' swap, the pods rank by memory, and the result says so. A
// pod that is known to have no swap is still not a candidate.
func TestRankForSwapNotAccounted(t *testing.T) {
	pods := []Candidate{
		{ID: "large", Memory: Known(gi)}, {ID: "small", Memory: Known(100 * mi)},
		{ID: "within", Memory: Known(gi), MemoryRequest: gi}, {ID: "none", Memory: Known(9 * gi), Swap: Known(0)}, {ID: "unknown"},
		{ID: "Guaranteed", Memory: Known(gi), QoS: Guaranteed},
	}
	ranked := Rank(pods, SwapAvailable, SingleFS, nil)
	if got, want := candidatesOf(ranked), []string{"large", "small", "within", "Guaranteed"}; !slices.Equal(got, want) {
		t.Errorf("ranked %v, want %v", got, want)
	}
	for _, r := range ranked {
		if r.ByMemory != (r.ID != "none") {
			t.Errorf("%s by memory: %t", r.ID, r.ByMemory)
		}
	}
	if r := ranked[2]; r.Usage != gi || r.Request != gi {
		t.Errorf("usage %d of %d", r.Usage, r.Request)
	}
	for _, r := range Rank(pods, MemoryAvailable, SingleFS, nil) {
		if r.ByMemory {
			t.Errorf("%s is marked as ranked by memory, for memory", r.ID)
		}
	}
	if d := Decide(pods, lacking(SwapAvailable, 512*mi)); d.Victim == nil || d.Victim.ID != "large" || d.Need != 512*mi {
		t.Errorf("chose %+v", d)
	}
}

// In a stall, tasks wait for pages that were swapped out, and those still count for the pod: for its usage
// as ranked, and for what its stop gives back.
func TestRankForStalls(t *testing.T) {
	pods := []Candidate{
		{ID: "resident", Memory: Known(gi), Swap: Known(0)}, {ID: "not accounted", Memory: Known(2 * gi)},
		{ID: "pushed out", Memory: Known(50 * mi), ActiveFile: 10 * mi, Swap: Known(4 * gi)},
		{ID: "huge", Memory: Known(math.MaxInt64), Swap: Known(1), Priority: 1},
		{ID: "wrong", Memory: Known(2 * mi), Swap: Known(math.MinInt64)}, {ID: "unknown", Swap: Known(gi)},
	}
	for _, s := range []Signal{MemoryStall, IOStall} {
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
