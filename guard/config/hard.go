package config

import (
	"slices"

	"github.com/criguard/criguard/policy"
)

// HardThresholds are hard thresholds by signal. One that is off by name does not derive from another one either.
type HardThresholds map[policy.Signal]policy.Quantity

// isOff reports whether a value switches a threshold off: 0% is never undercut, and less than 100% is always available.
func isOff(v policy.Quantity) bool { return v.IsZero() || v == policy.Percent(100) }

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

// NewIn reports whether other thresholds have one that these have not, or lack one that may then follow from another with
// another value.
func (h HardThresholds) NewIn(other HardThresholds) bool {
	for s, v := range other {
		if old, set := h[s]; !isOff(v) && (!set || old != v) {
			return true
		}
	}
	for s, old := range h {
		if _, is := other[s]; !is && (isOff(old) || other.derivesAnew(s, old)) {
			return true
		}
	}
	return false
}

// derivesAnew reports whether a signal without a threshold derives one, and none of those from which it may has the old value.
func (h HardThresholds) derivesAnew(s policy.Signal, old policy.Quantity) (anew bool) {
	for _, from := range sources(s) {
		if v, is := h[from]; is && v == old {
			return false
		} else if is && !isOff(v) {
			anew = true
		}
	}
	return anew
}

// sources returns the signals whose thresholds a signal without one takes over, see [policy.Derive].
func sources(s policy.Signal) []policy.Signal {
	switch s {
	case policy.AllocatableMemoryAvailable:
		return []policy.Signal{policy.MemoryAvailable}
	case policy.ContainerFSAvailable:
		return []policy.Signal{policy.NodeFSAvailable, policy.ImageFSAvailable}
	case policy.ContainerFSInodesFree:
		return []policy.Signal{policy.NodeFSInodesFree, policy.ImageFSInodesFree}
	}
	return nil
}

// WithoutStalls returns the configuration without the hard thresholds of stalls that are known: whether those are met would only
// be known after a window.
func (c Config) WithoutStalls(known HardThresholds) Config {
	c.Eviction.Thresholds = slices.DeleteFunc(slices.Clone(c.Eviction.Thresholds), func(t policy.Threshold) bool {
		v, is := known[t.Signal]
		return t.Kind == policy.Hard && t.Signal.IsStall() && is && v == t.Value
	})
	return c
}

// HaveStall reports whether one of the thresholds is that of a stall.
func (h HardThresholds) HaveStall() bool {
	return !isOff(h[policy.MemoryStall]) || !isOff(h[policy.IOStall])
}

// For returns the threshold of a signal or, if that is not known, the highest of those from which it may derive.
func (h HardThresholds) For(s policy.Signal, capacity int64) (highest policy.Quantity, set bool) {
	if v, is := h[s]; is {
		return v, !isOff(v)
	}
	for _, s := range sources(s) {
		if v, is := h[s]; is && !isOff(v) && (!set || v.Of(capacity) > highest.Of(capacity)) {
			highest, set = v, true
		}
	}
	return highest, set
}

// Covers reports whether a signal has a threshold at least as high as a value, whatever its capacity.
func (h HardThresholds) Covers(s policy.Signal, v policy.Quantity) bool {
	old, set := h.For(s, 0)
	return set && neverAbove(v, old)
}
