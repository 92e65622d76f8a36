package cgroup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// dirWatch watches cgroups through inotify. The kernel queues an event before the call that created a
// cgroup or moved a process returns, so a reader that empties the queue misses nothing.
type dirWatch struct {
	mu      sync.Mutex
	fd      int               // −1 = nothing is watched
	watches map[int32]watched // by watch descriptor
	dirs    map[string]int32
	trees   map[string][]int32
	changed map[string]bool // cgroups that changed since the last Changes; true = removed
	lost    bool            // changes since then may have been missed
	room    int             // AddTree fails above this number of watches, AddDir's included
}

// watched is one watched directory. tree is the cgroup passed to AddTree, "" for a watch of AddDir.
type watched struct{ rel, tree string }

// Limits on watches and on remembered changes.
const (
	treeWatches    = 16      // directories of one tree
	changesAtMost  = 4096    // changed cgroups between two calls of Changes
	watchesAtMost  = 1 << 15 // about 1 KiB of kernel memory each
	watchesUnknown = 1 << 12 // if the kernel's limit cannot be read; it was 8192 before linux 5.11
)

// dirMask holds the events for AddDir, treeMask those for AddTree. A write to cgroup.procs means that a
// process moved in. On v2 the kernel modifies cgroup.events when a process starts in an empty cgroup.
const (
	dirMask  = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ONLYDIR
	treeMask = dirMask | unix.IN_MODIFY
)

// AddDir wakes when a cgroup is created or removed directly below rel, as when a pod starts or ends. It
// does nothing for a cgroup that is already watched. The watch ends with the cgroup.
func (w *Waker) AddDir(rel string) error {
	if err := w.openDirs(); err != nil {
		return fmt.Errorf("watch cgroups: %w", err)
	}
	d := &w.dirs
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fd < 0 {
		return fmt.Errorf("watch cgroups: %w", os.ErrClosed)
	}
	wd, err := unix.InotifyAddWatch(d.fd, w.layout.dir(rel), dirMask)
	if err != nil {
		return fmt.Errorf("watch cgroups below %s: %w", rel, gone(err))
	}
	if old, ok := d.dirs[rel]; ok && old != int32(wd) {
		d.drop(old) // belongs to a removed cgroup of the same path
	}
	d.dirs[rel] = int32(wd)
	d.watches[int32(wd)] = watched{rel: rel}
	return nil
}

// AddTree wakes when a process may have entered a cgroup or one below it. The caller must look for
// earlier processes itself, after this call. If it returns an error, nothing is watched.
func (w *Waker) AddTree(rel string) error {
	if err := w.openDirs(); err != nil {
		return fmt.Errorf("watch cgroup: %w", err)
	}
	d := &w.dirs
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fd < 0 {
		return fmt.Errorf("watch cgroup: %w", os.ErrClosed)
	}
	d.dropTree(rel)
	if err := w.watchPopulated(rel); err != nil {
		return fmt.Errorf("watch cgroup %s: %w", rel, err)
	}
	dirs := 0
	for queue := []string{rel}; len(queue) > 0; {
		at := queue[0]
		queue = queue[1:]
		if dirs++; dirs > treeWatches {
			d.dropTree(rel)
			return fmt.Errorf("watch cgroup %s: more than %d cgroups in it", rel, treeWatches)
		}
		if len(d.watches) >= d.room {
			d.dropTree(rel)
			return fmt.Errorf("watch cgroup %s: %d watches already", rel, d.room)
		}
		wd, err := unix.InotifyAddWatch(d.fd, w.layout.dir(at), treeMask)
		if err != nil {
			d.dropTree(rel)
			return fmt.Errorf("watch cgroup %s: %w", rel, gone(err))
		}
		d.watches[int32(wd)] = watched{at, rel}
		d.trees[rel] = append(d.trees[rel], int32(wd))
		names, err := w.layout.Children(at) // later children arrive as events
		if err != nil && !errors.Is(err, ErrGone) {
			d.dropTree(rel)
			return fmt.Errorf("watch cgroup %s: %w", rel, err)
		}
		for _, name := range names {
			queue = append(queue, path.Join(at, name))
		}
	}
	return nil
}

// watchPopulated watches cgroup.events (v2), which covers all descendants. It needs a watch of its own:
// the kernel only notifies of files that it has in memory, and it drops files that are neither watched
// nor open. The caller holds d.mu.
func (w *Waker) watchPopulated(rel string) error {
	if w.layout.Version != V2 {
		return nil
	}
	d := &w.dirs
	wd, err := unix.InotifyAddWatch(d.fd, filepath.Join(w.layout.dir(rel), "cgroup.events"), unix.IN_MODIFY)
	if err != nil {
		return gone(err)
	}
	d.watches[int32(wd)] = watched{rel, rel}
	d.trees[rel] = append(d.trees[rel], int32(wd))
	return nil
}

// RemoveTree ends the watches of AddTree.
func (w *Waker) RemoveTree(rel string) {
	w.dirs.mu.Lock()
	defer w.dirs.mu.Unlock()
	w.dirs.dropTree(rel)
}

// take is read for the epoll loop.
func (d *dirWatch) take() (news bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fd >= 0 && d.read()
}

// close forgets the descriptor, because the kernel may reuse its number.
func (d *dirWatch) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fd, d.lost = -1, true
}

