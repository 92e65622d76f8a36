package eviction

import (
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

const swapHard = "[eviction.hard]\n\"memory.available\" = \"0%\"\n\"swap.available\" = \"1Gi\"\n"

// While memory is short, too, the pod that takes most of memory and swap is stopped for swap. Without that, none is:
// what is in swap may stay there.
func TestPassStopsForSwap(t *testing.T) {
	g, n := newManager(t, swapHard)
	n.pods = nil
	for _, name := range []string{"web1", "web2", "web3"} {
		p := testPod(name, testGiB)
		p.Swap = policy.Known(0)
		n.pods = append(n.pods, p)
	}
	leaky := testPod("leaky", 50<<20)
	leaky.Swap = policy.Known(14 * testGiB / 5)
	n.pods = append(n.pods, leaky)
	n.set(policy.SwapAvailable, testGiB/2)
	n.set(policy.MeminfoAvailable, 16*testGiB/5) // a fifth
	wantHeld(t, n.at(g, 0), api.HeldStallFloor)
	if d := g.Pause(); d != heldPause {
		t.Errorf("the loop sleeps for %v, although memory may become short", d)
	}
	n.set(policy.MeminfoAvailable, 2*testGiB)
	n.pods[3].Swap = policy.Known(4 * testGiB)
	p := n.at(g, time.Second)
	if p.Stop == nil || p.Stop.Pod != "d/leaky" || p.Stop.Expected != 4*testGiB+50<<20 || !n.stops[0].order.Direct {
		t.Fatalf("%+v, held by %q", p.Stop, p.Held)
	}
	if p.Ranked[0].Usage != 4*testGiB+50<<20 {
		t.Errorf("%+v", p.Ranked[0])
	}
	n.kill(n.stops[0])
	n.remains["leaky"] = policy.Known(50 << 20)
	if p := n.at(g, 2*time.Second); p.Held != api.HeldInFlight || len(p.Settled) != 0 {
		t.Errorf("settled %+v, held by %q", p.Settled, p.Held)
	}
	n.remains["leaky"], n.pods = policy.Known(0), n.pods[:3]
	n.set(policy.SwapAvailable, 4*testGiB)
	if p := n.at(g, 3*time.Second); len(p.Settled) != 1 || !p.Settled[0].Helped() {
		t.Errorf("all is back: settled %+v", p.Settled)
	}
}

// SwapNote says that pods are ranked by memory only if the kernel does not account their swap.
func TestSwapNote(t *testing.T) {
	g, _ := newManager(t, swapHard)
	g.thresholds = g.cfg.Eviction.Thresholds
	if note := g.SwapNote(true); note != "" {
		t.Errorf("without swap: %q", note)
	}
	g.obs[policy.SwapAvailable] = policy.ObserveSpace(1, 2, 0)
	for _, unaccounted := range []bool{false, true} {
		if note := g.SwapNote(unaccounted); (note != "") != unaccounted {
			t.Errorf("unaccounted %t: %q", unaccounted, note)
		}
	}
}

// The reason for stopping a Guaranteed pod does not claim that it is above its request.
func TestReasonOfGuaranteed(t *testing.T) {
	r := policy.Rank([]policy.Candidate{{ID: "a", Namespace: "d", Name: "a", QoS: policy.Guaranteed, Memory: policy.Known(6 << 30)}},
		policy.MemoryAvailable, policy.SingleFS, nil)
	d := policy.Decision{Met: policy.Met{Threshold: policy.Threshold{Signal: policy.MemoryAvailable}}, Victim: &r[0]}
	if why := reason(&d, 0); !strings.Contains(why, "over_request=no") {
		t.Errorf("reason %q", why)
	}
}

// A hard threshold of swap that can wait keeps no soft threshold of memory waiting.
func TestSwapThatCanWait(t *testing.T) {
	g, n := newManager(t, "[eviction.hard]\n\"memory.available\" = \"0%\"\n\"swap.available\" = \"1Gi\"\n[eviction.soft]\n\"memory.available\" = \"3Gi\"\n[eviction.soft_grace_period]\n\"memory.available\" = \"2s\"\n")
	for _, s := range []policy.Signal{policy.MemoryAvailable, policy.MeminfoAvailable} {
		n.set(s, 2*testGiB)
	}
	n.set(policy.SwapAvailable, testGiB/2)
	wantHeld(t, n.at(g, 0), api.HeldRecovers)
	if p := n.at(g, 2*time.Second); p.Stop == nil || p.Stop.Signal != "memory.available" || p.Stop.Kind != "soft" {
		t.Errorf("%+v, held by %q", p.Stop, p.Held)
	}
	for _, s := range []policy.Signal{policy.MemoryAvailable, policy.MeminfoAvailable} {
		n.set(s, 3*testGiB+testMiB) // it is being freed, but a floor above is not reached
	}
	wantHeld(t, n.at(g, 3*time.Second), api.HeldInFlight)
	if n.stops[0].escalated != 0 {
		t.Error("the pod did not get its grace period")
	}
}
