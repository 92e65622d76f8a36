package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/cgroup/mountinfo"
)

// mountsBelow returns the mount points at and below dir, newest first.
func mountsBelow(dir string) ([]string, error) {
	all, err := mountinfo.Read()
	if err != nil {
		return nil, err
	}
	var below []string
	for _, m := range all {
		if isBelow(m.Point, dir) {
			below = append(below, m.Point)
		}
	}
	slices.Reverse(below)
	return below, nil
}

// isBelow reports whether the clean path is at or below dir.
func isBelow(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// mountTmpfs creates dir and mounts a tmpfs of size bytes on it. inodes 0 leaves their number to
// the kernel.
func mountTmpfs(dir string, size, inodes int64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	options := fmt.Sprintf("mode=0755,size=%d", size)
	if inodes > 0 {
		options += fmt.Sprintf(",nr_inodes=%d", inodes)
	}
	if err := unix.Mount("criguard-lab", dir, "tmpfs", 0, options); err != nil {
		return fmt.Errorf("mount tmpfs of %d bytes at %s: %w", size, dir, err)
	}
	return nil
}

// unmountBelow unmounts everything at and below dir. A mount in use is detached and disappears with
// its last user; it causes an error only if it stays visible.
func unmountBelow(dir string) error {
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, point := range points {
		err := unix.Unmount(point, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			err = unix.Unmount(point, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", point, err))
		}
	}
	left, err := mountsBelow(dir)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("unmount %s: still mounted: %s", dir, strings.Join(left, ", "))
	}
	return errors.Join(append(errs, err)...)
}

// overlayWorks reports whether overlayfs works on the filesystem of dir. It does not on top of
// another overlay.
func overlayWorks(dir string) bool {
	probe, err := os.MkdirTemp(dir, "overlay-probe-")
	if err != nil {
		return false
	}
	defer os.RemoveAll(probe)
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(probe, name), 0o755); err != nil {
			return false
		}
	}
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", probe)
	merged := filepath.Join(probe, "merged")
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		return false
	}
	return unix.Unmount(merged, unix.UMOUNT_NOFOLLOW) == nil
}