// Changes passes on and clears the changes since the last call: cgroups created or removed below those
// of AddDir, and cgroups of AddTree that a process may have entered. It returns false if the kernel
// dropped events or a watch ended, so that changes may be missing.
func (w *Waker) Changes(each func(rel string, removed bool)) (complete bool) {
	d := &w.dirs
	d.mu.Lock()
	news := d.fd >= 0 && d.read()
	changed, lost := d.changed, d.lost
	d.changed, d.lost = nil, false
	d.mu.Unlock()
	if news {
		w.queue.put(WakePods) // the read above took the event away from the epoll loop
	}
	for rel, removed := range changed {
		each(rel, removed)
	}
	return !lost
}

// openDirs opens the inotify descriptor once.
func (w *Waker) openDirs() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return os.ErrClosed
	case w.pods != nil:
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return err
	}
	d := &w.dirs
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &source{fd: fd, wake: WakePods, drain: func(int, uint32) bool { return true }}
	if err := w.addLocked(s, unix.EPOLLIN); err != nil {
		return err
	}
	d.room = w.layout.watchRoom()
	d.fd, d.watches, d.dirs, d.trees = fd, map[int32]watched{}, map[string]int32{}, map[string][]int32{}
	w.pods = s
	return nil
}

// watchRoom returns half of the kernel's limit per user, because many other services of root do not
// work without watches of their own.
func (l Layout) watchRoom() int {
	limit, err := readNumber(filepath.Join(string(l.proc), "sys/fs/inotify/max_user_watches"))
	if err != nil || limit < 0 {
		return watchesUnknown
	}
	return int(min(limit/2, watchesAtMost))
}

// readAtMost limits the reads, so that a flood of new cgroups does not starve the other sources.
const readAtMost = 64

// read reads the pending events and reports whether one of them matters. The caller holds d.mu.
func (d *dirWatch) read() (news bool) {
	var buf [4096]byte
	for range readAtMost {
		n, err := unix.Read(d.fd, buf[:])
		if err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return news
		}
		eachInotify(buf[:n], func(wd int32, mask uint32, name []byte) { news = d.note(wd, mask, name) || news })
	}
	d.lost = true // more events are pending
	return true
}

// note records an event and reports whether it matters.
func (d *dirWatch) note(wd int32, mask uint32, name []byte) bool {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		d.lost = true
		return true
	}
	at, ok := d.watches[wd]
	switch {
	case !ok:
		return false // the watch was removed in the meantime
	case mask&(unix.IN_IGNORED|unix.IN_UNMOUNT) != 0:
		d.forget(wd)
		d.lost = d.lost || at.tree == ""
		return at.tree == "" || d.change(at.tree, false)
	case mask&(unix.IN_MOVED_FROM|unix.IN_MOVED_TO) != 0:
		d.lost = true // v1 allows renaming a cgroup, but no runtime does it
		return true
	case mask&unix.IN_MODIFY != 0:
		return at.tree != "" && isPopulation(name) && d.change(at.tree, false)
	case mask&unix.IN_ISDIR == 0:
		return false
	case at.tree != "":
		return mask&unix.IN_CREATE != 0 && d.change(at.tree, false)
	}
	rel := path.Join(at.rel, string(name))
	if mask&unix.IN_DELETE != 0 {
		d.dropTree(rel) // cgroupfs does not end a watch on removal
		d.dropDir(rel)
	}
	return d.change(rel, mask&unix.IN_DELETE != 0)
}

// isPopulation reports whether a write to this file may mean that a process entered the cgroup. Events
// of a file that is watched itself have no name.
func isPopulation(name []byte) bool {
	switch string(name) {
	case "", "cgroup.procs", "tasks", "cgroup.threads", "cgroup.events":
		return true
	}
	return false
}

func (d *dirWatch) change(rel string, removed bool) bool {
	if d.changed == nil {
		d.changed = map[string]bool{}
	}
	if _, ok := d.changed[rel]; !ok && len(d.changed) >= changesAtMost {
		d.lost = true
		return true
	}
	d.changed[rel] = removed
	return true
}

func (d *dirWatch) drop(wd int32) {
	d.forget(wd)
	_, _ = unix.InotifyRmWatch(d.fd, uint32(wd))
}

func (d *dirWatch) dropDir(rel string) {
	if wd, ok := d.dirs[rel]; ok {
		d.drop(wd)
	}
}

func (d *dirWatch) dropTree(rel string) {
	for _, wd := range d.trees[rel] {
		delete(d.watches, wd)
		_, _ = unix.InotifyRmWatch(d.fd, uint32(wd))
	}
	delete(d.trees, rel)
}

// forget deletes a watch that has ended from the maps.
func (d *dirWatch) forget(wd int32) {
	at := d.watches[wd]
	delete(d.watches, wd)
	if at.tree == "" && d.dirs[at.rel] == wd {
		delete(d.dirs, at.rel)
	}
}

// inotifyHeader is the length of an event before its name (inotify(7)).
const inotifyHeader = unix.SizeofInotifyEvent

// eachInotify splits a read from an inotify descriptor into events.
func eachInotify(b []byte, each func(wd int32, mask uint32, name []byte)) {
	for len(b) >= inotifyHeader {
		length := uint64(binary.NativeEndian.Uint32(b[12:]))
		if uint64(len(b)) < inotifyHeader+length {
			return
		}
		name, _, _ := bytes.Cut(b[inotifyHeader:inotifyHeader+length], []byte{0})
		each(int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:]), name)
		b = b[inotifyHeader+length:]
	}
}
