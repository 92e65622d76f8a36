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
)

// victims are the processes of a cgroup that is being killed.
type victims struct {
	layout Layout
	rel    string
	sent   map[int]bool // who need not be looked at again
	count  int          // of signals sent
	kept   []victim
}

// victim is a process by its pidfd.
type victim struct{ pid, fd int }

// signal kills a process that was listed, unless it has left the cgroup since. The
// pidfd comes first: whoever has the PID after that cannot be mistaken for it.
func (v *victims) signal(pid int) error {
	if isSpared(pid) {
		v.sent[pid] = true
		return fmt.Errorf("process %d is not to be killed, whatever lists it", pid)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil
	case errors.Is(err, unix.ENOSYS):
		return v.hit(pid, -1)
	case err != nil:
		v.sent[pid] = true
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer v.keep(pid, fd)
	return v.hit(pid, fd)
}

// isSpared tells processes that are no container's: init, and this one.
func isSpared(pid int) bool { return pid == 1 || pid == os.Getpid() }

// hit looks a process up again and kills it, through its pidfd or, with −1 (before
// linux 5.3), by its PID right after the look.
func (v *victims) hit(pid, fd int) error {
	rel, err := v.layout.OfPID(pid)
	if errors.Is(err, ErrGone) {
		return nil
	}
	v.sent[pid] = true
	if err != nil {
		return err
	}
	if rel != v.rel && !isBelow(rel, v.rel) {
		return nil
	}
	if fd < 0 {
		err = unix.Kill(pid, unix.SIGKILL)
	} else {
		err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil
	case err != nil:
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	v.count++
	return nil
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
