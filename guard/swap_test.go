package guard

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/policy"
)

// swapTree is a node with cgroups of these files, of which poda is listed and podnew is not.
func swapTree(t *testing.T, files map[string]string) (*nodeKernel, []Pod) {
	t.Helper()
	k := kernelOn(t, files)
	pods := []Pod{
		{Candidate: policy.Candidate{ID: "a"}, Cgroup: "/kubepods/poda", Containers: make([]PodContainer, 1)},
		{Candidate: policy.Candidate{ID: "empty"}, Cgroup: "/kubepods/podempty"},
	}
	k.Track(pods)
	return k, pods
}

// What a pod has in swap is read on either version, and where the kernel accounts none it
// is not known, which is not none. A pod that was not listed is measured by the same.
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
		largest, stalled, memory int64 // of the pod that was not listed
	}{
		"v1":                    {v1("total_swap 4000\n"), policy.Known(4000), 4000, 4600, 600},
		"v1 without accounting": {v1(""), policy.Amount{}, 600, 600, 600},
		"v2":                    {v2("4000\n"), policy.Known(4000), 4000, 4600, 600},
		"v2 without accounting": {v2(""), policy.Amount{}, 600, 600, 600},
	} {
		t.Run(name, func(t *testing.T) {
			k, pods := swapTree(t, c.files)
			for s, want := range map[policy.Signal]int64{policy.SwapAvailable: c.largest, policy.MemoryStall: c.stalled, policy.MemoryAvailable: c.memory} {
				cs := candidates(pods)
				if largest, found := k.Measure(cs, pods, s); largest != want || !found {
					t.Errorf("%s of a pod that was not listed: %d, %t; want %d", s, largest, found, want)
				}
				got := cs[0]
				if got.Swap.Known != c.swap.Known || got.Swap.Known && got.Swap != c.swap || got.Memory != policy.Known(1000) {
					t.Errorf("memory %+v, swap %+v; want %+v", got.Memory, got.Swap, c.swap)
				}
				if cs[1].Swap != policy.Known(0) {
					t.Errorf("a pod in which nothing runs has %+v in swap", cs[1].Swap)
				}
				line := tracePod(&pods[0], &got, 0)
				if (line.SwapUsage != nil) != c.swap.Known || line.SwapUsage != nil && int64(*line.SwapUsage) != c.swap.Value {
					t.Errorf("recorded %v", line.SwapUsage)
				}
			}
			g, _ := newPassGuard(t, swapHard)
			g.thresholds = g.cfg.Eviction.Thresholds
			if note := g.swapNote(k); note != "" {
				t.Errorf("without swap: %q", note)
			}
			g.obs[policy.SwapAvailable] = policy.ObserveSpace(1, 2, 0)
			if note := g.swapNote(k); (note == "") != c.swap.Known {
				t.Errorf("status says %q", note)
			}
		})
	}
}

const swapHard = "[eviction.hard]\n\"memory.available\" = \"0%\"\n\"swap.available\" = \"1Gi\"\n"

