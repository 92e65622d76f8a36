package cgroup

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"time"

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
	// Lag is how long after the deletion of a file its space may still count as used: btrfs and ZFS free it with a transaction.
	// That of btrfs may be open for 30 s, unless something commits it, see StartCommit.
	Lag      time.Duration
	ByCommit bool // what was deleted is free after a commit, as on btrfs
	InMemory bool // its files are memory, as on tmpfs
}

// zfsMagic is the type of OpenZFS (ZFS_SUPER_MAGIC), which the kernel does not know.
const zfsMagic = 0x2fc12fc1

// startSync is BTRFS_IOC_START_SYNC, _IOR(0x94, 24, __u64).
const startSync = 0x80089418

// StartCommit lets btrfs commit its transaction on the filesystem that holds a directory (ioctl_btrfs BTRFS_IOC_START_SYNC), which it
// does every 30 s by itself. Unlike syncfs(2), that writes no data that is still in memory. It blocks as long as the filesystem does.
func StartCommit(dir string) error {
	fd, err := open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOATIME)
	if err != nil {
		return fmt.Errorf("commit filesystem of %s: %w", dir, errors.Unwrap(err))
	}
	defer unix.Close(fd) //nolint:errcheck // only read
	// Without a place for it, the kernel does not return the number of the transaction.
	if err := unix.IoctlSetInt(fd, startSync, 0); err != nil {
		return fmt.Errorf("commit filesystem of %s: %w", dir, err)
	}
	return nil
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
	lag, byCommit, inMemory := time.Duration(0), false, false
	switch uint32(fs.Type) { //nolint:gosec // all types have 32 bits
	case unix.BTRFS_SUPER_MAGIC:
		lag, byCommit = 5*time.Second, true // for a commit that was asked for, beside other writes
	case zfsMagic:
		lag = 6 * time.Second // zfs_txg_timeout is 5 s
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		inMemory = true
	}
	return Space{
		// btrfs mixes the subvolume ID only into the lower 32 of these 64 bits (btrfs_statfs).
		Device: device, Pool: fs.Fsid.Val[0],
		Total: product(fs.Blocks, unit), Available: product(fs.Bavail, unit),
		Inodes: product(fs.Files, 1), InodesFree: product(fs.Ffree, 1),
		Reserved: product(max(fs.Bfree, fs.Bavail)-fs.Bavail, unit),
		Lag:      lag, ByCommit: byCommit, InMemory: inMemory,
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
