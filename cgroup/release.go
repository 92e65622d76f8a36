package cgroup

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// bigVictim is the resident memory in bytes from which process_mrelease is worth a system call.
	bigVictim = 16 << 20
	// releasedVictims is the maximum number of processes per kill whose memory is released.
	releasedVictims = 16
	// sizedVictims limits how many processes of a kill are sized, to some milliseconds. Those of a fork bomb are small.
	sizedVictims = 1024
	// maxReleases limits the goroutines that release memory. One waits while the process holds the lock of its memory, and
	// a process that does not end is killed again and again.
	maxReleases = 8
)

// releases frees the memory of killed processes in short-lived goroutines. The zero value is ready to use.
type releases struct {
	mu      sync.Mutex
	running int
	pids    map[int]bool // whose memory is being released
}

// start frees the memory of the biggest of these processes. It does not wait, not even for their sizes.
func (r *releases) start(l Layout, pids []int, free func(pid int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(pids) == 0 || r.running >= maxReleases {
		return
	}
	r.running++
	go func() {
		for _, pid := range l.biggest(pids) {
			if r.claim(pid) {
				free(pid)
				r.drop(pid)
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.running--
	}()
}

// claim reports whether no other release of the process is under way.
func (r *releases) claim(pid int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pids[pid] {
		return false
	}
	if r.pids == nil {
		r.pids = map[int]bool{}
	}
	r.pids[pid] = true
	return true
}

func (r *releases) drop(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pids, pid)
}

// mrelease frees the memory of a dying process (process_mrelease(2), linux 5.15). A process whose CPU is throttled, or that sits
// in an uninterruptible wait, is slow to free it itself. The kernel refuses the call for a process that is not dying, such as one
// that got a reused PID.
func mrelease(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	_, _, _ = unix.Syscall(unix.SYS_PROCESS_MRELEASE, uintptr(fd), 0, 0)
	_ = unix.Close(fd)
}

// biggest returns those of these processes that still hold much memory, the biggest first.
func (l Layout) biggest(pids []int) []int {
	type sized struct {
		pid  int
		size int64
	}
	var big []sized
	for _, pid := range pids[:min(len(pids), sizedVictims)] {
		if size := l.resident(pid); size >= bigVictim {
			big = append(big, sized{pid, size})
		}
	}
	slices.SortFunc(big, func(a, b sized) int { return cmp.Compare(b.size, a.size) })
	var biggest []int
	for _, s := range big[:min(len(big), releasedVictims)] {
		biggest = append(biggest, s.pid)
	}
	return biggest
}

// resident returns the resident memory of a process in bytes, 0 if unknown.
func (l Layout) resident(pid int) int64 {
	b, err := os.ReadFile(filepath.Join(string(l.proc), strconv.Itoa(pid), "statm"))
	if err != nil {
		return 0
	}
	_, second, _ := bytes.Cut(b, []byte(" "))
	return max(parseNumber(second), 0) * int64(os.Getpagesize())
}
