package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// keptVictims is the maximum number of processes per kill whose memory release frees.
	keptVictims = 16
	// bigVictim is the resident memory in bytes from which process_mrelease is worth a system call.
	bigVictim = 16 << 20
	// pidfdShare limits the pidfds of a round to a quarter of RLIMIT_NOFILE: the next round needs some,
	// too.
	pidfdShare = 4
)

type victims struct {
	layout Layout
	rel    string
	opened map[int]int  // pidfds (−1 = none) of processes in the last list, not signaled yet
	sent   map[int]bool // processes that need no second look
	count  int          // signals sent
	kept   []victim
}

// victim is a process with its pidfd.
type victim struct{ pid, fd int }

// round takes a list of the cgroup's processes. It kills those that the last list showed, too, and
// opens pidfds for the others. A process that left the cgroup is not in the second list. The pidfd
// proves that a listed PID is still the same process: if that has ended, the signal fails, even if the
// PID was reused. round reports whether the list had new processes.
func (v *victims) round(pids []int) (news bool, errs []error) {
	last := v.opened
	v.opened = map[int]int{}
	room := maxDescriptors() / pidfdShare
	for _, pid := range pids {
		if v.sent[pid] {
			continue
		}
		news = true
		fd, again := last[pid]
		var err error
		switch {
		case isProtected(pid):
			v.sent[pid] = true
			err = fmt.Errorf("process %d is not to be killed, whatever lists it", pid)
		case again:
			delete(last, pid)
			err = v.signal(pid, fd)
		default:
			v.open(pid, len(v.opened) < room)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	closePidfds(last)
	return news, errs
}

// isProtected reports whether a process cannot belong to a container: init, and this process.
func isProtected(pid int) bool { return pid == 1 || pid == os.Getpid() }

// open prepares a listed process for the next round. It cannot open a pidfd before linux 5.3, under a
// seccomp filter that does not know the call (as in systemd 239), or when descriptors run out.
func (v *victims) open(pid int, room bool) {
	v.opened[pid] = -1
	if !room {
		return
	}
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case err == nil:
		v.opened[pid] = fd
	case errors.Is(err, unix.ESRCH):
		delete(v.opened, pid)
	}
}

// signal kills a process that is still in the cgroup's list. It uses the pidfd, or the PID if there is
// no pidfd (−1) or signaling through it fails.
func (v *victims) signal(pid, fd int) error {
	err := error(unix.ENOSYS)
	if fd >= 0 {
		defer v.keep(pid, fd)
		err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		err = unix.Kill(pid, unix.SIGKILL)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil // the process has ended; the PID may be reused
	}
	v.sent[pid] = true
	if err != nil {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	v.count++
	return nil
}

// closePidfds closes the pidfds of processes that were not listed again.
func closePidfds(opened map[int]int) {
	for _, fd := range opened {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// keep keeps the pidfds of the first processes and closes the others.
func (v *victims) keep(pid, fd int) {
	if len(v.kept) < keptVictims {
		v.kept = append(v.kept, victim{pid, fd})
		return
	}
	_ = unix.Close(fd)
}

// release frees the memory of big victims in a short-lived goroutine (process_mrelease(2), linux 5.15).
// A process whose CPU is throttled, or that sits in an uninterruptible wait, is slow to free it itself.
// The kernel refuses the call for a process that is not dying.
func (v *victims) release() {
	var big []int
	for _, k := range v.kept {
		if v.layout.resident(k.pid) >= bigVictim {
			big = append(big, k.fd)
		} else {
			_ = unix.Close(k.fd)
		}
	}
	v.kept = nil
	if len(big) == 0 {
		return
	}
	go func() {
		for _, fd := range big {
			_, _, _ = unix.Syscall(unix.SYS_PROCESS_MRELEASE, uintptr(fd), 0, 0)
			_ = unix.Close(fd)
		}
	}()
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
