package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// receiver is a real datagram socket, like those of the service manager and the journal.
type receiver struct {
	t    *testing.T
	conn *net.UnixConn
	path string
}

func listen(t *testing.T) *receiver {
	t.Helper()
	// Not t.TempDir: with a long test name, its path is too long for a socket address.
	dir, err := os.MkdirTemp("", "criguard-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return listenAt(t, filepath.Join(dir, "s"))
}

func listenAt(t *testing.T, path string) *receiver {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &receiver{t, conn, path}
}

// next returns the next datagram. The test fails if none arrives.
func (r *receiver) next() string {
	r.t.Helper()
	b, err := r.read(5 * time.Second)
	if err != nil {
		r.t.Fatalf("no datagram: %v", err)
	}
	return b
}

// none fails the test if a datagram has arrived. A datagram on a unix socket arrives at once, so there
// is no need to wait.
func (r *receiver) none() {
	r.t.Helper()
	if b, err := r.read(time.Millisecond); err == nil {
		r.t.Fatalf("datagram %q, want none", b)
	} else if !errors.Is(err, os.ErrDeadlineExceeded) {
		r.t.Fatal(err)
	}
}

func (r *receiver) read(patience time.Duration) (string, error) {
	if err := r.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	b := make([]byte, 1<<18)
	n, err := r.conn.Read(b)
	return string(b[:n]), err
}

// fill sends to the receiver until its queue is full, and returns the number of datagrams.
func (r *receiver) fill() (queued int) {
	r.t.Helper()
	d, err := openDatagrams(r.path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = d.close() }()
	for range 10_000 {
		if err := d.send([]byte("x"), 0); errors.Is(err, syscall.EAGAIN) {
			return queued
		} else if err != nil {
			r.t.Fatal(err)
		}
		queued++
	}
	r.t.Fatal("the queue never fills")
	return 0
}

func TestDatagrams(t *testing.T) {
	t.Run("abstract socket", func(t *testing.T) {
		r := listenAt(t, fmt.Sprintf("@criguard-test-%d", os.Getpid()))
		d, err := openDatagrams(r.path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = d.close() }()
		if err := d.send([]byte("hello"), 0); err != nil {
			t.Fatal(err)
		}
		if got := r.next(); got != "hello" {
			t.Errorf("received %q", got)
		}
	})
	t.Run("a receiver that starts anew is found again", func(t *testing.T) {
		first := listen(t)
		d, err := openDatagrams(first.path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = d.close() }()
		if err := d.send([]byte("1"), 0); err != nil {
			t.Fatal(err)
		}
		_ = first.conn.Close()
		_ = os.Remove(first.path)
		if err := d.send([]byte("2"), 0); !errors.Is(err, syscall.ENOENT) {
			t.Fatalf("send to nobody: %v, want ENOENT", err)
		}
		second := listenAt(t, first.path)
		if err := d.send([]byte("3"), 0); err != nil {
			t.Fatal(err)
		}
		if got := second.next(); got != "3" {
			t.Errorf("received %q", got)
		}
	})
	t.Run("a full receiver is given up", func(t *testing.T) {
		r := listen(t)
		r.fill()
		d, err := openDatagrams(r.path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = d.close() }()
		if err := d.send([]byte("late"), 3*retryPause); !errors.Is(err, syscall.EAGAIN) {
			t.Errorf("send: %v, want EAGAIN", err)
		}
	})
	t.Run("a full receiver that reads in time gets it", func(t *testing.T) {
		r := listen(t)
		queued := r.fill()
		d, err := openDatagrams(r.path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = d.close() }()
		sent := make(chan error)
		go func() { sent <- d.send([]byte("late"), time.Minute) }()
		for range queued {
			r.next()
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		if got := r.next(); got != "late" {
			t.Errorf("received %q", got)
		}
	})
	t.Run("after close", func(t *testing.T) {
		r := listen(t)
		d, err := openDatagrams(r.path)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.close(); err != nil {
			t.Fatal(err)
		}
		if err := d.send([]byte("x"), 0); !errors.Is(err, syscall.EBADF) {
			t.Errorf("send: %v, want EBADF", err)
		}
	})
	for _, path := range []string{"", "relative", "vsock:2:1"} {
		t.Run("no unix socket "+path, func(t *testing.T) {
			if _, err := openDatagrams(path); err == nil || !strings.HasPrefix(err.Error(), "open socket to ") {
				t.Errorf("err = %v", err)
			}
		})
	}
}
