package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Usage is what a cgroup uses, with all below it.
type Usage struct {
	Memory int64 // working set, bytes; −1 without the memory controller
	Swap   int64 // bytes; −1 where the kernel does not account it
	PIDs   int64 // tasks; −1 without the pids controller
}

// filesEach is how many descriptors a tracked cgroup takes at most.
const filesEach = 4

// Tracker reads the usage of many cgroups from descriptors that are kept, as long
// as these are no more than half of what the process may have (RLIMIT_NOFILE); the
// rest is opened for each reading. It may be used from several goroutines.
type Tracker struct {
	layout Layout
	names  memoryNames

	mu      sync.Mutex
	tracked map[string]*tracked
	buf     []byte
}

// tracked is one cgroup.
type tracked struct {
	rel   string
	inode uint64 // of its directory; 0 = it was not there
	open  bool   // the files are
	files
}

// files are a cgroup's open files, nil where its controller is missing.
type files struct{ usage, stat, swap, pids *file }

// NewTracker tracks nothing yet.
func NewTracker(l Layout) *Tracker {
	return &Tracker{layout: l, names: l.memoryNames(), tracked: map[string]*tracked{}}
}

// Sync makes these the cgroups that are tracked: paths by an ID of the caller's.
// One that is not there (yet, or any more) is looked for again by the next Sync.
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
			c.inode = ino
		}
		if c.inode == 0 || c.open || room <= 0 {
			continue
		}
		f, err := t.openFiles(c)
		// Without memory there is nothing that always tells its removal, and on v2 the
		// controller may be enabled later.
		if err != nil || f.usage == nil || f.stat == nil {
			f.close()
			continue
		}
		c.files, c.open = f, true
		room--
	}
}

// keptOpen is how many of the cgroups have open files.
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

// openFiles opens a cgroup's files. With an error, those that it returns are to be
// closed.
func (t *Tracker) openFiles(c *tracked) (f files, err error) {
	memory := t.layout.Dir("memory", c.rel)
	if f.usage, err = openFile(filepath.Join(memory, t.names.usage)); scarce(err) {
		return f, err
	}
	if f.stat, err = openFile(filepath.Join(memory, "memory.stat")); scarce(err) {
		return f, err
	}
	if t.names.swapFile != "" {
		if f.swap, err = openFile(filepath.Join(memory, t.names.swapFile)); scarce(err) {
			return f, err
		}
	}
	if f.pids, err = openFile(filepath.Join(t.layout.Dir("pids", c.rel), "pids.current")); scarce(err) {
		return f, err
	}
	// The same directory as before means that all files are of one cgroup.
	if ino, err := inode(t.layout.dir(c.rel)); err != nil || ino != c.inode {
		return f, ErrGone
	}
	return f, nil
}

// scarce tells an error for want of descriptors or memory from one that says that
// the file is not there.
func scarce(err error) bool { return err != nil && !errors.Is(err, unix.ENOENT) }

// Usage reads a tracked cgroup. ErrGone when it was removed, also when another was
// made under its path.
func (t *Tracker) Usage(id string) (Usage, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.tracked[id]
	if c == nil {
		return Usage{}, fmt.Errorf("read usage of %s: not tracked", id)
	}
	if c.inode == 0 {
		return Usage{}, fmt.Errorf("read usage of %s: %w", c.rel, ErrGone)
	}
	f := c.files
	if !c.open {
		var err error
		f, err = t.openFiles(c)
		defer f.close()
		if err != nil {
			return Usage{}, fmt.Errorf("read usage of %s: %w", c.rel, gone(err))
		}
	}
	u, err := t.read(&f)
	if errors.Is(err, ErrGone) {
		c.close()
		c.inode = 0
	}
	return u, err
}

// Peek reads a cgroup that is not tracked. ErrGone when there is none.
func (t *Tracker) Peek(rel string) (Usage, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ino, err := inode(t.layout.dir(rel))
	if err != nil {
		return Usage{}, fmt.Errorf("read usage of %s: %w", rel, gone(err))
	}
	f, err := t.openFiles(&tracked{rel: rel, inode: ino})
	defer f.close()
	if err != nil {
		return Usage{}, fmt.Errorf("read usage of %s: %w", rel, gone(err))
	}
	return t.read(&f)
}

func (t *Tracker) read(f *files) (Usage, error) {
	u := Usage{Memory: -1, Swap: -1, PIDs: -1}
	if f.usage != nil && f.stat != nil {
		m, stat, err := readMemory(f.usage, f.stat, t.names.inactive, &t.buf)
		if err != nil {
			return Usage{}, err
		}
		u.Memory = m.WorkingSet()
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
		// In a hierarchy of its own on v1, where a cgroup may go earlier.
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

// Inode tells the tracked cgroup from another one under the same path; compare it
// with [Layout.Inode] right before an act. 0 = it was not there when last synced, or
// has gone since.
func (t *Tracker) Inode(id string) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.tracked[id]; c != nil {
		return c.inode
	}
	return 0
}

// Close closes every descriptor and tracks nothing.
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
