package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// AddMemoryEvents wakes when a v2 cgroup meets one of its own limits (low, high,
// max, oom): at most once in 10 ms (linux 4.18). Before linux 5.2, which brought
// memory.events.local, it wakes for the cgroups below it, too. Called again it looks
// the cgroup up again, which may have been removed and made anew. The root has no
// limits, and v1 no such events: ErrUnsupported.
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

// addEvents watches a file of cgroupfs that polls as changed, instead of the one
// that was watched for that cgroup before.
func (w *Waker) addEvents(rel, path string) error {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return err
	}
	readEvents(fd, 0) // what has been before is no news
	s := &source{fd: fd, wake: WakeMemoryEvents, drain: readEvents}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.addLocked(s, unix.EPOLLPRI); err != nil {
		return err
	}
	// The kernel says nothing of a file that goes with its cgroup.
	if old := w.events[rel]; old != nil {
		w.drop(old)
	}
	w.events[rel] = s
	return nil
}

// readEvents reads a file of cgroupfs, which makes its next change an event. It
// cannot be read any more once the cgroup is removed.
func readEvents(fd int, _ uint32) bool {
	var buf [512]byte
	_, err := pread(fd, buf[:], 0)
	return err == nil
}

// AddMounts wakes when something is mounted or unmounted in this process's
// mount namespace (proc(5)).
func (w *Waker) AddMounts() error {
	path := filepath.Join(string(w.layout.proc), "self/mountinfo")
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return fmt.Errorf("watch mounts: %w", err)
	}
	// Being polled is what takes the event off, and an error flag is part of it.
	polled := func(int, uint32) bool { return true }
	if err := w.add(&source{fd: fd, wake: WakeMounts, drain: polled}, unix.EPOLLPRI); err != nil {
		return fmt.Errorf("watch mounts: %w", err)
	}
	return nil
}

// Windows of PSI triggers. The last is the kernel's averaging period: whoever lacks
// CAP_SYS_RESOURCE may use whole multiples of it.
const (
	minStallWindow     = 500 * time.Millisecond
	maxStallWindow     = 10 * time.Second
	unprivilegedWindow = 2 * time.Second
)

// AddStall wakes, with [WakeMemoryStall] or [WakeIOStall], when all tasks together
// were stalled for threshold within a window of 500 ms to 10 s (psi.rst): at most
// once in a window, and the first time perhaps for nothing. It returns the window
// that the kernel took. Without CAP_SYS_RESOURCE that is a multiple of 2 s (linux
// 6.4), with the threshold in proportion, and reading the pressure file more often
// than that starves it. ErrUnsupported where the kernel has no PSI (4.20), no
// triggers (5.2), or gives none to this process.
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

// triggered: being polled is what takes the event off. A trigger that is gone reports
// an error for ever.
func triggered(_ int, events uint32) bool { return events&unix.EPOLLERR == 0 }

// openTrigger opens a pressure file and makes the descriptor a trigger.
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

// triggerError tells what this node lacks from what went wrong.
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

// AddDir wakes when a cgroup is made or removed right below one: a pod that comes
// or goes. A cgroup that is watched already is left alone, and the watch ends by
// itself with the cgroup.
func (w *Waker) AddDir(rel string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pods == nil {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		if err != nil {
			return fmt.Errorf("watch cgroups: %w", err)
		}
		s := &source{fd: fd, wake: WakePods, drain: readAway}
		if err := w.addLocked(s, unix.EPOLLIN); err != nil {
			return fmt.Errorf("watch cgroups: %w", err)
		}
		w.pods = s
	}
	if w.closed {
		return fmt.Errorf("watch cgroups: %w", os.ErrClosed)
	}
	const mask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ONLYDIR
	if _, err := unix.InotifyAddWatch(w.pods.fd, w.layout.dir(rel), mask); err != nil {
		return fmt.Errorf("watch cgroups below %s: %w", rel, gone(err))
	}
	return nil
}

// readAwayAtMost bounds the reads: where cgroups are made faster than they are read, the other
// sources have their turn.
const readAwayAtMost = 64

// readAway empties an eventfd or an inotify descriptor.
func readAway(fd int, _ uint32) bool {
	var buf [4096]byte
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
