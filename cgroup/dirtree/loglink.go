package dirtree

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// LogLink is the target of a container log that is a symbolic link.
type LogLink struct {
	Target     string
	Bytes      int64 // allocated; the file uses one inode
	SameDevice bool  // whether the target is on the link's device
}

// ReadLogLink follows the symbolic link that cri-dockerd creates at <pod>/<container>/<attempt>.log,
// which points to Docker's own log. It returns false for anything else: the link and both directories
// must belong to root, other users must not be able to write there, and the target must be a regular
// file.
func ReadLogLink(path string) (LogLink, bool, error) {
	l, ok, err := readLogLink(path, 0)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return LogLink{}, false, fmt.Errorf("read log link %s: %w", path, err)
	}
	return l, ok && err == nil, nil
}

// readLogLink is ReadLogLink for links of a given owner.
func readLogLink(path string, owner uint32) (l LogLink, ok bool, err error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW
	dir, err := openAt(unix.AT_FDCWD, filepath.Dir(path), flags)
	if err != nil {
		return l, false, ignoreNoDir(err)
	}
	defer unix.Close(dir) //nolint:errcheck // only read
	for _, name := range []string{"", ".."} {
		st, err := statx(dir, name, unix.AT_EMPTY_PATH)
		if err != nil || !st.isDir() || !st.onlyWrittenBy(owner) {
			return l, false, err
		}
	}
	link, err := statx(dir, filepath.Base(path), 0)
	if err != nil || link.mode&unix.S_IFMT != unix.S_IFLNK || link.uid != owner {
		return l, false, err
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, filepath.Base(path), buf)
	if err != nil || n == len(buf) || !filepath.IsAbs(string(buf[:n])) {
		return l, false, err
	}
	target, err := openAt(unix.AT_FDCWD, string(buf[:n]), unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return l, false, err
	}
	defer unix.Close(target) //nolint:errcheck // only read
	st, err := statx(target, "", unix.AT_EMPTY_PATH)
	if err != nil || st.mode&unix.S_IFMT != unix.S_IFREG {
		return l, false, err
	}
	return LogLink{Target: string(buf[:n]), Bytes: st.bytes, SameDevice: st.id.dev == link.id.dev}, true, nil
}

// onlyWrittenBy reports whether the file belongs to owner and no other user may write to it.
func (st *fileStat) onlyWrittenBy(owner uint32) bool {
	return st.uid == owner && st.mode&0o022 == 0
}

// ignoreNoDir drops the errors for a path that is not a directory: it holds no log link.
func ignoreNoDir(err error) error {
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	return err
}
