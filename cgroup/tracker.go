package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Usage is the resource usage of a cgroup and its descendants.
type Usage struct {
	Memory     int64 // working set in bytes; −1 without the memory controller
	ActiveFile int64 // part of Memory: page cache, and on v2 dentries and inodes; bytes
	Swap       int64 // bytes; −1 if the kernel does not account for it
	PIDs       int64 // tasks; −1 without the pids controller
}

// filesEach is the maximum number of descriptors per tracked cgroup.
const filesEach = 4

// Tracker reads the usage of many cgroups from open descriptors. It keeps at most half of the process's
// RLIMIT_NOFILE open; for the other cgroups it opens the files on each reading. It may be used from
// several goroutines.
type Tracker struct {
	layout Layout
	names  memoryNames

	mu      sync.Mutex
	tracked map[string]*tracked
	buf     []byte
}

type tracked struct {
	rel   string
	inode uint64 // of its directory; 0 = did not exist
	gone  bool   // it existed, and was removed
	open  bool   // files are kept open
	files
}

// files are a cgroup's open files. A file is nil if its controller is missing.
type files struct{ usage, stat, swap, pids *file }

// NewTracker returns a Tracker that tracks no cgroups yet; see [Tracker.Sync].
func NewTracker(l Layout) *Tracker {
	return &Tracker{layout: l, names: l.memoryNames(), tracked: map[string]*tracked{}}
}

// Sync sets the cgroups to track: a map from the caller's IDs to paths. If a cgroup was removed, the
// next Sync looks for it again. One that does not exist yet is looked for by Usage as well: a runtime lists a container before it makes
// its cgroup.
func (t *Tracker) Sync(dirs map[string]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, c := range t.tracked {
		if rel, ok := dirs[id]; !ok || rel != c.rel {
			c.close()
			delete(t.tracked, id)
		}
	}
	room := maxDescriptors()/2/filesEach - t.keptOpen()
	for id, rel := range dirs {
		c := t.tracked[id]
		if c == nil {
			c = &tracked{rel: rel}
			t.tracked[id] = c
		}
		if ino, err := inode(t.layout.dir(rel)); err != nil || ino != c.inode {
			if c.open {
				room++
			}
			c.close()
			c.gone = ino == 0 && (c.gone || c.inode != 0)
			c.inode = ino
		}
		if c.inode == 0 || c.open || room <= 0 {
			continue
		}
		f, err := t.openFiles(c)
		// No other file reliably reveals that the cgroup was removed. On v2 the memory controller may
		// be enabled later, so the next Sync tries again.
		if err != nil || f.usage == nil || f.stat == nil {
			f.close()
			continue
		}
		c.files, c.open = f, true
		room--
	}
}

// keptOpen counts the cgroups with open files.
func (t *Tracker) keptOpen() int {
	n := 0
	for _, c := range t.tracked {
		if c.open {
			n++
		}
	}
	return n
}

func maxDescriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(limit.Cur, 1<<20))
}

// openFiles opens a cgroup's files. The caller must close the returned files even after an error.
func (t *Tracker) openFiles(c *tracked) (f files, err error) {
	memory := t.layout.Dir("memory", c.rel)
	if f.usage, err = openFile(filepath.Join(memory, t.names.usage)); isResourceExhausted(err) {
		return f, err
	}
	if f.stat, err = openFile(filepath.Join(memory, "memory.stat")); isResourceExhausted(err) {
		return f, err
	}
	if t.names.swapFile != "" {
		if f.swap, err = openFile(filepath.Join(memory, t.names.swapFile)); isResourceExhausted(err) {
			return f, err
		}
	}
	if f.pids, err = openFile(t.pidsFile(c.rel)); isResourceExhausted(err) {
		return f, err
	}
	// If the directory is still the same, all files belong to the same cgroup.
	if ino, err := inode(t.layout.dir(c.rel)); err != nil || ino != c.inode {
		return f, ErrGone
	}
	return f, nil
}

func (t *Tracker) pidsFile(rel string) string {
	return filepath.Join(t.layout.Dir("pids", rel), "pids.current")
}

// isResourceExhausted reports whether an error is more than a missing file, as when descriptors or memory run out.
func isResourceExhausted(err error) bool { return err != nil && !errors.Is(err, unix.ENOENT) }

// Usage reads a tracked cgroup. It returns ErrGone if the cgroup was removed, even if a new one has its
// path.
func (t *Tracker) Usage(id string) (Usage, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.tracked[id]
	if c == nil {
		return Usage{}, fmt.Errorf("read usage of %s: not tracked", id)
	}
	if c.inode == 0 && !c.gone {
		c.inode, _ = inode(t.layout.dir(c.rel))
	}
	if c.inode == 0 {
		return Usage{}, fmt.Errorf("read usage of %s: %w", c.rel, ErrGone)
	}
	if c.open && c.pids == nil {
		// On v1 a runtime creates a cgroup in one hierarchy after the other.
		c.pids = openIf(t.pidsFile(c.rel))
	}
	u, err := t.usage(c)
	if errors.Is(err, ErrGone) {
		c.close()
		c.inode, c.gone = 0, true
	}
	return u, err
}

// usage reads the files of a tracked cgroup, which it opens if they are not kept open.
func (t *Tracker) usage(c *tracked) (Usage, error) {
	if c.open {
		return t.read(&c.files)
	}
	f, err := t.openFiles(c)
	defer f.close()
	if err != nil {
		return Usage{}, fmt.Errorf("read usage of %s: %w", c.rel, gone(err))
	}
	return t.read(&f)
}

// Peek reads a cgroup that is not tracked. It returns ErrGone if the cgroup does not exist.
func (t *Tracker) Peek(rel string) (Usage, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ino, err := inode(t.layout.dir(rel))
	if err != nil {
		return Usage{}, fmt.Errorf("read usage of %s: %w", rel, gone(err))
	}
	return t.usage(&tracked{rel: rel, inode: ino})
}

func (t *Tracker) read(f *files) (Usage, error) {
	u := Usage{Memory: -1, Swap: -1, PIDs: -1}
	if f.usage != nil && f.stat != nil {
		m, stat, err := readMemory(f.usage, f.stat, &t.names, &t.buf)
		if err != nil {
			return Usage{}, err
		}
		u.Memory, u.ActiveFile = m.WorkingSet(), m.ActiveFile
		if t.names.swap != "" {
			u.Swap = parseKey(stat, t.names.swap)
		}
	}
	var err error
	if f.swap != nil {
		if u.Swap, err = t.number(f.swap); err != nil {
			return Usage{}, err
		}
	}
	if f.pids != nil {
		// On v1 pids is a separate hierarchy, where the cgroup may be removed earlier.
		if u.PIDs, err = t.number(f.pids); err != nil {
			return Usage{}, err
		}
	}
	return u, nil
}

func (t *Tracker) number(f *file) (int64, error) {
	b, err := f.read(&t.buf)
	if err != nil {
		return -1, err
	}
	return parseNumber(b), nil
}

// Inode returns the inode of a tracked cgroup. Compare it with [Layout.Inode] right before acting on
// the cgroup, to detect another one under the same path. 0 means that the cgroup did not exist at the
// last Sync and reading, or has been removed since.
func (t *Tracker) Inode(id string) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.tracked[id]; c != nil {
		return c.inode
	}
	return 0
}

// Close closes every descriptor and stops tracking.
func (t *Tracker) Close() { t.Sync(nil) }

func (c *tracked) close() {
	c.files.close()
	c.files, c.open = files{}, false
}

func (f *files) close() {
	f.usage.close()
	f.stat.close()
	f.swap.close()
	f.pids.close()
}
