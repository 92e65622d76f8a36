package guard

import (
	"math"
	"testing"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/policy"
)

// Where memory or PIDs come near a threshold, pods are listed more often; a disk is near
// its own on many a node for months, and is read with each look then.
func TestArmTellsWhatIsNear(t *testing.T) {
	hard := map[string]string{"memory.available": "100", "pid.available": "10%", "nodefs.available": "100", "nodefs.inodesFree": "100"}
	ts, err := policy.ParseThresholds(hard, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		signal    policy.Signal
		available int64
		status    policy.Status
		near      bool
		calm      bool
	}{
		{policy.MemoryAvailable, 200, policy.OK, false, true},
		{policy.MemoryAvailable, 199, policy.OK, true, true},
		{policy.MemoryAvailable, 0, policy.Failed, false, true},
		{policy.PIDAvailable, 199, policy.OK, true, true},
		{policy.NodeFSAvailable, 200, policy.OK, false, true},
		{policy.NodeFSAvailable, 199, policy.OK, false, false},
		{policy.NodeFSInodesFree, 101, policy.OK, false, false},
		{policy.NodeFSInodesFree, 0, policy.Failed, false, false},
	} {
		k := nodeKernel{disks: &diskReader{}}
		var obs policy.Observations
		obs[c.signal] = policy.Observation{Available: c.available, Capacity: 1000, Status: c.status}
		k.Arm(ts, &obs)
		if k.near.Load() != c.near {
			t.Errorf("%s of 1000: %d available is near: %t", c.signal, c.available, !c.near)
		}
		if k.disks.calm != c.calm {
			t.Errorf("%s of 1000: %d available is calm: %t", c.signal, c.available, !c.calm)
		}
	}
}

// No threshold is near for good, however much it wants; one that is met always is.
func TestIsNear(t *testing.T) {
	for _, c := range []struct {
		signal    policy.Signal
		value     string
		capacity  int64
		available int64 // the least that is not near
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

// kernelOn reads cgroups of these files, of which /kubepods is the pods'.
func kernelOn(t *testing.T, files map[string]string) *nodeKernel {
	t.Helper()
	layout, err := cgroup.Detect(cgroup.Root(effectFiles(t, files)), "/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	k := &nodeKernel{layout: layout, tracker: cgroup.NewTracker(layout), meter: &diskMeter{}}
	t.Cleanup(k.tracker.Close)
	kubepods := "/kubepods"
	k.pods.Store(&kubepods)
	return k
}

// Without the memory controller (cgroup_disable=memory) a pod's memory is not known, which
// is not none, and its tasks are, so that a fork bomb is found.
func TestMeasureWithoutTheMemoryController(t *testing.T) {
	k := kernelOn(t, map[string]string{
		"cgroup.controllers":            "cpu pids\n",
		"kubepods/poda/pids.current":    "12\n",
		"kubepods/podnew/pids.current":  "34\n",
		"kubepods/podnew/cgroup.events": "populated 1\n",
	})
	pods := []Pod{
		{Candidate: policy.Candidate{ID: "a"}, Cgroup: "/kubepods/poda", Containers: make([]PodContainer, 1)},
		{Candidate: policy.Candidate{ID: "gone"}, Cgroup: "/kubepods/podgone", Containers: make([]PodContainer, 1)},
	}
	k.Track(pods)
	cs := []policy.Candidate{pods[0].Candidate, pods[1].Candidate}
	if largest, found := k.Measure(cs, pods, policy.PIDAvailable); largest != 34 || !found {
		t.Errorf("a pod that was not listed: %d tasks, %t; want 34", largest, found)
	}
	if cs[0].Uncounted || cs[1].Uncounted {
		t.Error("tasks are counted")
	}
	if k.Measure(cs, pods, policy.MemoryAvailable); !cs[0].Uncounted || cs[1].Uncounted {
		t.Errorf("memory is not counted: %v, and %v of a pod that is gone", cs[0].Uncounted, cs[1].Uncounted)
	}
	if cs[0].Memory.Known || cs[0].PIDs != policy.Known(12) {
		t.Errorf("memory %+v, tasks %+v; want memory that is not known, and 12 tasks", cs[0].Memory, cs[0].PIDs)
	}
	if cs[1].Memory != policy.Known(0) || cs[1].PIDs != policy.Known(0) {
		t.Errorf("a pod that is gone has memory %+v, tasks %+v", cs[1].Memory, cs[1].PIDs)
	}
	if largest, found := k.Measure(cs, pods, policy.MemoryAvailable); largest != math.MaxInt64 || !found {
		t.Errorf("a pod that was not listed: %d bytes, %t; want that it may have any", largest, found)
	}
	if line := tracePod(&pods[0], &cs[0], 0); line.NoStats == nil || *line.NoStats || line.PIDs == nil || line.MemoryUsage != nil {
		t.Errorf("trace %+v; want its tasks", line)
	}
}

// What the pods cgroup lacks, a pod outside of it cannot give back, however large it is: one
// that crictl made without a cgroup parent, beside a kubelet's.
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
	pods := []Pod{
		{Candidate: policy.Candidate{ID: "inside"}, Cgroup: "/kubepods/besteffort/poda", Containers: make([]PodContainer, 1)},
		{Candidate: policy.Candidate{ID: "outside"}, Containers: []PodContainer{{ID: "c", Cgroup: "/kubepods2/c"}}},
	}
	k.Track(pods)
	for _, c := range []struct {
		signal   policy.Signal
		podsPIDs bool // the pods cgroup's limit of tasks is nearer than the node's
		outside  int64
	}{
		{policy.MemoryAvailable, true, 900},
		{policy.AllocatableMemoryAvailable, false, 0},
		{policy.PIDAvailable, false, 9},
		{policy.PIDAvailable, true, 0},
	} {
		k.podsPIDs = c.podsPIDs
		cs := []policy.Candidate{pods[0].Candidate, pods[1].Candidate}
		k.Measure(cs, pods, c.signal)
		used := func(c policy.Candidate, s policy.Signal) policy.Amount {
			if s == policy.PIDAvailable {
				return c.PIDs
			}
			return c.Memory
		}
		if got := used(cs[1], c.signal); got != policy.Known(c.outside) {
			t.Errorf("%s, of the pods cgroup's tasks %t: the pod outside of it uses %+v, want %d", c.signal, c.podsPIDs, got, c.outside)
		}
		if got := used(cs[0], c.signal); !got.Known || got.Value == 0 {
			t.Errorf("%s, of the pods cgroup's tasks %t: the pod in it uses %+v", c.signal, c.podsPIDs, got)
		}
	}
}
