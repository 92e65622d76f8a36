package cgroup

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Space is the space of a filesystem: bytes and inodes. Available is what a user
// without privileges can have. A filesystem that counts no inodes (btrfs) has 0 of
// them in all.
type Space struct {
	Device             uint64 // the same for two paths on one filesystem
	Pool               int32  // of a btrfs: the same for all of its subvolumes, each of which has a device of its own
	Total, Available   int64
	Inodes, InodesFree int64
}

// Statfs reads the filesystem that a path is on (statfs(2)). It waits for as long
// as the filesystem does, which on a dead network mount is for ever.
func Statfs(path string) (Space, error) {
	// The device and the numbers come from one descriptor, so that a mount in
	// between cannot mix two filesystems up.
	fd, err := open(path, unix.O_PATH)
	if err != nil {
		return Space{}, fmt.Errorf("read filesystem of %s: %w", path, errors.Unwrap(err))
	}
	defer unix.Close(fd) //nolint:errcheck // only read
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstatfs(fd, &fs) }); err != nil {
		return Space{}, fmt.Errorf("read filesystem of %s: %w", path, err)
	}
	if err := retry(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return Space{}, fmt.Errorf("read filesystem of %s: %w", path, err)
	}
	return spaceOf(&fs, uint64(st.Dev)), nil //nolint:unconvert // not a uint64 everywhere
}

// StatfsNearest reads the filesystem that a path is on, or would be on: what is
// not there yet is where its nearest parent is.
func StatfsNearest(path string) (Space, error) {
	for {
		s, err := Statfs(path)
		missing := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
		parent := filepath.Dir(path)
		if !missing || parent == path {
			return s, err
		}
		path = parent
	}
}

func spaceOf(fs *unix.Statfs_t, device uint64) Space {
	unit := int64(fs.Frsize) //nolint:unconvert // not an int64 everywhere
	if unit <= 0 {
		unit = int64(fs.Bsize) //nolint:unconvert // as above
	}
	return Space{
		// Of its 64 bits, btrfs mixes a subvolume's ID into the lower ones (btrfs_statfs).
		Device: device, Pool: fs.Fsid.Val[0],
		Total: product(fs.Blocks, unit), Available: product(fs.Bavail, unit),
		Inodes: product(fs.Files, 1), InodesFree: product(fs.Ffree, 1),
	}
}

// product caps what network filesystems make up for "unlimited".
func product(n uint64, unit int64) int64 {
	if unit <= 0 {
		return 0
	}
	if n > math.MaxInt64/uint64(unit) {
		return math.MaxInt64
	}
	return int64(n) * unit
}
