package config

import "github.com/criguard/criguard/policy"

// HardThresholds are hard thresholds by signal.
type HardThresholds map[policy.Signal]policy.Quantity

// Hard returns the hard thresholds for which the configuration stops pods.
func (c *Config) Hard() HardThresholds {
	all := HardThresholds{}
	for _, t := range c.Eviction.Thresholds {
		if t.Kind == policy.Hard && c.Mode != ModeObserve {
			all[t.Signal] = t.Value
		}
	}
	return all
}

// For returns the highest of the thresholds of a signal and of those that it derives from.
func (h HardThresholds) For(s policy.Signal, capacity int64) (highest policy.Quantity, set bool) {
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
