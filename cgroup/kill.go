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
	// killFor bounds for how long Kill runs after processes that fork while they are
	// being killed.
	killFor = 100 * time.Millisecond
	// forkRounds is how many rounds it takes before forking is stopped first.
	forkRounds = 3
)

// Kill sends SIGKILL to every process in a cgroup and below it, and returns how
// many were hit: by cgroup.kill where there is one (v2, linux 5.14), and one by one
// those that cgroup.procs (still) lists, again until it lists nobody new. It does not
// wait for their end, which [Layout.Populated] shows.
//
// A process that has ended its first thread runs on in the others, but cgroup.kill
// signals that thread alone, and /proc/PID/cgroup shows the root for it (v1). So only
// the lists say who is in the cgroup: what is killed one by one was listed twice, and its
// pidfd (linux 5.3) opened in between. A process that left the cgroup, and one that was
// given the PID of another, is not hit. Where forks outrun the signals, the cgroup's
// pids.max is set to 0, and on v1 a frozen cgroup is thawed, or nothing in it would ever
// end.
//
// Refused are the root, what is no clean path below it, and a cgroup that this
// very process is in. ErrGone when the cgroup was removed.
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
	atOnce := 0
	if l.Version == V2 {
		atOnce, err = t.killAtOnce()
		if err != nil && !errors.Is(err, ErrUnsupported) {
			return 0, err
		}
	}
	v := victims{layout: l, rel: rel, sent: map[int]bool{}}
	err = v.killEach(t)
	if atOnce > 0 && errors.Is(err, ErrGone) {
		err = nil // removed once it was empty
	}
	l.thaw(rel)
	v.release()
	return max(atOnce, v.count), err
}

// killAtOnce writes to cgroup.kill. ErrUnsupported where there is no such file, as
// in a threaded cgroup. It returns how many processes there were.
func (t *tree) killAtOnce() (int, error) {
	pids, err := t.procs()
	if err != nil {
		return 0, err
	}
	f, err := t.root.OpenFile("cgroup.kill", os.O_WRONLY, 0)
	if errors.Is(err, unix.ENOENT) {
		return 0, ErrUnsupported
	}
	if err != nil {
		return 0, err
	}
	_, err = f.WriteString("1")
	_ = f.Close()
	if errors.Is(err, unix.EOPNOTSUPP) {
		return 0, ErrUnsupported
	}
	if err != nil {
		return 0, gone(err)
	}
	return len(pids), nil
}

// killEach signals whoever is listed, until a list shows nobody new.
func (v *victims) killEach(t *tree) error {
	var errs []error
	defer func() { closePidfds(v.opened) }()
	started := time.Now()
	for round := 1; ; round++ {
		pids, err := t.procs()
		if errors.Is(err, ErrGone) && v.count > 0 {
			return errors.Join(errs...) // removed once it was empty
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

// thaw lets a frozen cgroup run, so that its processes can end. On v2 the signal
// does that.
func (l Layout) thaw(rel string) {
	freezer, ok := l.v1["freezer"]
	if !ok {
		return
	}
	state := filepath.Join(freezer, rel, "freezer.state")
	if b, err := os.ReadFile(state); err == nil && string(b) != "THAWED\n" {
		_ = writeFile(state, "THAWED")
	}
}
