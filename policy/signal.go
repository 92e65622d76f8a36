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

// signals holds what distinguishes the signals; all else follows from it. A new one needs a row here and a reading. The
// last row is for a value that is no signal.
var signals = [SignalCount + 1]struct {
	name      string
	condition Condition
	pools     [layoutCount]Pool // by layout
	stall     bool
	evidence  bool   // see IsEvidence
	kubelet   bool   // the kubelet has it, too
	hard      string // hard threshold by default; "" = none
}{
	MemoryAvailable:            {name: "memory.available", kubelet: true, hard: "100Mi"},
	AllocatableMemoryAvailable: {name: "allocatableMemory.available", kubelet: true},
	MeminfoAvailable:           {name: "meminfo.available"},
	SwapAvailable:              {name: "swap.available", evidence: true},
	MemoryStall:                {name: "memory.stall", stall: true, evidence: true},
	PIDAvailable:               {name: "pid.available", condition: PIDPressure, pools: [layoutCount]Pool{PoolPIDs, PoolPIDs, PoolPIDs, PoolPIDs, PoolPIDs}, kubelet: true, hard: "5%"},
	NodeFSAvailable:            {name: "nodefs.available", condition: DiskPressure, pools: [layoutCount]Pool{PoolNodeBytes, PoolNodeBytes, PoolNodeBytes, PoolNodeBytes, PoolNodeBytes}, kubelet: true, hard: "10%"},
	NodeFSInodesFree:           {name: "nodefs.inodesFree", condition: DiskPressure, pools: [layoutCount]Pool{PoolNodeInodes, PoolNodeInodes, PoolNodeInodes, PoolNodeInodes, PoolNodeInodes}, kubelet: true, hard: "5%"},
	ImageFSAvailable:           {name: "imagefs.available", condition: DiskPressure, pools: [layoutCount]Pool{PoolNodeBytes, PoolImageBytes, PoolImageBytes, PoolNodeBytes, PoolImageBytes}, kubelet: true, hard: "15%"},
	ImageFSInodesFree:          {name: "imagefs.inodesFree", condition: DiskPressure, pools: [layoutCount]Pool{PoolNodeInodes, PoolImageInodes, PoolImageInodes, PoolNodeInodes, PoolImageInodes}, kubelet: true, hard: "5%"},
	ContainerFSAvailable:       {name: "containerfs.available", condition: DiskPressure, pools: [layoutCount]Pool{PoolNodeBytes, PoolImageBytes, PoolNodeBytes, PoolContainerBytes, PoolContainerBytes}, kubelet: true},
	ContainerFSInodesFree:      {name: "containerfs.inodesFree", condition: DiskPressure, pools: [layoutCount]Pool{PoolNodeInodes, PoolImageInodes, PoolNodeInodes, PoolContainerInodes, PoolContainerInodes}, kubelet: true},
	IOStall:                    {name: "io.stall", condition: DiskPressure, stall: true, evidence: true},
	SignalCount:                {condition: DiskPressure},
}

// Signals lists every signal in order.
func Signals() []Signal {
	all := make([]Signal, SignalCount)
	for s := range SignalCount {
		all[s] = s
	}
	return all
}

// SignalNames lists the names of the signals in order.
func SignalNames() []string {
	names := make([]string, SignalCount)
	for s := range SignalCount {
		names[s] = signals[s].name
	}
	return names
}

// ParseSignal returns the signal with the name that String returns.
func ParseSignal(s string) (Signal, error) { return parseName[Signal](SignalNames(), s, "signal") }

// String returns the signal's name, as in the kubelet's configuration.
func (s Signal) String() string {
	if s < SignalCount {
		return signals[s].name
	}
	return nameOf(nil, s, "signal")
}

// MarshalText returns the name.
func (s Signal) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the name.
func (s *Signal) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSignal(string(text))
	return err
}

// Condition returns the node condition that the signal's thresholds raise. It also groups the signals for the
// order of acting: memory comes first because it runs out fastest.
func (s Signal) Condition() Condition { return signals[min(s, SignalCount)].condition }

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
func (s Signal) Resource() Resource { return poolResources[SingleFS.Pool(s)] }

// IsDisk reports whether the signal covers the bytes or inodes of a filesystem. That is true for all
// signals of DiskPressure except IOStall.
func (s Signal) IsDisk() bool { return SingleFS.Pool(s).IsDisk() }

// IsStall reports whether the signal is a share of time (PSI) instead of a level. Its amounts are
// millionths of the window and cannot be compared with a pod's usage.
func (s Signal) IsStall() bool { return signals[min(s, SignalCount)].stall }

// IsMemoryAmount reports whether the signal is an amount of memory or swap, which pods can use up within seconds.
func (s Signal) IsMemoryAmount() bool { return s.Condition() == MemoryPressure && !s.IsStall() }

// counts returns the signal by which what lacks is counted: for a stall, that is memory, because a stall has no amount of its own.
func (s Signal) counts() Signal {
	if s.IsStall() {
		return MeminfoAvailable
	}
	return s
}

// IsEvidence reports whether the signal alone does not show that memory is short, as a stall does not. Neither does
// short swap: pages that no pod needs may stay there for ever, and the pod that they belong to did not push them out.
// A threshold of such a signal stops a pod only while memory is below [Settings.StallFloor].
func (s Signal) IsEvidence() bool { return signals[min(s, SignalCount)].evidence }

// InKubelet reports whether the kubelet has the signal, too.
func (s Signal) InKubelet() bool { return signals[min(s, SignalCount)].kubelet }

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
