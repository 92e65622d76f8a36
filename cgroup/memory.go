package cgroup

import "fmt"

// Memory is the memory of one cgroup with all below it, in bytes.
//
// What the usage counts depends on where it comes from. Of a v1 cgroup it is
// usage_in_bytes, of a v2 one memory.current: anonymous memory, page cache and the
// kernel memory charged to it. The v2 root has no such file, and in the v1 root's the
// kernel adds up page cache and anonymous memory alone. Of either the usage is what is
// not free, so with huge pages and with all that the kernel itself and its drivers use,
// or a node of 1 GiB, or of a hundred pods, would run out of memory with 100 MiB of it
// seemingly available. Free is MemFree and what the processors keep on lists of their
// own, which MemFree leaves out (since linux 6.7 up to an eighth of all memory), and
// what [MemInfo.Spare] says. The root's inactive file pages are meminfo's.
type Memory struct {
	Usage        int64
	InactiveFile int64 // part of the usage: page cache that was not used lately
	Limit        int64 // −1 = none
	Uncharged    int64 // part of the usage that the cgroup's own counter, and so its thresholds, leave out
}

// WorkingSet is the usage without the page cache that was not used lately, never
// below 0: what the kubelet judges memory by.
func (m Memory) WorkingSet() int64 { return max(m.Usage-m.InactiveFile, 0) }

// unlimited is as much as no machine has: v1 shows no limit as the largest number
// of pages (PAGE_COUNTER_MAX), which depends on the page size.
const unlimited = 1 << 62

// parseLimit reads memory.max, memory.limit_in_bytes or pids.max; −1 = no limit.
func parseLimit(b []byte) int64 {
	if n := parseNumber(b); n < unlimited {
		return n
	}
	return -1
}

// memoryNames are the names that a layout's memory controller uses.
type memoryNames struct {
	usage, limit   string
	inactive, swap string // keys in memory.stat; "" = it has none
	swapFile       string // "" = there is no file for it
}

func (l Layout) memoryNames() memoryNames {
	if l.Version == V2 {
		return memoryNames{
			usage: "memory.current", limit: "memory.max",
			inactive: "inactive_file", swapFile: "memory.swap.current",
		}
	}
	return memoryNames{
		usage: "memory.usage_in_bytes", limit: "memory.limit_in_bytes",
		inactive: "total_inactive_file", swap: "total_swap",
	}
}

// readMemory reads a usage and its memory.stat from kept descriptors, without the
// limit. A memory.stat that does not tell the inactive file pages is an error:
// without them cache would pass for used memory, and a pod be stopped for it.
func readMemory(usage, stat *file, inactive string, buf *[]byte) (Memory, []byte, error) {
	used, err := usage.readNumber(buf)
	if err != nil {
		return Memory{}, nil, err
	}
	m := Memory{Usage: used, Limit: -1}
	b, err := stat.read(buf)
	if err != nil {
		return Memory{}, nil, err
	}
	if m.InactiveFile = parseKey(b, inactive); m.InactiveFile < 0 {
		return Memory{}, nil, fmt.Errorf("read %s: no %s", stat.path, inactive)
	}
	return m, b, nil
}
