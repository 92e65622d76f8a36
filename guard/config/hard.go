package config

import (
	"slices"

	"github.com/criguard/criguard/policy"
)

// HardThresholds are hard thresholds by signal. 0 means that it is switched off by name, so that it does not derive from
// another one either.
type HardThresholds map[policy.Signal]policy.Quantity

// Hard returns the hard thresholds for which the configuration stops pods.
func (c *Config) Hard() HardThresholds { return c.HardOf(c.Eviction.Thresholds) }

// HardOf does the same for thresholds to which those are added that follow from others.
func (c *Config) HardOf(thresholds []policy.Threshold) HardThresholds {
	all := HardThresholds{}
	for _, t := range slices.Concat(c.Eviction.Off, thresholds) {
		if t.Kind == policy.Hard && c.Mode != ModeObserve {
			all[t.Signal] = t.Value
		}
	}
	return all
}

// NewIn reports whether other thresholds have one that these have not, or switch one on that these switch off.
func (h HardThresholds) NewIn(other HardThresholds) bool {
	for s, v := range other {
		if old, set := h[s]; !v.IsZero() && (!set || old != v) {
			return true
		}
	}
	for s, old := range h {
		if _, is := other[s]; !is && old.IsZero() {
			return true
		}
	}
	return false
}

// For returns the threshold of a signal or, if that is not known, the highest of those from which it may derive.
func (h HardThresholds) For(s policy.Signal, capacity int64) (highest policy.Quantity, set bool) {
	if v, is := h[s]; is {
		return v, !v.IsZero()
	}
	from := []policy.Signal{s}
	switch s {
	case policy.AllocatableMemoryAvailable:
		from = append(from, policy.MemoryAvailable)
	case policy.ContainerFSAvailable:
		from = append(from, policy.NodeFSAvailable, policy.ImageFSAvailable)
	case policy.ContainerFSInodesFree:
		from = append(from, policy.NodeFSInodesFree, policy.ImageFSInodesFree)
	}
	for _, s := range from {
		if v, is := h[s]; is && (!set || v.Of(capacity) > highest.Of(capacity)) {
			highest, set = v, true
		}
	}
	return highest, set
}
