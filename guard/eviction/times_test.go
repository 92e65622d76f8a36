package eviction

import (
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// The contract of decisions names these limits. Other tests use the constants, so only this one notices a change.
func TestTimesOfTheContract(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want time.Duration
	}{
		{"the charge of a victim has stopped falling", chargeStill, 50 * time.Millisecond},
		{"the files of a victim are deleted", diskEffectWait, 30 * time.Second},
		{"the files of a victim are deleted, while the filesystem rises", diskRisingWait, 10 * time.Minute},
		{"a sandbox whose stop killed nothing is no candidate", survivedPenalty, time.Minute},
		{"an episode ends", episodeGap, 30 * time.Second},
		{"a stop waits for a reclaim of memory, swap or PIDs at a hard threshold", hardReclaimWait, 150 * time.Millisecond},
		{"a stop waits for a reclaim of a disk, at least", minDiskReclaimWait, 2 * time.Second},
		{"a stop waits for a reclaim, at most", ReclaimTimeout, time.Minute},
		{"a stop of an earlier run is continued, except on a disk", takeOverWithin, 10 * time.Second},
		{"pods are sampled near a threshold", sampleNear, time.Second},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.name, c.got, c.want)
		}
	}
	if remeasureAtMost != 3 {
		t.Errorf("the pods are measured again %d times, want 3", remeasureAtMost)
	}
}

// A listing takes time, in which a leak goes on. Its rate is measured over that time, too, and so is the next one.
func TestRatesAfterASlowListing(t *testing.T) {
	const rate = 200 * testMiB // per second
	g, n := newManager(t, memoryHard)
	began := n.now
	leak := func(at time.Duration) {
		n.now = began + at
		grown := int64(at.Seconds() * rate)
		n.pods[1].Memory = policy.Known(testGiB + grown)
		n.set(policy.MemoryAvailable, 2*testGiB-grown)
	}
	n.onListing = func() { leak(n.now - began + 1500*time.Millisecond) }
	for _, at := range []time.Duration{0, 4 * time.Second, 5 * time.Second} {
		leak(at)
		g.Pass(t.Context(), "test")
	}
	n.foreign = 6 * testGiB // no pod is stopped in its place
	for _, at := range []time.Duration{6 * time.Second, 7600 * time.Millisecond} {
		leak(at)
		n.confirmed, n.sought = false, 0 // another one
		p := g.Pass(t.Context(), "test")
		if wantHeld(t, p, api.HeldUnlisted); p.Need == nil || p.Need.Fill < rate*9/10 || p.Need.Fill > rate*11/10 {
			t.Errorf("after %v: %+v, want a fill of %d", at, p.Need, rate)
		}
	}
}
