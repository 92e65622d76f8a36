package node

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/disk"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/guard/trace"
	"github.com/criguard/criguard/policy"
)

// Pods are listed more often while memory or PIDs are near a threshold. Many nodes have a disk near its
// threshold for months; it only makes every pass read the disks.
func TestArmTellsWhatIsNear(t *testing.T) {
	ts := []policy.Threshold{
		{Signal: policy.MemoryAvailable, Value: policy.Bytes(100)}, {Signal: policy.PIDAvailable, Value: policy.Percent(10)},
		{Signal: policy.NodeFSAvailable, Value: policy.Percent(10)}, {Signal: policy.NodeFSInodesFree, Value: policy.Bytes(100)},
	}
	const gib = 1 << 30
	for _, c := range []struct {
		signal              policy.Signal
		available, capacity int64
		status              policy.Status
		near                bool
		age                 time.Duration
	}{
		{policy.MemoryAvailable, 200, 1000, policy.OK, false, maxDiskAge},
		{policy.MemoryAvailable, 199, 1000, policy.OK, true, maxDiskAge},
		{policy.MemoryAvailable, 0, 1000, policy.Failed, false, maxDiskAge},
		{policy.PIDAvailable, 199, 1000, policy.OK, true, maxDiskAge},
		{policy.NodeFSAvailable, 200 * gib, 1000 * gib, policy.OK, false, maxDiskAge},
		{policy.NodeFSAvailable, 20 * gib, 100 * gib, policy.OK, false, 1250 * time.Millisecond}, // 10 GiB at 8 GiB/s
		{policy.NodeFSAvailable, 20*gib - 1, 100 * gib, policy.OK, false, 0},
		{policy.NodeFSInodesFree, 100 + 1<<20, 10 << 20, policy.OK, false, 500 * time.Millisecond},
		{policy.NodeFSInodesFree, 101, 1000, policy.OK, false, 0},
		{policy.NodeFSInodesFree, 0, 1000, policy.Failed, false, 0},
		{policy.NodeFSInodesFree, 0, 0, policy.Absent, false, maxDiskAge},
	} {
		k := Node{opt: Options{Disks: &disk.Watcher{}}}
		obs := policy.Observations{}
		obs[policy.NodeFSAvailable].Status, obs[policy.NodeFSInodesFree].Status = policy.Absent, policy.Absent
		obs[c.signal] = policy.Observation{Available: c.available, Capacity: c.capacity, Status: c.status}
		k.Arm(ts, &obs)
		if k.near.Load() != c.near {
			t.Errorf("%s of %d: %d available is near: %t", c.signal, c.capacity, c.available, !c.near)
		}
		if age := k.opt.Disks.MaxAge(); age != c.age {
			t.Errorf("%s of %d: %d available: disks are read after %s, want %s", c.signal, c.capacity, c.available, age, c.age)
		}
	}
}

// No threshold counts as near all the time, however large its target. A met threshold always counts.
func TestIsNear(t *testing.T) {
	for _, c := range []struct {
		signal    policy.Signal
		value     string
		capacity  int64
		available int64 // the smallest value that is not near
	}{
		{policy.MemoryAvailable, "100", 10_000, 200},
		{policy.MemoryAvailable, "10%", 1000, 200},
		{policy.MemoryAvailable, "30%", 1000, 400},
		{policy.SwapAvailable, "50%", 1000, 600},
		{policy.SwapAvailable, "90%", 1000, 1000},
		{policy.PIDAvailable, "20%", 1000, 300},
		{policy.NodeFSAvailable, "5%", 1000, 100},
		{policy.ImageFSAvailable, "15%", 1000, 250},
		{policy.MemoryStall, "80%", policy.StallCapacity, 900_000},
		{policy.MemoryStall, "40%", policy.StallCapacity, 700_000},
		{policy.IOStall, "99%", policy.StallCapacity, 995_000},
		{policy.IOStall, "100%", policy.StallCapacity, policy.StallCapacity},
	} {
		value, err := policy.ParseQuantity(c.value)
		if err != nil {
			t.Fatal(err)
		}
		threshold := policy.Threshold{Signal: c.signal, Value: value}
		near := func(available int64) bool {
			return isNear(threshold, policy.Observation{Available: available, Capacity: c.capacity, Status: policy.OK})
		}
		if near(c.available) || !near(c.available-1) {
			t.Errorf("%s %s of %d: %d is near: %t, one less: %t", c.signal, c.value, c.capacity, c.available, near(c.available), near(c.available-1))
		}
		if met := value.Of(c.capacity) - 1; !near(met) || !near(0) {
			t.Errorf("%s %s of %d: %d meets it and is not near", c.signal, c.value, c.capacity, met)
		}
	}
}

