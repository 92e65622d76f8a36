package eviction

import (
	"testing"
	"time"
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
