package reclaim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/criguard/criguard/cri"
)

// Limits for reading the log directory.
const (
	maxLogDirs    = 1 << 16
	maxLogEntries = 1 << 12 // per pod
)

// logDir is the log directory of one pod.
type logDir struct {
	Name     string    // "<namespace>_<name>_<uid>"
	Modified time.Time // the newest time of all its entries
	Size     int64     // bytes of all its files
	Foreign  bool      // on another device than its parent directory
	Mounted  bool      // a filesystem is mounted on it or in it
}

// selectLogs selects the log directories of pods without a sandbox or container in the runtime. The
// listing must be complete. If none of its pods logs here, the logs belong to another runtime, and none
// is selected. Unlike the kubelet, it keeps directories whose name does not consist of namespace, name
// and UID: their owner is unknown.
func selectLogs(dirs []logDir, inv inventory, minAge time.Duration, now Moment) selection {
	uids := inv.uids()
	ours := slices.ContainsFunc(dirs, func(d logDir) bool {
		uid, _ := logUID(d.Name)
		return uids[uid]
	})
	var sel selection
	for _, d := range dirs {
		it := Item{Kind: KindLogs, ID: d.Name, Name: d.Name, Size: d.Size, Age: Duration(wallAge(d.Modified, now.Wall))}
		uid, ok := logUID(d.Name)
		switch {
		case uids[uid]:
		case !ok:
			sel.keep(it, "not the log directory of a pod")
		case d.Foreign:
			sel.keep(it, "on a filesystem of its own")
		case d.Mounted:
			sel.keep(it, errMounted.Error())
		case !ours:
			sel.keep(it, "the runtime has no pod that logs here")
		case it.Age < Duration(minAge):
			sel.keep(it, "written to within min_age")
		default:
			it.Why = "its pod is gone"
			sel.Remove = append(sel.Remove, it)
		}
	}
	slices.SortFunc(sel.Remove, func(a, b Item) int {
		return cmp.Or(-cmp.Compare(a.Age, b.Age), strings.Compare(a.ID, b.ID))
	})
	return sel
}

// logUID extracts the UID from a log directory's name.
func logUID(name string) (string, bool) {
	parts := strings.Split(name, "_")
	if len(parts) != 3 || slices.Contains(parts, "") {
		return "", false
	}
	return parts[2], true
}

// Logs is the parent of the pods' log directories, usually /var/log/pods. Below it, no symbolic link is
// followed.
type Logs struct {
	Dir string // "" = none
	// Mounts lists the mount points that this process sees (proc_pid_mountinfo(5)), including mounted files.
	// A directory with one in it is not removed: its content belongs to others.
	Mounts func() ([]string, error)
}

// list reads the log directories, but not their content. It skips a directory that disappears
// meanwhile. A missing parent directory is not an error.
func (l Logs) list() ([]logDir, error) {
	root, err := os.OpenRoot(l.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open log directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	// Reading a directory updates its access time, which is a write to the disk.
	top, err := root.OpenFile(".", os.O_RDONLY|syscall.O_NOATIME, 0)
	if errors.Is(err, fs.ErrPermission) {
		top, err = root.Open(".") // the directory belongs to another user
	}
	if err != nil {
		return nil, fmt.Errorf("open log directory: %w", err)
	}
	defer func() { _ = top.Close() }()
	self, err := top.Stat()
	if err != nil {
		return nil, fmt.Errorf("look into log directory: %w", err)
	}
	entries, err := top.ReadDir(maxLogDirs)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read log directory: %w", err)
	}
	var dirs []logDir
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.IsDir() {
			dirs = append(dirs, logDir{Name: e.Name(), Modified: info.ModTime(), Foreign: device(info) != device(self)})
		}
	}
	slices.SortFunc(dirs, func(a, b logDir) int { return strings.Compare(a.Name, b.Name) })
	return dirs, nil
}

