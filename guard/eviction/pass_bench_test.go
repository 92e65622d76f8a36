package eviction

import (
	"fmt"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// benchNode is a node with many pods whose readings cost nothing, so that only the decision is measured.
type benchNode struct {
	fakeNode
	byID map[string]*inventory.Pod
}

// Measure returns the pods' usage from their order.
func (n *benchNode) Measure(cs []policy.Candidate) {
	for i := range cs {
		cs[i].Memory, cs[i].Swap, cs[i].PIDs = n.pods[i].Memory, n.pods[i].Swap, n.pods[i].PIDs
	}
}

func (n *benchNode) DiskUsage(sandbox string) (bytes, inodes policy.DiskUsage) {
	p := n.byID[sandbox]
	return p.Disk, p.Inodes
}

// BenchmarkDecisionPass makes passes on a node with 110 pods, without the cost of reading cgroups: at rest, with storage limits
// that no pod exceeds, near a threshold, and while a threshold is due that no stop would relieve, also after 100 stops.
func BenchmarkDecisionPass(b *testing.B) {
	for _, c := range []struct {
		name      string
		available int64
		pause     time.Duration
		limit     int64
		stops     int
	}{
		{name: "rest", available: 8 * testGiB, pause: time.Second},
		{name: "limits", available: 8 * testGiB, pause: time.Second, limit: testGiB},
		{name: "near", available: 2 * testGiB, pause: 5 * time.Millisecond},
		{name: "near-stops", available: 2 * testGiB, pause: 5 * time.Millisecond, stops: 100},
		{name: "due", available: testGiB / 2, pause: 5 * time.Millisecond},
		{name: "due-stops", available: testGiB / 2, pause: 5 * time.Millisecond, stops: 100},
	} {
		b.Run(c.name, func(b *testing.B) {
			g, fake := newManager(b, "[budget.hard]\nburst = 100\n[budget.soft]\nburst = 100\n[backoff]\nreset = \"24h\"\n"+memoryHard)
			n := &benchNode{*fake, map[string]*inventory.Pod{}}
			g.kernel, g.runtime, g.reclaimer, g.stopper = n, n, n, n
			n.pods = make([]inventory.Pod, 110)
			for i := range n.pods {
				p := &n.pods[i]
				*p = testPod(fmt.Sprint("pod-", i), 2*testMiB)
				p.StorageLimit, n.byID[p.ID] = c.limit, p
			}
			n.podsMemory = policy.Known(220 * testMiB)
			for i := range c.stops {
				at := n.now - time.Duration(c.stops-i)*time.Second
				sandbox := fmt.Sprint("sandbox-", i)
				g.restraint.Begin(policy.Stop{
					Workload: "d/" + sandbox, Sandbox: sandbox, UID: sandbox, Pool: policy.PoolMemory, Expected: testMiB, Over: true, Judged: true,
				}, at)
			}
			n.set(policy.MemoryAvailable, c.available)
			b.ReportAllocs()
			for b.Loop() {
				n.now += c.pause
				p := g.Pass(b.Context(), byTimer)
				if n.reclaimed, n.reliefs = n.reclaimed[:0], n.reliefs[:0]; p.Stop != nil || p.Held == "" != (c.available > testGiB) {
					b.Fatalf("stopped %+v, held by %q", p.Stop, p.Held)
				}
				g.Pause()
			}
		})
	}
}
