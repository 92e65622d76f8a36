package policy

import "time"

// Amount is a number that may be unknown. Unknown differs from 0.
type Amount struct {
	Value int64 `json:"value"`
	Known bool  `json:"known"`
}

// Known returns a known amount.
func Known(v int64) Amount { return Amount{Value: v, Known: true} }

// DiskUsage is a pod's usage of the disks, in bytes or in inodes.
type DiskUsage struct {
	Rootfs  Measured // the containers' writable layers
	Logs    Measured
	Volumes Measured // local volumes, such as emptyDirs on disk
	LogsPlace
}

// LogsPlace is the device of the logs.
type LogsPlace struct {
	LogsApart bool   `json:"logs_apart,omitempty"` // the logs are on another device than nodefs
	LogsWith  Signal `json:"logs_with,omitempty"`  // if so: a disk signal that covers that device, if there is one
}

// LogsOn reports whether the logs are on the device of a disk signal.
func (p LogsPlace) LogsOn(s Signal, l Layout) bool {
	return !p.LogsApart && l.SameDevice(s, NodeFSAvailable) || l.SameDevice(s, p.LogsWith)
}

// Candidate is a running pod with the values that ranking needs.
type Candidate struct {
	ID        string // sandbox ID; unique
	Namespace string
	Name      string
	UID       string
	Workload  string // what recreates the pod, as namespace/name

	QoS            QoS
	Priority       int64
	Created        time.Duration // since boot; negative if older than the boot, 0 if unknown
	MemoryRequest  int64         // bytes
	StorageRequest int64         // bytes of ephemeral storage

	Memory     Amount // working set, bytes
	ActiveFile int64  // part of Memory that is page cache, which a stop does not free for good, bytes
	Kept       int64  // part of Memory that a stop does not free, see PodStops.KeptMemory, bytes
	Swap       Amount // part of the memory that is in swap, bytes; unknown if the kernel does not account for it
	PIDs       Amount // tasks
	Growth     Amount // growth of the usage of the pool, per second, see Samples.Growth
	New        bool   // no sample has it: Growth is all that it uses
	Disk       DiskUsage
	Inodes     DiskUsage
	DiskAt     time.Duration // when the measurement of Disk and Inodes began, since boot
	Apart      bool          // its cgroups are outside the pods cgroup, so that its memory is none of what pods are allotted

	Protection string // why it must never be stopped; "" = not protected
	Survived   bool   // a stop of it within the last minute killed nothing
	Ended      bool   // a stop has ended it since it was listed, and no container has started in it
	CameBack   bool   // its workload was stopped for the pool, see Restraint.CameBack
	// Had is what a fruitless stop of its workload for the pool was expected to give back, if the sandbox is younger, see
	// Restraint.CameBack: to use as much again is no growth.
	Had int64
	// KeepsVolumes means that a stop does not free its local volumes, see PodStops.KeepsVolumes.
	KeepsVolumes bool
}

// Known reports whether all parts of the usage are known.
func (u DiskUsage) Known() bool {
	return u.Rootfs.Quality != QualityUnknown && u.Logs.Quality != QualityUnknown && u.Volumes.Quality != QualityUnknown
}

// Total returns the pod's usage of all disks.
func (u DiskUsage) Total() Measured { return u.Rootfs.Plus(u.Logs).Plus(u.Volumes) }

// usage returns the candidate's usage of the resource that the signal ranks by. For disks it is the
// part on the device under pressure; images belong to no pod. For stalls and swap it is memory plus swap,
// as the kernel's OOM killer counts: tasks wait for pages that were swapped out, and a pod is no smaller
// because its pages were swapped out.
func (c *Candidate) usage(s Signal, l Layout) Measured {
	switch r := s.Resource(); {
	case r == ResourcePIDs:
		return c.PIDs.Measured()
	case r == ResourceDisk:
		return c.Disk.on(s, l)
	case r == ResourceInodes:
		return c.Inodes.on(s, l)
	case c.Apart && s == AllocatableMemoryAvailable:
		return Exactly(0)
	case s.IsEvidence() && c.Swap.Known:
		return Amount{addCapped(max(c.Memory.Value, 0), max(c.Swap.Value, 0)), c.Memory.Known}.Measured()
	default:
		return c.Memory.Measured()
	}
}

// yield returns what a stop of the candidate gives back, from its usage as ranked. Page cache in active use
// is not the pod's: it comes back to the node without a stop.
func (c *Candidate) yield(s Signal, l Layout, usage int64) int64 {
	switch r := s.Resource(); {
	case s.isMemory():
		return max(usage-max(c.ActiveFile, 0)-max(c.Kept, 0), 0)
	case !c.KeepsVolumes || !l.SameDevice(s, NodeFSAvailable):
		return usage
	case r == ResourceInodes:
		return max(usage-c.Inodes.Volumes.Value, 0)
	default:
		return max(usage-c.Disk.Volumes.Value, 0)
	}
}

// request returns the candidate's request in the same unit. Inodes and tasks cannot be requested,
// so any usage of them is above the request.
func (c *Candidate) request(s Signal) int64 {
	switch {
	case s.isMemory():
		return c.MemoryRequest
	case s.Resource() == ResourceDisk:
		return c.StorageRequest
	default:
		return 0
	}
}

// isMemory reports whether the signal ranks by memory that can be requested.
func (s Signal) isMemory() bool { return SingleFS.Pool(s) == PoolMemory }

// covered reports whether the candidate's request covers its usage by definition. The kernel limits a
// Guaranteed pod to its limit, which equals its request. If the usage looks larger, the request is
// unknown or out of date.
func (c *Candidate) covered(s Signal) bool { return c.QoS == Guaranteed && s.isMemory() }

// on returns the part of the usage on the device of a disk signal: the writable layers are on that of
// containerfs, the volumes on that of nodefs. A split imagefs holds only images, which no stop frees, and perhaps logs.
func (u DiskUsage) on(s Signal, l Layout) Measured {
	used := Exactly(0)
	if l.SameDevice(s, ContainerFSAvailable) {
		used = used.Plus(u.Rootfs)
	}
	if l.SameDevice(s, NodeFSAvailable) {
		used = used.Plus(u.Volumes)
	}
	if u.LogsOn(s, l) {
		used = used.Plus(u.Logs)
	}
	return used
}
