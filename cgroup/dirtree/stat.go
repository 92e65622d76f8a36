package dirtree

import (
	"errors"
	"io/fs"
	"math"

	"golang.org/x/sys/unix"
)

// fileID identifies a file and the mount through which it was reached.
type fileID struct {
	ino, dev, mount uint64
	mounts          bool // whether the kernel reports the mount (linux 5.8)
}

// sameMount compares mounts if the kernel reports them, else devices. A bind mount of the same device
// is another mount. A btrfs subvolume, which any user can create, has its own device but is the same
// mount.
func (a fileID) sameMount(b fileID) bool {
	if a.mounts && b.mounts {
		return a.mount == b.mount
	}
	return a.dev == b.dev
}

// fileStat holds the attributes that a walk needs.
type fileStat struct {
	id    fileID
	mode  uint32
	uid   uint32
	links uint64
	bytes int64 // allocated
	mtime unix.StatxTimestamp
}

func (st *fileStat) isDir() bool { return st.mode&unix.S_IFMT == unix.S_IFDIR }

// statx looks up a file below a directory. It follows no symbolic link, triggers no automount and does
// not query a network server.
func statx(dir int, name string, flags int) (fileStat, error) {
	const mask = unix.STATX_TYPE | unix.STATX_MODE | unix.STATX_UID | unix.STATX_NLINK | unix.STATX_INO |
		unix.STATX_BLOCKS | unix.STATX_MTIME | unix.STATX_MNT_ID
	flags |= unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	var st unix.Statx_t
	err := retry(func() error { return unix.Statx(dir, name, flags|unix.AT_STATX_DONT_SYNC, mask, &st) })
	if errors.Is(err, unix.ENOSYS) { // before linux 4.11
		return fstatat(dir, name, flags)
	}
	if err != nil {
		return fileStat{}, err
	}
	return fileStat{
		id: fileID{
			ino: st.Ino, dev: unix.Mkdev(st.Dev_major, st.Dev_minor),
			mount: st.Mnt_id, mounts: st.Mask&unix.STATX_MNT_ID != 0,
		},
		mode: uint32(st.Mode), uid: st.Uid, links: uint64(st.Nlink), bytes: int64(min(st.Blocks, math.MaxInt64/512)) * 512, mtime: st.Mtime,
	}, nil
}

func fstatat(dir int, name string, flags int) (fileStat, error) {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstatat(dir, name, &st, flags) }); err != nil {
		return fileStat{}, err
	}
	sec, nsec := st.Mtim.Unix()
	return fileStat{
		id:   fileID{ino: st.Ino, dev: uint64(st.Dev)},                              //nolint:unconvert // not a uint64 everywhere
		mode: st.Mode, uid: st.Uid, links: uint64(st.Nlink), bytes: st.Blocks * 512, //nolint:unconvert // as above
		mtime: unix.StatxTimestamp{Sec: sec, Nsec: uint32(nsec)}, //nolint:gosec // below a second
	}, nil
}

// openDirAt opens a directory and nothing else: a FIFO or a device in its place neither blocks nor has
// side effects. O_NOATIME avoids a write to the disk for the access time.
func openDirAt(dir int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK
	fd, err := openAt(dir, name, flags|unix.O_NOATIME)
	if errors.Is(err, unix.EPERM) { // owned by another user, and without CAP_FOWNER
		fd, err = openAt(dir, name, flags)
	}
	return fd, err
}

func openAt(dir int, name string, flags int) (fd int, err error) {
	err = retry(func() (err error) {
		fd, err = unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// retry repeats a system call that a signal interrupted (EINTR).
func retry(do func() error) error {
	for {
		if err := do(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
