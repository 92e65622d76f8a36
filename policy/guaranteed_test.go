package policy

import (
	"math"
	"slices"
	"testing"
)

// memorySignals are the signals that rank pods by memory, which a request covers.
var memorySignals = []Signal{MemoryAvailable, AllocatableMemoryAvailable, MeminfoAvailable, MemoryStall, IOStall}

// keyOf returns the value of a key of a ranked pod.
func keyOf(t *testing.T, r *Ranked, k Key) int64 {
	t.Helper()
	i := slices.IndexFunc(r.Keys, func(v KeyValue) bool { return v.Key == k })
	if i < 0 {
		t.Fatalf("%s is not ranked by %s", r.ID, k)
	}
	return r.Keys[i].Value
}

// For any numbers, a Guaranteed pod is never above its memory request. So it never ranks before a pod
// of the same priority that is above its own.
func TestGuaranteedIsNeverAboveItsRequest(t *testing.T) {
	r := source(50)
	amounts := []int64{0, 1, 2, gi, math.MaxInt64, math.MinInt64, -1}
	guaranteed := 0
	for range 10_000 {
		cs := randomPods(r, 1+r.IntN(12))
		for i := range cs {
			cs[i].MemoryRequest = pick(r, amounts...)
			cs[i].Memory = Amount{pick(r, amounts...), r.IntN(5) > 0}
		}
		keys := append(randomKeys(r), KeyOverRequest, KeyUsage)
		s := pick(r, append(memorySignals, SwapAvailable)...)
		ranked := Rank(cs, s, SingleFS, keys)
		for i := range ranked {
			p := &ranked[i]
			if p.QoS != Guaranteed || !p.Known() {
				continue
			}
			guaranteed++
			if over, size := keyOf(t, p, KeyOverRequest), keyOf(t, p, KeyUsage); over != 0 || size > 0 || p.Over {
				t.Fatalf("for %s a Guaranteed pod that uses %d of %d: over_request %d, usage − request %d, over %t",
					s, p.Usage, p.Request, over, size, p.Over)
			}
			if p.Request != max(p.MemoryRequest, 0) {
				t.Fatalf("its request is shown as %d, want %d", p.Request, p.MemoryRequest)
			}
		}
	}
	if guaranteed < 1000 {
		t.Fatalf("only %d Guaranteed pods were ranked", guaranteed)
	}
}

// A Guaranteed pod with an unknown request counts as within it; among such pods, the larger one ranks
// first. This does not apply to requests of ephemeral storage.
func TestGuaranteedOfUnknownRequest(t *testing.T) {
	disk := DiskUsage{Rootfs: Exactly(5 * gi), Logs: Exactly(0), Volumes: Exactly(0)}
	pods := []Candidate{
		{ID: "guaranteed", QoS: Guaranteed, Memory: Known(4 * gi), Disk: disk},
		{ID: "larger", QoS: Guaranteed, Memory: Known(6 * gi), Disk: disk},
		{ID: "known", QoS: Guaranteed, Memory: Known(6 * gi), MemoryRequest: 7 * gi, Disk: disk},
		{ID: "burstable", QoS: Burstable, Memory: Known(gi), Disk: disk},
		{ID: "best effort", QoS: BestEffort, Memory: Known(2 * mi), Disk: disk},
	}
	for _, s := range memorySignals {
		want := []string{"burstable", "best effort", "larger", "guaranteed", "known"}
		if got := ids(Rank(pods, s, SingleFS, nil)); !slices.Equal(got, want) {
			t.Errorf("for %s ranked %v, want %v", s, got, want)
		}
	}
	for _, r := range Rank(pods, NodeFSAvailable, SingleFS, nil) {
		if keyOf(t, &r, KeyOverRequest) != 1 || keyOf(t, &r, KeyUsage) != 5*gi || !r.Over {
			t.Errorf("for nodefs.available: %+v", r)
		}
	}
}
