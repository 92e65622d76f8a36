package eviction

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// A pod helps if its stop gives back a twentieth of the need. The record of a stop and the ranking on request say so in
// the same words.
func TestStandingAtATwentiethOfTheNeed(t *testing.T) {
	g, n := newManager(t, memoryHard)
	const need = 400 * testMiB
	n.pods = []inventory.Pod{testPod("large", 2*need), testPod("at", need/20), testPod("below", need/20-1)}
	n.set(policy.MemoryAvailable, testGiB-need)
	p := n.at(g, 0)
	wantStop(t, p, "d/large")
	for name, ranked := range map[string][]api.RankedView{"record": p.Ranked, "on request": g.RankNow(t.Context(), policy.MemoryAvailable).Pods} {
		got := map[string]string{}
		for _, r := range ranked {
			got[r.Pod] = r.Standing
		}
		if got["d/large"] != "helps" || got["d/at"] != "helps" || got["d/below"] != "too small to help" {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The pods that are not candidates follow the candidates, by the reason, then by larger usage, then by name. The keys and
// the order of the input change nothing.
func TestExcludedPodsAreInOrder(t *testing.T) {
	const mi = 1 << 20
	pod := func(name, protection string, usage int64) policy.Candidate {
		return policy.Candidate{ID: "id-" + name, Namespace: "d", Name: name, Protection: protection, Memory: policy.Known(usage * mi), Priority: usage % 3}
	}
	unknown := func(name string) policy.Candidate {
		return policy.Candidate{ID: "id-" + name, Namespace: "d", Name: name}
	}
	cs := []policy.Candidate{
		unknown("u2"), pod("s1", "static pod", 7), pod("c2", "", 5), pod("r2", "protect rule 1", 9), pod("r3", "protect rule 1", 3),
		pod("n1", "namespace kube-system", 1), pod("c1", "", 8), pod("r1", "protect rule 1", 9), unknown("u1"),
	}
	want := []string{"d/c1", "d/c2", "d/n1", "d/r1", "d/r2", "d/r3", "d/s1", "d/u1", "d/u2"}
	for range 2 {
		ranked := policy.Rank(cs, policy.MemoryAvailable, policy.SingleFS, []policy.Key{policy.KeyUsage})
		var got []string
		for _, v := range RankedViews(&policy.Decision{Ranked: ranked}, nil) {
			got = append(got, v.Pod)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		slices.Reverse(cs)
	}
}

// If stops cannot relieve the first of two thresholds of a pool, the ranking, the reason and what holds the stop back are those
// of the second.
func TestTheReasonIsOfTheThresholdThatIsActedOn(t *testing.T) {
	g, n := newManager(t, "[eviction.hard]\n\"memory.available\" = \"12Gi\"\n\"allocatableMemory.available\" = \"5Gi\"\n[budget]\nhard = {burst = 1, every = \"30s\"}\n")
	n.pods[0].Apart = true
	n.pods = append(n.pods, testPod("tiny", testGiB/2))
	n.set(policy.MemoryAvailable, testGiB)
	n.set(policy.AllocatableMemoryAvailable, 9*testGiB/2)
	p := n.at(g, 0)
	wantStop(t, p, "d/small")
	if want := "allocatableMemory.available 4.5Gi"; !strings.HasPrefix(p.Stop.Reason, want) || p.Ranked[0].Pod != "d/small" || p.Ranked[2].Excluded == "" {
		t.Errorf("reason %q, want %s; ranked %+v", p.Stop.Reason, want, p.Ranked)
	}
	n.end(n.stops[0])
	if p := n.at(g, time.Second); p.HeldBy != "allocatableMemory.available:hard" || p.Held != api.HeldBudget {
		t.Errorf("held by %q: %q", p.HeldBy, p.Held)
	}
}