// measure reads the log directories of pods that are gone. It skips the others: there may be hundreds
// of them.
func (l Logs) measure(listed []logDir, inv inventory) ([]logDir, error) {
	if len(listed) == 0 {
		return nil, nil
	}
	root, err := os.OpenRoot(l.Dir)
	if err != nil {
		return nil, fmt.Errorf("open log directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	base, err := l.resolved()
	if err != nil {
		return nil, fmt.Errorf("resolve log directory: %w", err)
	}
	mounts, err := l.mountsIn(base)
	if err != nil {
		return nil, fmt.Errorf("find mounts in log directory: %w", err)
	}
	uids := inv.uids()
	dirs := slices.Clone(listed)
	for i := range dirs {
		d := &dirs[i]
		path := filepath.Join(base, d.Name)
		d.Mounted = slices.ContainsFunc(mounts, func(m string) bool { return isIn(m, path) })
		uid, _ := logUID(d.Name)
		if !uids[uid] && !d.Foreign && !d.Mounted {
			measure(root, d)
		}
	}
	return dirs, nil
}

// measure adds up the content of a log directory, as far as it is readable.
func measure(root *os.Root, d *logDir) {
	seen := 0
	_ = fs.WalkDir(root.FS(), d.Name, func(_ string, e fs.DirEntry, err error) error {
		if seen++; err != nil || seen > maxLogEntries {
			return fs.SkipAll
		}
		if info, err := e.Info(); err == nil {
			if info.ModTime().After(d.Modified) {
				d.Modified = info.ModTime()
			}
			if info.Mode().IsRegular() {
				d.Size += info.Size()
			}
		}
		return nil
	})
}

func device(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Dev
	}
	return 0
}

// remove removes one pod's log directory, unless a filesystem is mounted in it: its content belongs to
// others.
func (l Logs) remove(name string) error {
	root, err := os.OpenRoot(l.Dir)
	if err != nil {
		return fmt.Errorf("open log directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	if name != filepath.Base(name) || name == "." || name == ".." {
		return fmt.Errorf("remove logs %s: %w", name, fs.ErrInvalid)
	}
	base, err := l.resolved()
	if err != nil {
		return fmt.Errorf("resolve log directory: %w", err)
	}
	mounts, err := l.mountsIn(filepath.Join(base, name))
	if err != nil {
		return fmt.Errorf("find mounts in logs %s: %w", name, err)
	}
	if len(mounts) > 0 {
		return fmt.Errorf("remove logs %s: %w: %s", name, errMounted, mounts[0])
	}
	top, err := root.Open(".")
	if err != nil {
		return fmt.Errorf("open log directory: %w", err)
	}
	defer func() { _ = top.Close() }()
	home, err := placeOf(top)
	if err == nil {
		err = removeTree(root, name, home, 0)
	}
	if err != nil {
		return fmt.Errorf("remove logs %s: %w", name, err)
	}
	return nil
}

// RemoveOf removes the log of one container, including rotated ones, which the runtimes leave behind.
// The path must have a kubelet's form, <pod>/<container>/<attempt>.log: several attempts may share any
// other log.
func (l Logs) RemoveOf(path, container string, attempt uint32) error {
	rel, err := filepath.Rel(l.Dir, path)
	base := strconv.FormatUint(uint64(attempt), 10) + ".log"
	parts := strings.Split(rel, "/")
	if l.Dir == "" || err != nil || len(parts) != 3 || parts[0] == ".." || parts[1] != container || parts[2] != base {
		return nil
	}
	root, err := os.OpenRoot(l.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open log directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	dir := parts[0] + "/" + parts[1]
	for _, d := range []string{parts[0], dir} {
		if info, err := root.Lstat(d); err != nil || !info.IsDir() {
			return nil // gone, or a link to another place
		}
	}
	entries, err := fs.ReadDir(root.FS(), dir)
	if err != nil {
		return fmt.Errorf("read logs of container: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if e.IsDir() || e.Name() != base && !strings.HasPrefix(e.Name(), base+".") {
			continue
		}
		if err := root.Remove(dir + "/" + e.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove log of container: %w", err))
		}
	}
	return errors.Join(errs...)
}

// LogRemover removes the logs of containers, and does not wait for a disk that stalls. It must not be copied.
type LogRemover struct {
	Logs  Logs
	Wait  time.Duration // for one removal; 0 = 10 s
	files worker
}

// Remove removes the log of a container like Logs.RemoveOf. After ErrStalled or the end of ctx, the removal
// continues in the background; until it returns, no other one begins.
func (r *LogRemover) Remove(ctx context.Context, d cri.ContainerDetail) error {
	_, err := call(ctx, &r.files, cmp.Or(r.Wait, logsWait), func() (struct{}, error) {
		return struct{}{}, r.Logs.RemoveOf(d.LogPath, d.Name, d.Attempt)
	})
	return err
}
