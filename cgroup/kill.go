package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// killFor limits how long Kill chases processes that keep forking.
	killFor = 100 * time.Millisecond
	// forkRounds is the number of rounds before Kill stops forks through pids.max.
	forkRounds = 3
)

// Kill sends SIGKILL to every process in a cgroup and below it, and returns how many it signaled. On v2
// (linux 5.14) it writes to cgroup.kill first. Then it signals the processes in cgroup.procs one by
// one, until the file lists no new ones. It does not wait for them to end; see [Layout.Populated]. The
// number does not include processes that cgroup.kill ended before they were counted, but is at least 1
// then. If cgroup.kill cannot be written, Kill also returns that error.
//
// If the first thread of a process has ended, the others run on, but cgroup.kill only signals the first
// and /proc/PID/cgroup shows the root (v1). So only cgroup.procs shows who is in the cgroup. Kill
// signals a process only after two lists show it, and opens its pidfd (linux 5.3) between them. It thus
// never hits a process that left the cgroup, nor one that got a reused PID. If forks outrun the
// signals, it sets pids.max of the cgroup to 0. On v1 it thaws frozen cgroups, in which no process
// could end otherwise.
//
// Kill refuses the root, a path that is not clean, and a cgroup that holds the calling process. It
// returns ErrGone if the cgroup was removed.
func (l Layout) Kill(rel string) (int, error) {
	n, err := l.kill(rel)
	if err != nil {
		return n, fmt.Errorf("kill cgroup %q: %w", rel, err)
	}
	return n, nil
}

func (l Layout) kill(rel string) (int, error) {
	rel, err := cleanPath(rel)
	if err != nil {
		return 0, err
	}
	if b, err := os.ReadFile(filepath.Join(string(l.proc), "self/cgroup")); err == nil {
		if self, ok := parseProcessCgroup(b, l.tree); ok && (self == rel || isBelow(self, rel)) {
			return 0, errors.New("this process is in it")
		}
	}
	t, err := l.openTree(rel)
	if err != nil {
		return 0, err
	}
	defer t.close()
	atLeast := 0
	var refused error // by the file: a container that may write to its own cgroup can take away the permission
	if l.Version == V2 {
		populated, err := t.killAtOnce()
		switch {
		case errors.Is(err, ErrGone):
			return 0, err
		case err != nil && !errors.Is(err, ErrUnsupported):
			refused = err
		case populated:
			atLeast = 1
		}
	}
	v := victims{layout: l, rel: rel, sent: map[int]bool{}}
	err = v.killEach(t)
	if atLeast > 0 && errors.Is(err, ErrGone) {
		err = nil // it was removed after its processes ended
	}
	l.thaw(rel)
	l.released.start(l, v.killed, mrelease)
	return max(atLeast, len(v.killed)), errors.Join(refused, err)
}

// killAtOnce writes to cgroup.kill and reports whether the cgroup held a process. It returns
// ErrUnsupported if there is no such file, as in a threaded cgroup. It writes before any walk, so that
// a large or unreadable tree does not delay the kill.
func (t *tree) killAtOnce() (populated bool, err error) {
	if b, err := t.read("cgroup.events"); err == nil {
		populated = parseKey(b, "populated") == 1
	}
	f, err := openAt(t.dir, "cgroup.kill", unix.O_WRONLY)
	if errors.Is(err, ErrGone) {
		if _, err := procsIn(t.dir); err != nil {
			return false, err
		}
		return false, ErrUnsupported
	}
	if err != nil {
		return false, err
	}
	_, err = f.WriteString("1")
	_ = f.Close()
	if errors.Is(err, unix.EOPNOTSUPP) {
		return false, ErrUnsupported
	}
	if err != nil {
		return false, gone(err)
	}
	return populated, nil
}

// killEach signals the listed processes until a list shows no new ones.
func (v *victims) killEach(t *tree) error {
	var errs []error
	defer func() { closePidfds(v.opened) }()
	started := time.Now()
	for round := 1; ; round++ {
		pids, err := t.procs()
		if errors.Is(err, ErrGone) && len(v.killed) > 0 {
			return errors.Join(errs...) // it was removed after its processes ended
		}
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		news, failed := v.round(pids)
		errs = append(errs, failed...)
		switch {
		case !news:
			return errors.Join(errs...)
		case round > forkRounds && time.Since(started) > killFor:
			return errors.Join(append(errs, errors.New("its processes fork faster than they can be killed"))...)
		case round == forkRounds:
			_ = writeFile(filepath.Join(v.layout.Dir("pids", v.rel), "pids.max"), "0")
		}
	}
}

// thaw resumes a frozen v1 cgroup and those below it that were frozen by themselves, as by docker pause in a
// privileged pod, so that their processes can end. On v2 SIGKILL also ends frozen processes.
func (l Layout) thaw(rel string) {
	freezer, ok := l.v1["freezer"]
	if !ok {
		return
	}
	t, err := openTreeAt(filepath.Join(freezer, rel))
	if err != nil {
		return
	}
	defer t.close()
	_ = t.walk(func(dir *os.File) error {
		// freezer.state would tell of the parents, too, and reading it looks at all cgroups below.
		if b, err := readAt(dir, "freezer.self_freezing"); err == nil && string(b) == "1\n" {
			_ = writeAt(dir, "freezer.state", "THAWED")
		}
		return nil
	}, nil)
}

// writeAt writes to a file of a cgroup.
func writeAt(dir *os.File, name, text string) error {
	f, err := openAt(dir, name, unix.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
