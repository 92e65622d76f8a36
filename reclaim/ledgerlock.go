package reclaim

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Several processes may write a ledger's file for a while, such as the service and a prune that began
// before it. Each locks the file for a write and merges the changes of the others.

// lockFile waits for the exclusive lock (flock(2)). The lock ends with the process.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(&fs.PathError{Op: "lock", Path: path, Err: err}, f.Close())
		}
	}
}

// tidy moves damaged generations aside and removes the temporary file of a crashed write. It holds the
// lock, so that neither belongs to another process's write in progress.
func (f *ledgerFile) tidy() {
	unlock, err := lockFile(f.path + ".lock")
	if err != nil {
		return
	}
	defer unlock()
	for _, p := range []string{f.path, f.path + ".prev"} {
		if _, err := readLedger(p); errors.Is(err, errLedger) {
			_ = os.Rename(p, f.path+".damaged")
		}
	}
	if st, err := os.Lstat(f.path + ".tmp"); err == nil && st.Mode().IsRegular() {
		_ = os.Remove(f.path + ".tmp")
	}
}

// replace writes a new generation; the lock is held.
func (f *ledgerFile) replace(raw []byte) error {
	if err := replaceFile(f.path, raw); err != nil {
		return err
	}
	f.own, _ = os.Lstat(f.path)
	return nil
}

// mergeFile merges the changes that another process wrote since this one's last write; the lock is
// held.
func (l *Ledger) mergeFile() {
	now, err := os.Lstat(l.file.path)
	if err != nil || l.file.own != nil && os.SameFile(now, l.file.own) && now.ModTime().Equal(l.file.own.ModTime()) {
		return
	}
	snap, err := readLedger(l.file.path)
	if errors.Is(err, errLedger) {
		_ = os.Rename(l.file.path, l.file.path+".damaged") // otherwise it would become the previous generation
	}
	if err == nil {
		l.merge(snap)
	}
}

// merge takes over the records of another ledger of this boot. For an image that both know, this
// ledger's ages win: the other one may have taken it for new, or may have missed its removal.
func (l *Ledger) merge(s snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.Boot != l.boot || l.boot == "" {
		return
	}
	shift := l.before - (s.Time - s.At) // difference between the two ledgers' times
	here := func(t time.Duration) time.Duration { return max(t+shift, 0) }
	l.latest = max(l.latest, here(s.Time))
	for id, theirs := range s.Images {
		r, known := l.images[id]
		switch {
		case known:
		case theirs.Gone || here(theirs.FirstSeen) > l.noted: // it came after this ledger's last listing
			r = record{FirstSeen: here(theirs.FirstSeen), Gone: theirs.Gone, GoneAt: here(theirs.GoneAt)}
		default:
			continue // this ledger's last listing no longer had it
		}
		if theirs.Used {
			r.Used, r.LastUsed = true, max(r.LastUsed, here(theirs.LastUsed))
		}
		if theirs.Stopped {
			r.Stopped, r.StoppedAt = true, max(r.StoppedAt, here(theirs.StoppedAt))
		}
		r.Pinned, r.Removing = r.Pinned || theirs.Pinned, r.Removing || theirs.Removing
		l.images[id], l.dirty = r, true
	}
	for ref, t := range s.Stopped {
		l.stopped[ref], l.dirty = max(l.stopped[ref], here(t)), true
	}
}

// replaceFile writes new content to path and keeps the old content as path.prev. One of the two
// survives a power cut at any moment.
func replaceFile(path string, content []byte) error {
	dir, tmp, prev := filepath.Dir(path), path+".tmp", path+".prev"
	if err := writeSynced(tmp, content); err != nil {
		_ = os.Remove(tmp) // free the space
		return err
	}
	if err := keepPrevious(path, prev); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(dir)
}

// keepPrevious makes prev another name of the file at path. If there is no file, prev is the only
// complete one and stays.
func keepPrevious(path, prev string) error {
	if _, err := os.Lstat(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if err := os.Remove(prev); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if os.Link(path, prev) == nil {
		return nil
	}
	// The filesystem has no hard links: for a moment only prev exists.
	return os.Rename(path, prev)
}

func writeSynced(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
