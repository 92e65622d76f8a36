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

// treeDepth is how deep below a cgroup processes are looked for. Runtimes nest one
// level (crun, systemd inside of a container), a runtime inside of a pod a few.
const treeDepth = 64

// Procs lists the processes in a cgroup and below it, in ascending order. ErrGone
// when it was removed.
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

// Populated reports whether a process is in a cgroup or below it: by cgroup.events
// on v2, by the lists of processes on v1. ErrGone when it was removed.
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
		return false, fmt.Errorf("look into cgroup %s: cgroup.events does not tell", rel)
	}
	pids, err := l.Procs(rel)
	return len(pids) > 0, err
}

// tree is an open cgroup directory. Whatever is made under the same path after the
// cgroup was removed is not reached through it.
type tree struct{ root *os.Root }

func (l Layout) openTree(rel string) (*tree, error) {
	root, err := os.OpenRoot(l.dir(rel))
	if err != nil {
		return nil, gone(err)
	}
	return &tree{root}, nil
}

func (t *tree) close() { _ = t.root.Close() }

// procs lists the processes in the cgroup and below it, in ascending order. A child
// that vanishes meanwhile has none.
func (t *tree) procs() ([]int, error) {
	pids, err := procsBelow(t.root, treeDepth)
	if err != nil {
		return nil, err
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

func procsBelow(root *os.Root, depth int) ([]int, error) {
	if depth == 0 {
		return nil, errors.New("cgroups are nested too deep")
	}
	pids, err := procsIn(root)
	if err != nil {
		return nil, err
	}
	names, err := childrenOf(root)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		below, err := procsOfChild(root, name, depth-1)
		if err != nil && !errors.Is(err, ErrGone) {
			return nil, err
		}
		pids = append(pids, below...)
	}
	return pids, nil
}

func procsOfChild(root *os.Root, name string, depth int) ([]int, error) {
	child, err := root.OpenRoot(name)
	if err != nil {
		return nil, gone(err)
	}
	defer child.Close() //nolint:errcheck // only read
	return procsBelow(child, depth)
}

func childrenOf(root *os.Root) ([]string, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, gone(err)
	}
	defer dir.Close() //nolint:errcheck // only read
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil, gone(err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// procsIn lists the processes right in a cgroup.
func procsIn(root *os.Root) ([]int, error) {
	f, err := root.Open("cgroup.procs")
	if err != nil {
		return nil, gone(err)
	}
	defer f.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(f)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil // inside of a threaded cgroup, whose processes the domain above lists
	}
	if err != nil {
		return nil, gone(err)
	}
	return parseProcs(b), nil
}

// maxPID is above every PID that linux gives out (PID_MAX_LIMIT).
const maxPID = 1 << 22

// parseProcs reads one PID a line. Lines that are none are skipped, and so is 0,
// which stands for processes of a PID namespace that cannot be seen from here.
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

// inode is the inode of a directory.
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
