package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Remove removes a cgroup and its descendants from every hierarchy, as far as the kernel allows:
// removing a cgroup with a process fails with EBUSY. It starts with the hierarchy in which pods are
// looked up. If that fails, it does not touch the others. It refuses the root and a path that is not
// clean. It returns ErrGone if the cgroup did not exist.
func (l Layout) Remove(rel string) error {
	clean, err := cleanPath(rel)
	if err != nil {
		return fmt.Errorf("remove cgroup %q: %w", rel, err)
	}
	if err := removeTree(l.dir(clean)); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", clean, err)
	}
	dirs := slices.Collect(maps.Values(l.v1))
	if l.unified != "" {
		dirs = append(dirs, l.unified)
	}
	slices.Sort(dirs)
	var errs []error
	for _, dir := range slices.Compact(dirs) {
		if err := removeTree(filepath.Join(dir, clean)); err != nil && !errors.Is(err, ErrGone) {
			errs = append(errs, fmt.Errorf("remove cgroup %s in %s: %w", clean, dir, err))
		}
	}
	return errors.Join(errs...)
}

// removeTree removes a directory of cgroupfs bottom up, through descriptors. It only uses rmdir, which
// removes neither files nor a cgroup in use.
func removeTree(dir string) error {
	fd, err := open(filepath.Dir(dir), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return gone(err)
	}
	above := os.NewFile(uintptr(fd), filepath.Dir(dir))
	defer above.Close() //nolint:errcheck // only read
	name := filepath.Base(dir)
	root, err := openDir(above, name)
	if err != nil {
		return err
	}
	t := &tree{root}
	defer t.close()
	if err := t.walk(func(*os.File) error { return nil }, removeChild); err != nil {
		return err
	}
	return removeDir(above, name)
}

// removeChild removes a child during the walk. Another process may have removed it since it was read.
func removeChild(above *os.File, name string) error {
	if err := removeDir(above, name); !errors.Is(err, ErrGone) {
		return err
	}
	return nil
}

func removeDir(above *os.File, name string) error {
	err := retry(func() error { return unix.Unlinkat(int(above.Fd()), name, unix.AT_REMOVEDIR) })
	if err != nil {
		return gone(&fs.PathError{Op: "rmdir", Path: name, Err: err})
	}
	return nil
}