// The pod that is in the swap goes, and its swap is waited for: memory that came back is
// not what was expected.
func TestPassStopsWhoIsInSwap(t *testing.T) {
	g, n := newPassGuard(t, swapHard)
	n.pods = nil
	for _, name := range []string{"web1", "web2", "web3"} {
		p := testPod(name, testGiB)
		p.Swap = policy.Known(0)
		n.pods = append(n.pods, p)
	}
	leaky := testPod("leaky", 50<<20)
	leaky.Swap = policy.Known(4 * testGiB)
	n.pods = append(n.pods, leaky)
	n.set(policy.SwapAvailable, testGiB/2)
	p := n.at(g, 0)
	if p.Stop == nil || p.Stop.Pod != "d/leaky" || p.Stop.Expected != 4*testGiB || !n.stops[0].order.Direct {
		t.Fatalf("%+v, held by %q", p.Stop, p.Held)
	}
	if p.Ranked[0].Usage != 4*testGiB || p.Ranked[0].ByMemory || !strings.HasSuffix(p.Stop.Reason, "usage=4Gi") {
		t.Errorf("%+v, %q", p.Ranked[0], p.Stop.Reason)
	}
	n.end(n.stops[0])
	n.set(policy.SwapAvailable, testGiB/2+50<<20) // as much as it had of memory
	if p := n.at(g, time.Second); p.Held != HeldInFlight || len(p.Settled) != 0 {
		t.Errorf("50 MiB back: settled %+v, held by %q", p.Settled, p.Held)
	}
	n.set(policy.SwapAvailable, 4*testGiB)
	if p := n.at(g, 2*time.Second); len(p.Settled) != 1 || !p.Settled[0].Result.Moved {
		t.Errorf("all is back: settled %+v", p.Settled)
	}
	n.set(policy.SwapAvailable, 0)
	if p := n.at(g, time.Minute); p.Stop != nil || p.Held != HeldNoCandidate {
		t.Errorf("full of what is no pod's: %+v, held by %q", p.Stop, p.Held)
	}
}

// What a trace tells of swap ranks; one that tells nothing of it is simulated by memory.
func TestSimulateSwap(t *testing.T) {
	line := func(web, leaky string) string {
		return `{"at":"0s","signals":{"swap.available":{"available":"100Mi","capacity":"4Gi"}},"pods":[` +
			`{"name":"d/web","memory_usage":"1Gi"` + web + `},{"name":"d/leaky","memory_usage":"50Mi"` + leaky + `}]}`
	}
	later := `{"at":"1s","pods":[{"name":"d/web"},{"name":"d/leaky"}]}`
	got := simulate(t, swapHard, SimulateOptions{}, line(`,"swap_usage":"0"`, `,"swap_usage":"3Gi"`))
	if stopOf(got[0]) != "d/leaky hard" || strings.Contains(got[0].Stop.Reason, ByMemory) {
		t.Errorf("%+v", got[0].Stop)
	}
	got = simulate(t, swapHard, SimulateOptions{}, line(`,"swap_usage":"2Gi","protected":true`, `,"swap_usage":"0"`), later)
	if got[1].Stop != nil || got[1].Held != HeldProtected {
		t.Errorf("what a line leaves out: %+v, held by %q", got[1].Stop, got[1].Held)
	}
	got = simulate(t, swapHard, SimulateOptions{}, line("", ""))
	if stopOf(got[0]) != "d/web hard" || !strings.HasSuffix(got[0].Stop.Reason, ByMemory) {
		t.Errorf("without: %+v", got[0].Stop)
	}
}

// To reclaim memory for swap would fill it; for a stall no more is asked of a pod than
// what it has in memory.
func TestSwapReclaimsNoMemory(t *testing.T) {
	cfg := goodConfig(t, "eviction.memory_reclaim = true")
	for s, want := range map[policy.Signal]int{policy.SwapAvailable: 0, policy.MemoryAvailable: 1, policy.MemoryStall: 1} {
		if got := cfg.steps(s, policy.SingleFS); len(got) != want {
			t.Errorf("%s reclaims by %v", s, got)
		}
	}
	k, pods := swapTree(t, map[string]string{
		"cgroup.controllers":           "memory\n",
		"kubepods/poda/memory.current": "1000\n", "kubepods/poda/memory.stat": "inactive_file 0\n", "kubepods/poda/memory.swap.current": "4000\n",
	})
	r := &reclaimer{node: &node{kernel: k}}
	met := policy.Met{Threshold: policy.Threshold{Signal: policy.MemoryStall}, Deficit: math.MaxInt64}
	if got := r.memoryTargets(cfg, met, pods); len(got) != 1 || got[0].Bytes != 1000 {
		t.Errorf("targets %+v", got)
	}
}
