package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/disk"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/node"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/policy"
)

// BenchmarkPass makes whole passes over real cgroups: idle, and under pressure, when a pass measures and
// ranks every sandbox and begins a stop.
func BenchmarkPass(b *testing.B) {
	for _, pods := range []int{10, 110, 500, 1000} {
		b.Run(fmt.Sprintf("idle/%d", pods), func(b *testing.B) {
			newGuard, _ := benchGuard(b, pods, false)
			g := newGuard(nil)
			b.ReportAllocs()
			for b.Loop() {
				if p := g.Pass(b.Context(), "timer"); p.Stop != nil {
					b.Fatal("stopped something")
				}
			}
		})
	}
	for _, pods := range []int{10, 110, 500, 1000} {
		b.Run(fmt.Sprintf("pressed/%d", pods), func(b *testing.B) { benchStop(b, pods, nil) })
	}
	b.Run("pressed/110/fleet", func(b *testing.B) { benchStop(b, 110, benchFleet{b}) })
}

// benchStop makes passes that begin a stop for a hard threshold.
func benchStop(b *testing.B, pods int, fleet eviction.Fleet) {
	b.Helper()
	newGuard, stops := benchGuard(b, pods, true)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		g := newGuard(fleet)
		b.StartTimer()
		p := g.Pass(b.Context(), "memcg")
		if p.Stop == nil {
			b.Fatalf("stopped nothing: held by %q", p.Held)
		}
		*stops = 0
	}
}

// benchFleet is a fleet that a hard stop must not ask.
type benchFleet struct{ *testing.B }

func (b benchFleet) Permit(*policy.Stop) policy.Held {
	b.Fatal("a hard stop asks the fleet")
	return policy.Held{}
}

// benchGuard creates a manager for this node with this many pods in cgroups of their own. If pressed, its
// threshold is met, and the largest pod's stop relieves it.
func benchGuard(b *testing.B, pods int, pressed bool) (newGuard func(eviction.Fleet) *eviction.Manager, stops *benchStops) {
	b.Helper()
	tree := nodetest.NewTree(b)
	cfg := config.Default()
	cfg.Budget, cfg.Backoff = cfg.Budget.Off(), cfg.Backoff.Off()
	inv := inventory.Inventory{Pods: benchPods(b, tree, pods)}
	disks := disk.NewWatcher(b.TempDir(), nil)
	b.Cleanup(disks.Close)
	k, err := node.Open(node.Options{
		Layout: tree.Layout, PodsCgroup: tree.Root, StallWindow: cfg.Eviction.StallWindow, Now: cgroup.BootTime,
		Disks: disks, Meter: disk.NewMeter(disk.MeterOptions{Paths: disks.Paths, Now: cgroup.BootTime}),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(k.Close)
	k.Track(inv.Pods)
	stops = new(benchStops)
	return func(fleet eviction.Fleet) *eviction.Manager {
		value := "1Mi"
		if pressed {
			var obs policy.Observations
			k.Observe(&obs)
			value = fmt.Sprint(obs[policy.MemoryAvailable].Available + 3*int64(onePercent(b))/2)
		}
		q, err := policy.ParseQuantity(value)
		if err != nil {
			b.Fatal(err)
		}
		cfg.Eviction.Thresholds = []policy.Threshold{{Signal: policy.MemoryAvailable, Kind: policy.Hard, Value: q}}
		return eviction.New(cfg, k, benchRuntime{inv}, benchReclaimer{}, stops, fleet, policy.NewRestraint("boot"))
	}, stops
}

// benchPods creates a cgroup for each pod and its container and charges a page to each. It charges so much of
// the node's memory to the first pod that a stop of it helps, however large the deficit.
func benchPods(b *testing.B, tree *nodetest.Tree, pods int) []inventory.Pod {
	b.Helper()
	list := make([]inventory.Pod, pods)
	for i := range list {
		class := []string{"besteffort", "burstable"}[i%2]
		p := &list[i]
		p.ID, p.UID = fmt.Sprintf("sandbox-%d", i), fmt.Sprintf("uid-%d", i)
		p.Namespace, p.Name = "default", fmt.Sprintf("pod-%d", i)
		p.Workload = inventory.Workload(p.Namespace, p.Name, nil)
		p.Cgroup = path.Join(tree.Root, class, "pod"+p.UID)
		p.Containers = []inventory.Container{{ID: p.ID + "-main", Name: "main", Cgroup: path.Join(p.Cgroup, "main"), Running: true}}
		tree.Mkdir(p.Containers[0].Cgroup)
		size := os.Getpagesize()
		if i == 0 {
			size = 3 * onePercent(b)
		}
		charge(b, tree, p.Containers[0].Cgroup, size)
	}
	return list
}

// onePercent returns one percent of the node's memory, in bytes.
func onePercent(b *testing.B) int {
	b.Helper()
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		b.Fatal(err)
	}
	return int(info.Totalram/100) * int(info.Unit)
}

// charge makes this process use memory that is charged to a cgroup.
func charge(b *testing.B, tree *nodetest.Tree, rel string, size int) {
	b.Helper()
	home, err := tree.Layout.OfPID(os.Getpid())
	if err != nil {
		b.Fatal(err)
	}
	enter := func(rel string) error {
		return os.WriteFile(filepath.Join(tree.Dir(rel), "cgroup.procs"), []byte("0"), 0)
	}
	if err := enter(rel); err != nil {
		b.Fatal(err)
	}
	memory, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS)
	if err == nil {
		for i := 0; i < size; i += os.Getpagesize() {
			memory[i] = 1
		}
	}
	if err := errors.Join(err, enter(home)); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = syscall.Munmap(memory) })
}

type benchRuntime struct{ inv inventory.Inventory }

func (r benchRuntime) Inventory(context.Context, time.Duration) inventory.Inventory { return r.inv }

type benchReclaimer struct{}

func (benchReclaimer) Reclaim(context.Context, policy.Met, policy.Layout, []inventory.Pod) eviction.ReliefJob {
	return eviction.Finished(eviction.Relief{})
}

// benchStops counts orders and stops nothing.
type benchStops int

func (s *benchStops) Stop(context.Context, eviction.StopOrder) eviction.StopJob {
	*s++
	return benchJob{}
}

// benchJob is a stop that never ends.
type benchJob struct{}

func (benchJob) Done() <-chan struct{}         { return nil }
func (benchJob) Escalate(bool, []string)       {}
func (benchJob) Discard(_, _ bool)             {}
func (benchJob) Outcome() eviction.StopOutcome { return eviction.StopOutcome{} }
