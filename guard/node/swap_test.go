package node

import (
	"errors"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
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

// While a swap device is switched off, the kernel says that the rest of it is full. That is no shortage, nor is it one a moment later.
func TestSwapoff(t *testing.T) {
	const mib = 1 << 20
	k := kernelOn(t, map[string]string{"cgroup.controllers": "memory\n"})
	for _, c := range []struct {
		at          time.Duration
		total, free int64 // MiB
		want        policy.Status
	}{
		{0, 512, 112, policy.OK},
		{time.Second, 512, 100, policy.OK}, // it is used
		{2 * time.Second, 400, 0, policy.Absent},
		{4 * time.Second, 400, 0, policy.Absent},
		{8 * time.Second, 360, 0, policy.Absent},
		{18*time.Second - 1, 360, 300, policy.Absent}, // another device is left
		{18 * time.Second, 360, 300, policy.OK},
		{19 * time.Second, 1024, 900, policy.OK},
		{20 * time.Second, 0, 0, policy.Absent},
		{30 * time.Second, 0, 0, policy.Absent}, // there is none
	} {
		var obs policy.Observations
		k.observeSwap(&obs, cgroup.MemInfo{SwapTotal: c.total * mib, SwapFree: c.free * mib}, time.Hour+c.at)
		if o := obs[policy.SwapAvailable]; o.Status != c.want || o.Status == policy.OK && o.Available != c.free*mib {
			t.Errorf("at %s: %+v", c.at, o)
		}
	}
	if err := k.Reason(policy.SwapAvailable); !errors.Is(err, errAbsent) {
		t.Errorf("without swap: %v", err)
	}
}
