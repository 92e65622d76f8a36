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

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/policy"
)

// BenchmarkPass is a whole pass over real cgroups: idle, and pressed, which measures and
// ranks every sandbox and begins a stop.
func BenchmarkPass(b *testing.B) {
	for _, pods := range []int{10, 110, 500, 1000} {
		b.Run(fmt.Sprintf("idle/%d", pods), func(b *testing.B) {
			g, _ := benchGuard(b, pods, "1Mi")
			b.ReportAllocs()
			for b.Loop() {
				if p := g.Pass(b.Context(), "timer"); p.Stop != nil {
					b.Fatal("stopped something")
				}
			}
		})
	}
	for _, pods := range []int{10, 110, 500, 1000} {
		b.Run(fmt.Sprintf("pressed/%d", pods), func(b *testing.B) {
			g, stops := benchGuard(b, pods, "99.99%")
			b.ReportAllocs()
			for b.Loop() {
				p := g.Pass(b.Context(), "memcg")
				if p.Stop == nil {
					b.Fatalf("stopped nothing: held by %q", p.Held)
				}
				*stops = 0
				g.flights = nil
			}
		})
	}
}

// benchGuard guards this node with so many pods in cgroups of their own.
func benchGuard(b *testing.B, pods int, threshold string) (g *Guard, stops *benchStops) {
	b.Helper()
	if os.Geteuid() != 0 {
		b.Skip("needs root, for cgroups")
	}
	cfg := DefaultConfig()
	q, err := policy.ParseQuantity(threshold)
	if err != nil {
		b.Fatal(err)
	}
	cfg.Eviction.Thresholds = []policy.Threshold{{Signal: policy.MemoryAvailable, Kind: policy.Hard, Value: q}}
	cfg.Budget, cfg.Backoff = cfg.Budget.Off(), cfg.Backoff.Off()
	layout, err := cgroup.Detect("/sys/fs/cgroup", "/proc")
	if err != nil {
		b.Fatal(err)
	}
	root := fmt.Sprintf("/criguard-bench-%d/kubepods", os.Getpid())
	inv := Inventory{Pods: benchPods(b, layout, root, pods)}
	reader, err := cgroup.OpenNode(layout, root)
	if err != nil {
		b.Fatal(err)
	}
	k := &nodeKernel{layout: layout, node: reader, tracker: cgroup.NewTracker(layout), disks: newDiskReader(b.TempDir())}
	k.pods.Store(&root)
	k.meter = &diskMeter{now: k.Now}
	k.window.Store(int64(cfg.Eviction.StallWindow))
	b.Cleanup(func() { k.tracker.Close(); reader.Close(); k.disks.close() })
	k.Track(inv.Pods)
	stops = new(benchStops)
	return New(cfg, k, benchRuntime{inv}, benchReclaimer{}, stops, policy.NewRestraint("boot")), stops
}

// benchPods makes a cgroup for each pod and its container and charges a page to each, and to
// the first as much of the node as makes its stop worth while, whatever is missing.
func benchPods(b *testing.B, layout cgroup.Layout, root string, pods int) []Pod {
	b.Helper()
	var dirs []string
	mkdir := func(rel string) {
		dir := layout.Dir("memory", rel)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Skipf("needs CAP_SYS_ADMIN, without which cgroups are read only: %v", err)
		}
		dirs = append(dirs, dir)
	}
	b.Cleanup(func() {
		for len(dirs) > 0 {
			last := dirs[len(dirs)-1]
			dirs = dirs[:len(dirs)-1]
			if err := os.Remove(last); err != nil {
				b.Error(err)
			}
		}
	})
	mkdir(path.Dir(root))
	mkdir(root)
	mkdir(path.Join(root, "besteffort"))
	mkdir(path.Join(root, "burstable"))
	list := make([]Pod, pods)
	for i := range list {
		class := []string{"besteffort", "burstable"}[i%2]
		p := &list[i]
		p.ID, p.UID = fmt.Sprintf("sandbox-%d", i), fmt.Sprintf("uid-%d", i)
		p.Namespace, p.Name = "default", fmt.Sprintf("pod-%d", i)
		p.Workload = policy.Workload(p.Namespace, p.Name, nil)
		p.Cgroup = path.Join(root, class, "pod"+p.UID)
		p.Containers = []PodContainer{{ID: p.ID + "-main", Name: "main", Cgroup: path.Join(p.Cgroup, "main"), Running: true}}
		mkdir(p.Cgroup)
		mkdir(p.Containers[0].Cgroup)
		size := os.Getpagesize()
		if i == 0 {
			size = onePercent(b)
		}
		charge(b, layout, p.Containers[0].Cgroup, size)
	}
	return list
}

// onePercent is as much of the node's memory, in bytes.
func onePercent(b *testing.B) int {
	b.Helper()
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		b.Fatal(err)
	}
	return int(info.Totalram/100) * int(info.Unit)
}

// charge has this process use memory on a cgroup's account.
func charge(b *testing.B, layout cgroup.Layout, rel string, size int) {
	b.Helper()
	home, err := layout.OfPID(os.Getpid())
	if err != nil {
		b.Fatal(err)
	}
	enter := func(rel string) error {
		return os.WriteFile(filepath.Join(layout.Dir("memory", rel), "cgroup.procs"), []byte("0"), 0)
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

type benchRuntime struct{ inv Inventory }

func (r benchRuntime) Inventory(context.Context, bool) Inventory { return r.inv }

type benchReclaimer struct{}

func (benchReclaimer) Reclaim(context.Context, policy.Met, policy.Layout, []Pod) ReliefJob {
	return finishedRelief{}
}

// benchStops takes orders and stops nobody.
type benchStops int

func (s *benchStops) Stop(context.Context, StopOrder) StopJob {
	*s++
	return &fakeStop{}
}
