package policy

import "time"

// Amount is a number that may not be known. Unknown differs from 0.
type Amount struct {
	Value int64
	Known bool
}

// Known is an amount that is known.
func Known(v int64) Amount { return Amount{Value: v, Known: true} }

// DiskUsage is what a pod uses of the disks, in bytes or in inodes.
type DiskUsage struct {
	Rootfs  int64 // the containers' writable layers
	Logs    int64
	Volumes int64 // local ones, as emptyDirs on disk
	Known   bool
	// LogsApart: the logs are on a device of their own, which no signal is about.
	LogsApart bool
}

// Candidate is a pod that runs, as far as ranking needs to know it.
type Candidate struct {
	ID        string // of the sandbox; distinct
	Namespace string
	Name      string
	UID       string
	Workload  string // what recreates the pod, see Workload

	QoS            QoS
	Priority       int64
	Created        time.Duration // since boot; negative when older than the boot, 0 when not known
	MemoryRequest  int64         // bytes
	StorageRequest int64         // bytes of ephemeral storage

	Memory Amount // working set, bytes
	Swap   Amount // what of it was moved to swap, bytes; not known where the kernel does not account it
	PIDs   Amount // tasks
	Growth Amount // bytes per second, of the memory
	Disk   DiskUsage
	Inodes DiskUsage
	// Uncounted: what it uses of the resource was looked for, and the kernel does not count it.
	Uncounted bool

	Protection string // why it is never stopped; "" = it may be
}

// usage is what the candidate uses of what the signal ranks. For disks it is what
// lies on the pressed device; images belong to no pod. For swap it is what the pod has
// there, since its resident memory gives no swap back. For stalls it is memory and swap
// together, as the kernel's OOM killer counts: what is waited for is pages that were
// pushed out, and who was pushed out is no smaller for it.
func (c *Candidate) usage(s Signal, l Layout) Amount {
	switch s.Resource() {
	case ResourcePIDs:
		return c.PIDs
	case ResourceDisk:
		return c.Disk.on(s, l)
	case ResourceInodes:
		return c.Inodes.on(s, l)
	default:
		switch {
		case s == SwapAvailable:
			return c.Swap
		case s.IsStall() && c.Swap.Known:
			return Amount{Value: addCapped(max(c.Memory.Value, 0), max(c.Swap.Value, 0)), Known: c.Memory.Known}
		default:
			return c.Memory
		}
	}
}

// request is what the candidate asked for of that, in the same unit. Of swap, inodes
// and tasks nothing can be requested: whoever uses any is over it.
func (c *Candidate) request(s Signal) int64 {
	switch r := s.Resource(); {
	case s == SwapAvailable:
		return 0
	case r == ResourceMemory:
		return c.MemoryRequest
	case r == ResourceDisk:
		return c.StorageRequest
	default:
		return 0
	}
}

// on is the part of the usage that lies on the filesystem a disk signal is
// about. With a dedicated imagefs the writable layers are there and the rest is
// on nodefs; a split one holds images alone, which no pod's stop gives back.
func (u DiskUsage) on(s Signal, l Layout) Amount {
	image := s == ImageFSAvailable || s == ImageFSInodesFree
	node := s == NodeFSAvailable || s == NodeFSInodesFree
	if u.LogsApart {
		u.Logs = 0
	}
	var used int64
	switch {
	case l == DedicatedImageFS && node:
		used = addCapped(u.Logs, u.Volumes)
	case l == DedicatedImageFS:
		used = u.Rootfs
	case l == SplitFS && image:
	default:
		used = addCapped(u.Rootfs, addCapped(u.Logs, u.Volumes))
	}
	return Amount{Value: used, Known: u.Known}
}
