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
	// keptVictims is of how many processes the memory is released beside the kernel.
	keptVictims = 16
	// bigVictim is from how much resident memory on that is worth a system call.
	bigVictim = 16 << 20
	// pidfdShare is the part of the descriptors that a kill takes at most: the next list
	// wants some, too.
	pidfdShare = 4
)

// victims are the processes of a cgroup that is being killed.
type victims struct {
	layout Layout
	rel    string
	opened map[int]int  // pidfds, −1 for none, of who was in the last list and is not signalled yet
	sent   map[int]bool // who need not be looked at again
	count  int          // of signals sent
	kept   []victim
}

// victim is a process by its pidfd.
type victim struct{ pid, fd int }

// round takes a list of the cgroup's processes: it kills whoever was in the last one,
// too, and opens pidfds of the others. Who has left the cgroup is not in the second
// list, and a PID that is belongs to the process of its pidfd: if that had ended since,
// the signal fails, whoever was given its PID. It reports whether anybody was new.
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
		case isSpared(pid):
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

// isSpared tells processes that are no container's: init, and this one.
func isSpared(pid int) bool { return pid == 1 || pid == os.Getpid() }

// open makes a listed process ready for the next round. There is no pidfd to be had before
// linux 5.3, with a seccomp filter that does not know the call (that of systemd 239), and
// short of descriptors.
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

// signal kills a process that a list has just shown, through its pidfd or, where that is
// not to be had (−1) or not allowed, by its PID.
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
		return nil // who is listed by this PID after that is another process
	}
	v.sent[pid] = true
	if err != nil {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	v.count++
	return nil
}

// closePidfds closes those of processes that were not listed again.
func closePidfds(opened map[int]int) {
	for _, fd := range opened {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// keep holds on to the pidfds of the first processes and closes the others.
func (v *victims) keep(pid, fd int) {
	if len(v.kept) < keptVictims {
		v.kept = append(v.kept, victim{pid, fd})
		return
	}
	_ = unix.Close(fd)
}

// release takes the memory of big victims back in a goroutine that ends with it
// (process_mrelease(2), linux 5.15): a process whose CPU is throttled, or that sits
// in an uninterruptible wait, is slow to do so itself. It is refused for one that
// is not dying.
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

// resident is the memory that a process has, in bytes, 0 when that is not known.
func (l Layout) resident(pid int) int64 {
	b, err := os.ReadFile(filepath.Join(string(l.proc), strconv.Itoa(pid), "statm"))
	if err != nil {
		return 0
	}
	_, second, _ := bytes.Cut(b, []byte(" "))
	return max(parseNumber(second), 0) * int64(os.Getpagesize())
}