// kernelOn reads the cgroups in these files; /kubepods is the pods cgroup.
func kernelOn(t *testing.T, files map[string]string) *Node {
	t.Helper()
	layout, err := cgroup.Detect(cgroup.Root(nodetest.Files(t, files)), "/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	return kernelIn(t, layout, "/kubepods")
}

// kernelIn reads the cgroups in a layout; pods is the pods cgroup, "" = unknown.
func kernelIn(t *testing.T, layout cgroup.Layout, pods string) *Node {
	k := &Node{opt: Options{Layout: layout, Now: cgroup.BootTime, Meter: &disk.Meter{}}, tracker: cgroup.NewTracker(layout)}
	t.Cleanup(k.tracker.Close)
	if pods != "" {
		k.pods.Store(&pods)
	}
	return k
}

// Without the memory controller (cgroup_disable=memory) a pod's memory is unknown rather than 0. Its tasks
// are known, so a fork bomb is found.
func TestMeasureWithoutTheMemoryController(t *testing.T) {
	k := kernelOn(t, map[string]string{
		"cgroup.controllers":            "cpu pids\n",
		"kubepods/poda/pids.current":    "12\n",
		"kubepods/podnew/pids.current":  "34\n",
		"kubepods/podnew/cgroup.events": "populated 1\n",
	})
	pods := []inventory.Pod{
		{Candidate: policy.Candidate{ID: "a"}, Cgroup: "/kubepods/poda", Containers: make([]inventory.Container, 1)},
		{Candidate: policy.Candidate{ID: "gone"}, Cgroup: "/kubepods/podgone", Containers: make([]inventory.Container, 1)},
	}
	k.Track(pods)
	cs := []policy.Candidate{pods[0].Candidate, pods[1].Candidate}
	k.Measure(cs)
	if largest, found := k.Unlisted(pods, policy.PIDAvailable); largest != 34 || !found {
		t.Errorf("a pod that was not listed: %d tasks, %t; want 34", largest, found)
	}
	if cs[0].Memory.Known || cs[0].PIDs != policy.Known(12) {
		t.Errorf("memory %+v, tasks %+v; want memory that is not known, and 12 tasks", cs[0].Memory, cs[0].PIDs)
	}
	if cs[1].Memory != policy.Known(0) || cs[1].PIDs != policy.Known(0) {
		t.Errorf("a pod that is gone has memory %+v, tasks %+v", cs[1].Memory, cs[1].PIDs)
	}
	if largest, found := k.Unlisted(pods, policy.MemoryAvailable); largest != math.MaxInt64 || !found {
		t.Errorf("a pod that was not listed: %d bytes, %t; want that it may have any", largest, found)
	}
	if line := trace.PodOf(&pods[0], &cs[0], 0); line.NoStats == nil || *line.NoStats || line.PIDs == nil || line.MemoryUsage != nil {
		t.Errorf("trace %+v; want its tasks", line)
	}
}

// A pod outside the pods cgroup cannot relieve it, however large it is. crictl creates such a pod next to a
// kubelet's if it is given no cgroup parent.
func TestMeasureOutsideThePodsCgroup(t *testing.T) {
	k := kernelOn(t, map[string]string{
		"cgroup.controllers":                      "memory pids\n",
		"kubepods/besteffort/poda/memory.stat":    "inactive_file 0\n",
		"kubepods/besteffort/poda/memory.current": "100\n",
		"kubepods/besteffort/poda/pids.current":   "1\n",
		"kubepods2/c/memory.stat":                 "inactive_file 0\n",
		"kubepods2/c/memory.current":              "900\n",
		"kubepods2/c/pids.current":                "9\n",
	})
	pods := []inventory.Pod{
		{Candidate: policy.Candidate{ID: "inside"}, Cgroup: "/kubepods/besteffort/poda", Containers: make([]inventory.Container, 1)},
		{Candidate: policy.Candidate{ID: "outside"}, Containers: []inventory.Container{{ID: "c", Cgroup: "/kubepods2/c"}}},
	}
	k.Track(pods)
	for podsPIDs, outside := range map[bool]int64{false: 9, true: 0} { // whether the pods cgroup's task limit is closer than the node's
		k.podsPIDs.Store(podsPIDs)
		cs := []policy.Candidate{pods[0].Candidate, pods[1].Candidate}
		k.Measure(cs)
		if c := cs[0]; c.Apart || c.Memory != policy.Known(100) || c.PIDs != policy.Known(1) {
			t.Errorf("limit of the pods cgroup %t: the pod in it is apart %t, uses %+v and %+v", podsPIDs, c.Apart, c.Memory, c.PIDs)
		}
		if c := cs[1]; !c.Apart || c.Memory != policy.Known(900) || c.PIDs != policy.Known(outside) {
			t.Errorf("limit of the pods cgroup %t: the pod outside of it is apart %t, uses %+v and %+v, want %d tasks", podsPIDs, c.Apart, c.Memory, c.PIDs, outside)
		}
		cs[1].Memory.Value <<= 20
		for signal, want := range map[policy.Signal]string{policy.MemoryAvailable: "", policy.AllocatableMemoryAvailable: policy.ExcludedTooSmall} {
			ranked := policy.Rank(cs, signal, policy.SingleFS, nil)
			if r := ranked[slices.IndexFunc(ranked, func(r policy.Ranked) bool { return r.ID == "outside" })]; r.Excluded != want {
				t.Errorf("%s: the pod outside is excluded because of %q, want %q", signal, r.Excluded, want)
			}
		}
	}
}

// With memory.use_hierarchy off (v1 before linux 5.11, without systemd), a cgroup's memory is without that of the cgroups below
// it: a pod's own has none. A pod's memory is then that of its containers, and what all pods use is not known.
func TestMeasureWithoutHierarchy(t *testing.T) {
	for setting, want := range map[string]struct{ pod, left, unlisted int64 }{
		"0\n": {900, 900, math.MaxInt64},
		"1\n": {1000, 1000, 2000},
		"":    {1000, 1000, 2000},
	} {
		files := map[string]string{}
		for rel, memory := range map[string]string{
			"": "9000\n", "kubepods/": "3000\n", "kubepods/poda/": "1000\n", "kubepods/poda/c1/": "700\n", "kubepods/poda/c2/": "200\n", "kubepods/podnew/": "2000\n",
		} {
			files["memory/"+rel+"cgroup.procs"] = "1\n"
			files["memory/"+rel+"memory.usage_in_bytes"], files["memory/"+rel+"memory.limit_in_bytes"] = memory, "5000\n"
			files["memory/"+rel+"memory.stat"] = "total_inactive_file 0\ntotal_shmem 0\n"
			if setting != "" {
				files["memory/"+rel+"memory.use_hierarchy"] = setting
			}
		}
		k := kernelOn(t, files)
		proc := nodetest.Proc(t, 1<<30)
		layout, err := cgroup.Detect(cgroup.Root(k.opt.Layout.Root()), cgroup.Proc(proc))
		if err != nil {
			t.Fatal(err)
		}
		if k.node, err = cgroup.OpenNode(layout, "/kubepods"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(k.node.Close)
		pods := []inventory.Pod{{
			Candidate: policy.Candidate{ID: "a"}, Cgroup: "/kubepods/poda",
			Containers: []inventory.Container{{ID: "c1", Cgroup: "/kubepods/poda/c1"}, {ID: "c2", Cgroup: "/kubepods/poda/c2"}},
		}}
		k.Track(pods)
		cs := inventory.Candidates(pods)
		k.Measure(cs)
		left := k.Remaining(pods[0], policy.PoolMemory)
		if cs[0].Memory != policy.Known(want.pod) || left != policy.Known(want.left) || cs[0].Apart {
			t.Errorf("use_hierarchy %q: the pod uses %+v, holds %+v, is apart %t; want %+v", setting, cs[0].Memory, left, cs[0].Apart, want)
		}
		if largest, found := k.Unlisted(pods, policy.MemoryAvailable); largest != want.unlisted || !found {
			t.Errorf("use_hierarchy %q: an unlisted pod uses %d, found %t; want %d", setting, largest, found, want.unlisted)
		}
		off := setting == "0\n"
		nodetest.Write(t, layout.Dir("memory", "kubepods/poda/c3"), map[string]string{"cgroup.procs": "1\n"})
		if err := os.RemoveAll(layout.Dir("memory", "kubepods/podnew")); err != nil {
			t.Fatal(err)
		}
		if _, found := k.Unlisted(pods, policy.MemoryAvailable); found != off {
			t.Errorf("use_hierarchy %q: a container that was not listed is found: %t", setting, found)
		}
		var obs policy.Observations
		k.observeMemory(&obs, k.Now())
		if o := obs[policy.AllocatableMemoryAvailable]; k.PodsMemory().Known == off || (o.Status == policy.Absent) != off {
			t.Errorf("use_hierarchy %q: the pods cgroup uses %+v, signal %+v, %v", setting, k.PodsMemory(), o, k.Reason(policy.AllocatableMemoryAvailable))
		}
		if _, err := layout.SharedMemory("/kubepods/poda"); errors.Is(err, cgroup.ErrUnsupported) != off {
			t.Errorf("use_hierarchy %q: files in memory of the pod: %v", setting, err)
		}
	}
}

// Every pass that samples or ranks the pods measures all of them, and allocates nothing for it.
func TestMeasureAllocatesNothing(t *testing.T) {
	const rel = "/kubepods/besteffort/pod0f8fad5b-d9cb-469f-a165-70867728950e"
	k := kernelOn(t, map[string]string{
		"cgroup.controllers": "memory pids\n", rel + "/memory.stat": "inactive_file 0\n", rel + "/memory.current": "100\n", rel + "/pids.current": "1\n",
	})
	pods := []inventory.Pod{{Candidate: policy.Candidate{ID: "a"}, Cgroup: rel, Containers: make([]inventory.Container, 1)}}
	k.Track(pods)
	cs := inventory.Candidates(pods)
	if n := testing.AllocsPerRun(10, func() { k.Measure(cs) }); n != 0 || cs[0].Memory != policy.Known(100) {
		t.Errorf("%v allocations, %+v", n, cs[0].Memory)
	}
}

// A reclaim measures the pods while the loop observes the node. The race detector checks that.
func TestMeasureWhileObserving(t *testing.T) {
	layout, err := cgroup.Detect(cgroup.Root(nodetest.Files(t, map[string]string{
		"cgroup.controllers": "memory pids\n", "kubepods/pids.current": "9\n", "kubepods/pids.max": "10\n",
		"kubepods2/c/pids.current": "5\n",
	})), cgroup.Proc(nodetest.Proc(t, 4<<30)))
	if err != nil {
		t.Fatal(err)
	}
	k := kernelIn(t, layout, "/kubepods")
	if k.node, err = cgroup.OpenNode(layout, "/kubepods"); err != nil {
		t.Fatal(err)
	}
	defer k.node.Close()
	pods := []inventory.Pod{{Candidate: policy.Candidate{ID: "outside"}, Containers: []inventory.Container{{ID: "c", Cgroup: "/kubepods2/c"}}}}
	k.Track(pods)
	measured := make(chan struct{})
	go func() {
		defer close(measured)
		k.Measure(inventory.Candidates(pods))
	}()
	var obs policy.Observations
	k.observePIDs(&obs, k.Now())
	<-measured
	cs := inventory.Candidates(pods)
	if k.Measure(cs); obs[policy.PIDAvailable].Capacity != 10 || cs[0].PIDs != policy.Known(0) {
		t.Errorf("the pods cgroup has %+v left, the pod outside of it has %+v", obs[policy.PIDAvailable], cs[0].PIDs)
	}
}

// stalls returns a node, and a function that reads its stall signals at a time, when tasks have been stalled for so long.
func stalls(t *testing.T) (k *Node, see func(at, stalled time.Duration) policy.Observations) {
	t.Helper()
	proc := nodetest.Proc(t, 4<<30)
	layout, err := cgroup.Detect(cgroup.Root(nodetest.Files(t, map[string]string{"cgroup.controllers": "memory\n"})), cgroup.Proc(proc))
	if err != nil {
		t.Fatal(err)
	}
	k = kernelIn(t, layout, "")
	k.opt.StallWindow = 2 * time.Second
	if k.node, err = cgroup.OpenNode(layout, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.node.Close)
	return k, func(at, stalled time.Duration) (obs policy.Observations) {
		total := nodetest.Stall(int(stalled / time.Microsecond))
		nodetest.Write(t, proc, map[string]string{"pressure/memory": total, "pressure/io": total})
		k.observeStalls(&obs, at)
		return obs
	}
}

// A stall around a sleep of the machine is not spread over it.
func TestStallAroundASleep(t *testing.T) {
	k, see := stalls(t)
	see(0, 0)
	see(time.Second, time.Second)
	k.Slept(time.Hour)
	obs := see(time.Hour+2*time.Second, 2*time.Second)
	for _, s := range []policy.Signal{policy.MemoryStall, policy.IOStall} {
		if o := obs[s]; o.Status != policy.OK || o.Available != 0 {
			t.Errorf("%s: %+v; want all stalled", s, o)
		}
	}
}

// A stall from before a stop, which may have ended its cause, is no reason for the next one.
func TestForgetStalls(t *testing.T) {
	k, see := stalls(t)
	see(0, 0)
	if obs := see(2*time.Second, 2*time.Second); obs[policy.MemoryStall].Available != 0 {
		t.Errorf("before: %+v", obs[policy.MemoryStall])
	}
	k.ForgetStalls()
	for _, c := range []struct {
		at   time.Duration
		want policy.Status
	}{{2100 * time.Millisecond, policy.Absent}, {4 * time.Second, policy.Absent}, {4100 * time.Millisecond, policy.OK}} {
		o := see(c.at, 2*time.Second)[policy.MemoryStall]
		if o.Status != c.want || o.Status == policy.OK && o.Available != o.Capacity {
			t.Errorf("after %s: %+v", c.at, o)
		}
	}
}

// remainingPods returns a pod with a cgroup of its own, and one whose containers have one each.
func remainingPods() []inventory.Pod {
	return []inventory.Pod{
		{Candidate: policy.Candidate{ID: "a"}, Cgroup: "/kubepods/poda", Containers: make([]inventory.Container, 1)},
		{Candidate: policy.Candidate{ID: "b"}, Containers: []inventory.Container{{ID: "1", Cgroup: "/kubepods/c1"}, {ID: "2", Cgroup: "/kubepods/c2"}}},
	}
}

// A stopped pod still holds what its cgroups hold, without page cache in active use. A removed cgroup holds
// nothing, and what cannot be read is unknown. No listing and no tracking is needed for that.
func TestRemaining(t *testing.T) {
	files := map[string]string{"cgroup.controllers": "memory pids\n"}
	for rel, memory := range map[string]string{"poda": "1000\n", "c1": "300\n", "c2": "200\n"} {
		files["kubepods/"+rel+"/memory.stat"] = "inactive_file 0\nactive_file 100\n"
		files["kubepods/"+rel+"/memory.current"] = memory
		files["kubepods/"+rel+"/memory.swap.current"] = "7\n"
		files["kubepods/"+rel+"/pids.current"] = "3\n"
	}
	k := kernelOn(t, files)
	pods := remainingPods()
	gone := inventory.Pod{Cgroup: "/kubepods/podgone"}
	for _, c := range []struct {
		name string
		pod  inventory.Pod
		pool policy.Pool
		want policy.Amount
	}{
		{"memory", pods[0], policy.PoolMemory, policy.Known(900)},
		{"tasks", pods[0], policy.PoolPIDs, policy.Known(3)},
		{"memory of two cgroups", pods[1], policy.PoolMemory, policy.Known(300)},
		{"tasks of two cgroups", pods[1], policy.PoolPIDs, policy.Known(6)},
		{"a removed cgroup", gone, policy.PoolMemory, policy.Known(0)},
		{"a container without a known cgroup", inventory.Pod{Containers: make([]inventory.Container, 1)}, policy.PoolMemory, policy.Amount{}},
		{"no cgroup at all", inventory.Pod{}, policy.PoolMemory, policy.Amount{}},
	} {
		if got := k.Remaining(c.pod, c.pool); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// A pod's containers leave files in memory behind. These count while no container runs.
func TestMeasureBetweenTwoContainers(t *testing.T) {
	k := kernelOn(t, map[string]string{
		"cgroup.controllers": "memory pids\n", "kubepods/poda/memory.current": "1000\n", "kubepods/poda/memory.stat": "inactive_file 0\n",
	})
	for rel, want := range map[string]int64{"": 0, "/kubepods/poda": 1000, "/kubepods/podgone": 0} {
		pods := []inventory.Pod{{Candidate: policy.Candidate{ID: "a"}, IdleCgroup: rel}}
		k.Track(pods)
		cs := inventory.Candidates(pods)
		if k.Measure(cs); cs[0].Memory != policy.Known(want) {
			t.Errorf("cgroup %q: the pod uses %+v, want %d", rel, cs[0].Memory, want)
		}
	}
}

// In a container with a cgroup namespace of its own, no pod's cgroup is there. What the pods use is unknown then, rather than
// nothing. Once the cgroup of a pod or the pods cgroup was there, one that is not was removed.
func TestMeasureWithoutThePodsCgroups(t *testing.T) {
	files := map[string]string{"cgroup.controllers": "memory pids\n"}
	measure := func(k *Node, pods []inventory.Pod) (memory, left policy.Amount) {
		cs := inventory.Candidates(pods)
		k.Measure(cs)
		return cs[0].Memory, k.Remaining(pods[0], policy.PoolMemory)
	}
	for _, pods := range []string{"", "/kubepods"} {
		k := kernelOn(t, files)
		k.pods.Store(&pods)
		ps := remainingPods()
		k.Track(ps)
		if memory, left := measure(k, ps); memory.Known || left.Known {
			t.Errorf("pods cgroup %q, not visible: the pod uses %+v, and holds %+v", pods, memory, left)
		}
	}
	files["kubepods/cgroup.events"] = ""
	k, ps := kernelOn(t, files), remainingPods()
	k.Track(ps)
	if memory, left := measure(k, ps); memory != policy.Known(0) || left != policy.Known(0) {
		t.Errorf("the pods cgroup is there: the pod uses %+v, and holds %+v", memory, left)
	}
	dir := nodetest.Files(t, map[string]string{"cgroup.controllers": "memory\n", "kubepods/poda/memory.current": "9\n", "kubepods/poda/memory.stat": "inactive_file 0\n"})
	layout, err := cgroup.Detect(cgroup.Root(dir), "/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	k = kernelIn(t, layout, "")
	k.Track(ps)
	if err := os.RemoveAll(filepath.Join(dir, "kubepods")); err != nil {
		t.Fatal(err)
	}
	k.Track(ps)
	if memory, left := measure(k, ps); memory != policy.Known(0) || left != policy.Known(0) {
		t.Errorf("the pod's cgroup was there: the pod uses %+v, and holds %+v", memory, left)
	}
}

// A stop gives back a pod's working set without its page cache in active use, on both cgroup versions, and on v2 without its
// dentries and inodes.
func TestMeasureActiveFile(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"v1": {
			"memory/cgroup.procs": "", "memory/kubepods/poda/cgroup.procs": "", "memory/kubepods/poda/memory.usage_in_bytes": "1000\n",
			"memory/kubepods/poda/memory.stat": "active_file 1\ntotal_inactive_file 200\ntotal_active_file 300\n",
		},
		"v2": {
			"cgroup.controllers": "memory\n", "kubepods/poda/memory.current": "1000\n",
			"kubepods/poda/memory.stat": "inactive_file 200\nactive_file 250\nslab_reclaimable 50\n",
		},
	} {
		k := kernelOn(t, files)
		pods := remainingPods()[:1]
		k.Track(pods)
		cs := inventory.Candidates(pods)
		k.Measure(cs)
		if c := cs[0]; c.Memory != policy.Known(800) || c.ActiveFile != 300 {
			t.Errorf("%s: memory %+v, active file %d; want 800 and 300", name, c.Memory, c.ActiveFile)
		}
		if line := trace.PodOf(&pods[0], &cs[0], 0); line.MemoryFile == nil || *line.MemoryFile != 300 {
			t.Errorf("%s: a trace has %+v", name, line)
		}
	}
}

// The wait for a stall takes a window. It takes no time if the window does not fit, and ends with its context.
func TestAwaitStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{opt: Options{StallWindow: 2 * time.Second}}
		for _, c := range []struct {
			limit, cancelled, took time.Duration
			full                   bool
		}{
			{3 * time.Second, time.Hour, 2 * time.Second, true},
			{3 * time.Second, time.Second, time.Second, false},
			{time.Second, time.Hour, 0, false},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), c.limit)
			time.AfterFunc(c.cancelled, cancel)
			start := time.Now()
			full := n.AwaitStalls(ctx)
			if took := time.Since(start); full != c.full || took != c.took {
				t.Errorf("%+v: %t after %s", c, full, took)
			}
		}
	})
}

