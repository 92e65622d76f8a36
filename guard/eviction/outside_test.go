package eviction

import (
	"fmt"
	"testing"
	"time"

	"github.com/criguard/criguard/policy"
)

// What is used outside the unprotected pods is what the node uses, less the pods cgroup, plus the protected pods. It may
// be negative. The memory behind a stall is that of meminfo.available. Swap is counted together with memory.
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
		{"swap", policy.SwapAvailable, func(*fakeNode) {}, gib(10 + 4 - 5 - 3)},
		{"swap, without meminfo", policy.SwapAvailable, func(n *fakeNode) { n.obs[policy.MeminfoAvailable].Status = policy.Failed }, unknown},
		{"PIDs", policy.PIDAvailable, func(*fakeNode) {}, policy.Known(1000 - 900 - 2*10)},
		{"a disk", policy.NodeFSAvailable, func(n *fakeNode) { n.pods[1].Protection = "test" }, gib(16 - 9 - 4)},
	} {
		g, n := newManager(t, "")
		n.podsMemory = gib(5)
		n.set(policy.MeminfoAvailable, 6*testGiB)
		n.set(policy.NodeFSAvailable, 9*testGiB)
		n.obs[policy.MemoryStall] = policy.Observation{Available: 500_000, Capacity: 1_000_000, Status: policy.OK}
		n.obs[policy.PIDAvailable] = policy.Observation{Available: 900, Capacity: 1000, Status: policy.OK}
		n.obs[policy.SwapAvailable] = policy.ObserveSpace(testGiB, 5*testGiB, 0)
		for i := range n.pods {
			n.pods[i].Swap = policy.Known(0)
		}
		n.pods[0].Swap = policy.Known(3 * testGiB)
		c.change(n)
		g.Observe()
		pool := n.layout.Pool(c.signal)
		for due := range policy.SignalCount {
			if n.layout.Pool(due) != pool {
				continue
			}
			choice := g.choose(n.Inventory(t.Context(), 0), n.now, pool, []policy.Met{{Threshold: policy.Threshold{Signal: due}}})
			if got := g.outside(&choice, c.signal); got.Known != c.want.Known || got.Known && got != c.want {
				t.Errorf("%s, while %s is due: %+v, want %+v", c.name, due, got, c.want)
			}
		}
	}
}

// Growth of the pods, which closes the breaker, is not that another signal is due: of memory, what they have in swap counts for
// all of them.
func TestUse(t *testing.T) {
	g, n := newManager(t, "")
	n.podsMemory = policy.Known(7 * testGiB)
	for i := range n.pods {
		n.pods[i].Swap = policy.Known(3 * testGiB)
	}
	for s := range policy.SignalCount {
		i := n.layout.Pool(s)
		want := policy.Known(0)
		for j := range n.pods {
			switch p := &n.pods[j]; i {
			case policy.PoolMemory:
				want.Value += p.Memory.Value + p.Swap.Value
			case policy.PoolPIDs:
				want.Value += p.PIDs.Value
			case policy.PoolNodeBytes:
				want.Value += p.Disk.Total().Value
			case policy.PoolNodeInodes:
				want.Value += p.Inodes.Total().Value
			}
		}
		choice := g.choose(n.Inventory(t.Context(), 0), n.now, i, []policy.Met{{Threshold: policy.Threshold{Signal: s}}})
		if got := g.use(&choice, i, s); got != want {
			t.Errorf("%s: %+v, want %+v", s, got, want)
		}
	}
}

// More tasks may run than a limit that was lowered allows. They come back before any is available, and count as what a stop gives
// back: otherwise, they would seem to be used outside of the pods, and the breaker would open. If all pods together have too few
// for that, none is stopped. While nothing is available, a pod that does not grow is no culprit: the budget holds its stop back.
func TestStopsBelowALoweredLimit(t *testing.T) {
	for _, c := range []struct {
		limit       int64
		burst, want int
	}{{200, 9, 6}, {50, 9, 0}, {200, 2, 2}} {
		g, n := newManager(t, fmt.Sprintf("[eviction.hard]\n\"pid.available\" = \"10\"\n[budget]\nhard = {burst = %d, every = \"1h\"}\n", c.burst))
		n.pods = nil
		for i := range 8 {
			p := testPod(fmt.Sprint("pod-", i), testGiB)
			p.PIDs = policy.Known(20)
			n.pods = append(n.pods, p)
		}
		ended := 0
		for at := time.Duration(0); at < time.Minute; at += time.Second / 2 {
			n.obs[policy.PIDAvailable] = policy.ObserveUsed(c.limit, 140+20*int64(len(n.pods)), at)
			n.at(g, at)
			if len(n.stops) > ended {
				n.end(n.stops[ended])
				ended++
			}
		}
		if len(n.stops) != c.want || len(g.restraint.Status(n.now).Breakers) > 0 {
			t.Errorf("%+v: %d stops; open breakers: %v", c, len(n.stops), g.restraint.Status(n.now).Breakers)
		}
	}
}
