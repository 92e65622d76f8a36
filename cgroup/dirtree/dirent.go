package dirtree

import (
	"bytes"
	"encoding/binary"
	"runtime"

	"golang.org/x/sys/unix"
)

// dirent is one entry of a directory.
type dirent struct {
	name string
	next int64 // offset of the next entry, for lseek(2)
	kind uint8 // DT_DIR and the like; DT_UNKNOWN on some filesystems
}

// direntHeader is the size of linux_dirent64 (getdents64(2)) without the name: inode, offset, record
// length and type. It is the same on every architecture.
const direntHeader = 19

// maxDirent is the size of the largest entry: a name of 255 bytes with its end, rounded up.
const maxDirent = (direntHeader + 255 + 1 + 7) &^ 7

// parseDirent cuts the first entry off the output of getdents64. It returns false if b holds no
// complete entry.
func parseDirent(b []byte) (e dirent, rest []byte, ok bool) {
	if len(b) < direntHeader {
		return dirent{}, nil, false
	}
	size := int(binary.NativeEndian.Uint16(b[16:]))
	if size <= direntHeader || size > len(b) {
		return dirent{}, nil, false
	}
	name, _, ended := bytes.Cut(b[direntHeader:size], []byte{0})
	if !ended || len(name) == 0 || bytes.IndexByte(name, '/') >= 0 {
		return dirent{}, nil, false
	}
	next := int64(binary.NativeEndian.Uint64(b[8:])) //nolint:gosec // a signed offset
	return dirent{name: string(name), next: next, kind: b[18]}, b[size:], true
}

// getdents reads as many entries as fit into the buffer. At the end of the directory it returns none.
//
// It blocks all signals meanwhile: the kernel ends the call early for one, such as those by which Go preempts goroutines.
// A directory that fits into the buffer would take a second call then, and an entry that is renamed between the two can be
// missing from both.
func getdents(fd int, buf []byte) ([]byte, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before) == nil {
		defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }()
	}
	var n int
	err := retry(func() (err error) {
		n, err = unix.Getdents(fd, buf)
		return err
	})
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}
