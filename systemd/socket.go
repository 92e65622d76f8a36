package systemd

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// datagrams sends datagrams to one unix socket. It opens the socket once, so that a process without
// free descriptors can still send. The socket stays unconnected, so that it also reaches a receiver
// that restarted.
type datagrams struct {
	fd int
	to syscall.SockaddrUnix
}

// retryPause is the pause before sending to a full receiver again. Poll cannot help: an unconnected
// socket always counts as writable.
const retryPause = time.Millisecond

// openDatagrams opens a socket that sends to path. path is a file or, with a leading "@", an abstract
// socket. The receiver need not exist yet.
func openDatagrams(path string) (*datagrams, error) {
	if path == "" || (path[0] != '/' && path[0] != '@') {
		return nil, fmt.Errorf("open socket to %q: %w", path, syscall.EAFNOSUPPORT)
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open socket to %q: %w", path, err)
	}
	return &datagrams{fd: fd, to: syscall.SockaddrUnix{Name: path}}, nil
}

// send sends b in one datagram. While the receiver's queue is full, it retries for up to patience, then
// returns EAGAIN.
func (d *datagrams) send(b []byte, patience time.Duration) error {
	for waited := time.Duration(0); ; waited += retryPause {
		err := syscall.Sendto(d.fd, b, syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, &d.to)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
			continue
		case !errors.Is(err, syscall.EAGAIN) || waited >= patience:
			return fmt.Errorf("send to %s: %w", d.to.Name, err)
		}
		time.Sleep(retryPause)
	}
}

func (d *datagrams) close() error {
	fd := d.fd
	d.fd = -1 // a later send fails with EBADF instead of using a reused descriptor
	if err := syscall.Close(fd); err != nil {
		return fmt.Errorf("close socket to %s: %w", d.to.Name, err)
	}
	return nil
}
