package policy

// Signal is something of the node that can run out. The kubelet's signals keep
// their names and meaning; MeminfoAvailable, SwapAvailable, MemoryStall and
// IOStall are criguard's own. The numbers are the fixed order of acting.
type Signal uint8

// The signals. Available and capacity are bytes unless said otherwise.
const (
	MemoryAvailable            Signal = iota // capacity − working set of the root cgroup
	AllocatableMemoryAvailable               // the same of the pods cgroup, against its limit
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
	SignalCount                              // how many there are
)

var signalNames = []string{
	"memory.available", "allocatableMemory.available", "meminfo.available", "swap.available", "memory.stall",
	"pid.available",
	"nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
	"containerfs.available", "containerfs.inodesFree", "io.stall",
}

// Signals lists every signal in the order of acting.
func Signals() []Signal {
	all := make([]Signal, SignalCount)
	for s := range SignalCount {
		all[s] = s
	}
	return all
}

// ParseSignal finds a signal by the name String gives.
func ParseSignal(s string) (Signal, error) { return parseName[Signal](signalNames, s, "signal") }

// String is the signal's name, as in the kubelet's configuration.
func (s Signal) String() string { return nameOf(signalNames, s, "signal") }

// MarshalText gives the name.
func (s Signal) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the name.
func (s *Signal) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSignal(string(text))
	return err
}

// Class groups the signals for the order of acting: memory is lost fastest.
type Class uint8

// The classes, in the order of acting.
const (
	ClassMemory Class = iota
	ClassPID
	ClassDisk
)

// Class is the group in whose turn the signal is acted on.
func (s Signal) Class() Class {
	switch {
	case s <= MemoryStall:
		return ClassMemory
	case s == PIDAvailable:
		return ClassPID
	default:
		return ClassDisk
	}
}

// Condition is the node condition that the signal's thresholds raise.
func (s Signal) Condition() Condition {
	switch s.Class() {
	case ClassMemory:
		return MemoryPressure
	case ClassPID:
		return PIDPressure
	default:
		return DiskPressure
	}
}

// Resource is what pods are ranked by when a signal presses.
type Resource uint8

// The resources.
const (
	ResourceMemory Resource = iota // bytes
	ResourceDisk                   // bytes
	ResourceInodes                 // inodes
	ResourcePIDs                   // tasks
)

var resourceNames = []string{"memory", "disk", "inodes", "pid"}

// String is the resource's name, as in the configuration's [rank] table.
func (r Resource) String() string { return nameOf(resourceNames, r, "resource") }

// Resource is whose keys pods are ranked by. Stalls and swap have those of memory:
// what stalls on I/O below the stall floor is the page cache being read again. What of a
// pod's memory counts for them differs, see Rank.
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

// IsDisk reports whether the signal is about a filesystem, its bytes or its inodes. Of
// those in ClassDisk, all are but IOStall.
func (s Signal) IsDisk() bool {
	r := s.Resource()
	return r == ResourceDisk || r == ResourceInodes
}

// IsStall reports whether the signal is a share of time (PSI) and no level. Its
// amounts are millionths of the window and not comparable with what a pod uses.
func (s Signal) IsStall() bool { return s == MemoryStall || s == IOStall }
