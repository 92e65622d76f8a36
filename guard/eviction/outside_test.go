package eviction

import (
	"testing"

	"github.com/criguard/criguard/policy"
)

// What is used outside the unprotected pods is what the node uses, less the pods cgroup, plus the protected pods. It may
// be negative. The memory behind a stall is that of meminfo.available.
func TestOutside(t *testing.T) {
	unknown := policy.Amount{}
	gib := func(n int64) policy.Amount { return policy.Known(n * testGiB) }
	for _, c := range []struct {
		name   string
		signal policy.Signal
		change func(*fakeNode)
		want   policy.Amount
	}{
		{"memory", policy.MemoryAvailable, func(*fakeNode) {}, gib(8 - 5)},
		{"a protected pod", policy.MemoryAvailable, func(n *fakeNode) { n.pods[1].Protection = "test" }, gib(8 - 5 + 1)},
		{"all pods are protected", policy.MemoryAvailable, func(n *fakeNode) { n.protect("test") }, gib(8 - 5 + 5)},
		{"pods that are not listed", policy.MemoryAvailable, func(n *fakeNode) { n.podsMemory = gib(7) }, gib(8 - 7)},
		{"the pods use more than the node", policy.MemoryAvailable, func(n *fakeNode) { n.podsMemory = gib(9) }, gib(8 - 9)},
		{"no pods cgroup", policy.MemoryAvailable, func(n *fakeNode) { n.podsMemory = unknown }, gib(8 - 5)},
		{"no pods cgroup, and a protected pod", policy.MemoryAvailable, func(n *fakeNode) { n.podsMemory, n.pods[1].Protection = unknown, "test" }, gib(8 - 4)},
		{"no pods cgroup, and a pod is unknown", policy.MemoryAvailable, func(n *fakeNode) { n.podsMemory, n.pods[1].Memory = unknown, unknown }, unknown},
		{"a protected pod is unknown", policy.MemoryAvailable, func(n *fakeNode) { n.pods[1].Protection, n.pods[1].Memory = "test", unknown }, unknown},
		{"a stall", policy.MemoryStall, func(*fakeNode) {}, gib(10 - 5)},
		{"a stall, without meminfo", policy.MemoryStall, func(n *fakeNode) { n.obs[policy.MeminfoAvailable].Status = policy.Failed }, unknown},
		{"PIDs", policy.PIDAvailable, func(*fakeNode) {}, policy.Known(1000 - 900 - 2*10)},
		{"a disk", policy.NodeFSAvailable, func(n *fakeNode) { n.pods[1].Protection = "test" }, gib(16 - 9 - 4)},
	} {
		g, n := newManager(t, "")
		n.podsMemory = gib(5)
		n.set(policy.MeminfoAvailable, 6*testGiB)
		n.set(policy.NodeFSAvailable, 9*testGiB)
		n.obs[policy.MemoryStall] = policy.Observation{Available: 500_000, Capacity: 1_000_000, Status: policy.OK}
		n.obs[policy.PIDAvailable] = policy.Observation{Available: 900, Capacity: 1000, Status: policy.OK}
		c.change(n)
		g.Observe()
		due := []policy.Met{{Threshold: policy.Threshold{Signal: c.signal}}}
		choice := g.choose(n.Inventory(t.Context(), false), n.now, n.layout.Pool(c.signal), due)
		if got := g.outside(c.signal, choice.unprotected); got.Known != c.want.Known || got.Known && got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
