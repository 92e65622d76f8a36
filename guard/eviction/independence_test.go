package eviction_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// twoPools is a node whose stops last until the end of the test. It records what is reclaimed and stopped.
type twoPools struct {
	now       time.Duration
	obs       policy.Observations
	pods      []inventory.Pod
	reclaimed []policy.Signal
	stopped   []string
}

func (n *twoPools) Now() time.Duration { return n.now }
func (n *twoPools) Observe(obs *policy.Observations) {
	*obs = n.obs
	for s := range obs {
		obs[s].At = n.now
	}
}
func (n *twoPools) Layout() policy.Layout { return policy.SingleFS }
func (n *twoPools) LayersInMemory() bool  { return false }
func (n *twoPools) Measure(cs []policy.Candidate) {
	for i := range cs {
		cs[i].DiskAt = n.now
	}
}
func (n *twoPools) DiskUsage(string) (bytes, inodes policy.DiskUsage) {
	return policy.DiskUsage{}, policy.DiskUsage{}
}
func (n *twoPools) CPUs() int                                                       { return 1 }
func (n *twoPools) PodsMemory() policy.Amount                                       { return policy.Amount{} }
func (n *twoPools) Remaining(inventory.Pod, policy.Pool) policy.Amount              { return policy.Amount{} }
func (n *twoPools) Unlisted([]inventory.Pod, policy.Signal) (largest int64, _ bool) { return 0, false }
func (n *twoPools) ConfirmUnlisted(time.Duration)                                   {}
func (n *twoPools) ForgetStalls()                                                   {}
func (n *twoPools) UnlistedIn(inventory.Pod) []string                               { return nil }

func (n *twoPools) Inventory(context.Context, time.Duration) inventory.Inventory {
	return inventory.Inventory{Pods: n.pods}
}

func (n *twoPools) Reclaim(_ context.Context, m policy.Met, _ policy.Layout, _ []inventory.Pod) eviction.ReliefJob {
	n.reclaimed = append(n.reclaimed, m.Signal)
	return eviction.Finished(eviction.Relief{})
}

func (n *twoPools) Stop(_ context.Context, o eviction.StopOrder) eviction.StopJob {
	n.stopped = append(n.stopped, o.Pod.Name)
	return endless{}
}

// endless is a stop whose pod uses its whole grace period.
type endless struct{}

func (endless) Done() <-chan struct{}         { return nil }
func (endless) Escalate(bool, []string)       {}
func (endless) Discard(_, _ bool)             {}
func (endless) Outcome() eviction.StopOutcome { return eviction.StopOutcome{} }

// A soft stop for memory in flight delays neither the reclaim nor the stop of another pool, however long its
// grace period is.
func TestSoftStopDelaysNoOtherPool(t *testing.T) {
	cfg, err := config.Parse("test", strings.NewReader(`
[eviction]
max_pod_grace_period = "10m"
[eviction.hard]
"memory.available" = "1Gi"
"nodefs.available" = "1Gi"
[eviction.soft]
"memory.available" = "2Gi"
[eviction.soft_grace_period]
"memory.available" = "1s"
`))
	if err != nil {
		t.Fatal(err)
	}
	const gib = 1 << 30
	n := &twoPools{now: time.Hour}
	for _, name := range []string{"memory", "disk"} {
		p := inventory.Pod{Grace: 10 * time.Minute, Candidate: policy.Candidate{
			ID: name, Namespace: "d", Name: name, Workload: "d/" + name, Memory: policy.Known(gib / 2), PIDs: policy.Known(1),
			Disk: policy.DiskUsage{Rootfs: policy.Exactly(gib / 2), Logs: policy.Exactly(0), Volumes: policy.Exactly(0)},
		}}
		if name == "memory" {
			p.Memory = policy.Known(4 * gib)
		} else {
			p.Disk.Rootfs = policy.Exactly(8 * gib)
		}
		n.pods = append(n.pods, p)
	}
	set := func(s policy.Signal, available int64) {
		n.obs[s] = policy.Observation{Available: available, Capacity: 16 * gib, Status: policy.OK}
	}
	set(policy.MemoryAvailable, 3*gib/2)
	set(policy.NodeFSAvailable, 8*gib)
	g := eviction.New(cfg, n, n, n, n, nil, policy.NewRestraint("boot"))
	for range 3 {
		g.Pass(context.Background(), "test")
		n.now += time.Second
	}
	if !slices.Equal(n.stopped, []string{"memory"}) || g.Snapshot().InFlight != 1 {
		t.Fatalf("after the soft grace period: stopped %v, %d in flight", n.stopped, g.Snapshot().InFlight)
	}
	set(policy.NodeFSAvailable, gib/2)
	p := g.Pass(context.Background(), "test")
	if !slices.Contains(n.reclaimed, policy.NodeFSAvailable) {
		t.Errorf("the disk is not reclaimed while the stop for memory is in flight: reclaimed %v", n.reclaimed)
	}
	if !slices.Equal(n.stopped, []string{"memory", "disk"}) {
		t.Errorf("no stop for the disk while the stop for memory is in flight: stopped %v, held by %q of %s", n.stopped, p.Held, p.HeldBy)
	}
}
