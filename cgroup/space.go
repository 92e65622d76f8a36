package cgroup

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Space is the space of a filesystem in bytes and inodes. Available is what an unprivileged user can
// use. If a filesystem does not count inodes (btrfs), Inodes is 0.
type Space struct {
	Device             uint64 // equal for two paths on the same filesystem
	Pool               int32  // on btrfs, equal for all subvolumes of a filesystem, each of which has its own Device
	Total, Available   int64
	Inodes, InodesFree int64
	Reserved           int64 // free bytes that only root can use, as on ext4
}

// Statfs reads the filesystem that holds a path (statfs(2)). It blocks as long as the filesystem does,
// which is forever on a dead network mount.
func Statfs(path string) (Space, error) {
	// One descriptor serves for both calls, so that a mount between them cannot mix up two filesystems.
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

// StatfsNearest reads the filesystem that holds a path or, if the path does not exist, its nearest
// existing parent.
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
		// btrfs mixes the subvolume ID only into the lower 32 of these 64 bits (btrfs_statfs).
		Device: device, Pool: fs.Fsid.Val[0],
		Total: product(fs.Blocks, unit), Available: product(fs.Bavail, unit),
		Inodes: product(fs.Files, 1), InodesFree: product(fs.Ffree, 1),
		Reserved: product(max(fs.Bfree, fs.Bavail)-fs.Bavail, unit),
	}
}

// product saturates, because network filesystems report huge numbers for "unlimited".
func product(n uint64, unit int64) int64 {
	if unit <= 0 {
		return 0
	}
	if n > math.MaxInt64/uint64(unit) {
		return math.MaxInt64
	}
	return int64(n) * unit
}
