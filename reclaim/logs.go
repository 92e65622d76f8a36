package reclaim

import (
	"cmp"
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
)

// Bounds of looking into the log directory.
const (
	maxLogDirs    = 1 << 16
	maxLogEntries = 1 << 12 // per pod
)

// logDir is the log directory of one pod.
type logDir struct {
	Name     string    // "<namespace>_<name>_<uid>"
	Modified time.Time // the newest of everything in it
	Size     int64     // bytes of everything in it
	Foreign  bool      // on another device than the directory it is in
}

// selectLogs chooses the log directories of pods of which the runtime has
// neither a sandbox nor a container. The listing must be whole. When it has not
// one pod that logs here, the logs are another runtime's, and nothing goes.
// Unlike the kubelet, it leaves directories alone whose name does not tell
// namespace, name and UID: nobody knows whose they are.
func selectLogs(dirs []logDir, inv inventory, minAge time.Duration, now Moment) selection {
	pods := inv.pods()
	ours := slices.ContainsFunc(dirs, func(d logDir) bool {
		uid, ok := logUID(d.Name)
		_, known := pods[uid]
		return ok && known
	})
	var sel selection
	for _, d := range dirs {
		it := Item{Kind: KindLogs, ID: d.Name, Name: d.Name, Size: d.Size, Age: wallAge(d.Modified, now.Wall)}
		uid, ok := logUID(d.Name)
		_, known := pods[uid]
		switch {
		case known:
		case !ok:
			sel.keep(it, "not the log directory of a pod")
		case d.Foreign:
			sel.keep(it, "on a filesystem of its own")
		case !ours:
			sel.keep(it, "the runtime has no pod that logs here")
		case it.Age < minAge:
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

// logUID takes the UID out of a log directory's name.
func logUID(name string) (string, bool) {
	parts := strings.Split(name, "_")
	if len(parts) != 3 || slices.Contains(parts, "") {
		return "", false
	}
	return parts[2], true
}

// Logs is the directory that holds the pods' log directories, usually
// /var/log/pods. Below it, no symbolic link is followed.
type Logs string

// list reads the log directories, not yet what is in them. A directory that vanishes
// meanwhile is left out; it is no error when there is none at all.
func (l Logs) list() ([]logDir, error) {
	root, err := os.OpenRoot(string(l))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open log directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	// Reading a directory marks it as accessed, which is a write to the disk.
	top, err := root.OpenFile(".", os.O_RDONLY|syscall.O_NOATIME, 0)
	if errors.Is(err, fs.ErrPermission) {
		top, err = root.Open(".") // somebody else's
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

// measure looks into the log directories of pods that are gone: of the others there may
// be hundreds, and nothing is asked about them.
func (l Logs) measure(dirs []logDir, inv inventory) {
	pods := inv.pods()
	root, err := os.OpenRoot(string(l))
	if err != nil {
		return // removed since it was listed
	}
	defer func() { _ = root.Close() }()
	for i := range dirs {
		d := &dirs[i]
		uid, _ := logUID(d.Name)
		if _, known := pods[uid]; !known && !d.Foreign {
			measure(root, d)
		}
	}
}

// measure adds up what is in a log directory, as far as it can be read.
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

// remove removes one pod's log directory.
func (l Logs) remove(name string) error {
	root, err := os.OpenRoot(string(l))
	if err != nil {
		return fmt.Errorf("open log directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	if err := root.RemoveAll(name); err != nil {
		return fmt.Errorf("remove logs %s: %w", name, err)
	}
	return nil
}

// RemoveOf removes the log of one container, with what it was rotated into; the
// runtimes leave it behind. It does so only where the path is the one a kubelet
// gives, <pod>/<container>/<attempt>.log: any other log may be shared by several
// attempts.
func (l Logs) RemoveOf(path, container string, attempt uint32) error {
	rel, err := filepath.Rel(string(l), path)
	base := strconv.FormatUint(uint64(attempt), 10) + ".log"
	parts := strings.Split(rel, "/")
	if l == "" || err != nil || len(parts) != 3 || parts[0] == ".." || parts[1] != container || parts[2] != base {
		return nil
	}
	root, err := os.OpenRoot(string(l))
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
			return nil // gone, or a link to somewhere else
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
