package systemd

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// datagrams sends datagrams to one unix socket. The socket is made once, so that
// a process that is out of descriptors can still send, and stays unconnected, so
// that a receiver that starts anew is found again.
type datagrams struct {
	fd int
	to syscall.SockaddrUnix
}

// retryPause is how long to wait before a full receiver is tried again. Poll
// cannot tell: an unconnected socket always counts as writable.
const retryPause = time.Millisecond

// openDatagrams makes a socket that sends to path, which names a file or, with a
// leading "@", an abstract socket. Nobody need listen there yet.
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

// send sends b in one datagram. While the receiver's queue is full it tries again
// for as long as patience, then gives up with EAGAIN.
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
	d.fd = -1 // a later send gets EBADF, never a stranger's descriptor
	if err := syscall.Close(fd); err != nil {
		return fmt.Errorf("close socket to %s: %w", d.to.Name, err)
	}
	return nil
}
