package policy

import "time"

// Status is the outcome of reading a signal.
type Status uint8

// The statuses.
const (
	Absent Status = iota // the node does not have it: no swap, no inodes, no limit
	OK                   // the reading succeeded
	Failed               // the node has it, but this reading failed
)

var statusNames = []string{"absent", "ok", "failed"}

// String returns "absent", "ok" or "failed".
func (s Status) String() string { return nameOf(statusNames, s, "status") }

// Observation is one reading of a signal, in bytes, inodes or tasks, or in millionths for a stall. The
// zero value is a signal that the node does not have.
type Observation struct {
	Available, Capacity int64
	At                  time.Duration // since boot
	Status              Status
	// Reserved is what is free of a filesystem for root alone. What root has taken of it comes back before Available rises.
	Reserved int64
	// Over is what is used above the capacity, as after a limit was lowered. It comes back before Available rises, too.
	Over int64
}

// Free returns what is available, with what is reserved and less what is used above the capacity: it rises by whatever is given
// back.
func (o Observation) Free() int64 { return addCapped(o.Available, o.Reserved) - o.Over }

// Observations is one reading of every signal.
type Observations [SignalCount]Observation

// level returns the reading from which the rates of a signal are measured. For a stall, it is that of memory, and for swap
// that of memory and swap together: the kernel moves one to the other.
func (obs *Observations) level(s Signal) Observation {
	o, memory := obs[s.counts()], obs[MeminfoAvailable]
	if s == SwapAvailable && o.usable() && memory.usable() {
		o.Available, o.Capacity = addCapped(o.Available, memory.Available), addCapped(o.Capacity, memory.Capacity)
	}
	return o
}

// Comparable reports whether the difference between two readings of a signal is what was used or given back between them. The
// limit of the pods cgroup may change, and pid.available is that of the node or of the pods cgroup. The node's own memory may
// change, too (hotplug, a balloon), but what a balloon takes is used.
func (s Signal) Comparable(before, after Observation) bool {
	return before.Capacity == after.Capacity || s != PIDAvailable && s != AllocatableMemoryAvailable
}

// Outside returns what is used of a signal's pool outside the unprotected pods, if they use so much of it as [Unprotected]
// returns for that signal. For a stall, the pool is memory; for swap, memory and swap together.
func (obs *Observations) Outside(s Signal, unprotected Amount) Amount {
	o, memory := obs.level(s), obs[MeminfoAvailable]
	if !o.usable() || s == SwapAvailable && !memory.usable() || !unprotected.Known {
		return Amount{}
	}
	return Known(o.Capacity - o.Free() - unprotected.Value)
}

// StallCapacity is the capacity of the stall signals, in millionths of the window.
const StallCapacity = 1_000_000

// ObserveUsed returns what a cgroup's working set leaves of a capacity, or the running tasks of their limit. A
// use above the capacity leaves 0.
func ObserveUsed(capacity, used int64, at time.Duration) Observation {
	if capacity <= 0 || used < 0 {
		return Observation{At: at, Status: Failed}
	}
	return Observation{Available: max(capacity-used, 0), Capacity: capacity, At: at, Status: OK, Over: max(used-capacity, 0)}
}

// ObserveSpace returns the free bytes or inodes of a filesystem or of swap. A total of 0 means absent:
// btrfs does not count inodes, and a node may have no swap.
func ObserveSpace(available, total int64, at time.Duration) Observation {
	switch {
	case total == 0:
		return Observation{At: at}
	case total < 0 || available < 0:
		return Observation{At: at, Status: Failed}
	}
	return Observation{Available: min(available, total), Capacity: total, At: at, Status: OK}
}

// ObserveStall returns the share of a window that was not fully stalled, in millionths. Both arguments
// use the same unit, whichever it is.
func ObserveStall(stalled, window, at time.Duration) Observation {
	if window <= 0 || stalled < 0 {
		return Observation{At: at, Status: Failed}
	}
	free := mulDiv(StallCapacity, int64(window-min(stalled, window)), int64(window))
	return Observation{Available: free, Capacity: StallCapacity, At: at, Status: OK}
}

// usable reports whether the observation can be acted on. An impossible value counts as a failed
// reading, so that it never causes a stop.
func (o Observation) usable() bool { return o.Status == OK && o.Capacity > 0 && o.Available >= 0 }

// TriggerLevel returns the memory usage (memory.usage_in_bytes, including page cache) at which the
// kernel has to wake us for a threshold on the working set: capacity − threshold + inactive file pages,
// in bytes. It returns false if the numbers are impossible. Pass −1 for a missing one.
func TriggerLevel(capacity, threshold, usage, workingSet int64) (int64, bool) {
	if capacity <= 0 || threshold < 0 || threshold > capacity || workingSet < 0 || usage < workingSet {
		return 0, false
	}
	return addCapped(capacity-threshold, usage-workingSet), true
}
