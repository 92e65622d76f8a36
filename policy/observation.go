package policy

import "time"

// Status tells what is known of a signal.
type Status uint8

// The statuses.
const (
	Absent Status = iota // the node does not have it: no swap, no inodes, no limit
	OK                   // read
	Failed               // it is there, but this reading did not work
)

var statusNames = []string{"absent", "ok", "failed"}

// String is "absent", "ok" or "failed".
func (s Status) String() string { return nameOf(statusNames, s, "status") }

// MarshalText gives the name.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the name.
func (s *Status) UnmarshalText(text []byte) (err error) {
	*s, err = parseName[Status](statusNames, string(text), "status")
	return err
}

// Observation is one reading of a signal: bytes, inodes, tasks, or millionths
// for a stall. The zero value is a signal the node does not have.
type Observation struct {
	Available, Capacity int64
	At                  time.Duration // since boot
	Status              Status
}

// Observations is one reading of every signal.
type Observations [SignalCount]Observation

// StallCapacity is the capacity of the stall signals: millionths of the window.
const StallCapacity = 1_000_000

// ObserveMemory is what a cgroup's working set leaves of a capacity, in bytes.
// A working set above the capacity leaves 0.
func ObserveMemory(capacity, workingSet int64, at time.Duration) Observation {
	if capacity <= 0 || workingSet < 0 {
		return Observation{At: at, Status: Failed}
	}
	return Observation{max(capacity-workingSet, 0), capacity, at, OK}
}

// ObservePIDs is what the running tasks leave of the most there may be.
func ObservePIDs(limit, tasks int64, at time.Duration) Observation {
	return ObserveMemory(limit, tasks, at)
}

// ObserveSpace is bytes or inodes that are free of a total: a filesystem, or
// swap. A total of 0 is absent: btrfs counts no inodes, and a node may have no
// swap.
func ObserveSpace(available, total int64, at time.Duration) Observation {
	switch {
	case total == 0:
		return Observation{At: at}
	case total < 0 || available < 0:
		return Observation{At: at, Status: Failed}
	}
	return Observation{min(available, total), total, at, OK}
}

// ObserveStall is the share of a window that was not fully stalled, in
// millionths. Both are in the same unit, whichever that is.
func ObserveStall(stalled, window, at time.Duration) Observation {
	if window <= 0 || stalled < 0 {
		return Observation{At: at, Status: Failed}
	}
	free := mulDiv(StallCapacity, int64(window-min(stalled, window)), int64(window))
	return Observation{free, StallCapacity, at, OK}
}

// usable reports whether the observation can be acted on. What cannot be true
// is taken for a failed reading, so that it never stops anything.
func (o Observation) usable() bool { return o.Status == OK && o.Capacity > 0 && o.Available >= 0 }

// TriggerLevel is the memory usage (memory.usage_in_bytes, page cache included)
// at which the kernel has to wake us for a threshold on the working set: the
// capacity, less the threshold, plus the inactive file pages. Bytes. It reports
// false where the numbers cannot be true; a missing one is passed as −1.
func TriggerLevel(capacity, threshold, usage, workingSet int64) (int64, bool) {
	if capacity <= 0 || threshold < 0 || threshold > capacity || workingSet < 0 || usage < workingSet {
		return 0, false
	}
	return addCapped(capacity-threshold, usage-workingSet), true
}
