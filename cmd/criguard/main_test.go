package main

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"

	"github.com/criguard/criguard/guard"
)

// runDir is a directory with a path that is short enough for a socket.
func runDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "criguard")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// A service that ends while it is asked, or in the middle of its answer, cannot be reached, and
// the node is not looked at in its place.
func TestNoAnswer(t *testing.T) {
	for name, answer := range map[string]string{"none": "", "half of one": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}"} {
		t.Run(name, func(t *testing.T) {
			dir := runDir(t)
			l, err := net.Listen("unix", guard.RunDir(dir).Socket())
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
					_, _ = conn.Read(make([]byte, 8<<10))
					_, _ = io.WriteString(conn, answer)
					_ = conn.Close()
				}
			}()
			defer func() { _ = l.Close(); <-done }()
			for _, args := range [][]string{{"status"}, {"rank"}, {"history"}, {"metrics"}, {"pause"}} {
				if code := execute(append(args, "--run-dir", dir)); code != exitUnreachable {
					t.Errorf("%s: exit code %d, want %d", args[0], code, exitUnreachable)
				}
			}
		})
	}
	var ce *codeError
	if err := classify(guard.ErrNoAnswer); !errors.As(err, &ce) || ce.hint == "" {
		t.Errorf("%v: nothing says what to do", err)
	}
}
