package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
)

// Memory is the memory of one cgroup and all its descendants, in bytes.
//
// Usage depends on the cgroup. For a v1 cgroup it is usage_in_bytes, for a v2 cgroup memory.current:
// anonymous memory, page cache, and the kernel memory charged to the cgroup. The root needs another
// source: the v2 root has no such file, and in the v1 root the kernel only adds up page cache and
// anonymous memory. So the root's usage is all memory that is not free, including huge pages and all
// memory of the kernel and its drivers. Otherwise a node of 1 GiB, or one with a hundred pods, would
// run out of memory while 100 MiB seemed available. Free memory is the sum of MemFree, the
// per-processor page lists, which MemFree leaves out (since linux 6.7 up to an eighth of all memory),
// and [MemInfo.Spare], without what the kernel keeps back from programs: a node of 64 GiB kills with
// more than 300 MiB free. InactiveFile of the root comes from meminfo.
type Memory struct {
	Usage        int64
	InactiveFile int64 // part of Usage: page cache that was not used recently
	ActiveFile   int64 // part of Usage that the end of its processes does not free, see memoryNames.active; 0 if unknown
	Limit        int64 // −1 = no limit
	Uncharged    int64 // part of Usage that the cgroup's own counter, and thus its thresholds, leave out
}

// WorkingSet returns the usage without inactive file pages, never below 0. The kubelet evicts by this
// number.
func (m Memory) WorkingSet() int64 { return max(m.Usage-m.InactiveFile, 0) }

// unlimited is more memory than any machine has. v1 shows "no limit" as the largest number of pages
// (PAGE_COUNTER_MAX), which depends on the page size.
const unlimited = 1 << 62

// parseLimit parses memory.max, memory.limit_in_bytes or pids.max. It returns −1 for no limit.
func parseLimit(b []byte) int64 {
	if n := parseNumber(b); n < unlimited {
		return n
	}
	return -1
}

// RootLimit returns the memory limit of the mounted root in bytes, as the cgroup of a container has one, and false if it has none that
// the memory in meminfo reaches.
func (l Layout) RootLimit() (bytes int64, ok bool) {
	limit, err := readNumber(filepath.Join(l.Dir("memory", "/"), l.memoryNames().limit))
	info, infoErr := ReadMemInfo(l)
	return limit, err == nil && infoErr == nil && limit > 0 && limit < info.Total
}

// memoryNames holds the file names and keys of a layout's memory controller.
type memoryNames struct {
	usage, limit           string
	inactive, shared, swap string   // keys in memory.stat; "" = no such key
	active                 []string // keys in memory.stat of what a cgroup's end leaves behind as cache
	swapFile               string   // "" = no such file
}

// memoryNames returns the names of the layout. The reclaimable slab of a cgroup is dentries and inodes, which stay in memory
// when it ends, as page cache does. A v1 memory.stat does not have it, so there it counts as memory that is freed.
func (l Layout) memoryNames() memoryNames {
	if l.Version == V2 {
		return memoryNames{
			usage: "memory.current", limit: "memory.max",
			inactive: "inactive_file", shared: "shmem", swapFile: "memory.swap.current",
			active: []string{"active_file", "slab_reclaimable"},
		}
	}
	return memoryNames{
		usage: "memory.usage_in_bytes", limit: "memory.limit_in_bytes",
		inactive: "total_inactive_file", shared: "total_shmem", swap: "total_swap",
		active: []string{"total_active_file"},
	}
}

// needsHierarchy is what the memory of a cgroup needs to include that of those below it.
const needsHierarchy = "memory.use_hierarchy"

// readMemory reads usage and memory.stat from open descriptors; it does not read the limit. It returns
// an error if memory.stat has no inactive file pages: without them, cache would count as used memory
// and criguard might stop a pod for it.
func readMemory(usage, stat *file, names *memoryNames, buf *[]byte) (Memory, []byte, error) {
	used, err := usage.readNumber(buf)
	if err != nil {
		return Memory{}, nil, err
	}
	m := Memory{Usage: used, Limit: -1}
	b, err := stat.read(buf)
	if err != nil {
		return Memory{}, nil, err
	}
	if m.InactiveFile = parseKey(b, names.inactive); m.InactiveFile < 0 {
		return Memory{}, nil, fmt.Errorf("read %s: no %s", stat.path, names.inactive)
	}
	for _, key := range names.active {
		m.ActiveFile += max(parseKey(b, key), 0)
	}
	return m, b, nil
}

// SharedMemory returns how much memory of a cgroup and those below it belongs to files in memory, such as those in a
// pod's /dev/shm, in bytes. It outlives the processes that wrote the files. It returns ErrGone if the cgroup was
// removed, and ErrUnsupported if the cgroup's memory is without that of those below it.
func (l Layout) SharedMemory(rel string) (int64, error) {
	if !l.CountsBelow(rel) {
		return 0, unsupported("read shared memory of cgroup "+rel, needsHierarchy)
	}
	b, err := os.ReadFile(filepath.Join(l.Dir("memory", rel), "memory.stat"))
	if err != nil {
		return 0, fmt.Errorf("read shared memory of cgroup %s: %w", rel, gone(err))
	}
	names := l.memoryNames()
	n := parseKey(b, names.shared)
	if n < 0 {
		return 0, fmt.Errorf("read shared memory of cgroup %s: memory.stat has no %s", rel, names.shared)
	}
	return n, nil
}
