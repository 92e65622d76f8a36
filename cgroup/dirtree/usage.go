package dirtree

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Limits of a walk. The owner of the files controls their number, names and depth.
const (
	// maxOpenDirs limits the descriptors and buffers of one walk. In a deeper tree, levels in between
	// are closed.
	maxOpenDirs  = 32
	maxTreeDepth = 1 << 14 // a closed level keeps its name: 5 MiB at most
	direntBuffer = 16 << 10
	treeAttempts = 4 // walks of a tree whose entries change during the walk
)

// Usage is the space that a directory tree uses on its filesystem.
type Usage struct {
	Bytes, Inodes int64 // allocated
	// Partial means that something could not be read, or moved during the walk. Both numbers are lower
	// bounds.
	Partial bool
}

// larger combines two lower bounds into the larger one.
func (u Usage) larger(v Usage) Usage {
	return Usage{Bytes: max(u.Bytes, v.Bytes), Inodes: max(u.Inodes, v.Inodes), Partial: true}
}

// Measure measures the tree below a directory, to which others may write at the same time. It
// follows no symbolic link and enters no other mount (before linux 5.8: no other device), so
// memory-backed and persistent volumes do not count. A file with several names counts in part with
// each, so that it counts once if all its names are in the tree. A tree that does not exist uses
// nothing.
//
// The walk reads one directory at a time through descriptors: no path is too long for it, and a rename
// cannot lead it elsewhere. A file that is constantly renamed may escape a walk. Measure then walks
// the tree again and returns the largest result, which is a lower bound. The walk stops when ctx ends.
// It calls progress, if not nil, with what it has counted so far.
func Measure(ctx context.Context, root string, progress func(Usage)) (Usage, error) {
	var most Usage
	for range treeAttempts {
		w := walk{depth: maxTreeDepth, low: 1, progress: func(u Usage) {
			if progress != nil {
				progress(u.larger(most))
			}
		}}
		if err := w.run(ctx, root); errors.Is(err, unix.ENOENT) {
			return Usage{}, nil
		} else if err != nil {
			return Usage{}, fmt.Errorf("measure %s: %w", root, err)
		}
		u := w.usage()
		if !u.Partial && !w.changed {
			return u, nil
		}
		if most = u.larger(most); !w.changed || w.ended {
			break
		}
	}
	return most, nil
}

// walk is the state of one walk.
type walk struct {
	progress func(Usage)
	depth    int // maximum number of levels to enter
	// levels lead from the root to the current directory. The root and the levels from low on are open.
	levels  []level
	low     int
	buffers [][]byte // unused

	bytes, inodes       int64
	linkedBytes, linked float64 // for files with several names
	partial             bool
	ended               bool // by its context
	changed             bool // an entry was renamed, replaced or removed between two reads of it
}

// level is a directory that was entered and not read to its end.
type level struct {
	name   string
	id     fileID
	next   int64               // offset to continue from, for lseek(2)
	mtime  unix.StatxTimestamp // before the first read; its entries are as they were then
	fd     int                 // -1 while closed
	buf    []byte
	unread []byte // part of buf
	begun  bool   // was read from
	full   bool   // the last read may have ended because buf was full
}

func (w *walk) run(ctx context.Context, root string) error {
	defer w.close()
	if err := w.begin(root); err != nil {
		return err
	}
	for len(w.levels) > 0 {
		if ctx.Err() != nil {
			w.partial, w.ended = true, true
			break
		}
		if e, ok := w.next(); ok {
			w.visit(e)
		} else {
			w.ascend()
		}
	}
	return nil
}

func (w *walk) usage() Usage {
	return Usage{
		Bytes:   w.bytes + int64(math.Round(w.linkedBytes)),
		Inodes:  w.inodes + int64(math.Round(w.linked)),
		Partial: w.partial,
	}
}

func (w *walk) close() {
	for i := range w.levels {
		w.release(&w.levels[i])
	}
}

