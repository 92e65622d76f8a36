package policy

import (
	"testing"
)

// Signals are views of a pool: which ones share a pool depends on the layout only for disks.
func TestPoolsByLayout(t *testing.T) {
	const bytes, inodes, imageBytes, imageInodes = PoolNodeBytes, PoolNodeInodes, PoolImageBytes, PoolImageInodes
	const layerBytes, layerInodes = PoolContainerBytes, PoolContainerInodes
	for layout, disks := range map[Layout][6]Pool{ // nodefs, imagefs, containerfs: bytes and inodes of each
		SingleFS:         {bytes, inodes, bytes, inodes, bytes, inodes},
		DedicatedImageFS: {bytes, inodes, imageBytes, imageInodes, imageBytes, imageInodes},
		SplitFS:          {bytes, inodes, imageBytes, imageInodes, bytes, inodes},

		DedicatedContainerFS: {bytes, inodes, bytes, inodes, layerBytes, layerInodes},
		SeparateFS:           {bytes, inodes, imageBytes, imageInodes, layerBytes, layerInodes},
	} {
		want := map[Signal]Pool{
			MemoryAvailable: PoolMemory, AllocatableMemoryAvailable: PoolMemory, MeminfoAvailable: PoolMemory,
			MemoryStall: PoolMemory, IOStall: PoolMemory, SwapAvailable: PoolMemory, PIDAvailable: PoolPIDs,
			NodeFSAvailable: disks[0], NodeFSInodesFree: disks[1], ImageFSAvailable: disks[2], ImageFSInodesFree: disks[3],
			ContainerFSAvailable: disks[4], ContainerFSInodesFree: disks[5],
		}
		for _, s := range Signals() {
			if pool, ok := want[s]; !ok || layout.Pool(s) != pool {
				t.Errorf("%s: %s is of pool %s, want %s", layout, s, layout.Pool(s), pool)
			}
		}
	}
}

func TestPoolHorizon(t *testing.T) {
	for p := range PoolCount {
		want := int64(1)
		if p >= PoolNodeBytes {
			want = 10
		}
		if p.Horizon() != want || p.IsDisk() != (p >= PoolNodeBytes) {
			t.Errorf("%s: horizon %d s, disk %t", p, p.Horizon(), p.IsDisk())
		}
	}
}
