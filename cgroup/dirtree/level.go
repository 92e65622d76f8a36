package dirtree

import "golang.org/x/sys/unix"

// suspend closes a level until the walk returns to it.
func (w *walk) suspend(l *level) {
	w.release(l)
}

// resume continues a level at its last offset. If entries were added or removed since its first read,
// the offset may skip some of them, so it sets changed.
func (w *walk) resume(l *level, fd int, st *fileStat) {
	if _, err := unix.Seek(fd, l.next, unix.SEEK_SET); err != nil || st.mtime != l.mtime {
		w.changed = true
	}
	l.fd, l.buf = fd, w.buffer()
}

// ascend leaves the current level for its parent.
func (w *walk) ascend() {
	last := len(w.levels) - 1
	child := w.levels[last]
	w.levels = w.levels[:last]
	if last > 0 && w.levels[last-1].fd < 0 {
		w.reopen(child.fd)
	}
	w.release(&child)
	w.low = max(1, min(w.low, len(w.levels)))
}

// reopen opens the last level through its child.
func (w *walk) reopen(child int) {
	at := len(w.levels) - 1
	l := &w.levels[at]
	fd, st, ok := openAs(child, "..", l.id)
	if !ok {
		w.findAgain()
		return
	}
	w.resume(l, fd, &st)
	w.low = at
}

// findAgain resumes at the deepest level that is still in its place, after a directory on the path of
// the walk was moved. Its new place may be one that the walk has already read.
func (w *walk) findAgain() {
	w.changed = true
	at, fd, found := 0, w.levels[0].fd, fileStat{}
	for i := 1; i < len(w.levels); i++ {
		child, st, ok := openAs(fd, w.levels[i].name, w.levels[i].id)
		if !ok {
			break
		}
		if at > 0 {
			_ = unix.Close(fd)
		}
		at, fd, found = i, child, st
	}
	w.levels = w.levels[:at+1]
	if at > 0 {
		w.resume(&w.levels[at], fd, &found)
	}
	w.low = max(at, 1)
}

// openAs opens a directory if it is the expected one.
func openAs(dir int, name string, id fileID) (fd int, st fileStat, ok bool) {
	fd, err := openDirAt(dir, name)
	if err != nil {
		return -1, fileStat{}, false
	}
	if st, err = statx(fd, "", unix.AT_EMPTY_PATH); err != nil || st.id != id {
		_ = unix.Close(fd)
		return -1, fileStat{}, false
	}
	return fd, st, true
}
