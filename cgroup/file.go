package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// firstBuffer holds any file that is read on every pass, with room to spare; a
// reading that fills its buffer doubles it, up to maxBuffer.
const (
	firstBuffer = 8 << 10
	maxBuffer   = 1 << 20
)

// file is a small kernel file whose descriptor is kept: a pread gives its content
// afresh without a name being looked up.
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

// open opens a file so that no child process inherits it.
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

// read reads the whole file into *buf and returns the part that holds it, valid
// until the buffer's next use. Half a line would be taken for a smaller number, so
// the buffer grows rather than cuts.
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

// readNumber is read for a file that holds one number and nothing else.
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

// eachLine reads a file line by line, through buf, where all of it may be longer than fits:
// the kernel gives out records (seq_file) a few at a time. What does not fit of a line is skipped.
func (f *file) eachLine(buf []byte, line func([]byte)) error {
	var from int64
	kept := 0 // bytes at the start of buf: a line whose end was not read yet
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

// readAgain is read for a file that may have been made anew under the same name:
// it is opened once more where the kept descriptor is stale.
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

// close closes the descriptor; a file that was never opened is nil.
func (f *file) close() {
	if f != nil && f.fd >= 0 {
		_ = unix.Close(f.fd)
		f.fd = -1
	}
}

// pread reads a file from an offset on: into all of buf, or to the file's end, or to a
// record's, where the file has records.
func pread(fd int, buf []byte, from int64) (int, error) {
	for {
		n, err := unix.Pread(fd, buf, from)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// readNumber reads a file that holds one number; −1 for "max" and what is none.
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

// writeFile writes to a kernel file in one call, as they want it.
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

// retry repeats what a signal interrupted.
func retry(do func() error) error {
	for {
		if err := do(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
