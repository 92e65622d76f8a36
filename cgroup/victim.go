package cgroup

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// pidfdShare limits the pidfds of a round to a quarter of RLIMIT_NOFILE: the next round needs some,
// too.
const pidfdShare = 4

type victims struct {
	layout Layout
	rel    string
	opened map[int]int  // pidfds (−1 = none) of processes in the last list, not signaled yet
	sent   map[int]bool // processes that need no second look
	killed []int        // processes that were signaled
}

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
		defer func() { _ = unix.Close(fd) }()
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
	v.killed = append(v.killed, pid)
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
