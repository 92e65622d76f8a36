package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// MemoryReclaim asks the kernel to take bytes back from a cgroup: it drops page
// cache and swaps out (memory.reclaim). It returns when that is done, which takes
// the longer the more is asked for; the kernel may take more or less, and says
// nothing when it is less. ErrUnsupported on v1 and below linux 5.19.
func (l Layout) MemoryReclaim(rel string, bytes int64) error {
	const feature, floor = "reclaim memory", "cgroup v2 and linux 5.19 (memory.reclaim)"
	if l.Version != V2 {
		return unsupported(feature, floor)
	}
	clean, err := cleanPath(rel)
	if err != nil {
		return fmt.Errorf("reclaim memory of cgroup %q: %w", rel, err)
	}
	if bytes <= 0 {
		return nil
	}
	dir := l.Dir("memory", clean)
	err = writeFile(filepath.Join(dir, "memory.reclaim"), strconv.FormatInt(bytes, 10))
	if errors.Is(err, unix.ENOENT) {
		if _, gone := inode(dir); gone == nil {
			return unsupported(feature, floor)
		}
	}
	if err == nil || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return nil
	}
	return fmt.Errorf("reclaim memory of cgroup %s: %w", clean, gone(err))
}

// MemoryMin is a cgroup's memory.min in bytes, which a kubelet with MemoryQoS sets
// to the request. It is false where there is none: on v1, and for a cgroup that is
// gone.
func (l Layout) MemoryMin(rel string) (int64, bool) {
	if l.Version != V2 {
		return 0, false
	}
	n, err := readNumber(filepath.Join(l.Dir("memory", rel), "memory.min"))
	return n, err == nil && n >= 0
}
