package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// firstBuffer fits every file that is read on every pass, with room to spare. If a read fills the
// buffer, its size doubles, up to maxBuffer.
const (
	firstBuffer = 8 << 10
	maxBuffer   = 1 << 20
)

// file is a small kernel file with an open descriptor. A pread returns its current content without
// looking up the name.
type file struct {
	path string
	fd   int
}

func openFile(path string) (*file, error) {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return &file{path, fd}, nil
}

// open opens a file with O_CLOEXEC, so that child processes do not inherit it.
func open(path string, flags int) (int, error) {
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Open(path, flags|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// read reads the whole file into *buf and returns the part that was filled, valid until the next use of
// the buffer. The buffer grows if needed, because a truncated line would parse as a smaller number.
func (f *file) read(buf *[]byte) ([]byte, error) {
	if len(*buf) == 0 {
		*buf = make([]byte, firstBuffer)
	}
	for {
		n, err := pread(f.fd, *buf, 0)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", f.path, gone(err))
		}
		if n < len(*buf) {
			return (*buf)[:n], nil
		}
		if len(*buf) >= maxBuffer {
			return nil, fmt.Errorf("read %s: longer than %d bytes", f.path, maxBuffer)
		}
		*buf = make([]byte, 2*len(*buf))
	}
}

// readNumber reads a file that holds a single number.
func (f *file) readNumber(buf *[]byte) (int64, error) {
	b, err := f.read(buf)
	if err != nil {
		return 0, err
	}
	n := parseNumber(b)
	if n < 0 {
		return 0, fmt.Errorf("read %s: not a number", f.path)
	}
	return n, nil
}

// eachLine reads a file line by line through buf, for files that may be larger than buf: the kernel
// returns a seq_file a few records at a time. If a line is longer than buf, only its end is passed on.
func (f *file) eachLine(buf []byte, line func([]byte)) error {
	var from int64
	kept := 0 // length of the incomplete line at the start of buf
	for {
		n, err := pread(f.fd, buf[kept:], from)
		switch from += int64(n); {
		case err != nil:
			return fmt.Errorf("read %s: %w", f.path, gone(err))
		case n == 0:
			line(buf[:kept])
			return nil
		}
		rest := buf[:kept+n]
		for {
			end := bytes.IndexByte(rest, '\n')
			if end < 0 {
				break
			}
			line(rest[:end])
			rest = rest[end+1:]
		}
		if kept = copy(buf, rest); kept == len(buf) {
			kept = 0
		}
	}
}

// readAgain is read for a file that may have been replaced under the same name: if the descriptor is
// stale, it opens the file again.
func (f *file) readAgain(buf *[]byte) ([]byte, error) {
	b, err := f.read(buf)
	if !errors.Is(err, ErrGone) {
		return b, err
	}
	fd, openErr := open(f.path, unix.O_RDONLY)
	if openErr != nil {
		return nil, err
	}
	f.close()
	f.fd = fd
	return f.read(buf)
}

// close closes the descriptor. It accepts nil, for a file that was never opened.
func (f *file) close() {
	if f != nil && f.fd >= 0 {
		_ = unix.Close(f.fd)
		f.fd = -1
	}
}

// pread reads from an offset until buf is full or the file ends. A seq_file may return less, a few
// records at a time.
func pread(fd int, buf []byte, from int64) (int, error) {
	for {
		n, err := unix.Pread(fd, buf, from)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// readNumber reads a file that holds a single number. It returns −1 for "max" and anything else that is
// not a number.
func readNumber(path string) (int64, error) {
	f, err := openFile(path)
	if err != nil {
		return -1, err
	}
	defer f.close()
	buf := make([]byte, 64)
	b, err := f.read(&buf)
	if err != nil {
		return -1, err
	}
	return parseNumber(b), nil
}

// writeFile writes to a kernel file in a single write(2), as cgroupfs requires.
func writeFile(path, text string) error {
	fd, err := open(path, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing is buffered
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// retry repeats a system call that a signal interrupted (EINTR).
func retry(do func() error) error {
	for {
		if err := do(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