// A balloon takes memory from a virtual machine. The kubelet still derives oom_score_adj from what the node had when it started, as the
// limit of the pods cgroup shows.
func TestCapacityInABalloon(t *testing.T) {
	for limit, want := range map[string]int64{"8589934592\n": 8 << 30, "max\n": 4 << 30, "3221225472\n": 4 << 30} {
		layout, err := cgroup.Detect(cgroup.Root(nodetest.Files(t, map[string]string{
			"cgroup.controllers": "memory\n", "kubepods/memory.current": "1000\n", "kubepods/memory.stat": "inactive_file 0\n", "kubepods/memory.max": limit,
		})), cgroup.Proc(nodetest.Proc(t, 4<<30)))
		if err != nil {
			t.Fatal(err)
		}
		k, err := Open(Options{Layout: layout, PodsCgroup: "/kubepods", Now: cgroup.BootTime, Meter: &disk.Meter{}})
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		if k.Capacity() != want {
			t.Errorf("limit %q: at the start %d bytes, want %d", limit, k.Capacity(), want)
		}
		k.capacity.Store(0)
		var obs policy.Observations
		if k.observeMemory(&obs, k.Now()); k.Capacity() != want {
			t.Errorf("limit %q: %d bytes, want %d", limit, k.Capacity(), want)
		}
	}
}
