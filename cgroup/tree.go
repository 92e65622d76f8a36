package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Procs lists the processes in a cgroup and below it, in ascending order. It returns ErrGone if the
// cgroup was removed.
func (l Layout) Procs(rel string) ([]int, error) {
	t, err := l.openTree(rel)
	if err != nil {
		return nil, fmt.Errorf("list processes of cgroup %s: %w", rel, err)
	}
	defer t.close()
	pids, err := t.procs()
	if err != nil {
		return nil, fmt.Errorf("list processes of cgroup %s: %w", rel, err)
	}
	return pids, nil
}

// Populated reports whether a cgroup or one below it holds a process. It reads cgroup.events on v2 and
// the lists of processes on v1. It returns ErrGone if the cgroup was removed.
func (l Layout) Populated(rel string) (bool, error) {
	if l.Version == V2 {
		b, err := os.ReadFile(l.dir(rel) + "/cgroup.events")
		if err != nil {
			return false, fmt.Errorf("look into cgroup %s: %w", rel, gone(err))
		}
		switch parseKey(b, "populated") {
		case 0:
			return false, nil
		case 1:
			return true, nil
		}
		return false, fmt.Errorf("look into cgroup %s: cgroup.events has no populated field", rel)
	}
	t, err := l.openTree(rel)
	if err != nil {
		return false, fmt.Errorf("look into cgroup %s: %w", rel, err)
	}
	defer t.close()
	populated, err := t.populated()
	if err != nil {
		return false, fmt.Errorf("look into cgroup %s: %w", rel, err)
	}
	return populated, nil
}

// tree is an open cgroup directory. After the cgroup was removed, it never reaches a new one of the
// same path.
type tree struct{ dir *os.File }

func (l Layout) openTree(rel string) (*tree, error) { return openTreeAt(l.dir(rel)) }

func openTreeAt(dir string) (*tree, error) {
	fd, err := open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, gone(err)
	}
	return &tree{os.NewFile(uintptr(fd), dir)}, nil
}

func (t *tree) close() { _ = t.dir.Close() }

// procs lists the processes in the cgroup and below it, in ascending order. It skips children that
// vanish during the walk.
func (t *tree) procs() ([]int, error) {
	var all []int
	err := t.walk(func(dir *os.File) error {
		pids, err := procsIn(dir)
		all = append(all, pids...)
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// errFound ends a walk once it has found a process.
var errFound = errors.New("found")

// populated reports whether the cgroup or one below it holds a process.
func (t *tree) populated() (bool, error) {
	err := t.walk(func(dir *os.File) error {
		pids, err := procsIn(dir)
		if err == nil && len(pids) > 0 {
			return errFound
		}
		return err
	}, nil)
	if errors.Is(err, errFound) {
		return true, nil
	}
	return false, err
}

// procsIn lists the processes directly in a cgroup.
func procsIn(dir *os.File) ([]int, error) {
	b, err := readAt(dir, "cgroup.procs")
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil // in a threaded cgroup; the domain above lists its processes
	}
	if err != nil {
		return nil, err
	}
	return parseProcs(b), nil
}

func (t *tree) read(name string) ([]byte, error) { return readAt(t.dir, name) }

func readAt(dir *os.File, name string) ([]byte, error) {
	f, err := openAt(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, gone(err)
	}
	return b, nil
}

// maxPID is the upper bound of PIDs on linux (PID_MAX_LIMIT).
const maxPID = 1 << 22

// parseProcs parses one PID per line. It skips malformed lines and 0, which stands for a process in a
// PID namespace that is not visible from here.
func parseProcs(b []byte) []int {
	pids := make([]int, 0, bytes.Count(b, []byte{'\n'}))
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		if n := parseNumber(line); n > 0 && n <= maxPID {
			pids = append(pids, int(n))
		}
	}
	return pids
}

// inode returns the inode of a directory.
func inode(dir string) (uint64, error) {
	var st unix.Stat_t
	err := retry(func() error { return unix.Lstat(dir, &st) })
	switch {
	case err != nil:
		return 0, gone(err)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return 0, &fs.PathError{Op: "look up", Path: dir, Err: unix.ENOTDIR}
	}
	return st.Ino, nil
}
