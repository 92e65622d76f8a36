package policy

import (
	"cmp"
	"slices"
	"time"
)

// Kind distinguishes a threshold that acts at once from one with a grace period.
type Kind uint8

// The kinds.
const (
	Hard Kind = iota
	Soft
	kindCount
)

var kindNames = []string{"hard", "soft"}

// String returns "hard" or "soft".
func (k Kind) String() string { return nameOf(kindNames, k, "kind") }

// MarshalText returns the name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText parses the name.
func (k *Kind) UnmarshalText(text []byte) (err error) {
	*k, err = parseName[Kind](kindNames, string(text), "kind")
	return err
}

// Threshold is met while less than Value of its signal is available.
type Threshold struct {
	Signal     Signal
	Kind       Kind
	Value      Quantity
	Grace      time.Duration // soft only: how long it must be met before criguard acts
	MinReclaim Quantity      // how far above Value the signal must recover before pressure ends
}

// String returns a name such as "memory.available:hard".
func (t Threshold) String() string { return t.Signal.String() + ":" + t.Kind.String() }

// Target returns the amount that must be available, for a capacity, to clear the threshold after
// criguard acted on it: Value plus MinReclaim. A minimum reclaim that the node can never meet is ignored,
// see [Threshold.Unreachable].
func (t Threshold) Target(capacity int64) int64 {
	if t.Unreachable(capacity) {
		return t.Value.Of(capacity)
	}
	return addCapped(t.Value.Of(capacity), t.MinReclaim.Of(capacity))
}

// Unreachable reports whether the minimum reclaim lifts the target to the capacity or above, so that no
// stop could ever meet it.
func (t Threshold) Unreachable(capacity int64) bool {
	return !t.MinReclaim.IsZero() && addCapped(t.Value.Of(capacity), t.MinReclaim.Of(capacity)) >= capacity
}

// Compare orders thresholds by condition: memory before PIDs before disk; within each, hard before soft;
// then by signal.
func (t Threshold) Compare(u Threshold) int {
	return cmp.Or(
		cmp.Compare(t.Signal.Condition(), u.Signal.Condition()),
		cmp.Compare(t.Kind, u.Kind),
		cmp.Compare(t.Signal, u.Signal),
	)
}

// DefaultHard returns the hard thresholds that apply if the user sets none. They are the kubelet's,
// plus one for PIDs, for which the kubelet has no default.
func DefaultHard() map[string]string {
	hard := map[string]string{}
	for _, s := range signals {
		if s.hard != "" {
			hard[s.name] = s.hard
		}
	}
	return hard
}

// Relieved reports whether a signal has recovered to its threshold plus the minimum reclaim. It returns
// false if the observation is not usable.
func Relieved(t Threshold, o Observation) bool {
	return o.usable() && o.Available >= t.Target(o.Capacity)
}

// Derive adds the thresholds that follow from others, in the order of acting:
//
//   - allocatableMemory.available from each hard memory.available, if the pods cgroup
//     has a limit (allocatable): same value and minimum reclaim;
//   - containerfs.available and containerfs.inodesFree, hard and soft, from those of
//     the filesystem that holds the writable layers: imagefs if it is dedicated, else
//     nodefs.
//
// Derive never replaces a threshold that the user sets, nor adds one that the user switched off. The
// kubelet, in contrast, overrides containerfs.
func Derive(ts []Threshold, layout Layout, allocatable bool, off ...Threshold) []Threshold {
	source := map[Signal]Signal{NodeFSAvailable: ContainerFSAvailable, NodeFSInodesFree: ContainerFSInodesFree}
	if layout == DedicatedImageFS {
		source = map[Signal]Signal{ImageFSAvailable: ContainerFSAvailable, ImageFSInodesFree: ContainerFSInodesFree}
	}
	all := slices.Clone(ts)
	for _, t := range ts {
		derived, ok := source[t.Signal]
		if allocatable && t.Signal == MemoryAvailable && t.Kind == Hard {
			derived, ok = AllocatableMemoryAvailable, true
		}
		same := func(u Threshold) bool { return u.Signal == derived && u.Kind == t.Kind }
		if !ok || slices.ContainsFunc(ts, same) || slices.ContainsFunc(off, same) {
			continue
		}
		t.Signal = derived
		all = append(all, t)
	}
	slices.SortStableFunc(all, Threshold.Compare)
	return all
}
