package node

import (
	"testing"

	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// The processes of a virtual machine (Kata) or of a kernel in user space (gVisor) are in the sandbox's cgroup, and use the
// pod's memory. In the pod's cgroup they are counted with it.
func TestMeasureTheSandbox(t *testing.T) {
	k := kernelOn(t, map[string]string{
		"cgroup.controllers":                   "memory\n",
		"k8s.io/kata_s1/memory.current":        "4000\n",
		"k8s.io/kata_s1/memory.stat":           "inactive_file 0\n",
		"kubepods/pod2/memory.current":         "3000\n",
		"kubepods/pod2/memory.stat":            "inactive_file 0\n",
		"kubepods/pod2/kata_s2/memory.current": "3000\n",
		"kubepods/pod2/kata_s2/memory.stat":    "inactive_file 0\n",
		"kubepods/pod3/memory.current":         "100\n",
		"kubepods/pod3/memory.stat":            "inactive_file 0\n",
		"kata_overhead/s3/memory.current":      "2000\n",
		"kata_overhead/s3/memory.stat":         "inactive_file 0\n",
	})
	c := func(rel string) []inventory.Container { return []inventory.Container{{ID: "c", Cgroup: rel}} }
	pods := []inventory.Pod{
		{Candidate: policy.Candidate{ID: "s1"}, Containers: c("/k8s.io/c"), SandboxCgroup: "/k8s.io/kata_s1"},
		{Candidate: policy.Candidate{ID: "s2"}, Containers: c("/kubepods/pod2/c"), Cgroup: "/kubepods/pod2", SandboxCgroup: "/kubepods/pod2/kata_s2"},
		{Candidate: policy.Candidate{ID: "s3"}, Containers: c("/kubepods/pod3/c"), Cgroup: "/kubepods/pod3", SandboxCgroup: "/kata_overhead/s3"},
	}
	k.Track(pods)
	cs := inventory.Candidates(pods)
	k.Measure(cs)
	for i, want := range []struct {
		memory int64
		apart  bool
	}{{4000, true}, {3000, false}, {2100, true}} {
		if cs[i].Memory != policy.Known(want.memory) || cs[i].Apart != want.apart {
			t.Errorf("%s: %+v, outside the pods cgroup: %t; want %+v", cs[i].ID, cs[i].Memory, cs[i].Apart, want)
		}
		if left := k.Remaining(pods[i], policy.PoolMemory); left.Value != want.memory {
			t.Errorf("%s still holds %+v", cs[i].ID, left)
		}
	}
}
