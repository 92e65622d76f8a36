package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// AddMemoryEvents wakes when a v2 cgroup hits one of its own limits (low, high, max, oom), at most once
// per 10 ms (linux 4.18). Before linux 5.2, which added memory.events.local, it also wakes for
// descendants. Calling it again looks the cgroup up again, in case it was removed and created again. It
// returns ErrUnsupported for the root, which has no limits, and on v1, which has no such events.
func (w *Waker) AddMemoryEvents(rel string) error {
	const feature, floor = "watch memory.events", "cgroup v2, linux 4.5, and a cgroup below the root"
	if w.layout.Version != V2 {
		return unsupported(feature, floor)
	}
	dir := w.layout.Dir("memory", rel)
	err := w.addEvents(rel, filepath.Join(dir, "memory.events.local"))
	if errors.Is(err, unix.ENOENT) {
		err = w.addEvents(rel, filepath.Join(dir, "memory.events"))
	}
	if errors.Is(err, unix.ENOENT) {
		if _, gone := inode(dir); gone == nil {
			return unsupported(feature, floor)
		}
	}
	if err != nil {
		return fmt.Errorf("watch memory.events of %s: %w", rel, gone(err))
	}
	return nil
}

// addEvents watches a file of cgroupfs that poll(2) reports as changed. It replaces the file that was
// watched for that cgroup before.
func (w *Waker) addEvents(rel, path string) error {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return err
	}
	readEvents(fd, 0) // ignore earlier events
	s := &source{fd: fd, wake: WakeMemoryEvents, drain: readEvents}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.addLocked(s, unix.EPOLLPRI); err != nil {
		return err
	}
	// The kernel does not report that a file was removed with its cgroup.
	if old := w.events[rel]; old != nil {
		w.drop(old)
	}
	w.events[rel] = s
	return nil
}

// readEvents reads a file of cgroupfs, which arms the next event. Reading fails once the cgroup was
// removed.
func readEvents(fd int, _ uint32) bool {
	var buf [512]byte
	_, err := pread(fd, buf[:], 0)
	return err == nil
}

// AddMounts wakes when something is mounted or unmounted in this process's mount namespace (proc(5)).
func (w *Waker) AddMounts() error {
	path := filepath.Join(string(w.layout.proc), "self/mountinfo")
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return fmt.Errorf("watch mounts: %w", err)
	}
	// Polling consumes the event. An error flag is part of it, so it does not mean that the source is
	// dead.
	polled := func(int, uint32) bool { return true }
	if err := w.add(&source{fd: fd, wake: WakeMounts, drain: polled}, unix.EPOLLPRI); err != nil {
		return fmt.Errorf("watch mounts: %w", err)
	}
	return nil
}

// Windows of PSI triggers. unprivilegedWindow is the kernel's averaging period: without
// CAP_SYS_RESOURCE, a window must be a multiple of it.
const (
	minStallWindow     = 500 * time.Millisecond
	maxStallWindow     = 10 * time.Second
	unprivilegedWindow = 2 * time.Second
)

// AddStall wakes with [WakeMemoryStall] or [WakeIOStall] when all tasks together were stalled for
// threshold within a window of 500 ms to 10 s (psi.rst). It wakes at most once per window; the first
// wake-up may be spurious. It returns the window that the kernel accepted. Without CAP_SYS_RESOURCE
// that is a multiple of 2 s (linux 6.4), with threshold scaled in proportion; reading the pressure file
// more often than that then starves the trigger. AddStall returns ErrUnsupported if the kernel has no
// PSI (4.20), has no triggers (5.2), or denies them to this process.
func (w *Waker) AddStall(wake Wake, threshold, window time.Duration) (used time.Duration, err error) {
	resource := map[Wake]string{WakeMemoryStall: "memory", WakeIOStall: "io"}[wake]
	if resource == "" {
		return 0, fmt.Errorf("watch stall: %q is not one", wake)
	}
	if threshold <= 0 || threshold > window || window < minStallWindow || window > maxStallWindow {
		return 0, fmt.Errorf("watch stall of %s: %s within %s: not a part of a window of %s to %s",
			resource, threshold, window, minStallWindow, maxStallWindow)
	}
	path := filepath.Join(string(w.layout.proc), "pressure", resource)
	fd, err := openTrigger(path, threshold, window)
	if wide := roundUp(window, unprivilegedWindow); errors.Is(err, unix.EINVAL) && wide != window {
		threshold = time.Duration(float64(threshold) / float64(window) * float64(wide))
		window = wide
		fd, err = openTrigger(path, threshold, window)
	}
	if err != nil {
		return 0, triggerError(resource, err)
	}
	if err := w.add(&source{fd: fd, wake: wake, drain: triggered}, unix.EPOLLPRI); err != nil {
		return 0, fmt.Errorf("watch stall of %s: %w", resource, err)
	}
	return window, nil
}

// triggered consumes the event: polling alone does that. A trigger that is gone reports an error
// forever.
func triggered(_ int, events uint32) bool { return events&unix.EPOLLERR == 0 }

// openTrigger opens a pressure file and turns the descriptor into a trigger.
func openTrigger(path string, threshold, window time.Duration) (int, error) {
	fd, err := open(path, unix.O_RDWR|unix.O_NONBLOCK)
	if err != nil {
		return -1, err
	}
	line := fmt.Sprintf("full %d %d\x00", threshold.Microseconds(), window.Microseconds())
	if _, err := unix.Write(fd, []byte(line)); err != nil {
		_ = unix.Close(fd)
		return -1, &os.PathError{Op: "write", Path: path, Err: err}
	}
	return fd, nil
}

// triggerError adds what this node lacks to an error of openTrigger.
func triggerError(resource string, err error) error {
	for _, lacking := range []error{unix.ENOENT, unix.EOPNOTSUPP, unix.EPERM, unix.EACCES, unix.EINVAL, unix.EROFS} {
		if errors.Is(err, lacking) {
			return fmt.Errorf("watch stall of %s: %w: needs linux 5.2 with psi=1, and CAP_SYS_RESOURCE below linux 6.4: %w",
				resource, ErrUnsupported, err)
		}
	}
	return fmt.Errorf("watch stall of %s: %w", resource, err)
}

func roundUp(d, unit time.Duration) time.Duration { return (d + unit - 1) / unit * unit }

// readAwayAtMost limits the reads, so that other sources get their turn.
const readAwayAtMost = 64

// readAway empties an eventfd.
func readAway(fd int, _ uint32) bool {
	var buf [8]byte
	for range readAwayAtMost {
		switch _, err := unix.Read(fd, buf[:]); {
		case errors.Is(err, unix.EAGAIN):
			return true
		case err != nil && !errors.Is(err, unix.EINTR):
			return false
		}
	}
	return true
}
