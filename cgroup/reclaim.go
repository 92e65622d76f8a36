package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// MemoryReclaim asks the kernel to reclaim bytes from a cgroup by dropping page cache and swapping out
// (memory.reclaim). It blocks until the kernel is done, which takes longer for more bytes. The kernel
// may reclaim more or less than requested; less is not an error. MemoryReclaim returns ErrUnsupported
// on v1 and before linux 5.19.
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

// MemoryMin returns a cgroup's memory.min in bytes. A kubelet with MemoryQoS sets it to the memory
// request. MemoryMin returns false if there is no such value: on v1, and for a removed cgroup.
func (l Layout) MemoryMin(rel string) (int64, bool) {
	if l.Version != V2 {
		return 0, false
	}
	n, err := readNumber(filepath.Join(l.Dir("memory", rel), "memory.min"))
	return n, err == nil && n >= 0
}

// MemoryLimit returns a cgroup's own memory limit in bytes, a multiple of the page size. It returns
// false if there is no limit or the cgroup was removed.
func (l Layout) MemoryLimit(rel string) (int64, bool) {
	n, err := readNumber(filepath.Join(l.Dir("memory", rel), l.memoryNames().limit))
	return n, err == nil && n >= 0 && n < unlimited
}
