package cgroup

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// level is a cgroup on the path from the root of a walk to its current position.
type level struct {
	name  string // relative to the parent; "" = the root of the walk
	inode uint64
	left  []string // children not visited yet
}

// walk visits a cgroup and all its descendants at any depth, parents first. It uses two descriptors and
// no path, which PATH_MAX would limit. After each descendant it calls leave, if not nil, with the
// parent and the descendant's name. It skips cgroups that vanish during the walk.
func (t *tree) walk(visit func(dir *os.File) error, leave func(above *os.File, name string) error) error {
	at, err := openDir(t.dir, ".")
	if err != nil {
		return err
	}
	defer func() { _ = at.Close() }()
	top, err := enter(at, "", visit)
	if err != nil {
		return err
	}
	for path := []level{top}; len(path) > 0; {
		next, name, err := path[len(path)-1].next(at)
		switch {
		case err != nil:
			return err
		case next != nil:
			_ = at.Close()
			at = next
			l, err := enter(at, name, visit)
			if err != nil && !errors.Is(err, ErrGone) {
				return err
			}
			path = append(path, l)
			continue
		}
		done := path[len(path)-1].name
		path = path[:len(path)-1]
		if len(path) == 0 {
			break
		}
		if next, err = climb(at, path[len(path)-1].inode); err != nil {
			return err
		}
		_ = at.Close()
		at = next
		if leave != nil {
			if err := leave(at, done); err != nil {
				return err
			}
		}
	}
	return nil
}

// enter visits a cgroup and lists its children.
func enter(at *os.File, name string, visit func(*os.File) error) (level, error) {
	l := level{name: name}
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(int(at.Fd()), &st) }); err != nil {
		return l, gone(err)
	}
	l.inode = st.Ino
	if err := visit(at); err != nil {
		return l, err
	}
	var err error
	l.left, err = childrenOf(at)
	return l, err
}

// next opens the next child that still exists. It returns nil if no children are left.
func (l *level) next(at *os.File) (*os.File, string, error) {
	for len(l.left) > 0 {
		name := l.left[0]
		l.left = l.left[1:]
		child, err := openDir(at, name)
		if errors.Is(err, ErrGone) {
			continue
		}
		return child, name, err
	}
	return nil, "", nil
}

var errMoved = errors.New("a cgroup was moved meanwhile")

// climb opens the parent, from which the walk came. The kernel finds the parent even of a removed
// cgroup.
func climb(at *os.File, inode uint64) (*os.File, error) {
	above, err := openDir(at, "..")
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = retry(func() error { return unix.Fstat(int(above.Fd()), &st) }); err == nil && st.Ino != inode {
		err = errMoved
	}
	if err != nil {
		_ = above.Close()
		return nil, err
	}
	return above, nil
}

// openDir opens a directory relative to an open one. It does not follow a symbolic link.
func openDir(at *os.File, name string) (*os.File, error) {
	return openAt(at, name, unix.O_RDONLY|unix.O_DIRECTORY)
}

func openAt(at *os.File, name string, flags int) (*os.File, error) {
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Openat(int(at.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, gone(fmt.Errorf("open %s: %w", name, err))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// childrenOf lists the cgroups directly below one.
func childrenOf(dir *os.File) ([]string, error) {
	if _, err := dir.Seek(0, 0); err != nil {
		return nil, gone(err)
	}
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
