package node

import (
	"testing"

	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/trace"
	"github.com/criguard/criguard/policy"
)

// A pod's swap is read on both cgroup versions. If the kernel does not account swap, it is unknown rather
// than 0. An unlisted pod is measured the same way.
func TestMeasureSwap(t *testing.T) {
	v1 := func(stat string) map[string]string {
		return map[string]string{
			"memory/cgroup.procs": "", "memory/kubepods/poda/cgroup.procs": "",
			"memory/kubepods/poda/memory.usage_in_bytes": "1000\n", "memory/kubepods/poda/memory.stat": "total_inactive_file 0\n" + stat,
			"memory/kubepods/podnew/memory.usage_in_bytes": "600\n", "memory/kubepods/podnew/memory.stat": "total_inactive_file 0\n" + stat,
			"memory/kubepods/podnew/cgroup.procs": "1\n",
		}
	}
	v2 := func(swap string) map[string]string {
		files := map[string]string{
			"cgroup.controllers":           "memory\n",
			"kubepods/poda/memory.current": "1000\n", "kubepods/poda/memory.stat": "inactive_file 0\n",
			"kubepods/podnew/memory.current": "600\n", "kubepods/podnew/memory.stat": "inactive_file 0\n",
			"kubepods/podnew/cgroup.events": "populated 1\n",
		}
		if swap != "" {
			files["kubepods/poda/memory.swap.current"], files["kubepods/podnew/memory.swap.current"] = swap, swap
		}
		return files
	}
	for name, c := range map[string]struct {
		files                    map[string]string
		swap                     policy.Amount
		largest, stalled, memory int64 // of the unlisted pod
	}{
		"v1":                    {v1("total_swap 4000\n"), policy.Known(4000), 4600, 4600, 600},
		"v1 without accounting": {v1(""), policy.Amount{}, 600, 600, 600},
		"v2":                    {v2("4000\n"), policy.Known(4000), 4600, 4600, 600},
		"v2 without accounting": {v2(""), policy.Amount{}, 600, 600, 600},
	} {
		t.Run(name, func(t *testing.T) {
			k := kernelOn(t, c.files)
			pods := []inventory.Pod{ // podnew is not listed
				{Candidate: policy.Candidate{ID: "a"}, Cgroup: "/kubepods/poda", Containers: make([]inventory.Container, 1)},
				{Candidate: policy.Candidate{ID: "empty"}, Cgroup: "/kubepods/podempty"},
			}
			k.Track(pods)
			for s, want := range map[policy.Signal]int64{policy.SwapAvailable: c.largest, policy.MemoryStall: c.stalled, policy.MemoryAvailable: c.memory} {
				cs := inventory.Candidates(pods)
				k.Measure(cs)
				if largest, found := k.Unlisted(pods, s); largest != want || !found {
					t.Errorf("%s of a pod that was not listed: %d, %t; want %d", s, largest, found, want)
				}
				got := cs[0]
				if got.Swap.Known != c.swap.Known || got.Swap.Known && got.Swap != c.swap || got.Memory != policy.Known(1000) {
					t.Errorf("memory %+v, swap %+v; want %+v", got.Memory, got.Swap, c.swap)
				}
				if cs[1].Swap != policy.Known(0) {
					t.Errorf("a pod in which nothing runs has %+v in swap", cs[1].Swap)
				}
				line := trace.PodOf(&pods[0], &got, 0)
				if (line.SwapUsage != nil) != c.swap.Known || line.SwapUsage != nil && int64(*line.SwapUsage) != c.swap.Value {
					t.Errorf("recorded %v", line.SwapUsage)
				}
			}
			if unaccounted := k.noSwap.Load(); unaccounted != !c.swap.Known {
				t.Errorf("swap is unaccounted: %t", unaccounted)
			}
		})
	}
}
