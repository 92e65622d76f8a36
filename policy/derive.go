package policy

import "slices"

// Derive adds the thresholds that follow from others, in the order of acting:
//
//   - allocatableMemory.available from each hard memory.available, where the pods
//     cgroup has a limit (allocatable): same value and minimum reclaim;
//   - containerfs.available and containerfs.inodesFree, hard and soft, from those
//     of the filesystem that holds the writable layers: imagefs where that is
//     dedicated, else nodefs.
//
// A threshold the user names is never added to, nor one the user switched off
// (see SwitchedOff). The kubelet, in contrast, overrides containerfs.
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
