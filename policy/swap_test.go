package policy

import (
	"math"
	"slices"
	"testing"
)

// candidatesOf lists the candidates of a ranking, without those that are excluded.
func candidatesOf(ranked []Ranked) []string {
	return ids(slices.DeleteFunc(slices.Clone(ranked), func(r Ranked) bool { return r.Excluded != "" }))
}

// Pods with nothing in swap are no candidates for it, however large they are.
func TestRankForSwap(t *testing.T) {
	web := func(id string) Candidate { return Candidate{ID: id, Memory: Known(gi), Swap: Known(0)} }
	inSwap := Candidate{ID: "in swap", Memory: Known(50 * mi), MemoryRequest: 100 * mi, Swap: Known(4 * gi)}
	pods := []Candidate{web("web1"), web("web2"), web("web3"), inSwap}
	ranked := Rank(pods, SwapAvailable, SingleFS, nil, 512*mi)
	if got := candidatesOf(ranked); !slices.Equal(got, []string{"in swap"}) {
		t.Fatalf("candidates %v", got)
	}
	first := ranked[0]
	if first.Usage != 4*gi || first.Frees != 4*gi || first.Request != 0 || first.ByMemory {
		t.Errorf("%+v", first)
	}
	if got := ranked[1].Excluded; got != ExcludedUsesNone {
		t.Errorf("without swap: excluded %q", got)
	}
	victim, held := Choose(ranked, 512*mi, func(*Ranked) Standing { return Standing{} })
	if victim == nil || victim.ID != "in swap" {
		t.Errorf("chose %+v, held by %q", victim, held)
	}
}

// What was requested is memory, and holds nobody's swap back; a priority does.
func TestRankForSwapOrder(t *testing.T) {
	pods := []Candidate{
		{ID: "within its request", Memory: Known(mi), MemoryRequest: gi, Swap: Known(900 * mi)},
		{ID: "over its request", Memory: Known(gi), Swap: Known(100 * mi)},
		{ID: "less", Memory: Known(mi), Swap: Known(90 * mi)},
		{ID: "low", Memory: Known(mi), Swap: Known(50 * mi), Priority: -1},
		{ID: "unknown", Memory: Known(9 * gi)},
		{ID: "idle", Memory: Known(9 * gi), Swap: Known(4096)},
	}
	want := []string{"low", "within its request", "over its request", "less", "unknown"}
	if got := candidatesOf(Rank(pods, SwapAvailable, SingleFS, nil, gi)); !slices.Equal(got, want) {
		t.Errorf("ranked %v, want %v", got, want)
	}
	few := []Candidate{{ID: "some", Swap: Known(mi)}, {ID: "idle", Swap: Known(mi - 1)}}
	if got := candidatesOf(Rank(few, SwapAvailable, SingleFS, nil, gi)); !slices.Equal(got, []string{"some"}) {
		t.Errorf("where nobody has much: %v", got)
	}
}

// Where the kernel does not account the swap of pods, they rank by memory, as told. A pod
// of which it is known that it has none there is no candidate all the same.
func TestRankForSwapNotAccounted(t *testing.T) {
	pods := []Candidate{
		{ID: "large", Memory: Known(gi)}, {ID: "small", Memory: Known(100 * mi)},
		{ID: "within", Memory: Known(gi), MemoryRequest: gi}, {ID: "none", Memory: Known(9 * gi), Swap: Known(0)}, {ID: "unknown"},
	}
	ranked := Rank(pods, SwapAvailable, SingleFS, nil, gi)
	if got, want := candidatesOf(ranked), []string{"large", "small", "within", "unknown"}; !slices.Equal(got, want) {
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
	for _, r := range Rank(pods, MemoryAvailable, SingleFS, nil, gi) {
		if r.ByMemory {
			t.Errorf("%s for memory is told to rank by memory", r.ID)
		}
	}
}

// A stall is waited for by pages that were pushed out, and what was is the pod's still.
func TestRankForStalls(t *testing.T) {
	pods := []Candidate{
		{ID: "resident", Memory: Known(gi), Swap: Known(0)}, {ID: "pushed out", Memory: Known(50 * mi), Swap: Known(4 * gi)},
		{ID: "not accounted", Memory: Known(2 * gi)}, {ID: "huge", Memory: Known(math.MaxInt64), Swap: Known(1), Priority: 1},
		{ID: "wrong", Memory: Known(2), Swap: Known(math.MinInt64)},
	}
	for _, s := range []Signal{MemoryStall, IOStall} {
		ranked := Rank(pods, s, SingleFS, nil, 1000)
		if got, want := ids(ranked), []string{"pushed out", "not accounted", "resident", "wrong", "huge"}; !slices.Equal(got, want) {
			t.Errorf("%s ranked %v, want %v", s, got, want)
		}
		if ranked[0].Usage != 4*gi+50*mi || ranked[4].Usage != math.MaxInt64 || ranked[3].Usage != 2 {
			t.Errorf("%+v", ranked)
		}
	}
	if got := ids(Rank(pods[:2], MemoryAvailable, SingleFS, nil, 1000)); got[0] != "resident" {
		t.Errorf("for memory ranked %v", got)
	}
}
