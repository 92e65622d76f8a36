package reclaim

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Limits for removing a log directory.
const (
	maxLogDepth = 64  // nested directories: each one needs a descriptor
	logBatch    = 512 // entries per read
	logRounds   = 64  // passes over a directory: it may be written to meanwhile, or list entries that do not exist
)

var (
	errMounted = errors.New("a filesystem is mounted in it")
	errTooDeep = errors.New("its directories are nested too deeply")
)

// place is the mount of a directory. A bind mount is a different mount on the same device.
type place struct {
	device uint64
	mount  int64 // 0 = unknown, because /proc is not mounted
}

// placeOf returns the place of an open directory (stat(2), and mnt_id of proc_pid_fdinfo(5)).
func placeOf(dir *os.File) (place, error) {
	info, err := dir.Stat()
	if err != nil {
		return place{}, err
	}
	raw, _ := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(int(dir.Fd()))) // without it, only the devices are compared
	return place{device(info), parseMountID(raw)}, nil
}

// parseMountID extracts the mount ID from a descriptor's fdinfo; 0 = not found.
func parseMountID(raw []byte) int64 {
	for line := range bytes.Lines(raw) {
		if rest, ok := bytes.CutPrefix(line, []byte("mnt_id:")); ok {
			id, err := strconv.ParseInt(string(bytes.TrimSpace(rest)), 10, 64)
			if err == nil && id > 0 {
				return id
			}
		}
	}
	return 0
}

// resolved returns the path of the log directory as in mountinfo.
func (l Logs) resolved() (string, error) {
	dir, err := filepath.EvalSymlinks(l.Dir)
	if err != nil {
		return "", err
	}
	return filepath.Abs(dir)
}

// mountsIn lists the mount points at and below a directory.
func (l Logs) mountsIn(dir string) ([]string, error) {
	points, err := l.Mounts()
	return slices.DeleteFunc(points, func(p string) bool { return !isIn(p, dir) }), err
}

// isIn reports whether a path is at or below a directory.
func isIn(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// removeTree removes an entry of parent, a directory with all its content. It holds a descriptor of
// each directory on its way down, follows no link out of it, and does not enter a directory on another
// mount than the log directory's.
func removeTree(parent *os.Root, name string, home place, depth int) error {
	info, err := parent.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		if depth >= maxLogDepth {
			return errTooDeep
		}
		if err := emptyDir(parent, name, home, depth); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := parent.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// emptyDir removes the entries of a directory until none is left or one cannot be removed.
func emptyDir(parent *os.Root, name string, home place, depth int) error {
	root, err := parent.OpenRoot(name)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	here, err := placeOf(dir)
	if err != nil {
		return err
	}
	if here != home {
		return errMounted
	}
	for range logRounds { // some filesystems skip entries while others are being removed
		if found, err := removeEntries(root, dir, home, depth); err != nil || !found {
			return err
		}
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
	return nil
}

// removeEntries reads a directory to its end, removes the entries, and reports whether it found any.
func removeEntries(root *os.Root, dir *os.File, home place, depth int) (found bool, err error) {
	for {
		entries, err := dir.ReadDir(logBatch)
		for _, e := range entries {
			if err := removeTree(root, e.Name(), home, depth+1); err != nil {
				return found, err
			}
			found = true
		}
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return found, err
		}
	}
}
