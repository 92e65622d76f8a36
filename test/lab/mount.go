package lab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is one line of mountinfo (proc_pid_mountinfo(5)).
type mount struct {
	device  string // major:minor of the superblock
	root    string // the part of the filesystem that is mounted
	point   string
	fstype  string
	options string // of the superblock
}

// mounts reads the mounts of this process's namespace, in the order in which they were made.
func mounts() ([]mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	defer f.Close()
	return parseMounts(f)
}

// parseMounts skips lines that it does not understand.
func parseMounts(r io.Reader) ([]mount, error) {
	var all []mount
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		left, right, ok := strings.Cut(lines.Text(), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 3 {
			continue
		}
		all = append(all, mount{device: l[2], root: unescape(l[3]), point: unescape(l[4]), fstype: r[0], options: r[2]})
	}
	return all, lines.Err()
}

// unescape undoes the octal escapes (\040 for a space) of mountinfo.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if code, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// mountsBelow returns the mount points at and below dir, the last made first.
func mountsBelow(dir string) ([]string, error) {
	all, err := mounts()
	if err != nil {
		return nil, err
	}
	var below []string
	for _, m := range all {
		if isBelow(m.point, dir) {
			below = append(below, m.point)
		}
	}
	slices.Reverse(below)
	return below, nil
}

// isBelow says whether the clean path lies at or below dir.
func isBelow(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// mountTmpfs mounts a tmpfs with room for size bytes at dir, which it makes. inodes 0 leaves their number to the kernel.
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

// unmountBelow unmounts everything at and below dir. A mount that is still in use goes once its users do, which is told by an error
// only if it stays visible.
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

// overlayWorks says whether the overlay filesystem can be used on the filesystem of dir, which it cannot on top of another overlay.
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
