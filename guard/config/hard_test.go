package config

import (
	"strings"
	"testing"

	"github.com/criguard/criguard/policy"
)

// A threshold is new if its value is, or if nothing switches it off any more: it may then follow from another one.
func TestNewHardThresholds(t *testing.T) {
	known := HardThresholds{policy.MemoryAvailable: policy.Bytes(1 << 30), policy.ContainerFSAvailable: policy.Percent(10), policy.AllocatableMemoryAvailable: policy.Percent(0)}
	for name, c := range map[string]struct {
		other HardThresholds
		want  bool
	}{
		"the same, one of which follows from another": {HardThresholds{policy.MemoryAvailable: policy.Bytes(1 << 30), policy.AllocatableMemoryAvailable: policy.Percent(0)}, false},
		"another value":   {HardThresholds{policy.MemoryAvailable: policy.Bytes(2 << 30), policy.AllocatableMemoryAvailable: policy.Percent(0)}, true},
		"another signal":  {HardThresholds{policy.PIDAvailable: policy.Bytes(1), policy.AllocatableMemoryAvailable: policy.Percent(0)}, true},
		"one fewer":       {HardThresholds{policy.AllocatableMemoryAvailable: policy.Percent(0)}, false},
		"one more is off": {HardThresholds{policy.PIDAvailable: policy.Percent(0), policy.AllocatableMemoryAvailable: policy.Percent(0)}, false},
		"one is on again": {HardThresholds{policy.MemoryAvailable: policy.Bytes(1 << 30)}, true},
	} {
		if got := known.NewIn(c.other); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	lower := HardThresholds{policy.MemoryAvailable: policy.Bytes(2 << 30), policy.AllocatableMemoryAvailable: policy.Bytes(100 << 20)}
	if !lower.NewIn(HardThresholds{policy.MemoryAvailable: policy.Bytes(2 << 30)}) {
		t.Error("a threshold that follows from a higher one, without its own, is not new")
	}
}

// A threshold that was switched off was not in force, however it was switched off: not for its signal, and not for one that
// would have derived from it.
func TestHardThresholdsOff(t *testing.T) {
	for _, off := range []string{"0%", "100%"} {
		parse := func(value string) HardThresholds {
			c, err := Parse("test.toml", strings.NewReader("[eviction.hard]\n'memory.available' = '"+value+"'\n'nodefs.available' = '"+value+"'\n'imagefs.available' = '"+value+"'\n"))
			if err != nil {
				t.Fatal(err)
			}
			return c.Hard()
		}
		before := parse(off)
		if !before.NewIn(parse("50%")) || parse("50%").NewIn(before) || before.NewIn(before) {
			t.Errorf("%s: switching a threshold on is nothing new, or switching it off is", off)
		}
		for _, s := range []policy.Signal{policy.MemoryAvailable, policy.AllocatableMemoryAvailable, policy.ContainerFSAvailable} {
			if v, set := before.For(s, 1000); set {
				t.Errorf("%s: for %s, %s was in force", off, s, v)
			}
		}
	}
}

// What was in force for a signal counts, not that from which it may follow.
func TestHardThresholdOfASignal(t *testing.T) {
	h := HardThresholds{
		policy.NodeFSAvailable: policy.Percent(10), policy.ImageFSAvailable: policy.Percent(15), policy.ContainerFSAvailable: policy.Percent(10),
		policy.MemoryAvailable: policy.Bytes(1 << 30), policy.AllocatableMemoryAvailable: policy.Percent(0), policy.NodeFSInodesFree: policy.Percent(5),
	}
	for s, want := range map[policy.Signal]policy.Quantity{
		policy.ContainerFSAvailable: policy.Percent(10), policy.ContainerFSInodesFree: policy.Percent(5), policy.NodeFSAvailable: policy.Percent(10),
	} {
		if got, set := h.For(s, 1000); !set || got != want {
			t.Errorf("%s: %s, %t, want %s", s, got, set, want)
		}
	}
	for _, s := range []policy.Signal{policy.AllocatableMemoryAvailable, policy.PIDAvailable} {
		if got, set := h.For(s, 1000); set {
			t.Errorf("%s: %s", s, got)
		}
	}
}