// begin opens the root. If the root is not a directory, begin only counts it.
func (w *walk) begin(root string) error {
	st, err := statx(unix.AT_FDCWD, root, 0)
	if err != nil {
		return err
	}
	w.count(&st)
	if !st.isDir() {
		return nil
	}
	fd, err := openDirAt(unix.AT_FDCWD, root)
	if err != nil {
		return err
	}
	if st, err = statx(fd, "", unix.AT_EMPTY_PATH); err != nil {
		_ = unix.Close(fd)
		return err
	}
	w.push(filepath.Base(root), fd, &st)
	return nil
}

// next returns the next entry of the current directory, and false at its end.
func (w *walk) next() (dirent, bool) {
	l := &w.levels[len(w.levels)-1]
	if len(l.unread) == 0 {
		if w.progress != nil {
			w.progress(w.usage())
		}
		var err error
		if l.unread, err = getdents(l.fd, l.buf); err != nil {
			w.fail(err)
		}
		// Between two reads, an entry may have moved from the part that is not read yet to the one that is.
		if l.begun && (l.full || len(l.unread) > 0) {
			w.compare(l)
		}
		l.begun, l.full = true, len(l.unread) > len(l.buf)-maxDirent
		if len(l.unread) == 0 {
			return dirent{}, false
		}
	}
	e, rest, ok := parseDirent(l.unread)
	if !ok {
		w.partial = true
		return dirent{}, false
	}
	l.unread, l.next = rest, e.next
	return e, true
}

// visit counts an entry and enters it if it is a directory on the same mount.
func (w *walk) visit(e dirent) {
	if e.name == "." || e.name == ".." {
		return
	}
	fd := w.levels[len(w.levels)-1].fd
	st, err := statx(fd, e.name, 0)
	if err != nil {
		w.fail(err)
		return
	}
	if !st.id.sameMount(w.levels[0].id) {
		return
	}
	if e.kind != unix.DT_UNKNOWN && e.kind != uint8((st.mode&unix.S_IFMT)>>12) {
		w.changed = true // e.g. two names were swapped: a directory would count under both
		if st.isDir() {
			return
		}
	}
	w.count(&st)
	if st.isDir() {
		w.enter(fd, e.name, st.id)
	}
}

func (w *walk) count(st *fileStat) {
	if st.links > 1 && !st.isDir() {
		w.linkedBytes += float64(st.bytes) / float64(st.links)
		w.linked += 1 / float64(st.links)
		return
	}
	w.bytes += st.bytes
	w.inodes++
}

// fail records that an entry could not be read. An entry that was removed in the meantime uses nothing,
// but it may have been renamed.
func (w *walk) fail(err error) {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		w.changed = true
	default:
		w.partial = true
	}
}

// enter descends into a directory, unless it was replaced since the lookup.
func (w *walk) enter(parent int, name string, id fileID) {
	if len(w.levels) >= w.depth {
		w.partial = true
		return
	}
	fd, err := openDirAt(parent, name)
	if err != nil {
		w.fail(err)
		return
	}
	st, err := statx(fd, "", unix.AT_EMPTY_PATH)
	if err != nil || st.id != id {
		w.changed = true
		_ = unix.Close(fd)
		return
	}
	if len(w.levels)-w.low+1 >= maxOpenDirs {
		w.suspend(&w.levels[w.low])
		w.low++
	}
	w.push(name, fd, &st)
}

func (w *walk) push(name string, fd int, st *fileStat) {
	w.levels = append(w.levels, level{name: name, id: st.id, mtime: st.mtime, fd: fd, buf: w.buffer()})
}

// compare sets changed if entries of a directory were added, removed or renamed since its first read.
func (w *walk) compare(l *level) {
	if st, err := statx(l.fd, "", unix.AT_EMPTY_PATH); err != nil || st.mtime != l.mtime {
		w.changed = true
	}
}

func (w *walk) buffer() []byte {
	n := len(w.buffers)
	if n == 0 {
		return make([]byte, direntBuffer)
	}
	b := w.buffers[n-1]
	w.buffers = w.buffers[:n-1]
	return b
}

// release closes a level and recycles its buffer.
func (w *walk) release(l *level) {
	if l.fd < 0 {
		return
	}
	_ = unix.Close(l.fd)
	w.buffers = append(w.buffers, l.buf)
	l.fd, l.buf, l.unread = -1, nil, nil
}
