package policy

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Signal is a resource of the node that can run out. The kubelet's signals keep their names and
// meaning. MeminfoAvailable, SwapAvailable, MemoryStall and IOStall are specific to criguard. The
// numbers define the order in which they are listed.
type Signal uint8

// The signals. Available and capacity are in bytes unless noted otherwise.
const (
	MemoryAvailable            Signal = iota // capacity − working set of the root cgroup
	AllocatableMemoryAvailable               // the same for the pods cgroup, against its limit
	MeminfoAvailable                         // MemAvailable of /proc/meminfo
	SwapAvailable                            // SwapFree of /proc/meminfo
	MemoryStall                              // share of the last window not fully stalled on memory, see ObserveStall
	PIDAvailable                             // tasks that can still be created
	NodeFSAvailable                          // filesystem of the node's root directory
	NodeFSInodesFree                         // its inodes
	ImageFSAvailable                         // filesystem of the images
	ImageFSInodesFree                        // its inodes
	ContainerFSAvailable                     // filesystem of the writable layers
	ContainerFSInodesFree                    // its inodes
	IOStall                                  // share of the last window not fully stalled on I/O
	SignalCount                              // number of signals
)

var signalNames = []string{
	"memory.available", "allocatableMemory.available", "meminfo.available", "swap.available", "memory.stall",
	"pid.available",
	"nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
	"containerfs.available", "containerfs.inodesFree", "io.stall",
}

// Signals lists every signal in order.
func Signals() []Signal {
	all := make([]Signal, SignalCount)
	for s := range SignalCount {
		all[s] = s
	}
	return all
}

// ParseSignal returns the signal with the name that String returns.
func ParseSignal(s string) (Signal, error) { return parseName[Signal](signalNames, s, "signal") }

// String returns the signal's name, as in the kubelet's configuration.
func (s Signal) String() string { return nameOf(signalNames, s, "signal") }

// MarshalText returns the name.
func (s Signal) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the name.
func (s *Signal) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSignal(string(text))
	return err
}

// Condition returns the node condition that the signal's thresholds raise. It also groups the signals for the
// order of acting: memory comes first because it runs out fastest.
func (s Signal) Condition() Condition {
	switch {
	case s <= MemoryStall:
		return MemoryPressure
	case s == PIDAvailable:
		return PIDPressure
	default:
		return DiskPressure
	}
}

// Resource is the resource by which pods are ranked for a signal.
type Resource uint8

// The resources.
const (
	ResourceMemory Resource = iota // bytes
	ResourceDisk                   // bytes
	ResourceInodes                 // inodes
	ResourcePIDs                   // tasks
)

var resourceNames = []string{"memory", "disk", "inodes", "pid"}

// String returns the resource's name, as in the configuration's [rank] table.
func (r Resource) String() string { return nameOf(resourceNames, r, "resource") }

// Resource returns the resource whose keys rank the pods. Stalls and swap use those of memory: below
// the stall floor, I/O stalls because the page cache is read again. Rank documents which part of a
// pod's memory counts for them.
func (s Signal) Resource() Resource {
	switch s {
	case PIDAvailable:
		return ResourcePIDs
	case NodeFSAvailable, ImageFSAvailable, ContainerFSAvailable:
		return ResourceDisk
	case NodeFSInodesFree, ImageFSInodesFree, ContainerFSInodesFree:
		return ResourceInodes
	default:
		return ResourceMemory
	}
}

// IsDisk reports whether the signal covers the bytes or inodes of a filesystem. That is true for all
// signals of DiskPressure except IOStall.
func (s Signal) IsDisk() bool {
	r := s.Resource()
	return r == ResourceDisk || r == ResourceInodes
}

// IsStall reports whether the signal is a share of time (PSI) instead of a level. Its amounts are
// millionths of the window and cannot be compared with a pod's usage.
func (s Signal) IsStall() bool { return s == MemoryStall || s == IOStall }

// Condition is a kubelet node condition.
type Condition uint8

// The conditions.
const (
	MemoryPressure Condition = iota
	PIDPressure
	DiskPressure
	conditionCount
)

var conditionNames = []string{"MemoryPressure", "PIDPressure", "DiskPressure"}

// AllConditions lists the conditions in the order of acting.
func AllConditions() []Condition { return []Condition{MemoryPressure, PIDPressure, DiskPressure} }

// String returns the condition's name.
func (c Condition) String() string { return nameOf(conditionNames, c, "condition") }

// Conditions is a set of conditions. The zero value is the empty set.
type Conditions uint8

// ConditionsOf returns the set of the given conditions.
func ConditionsOf(cs ...Condition) Conditions {
	var set Conditions
	for _, c := range cs {
		set |= 1 << c
	}
	return set
}

// Has reports whether c is in the set.
func (cs Conditions) Has(c Condition) bool { return cs&(1<<c) != 0 }

// List returns the members in the order of acting, nil for the empty set.
func (cs Conditions) List() []Condition {
	var list []Condition
	for c := range conditionCount {
		if cs.Has(c) {
			list = append(list, c)
		}
	}
	return list
}

// MarshalJSON encodes the set as a list of names, [] for the empty set.
func (cs Conditions) MarshalJSON() ([]byte, error) { return json.Marshal(cs.names()) }

// UnmarshalJSON parses a list of names.
func (cs *Conditions) UnmarshalJSON(b []byte) error {
	var names []string
	if err := json.Unmarshal(b, &names); err != nil {
		return fmt.Errorf("conditions %s: not a list of names", b)
	}
	*cs = 0
	for _, name := range names {
		c, err := parseName[Condition](conditionNames, name, "condition")
		if err != nil {
			return err
		}
		*cs |= ConditionsOf(c)
	}
	return nil
}

// String joins the names with commas. It returns "" for the empty set.
func (cs Conditions) String() string { return strings.Join(cs.names(), ", ") }

func (cs Conditions) names() []string {
	names := []string{}
	for _, c := range cs.List() {
		names = append(names, c.String())
	}
	return names
}
