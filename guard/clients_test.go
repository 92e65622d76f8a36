package guard

import (
	"context"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/guard/rundir"
)

// slowClients keeps n connections busy until the test ends, in every way that costs a server something.
func slowClients(t *testing.T, d rundir.Dir, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	for i := range n {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", d.Socket())
		if err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
		wg.Go(func() {
			defer func() { _ = conn.Close() }()
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer stop()
			misbehave(conn, i)
		})
	}
}

// misbehave is the behavior of the i-th client until its connection is closed.
func misbehave(conn net.Conn, i int) {
	switch i % 5 {
	case 0: // sends nothing
		_, _ = io.Copy(io.Discard, conn)
	case 1: // sends one byte at a time, forever
		for _, b := range []byte("GET /v1/status HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 1<<20)) {
			if _, err := conn.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond) // the client's slowness; nothing waits for it
		}
	case 2: // sends nonsense
		_, _ = conn.Write([]byte("\x00\xff nonsense\r\n\r\n"))
		_, _ = io.Copy(io.Discard, conn)
	case 3: // announces more than it sends
		_, _ = io.WriteString(conn, "POST /v1/command HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n{")
		_, _ = io.Copy(io.Discard, conn)
	case 4: // sends a header without an end
		for {
			if _, err := io.WriteString(conn, strings.Repeat("a", 1000)); err != nil {
				return
			}
		}
	}
}

// A thousand slow, silent or nonsensical clients neither keep other clients from an answer nor the loop from
// its passes.
func TestThousandClients(t *testing.T) {
	s, client, end := servedEffect(t, configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '/none'\nhistory.dir = '"+t.TempDir()+"'")))
	defer end() // while the clients are connected
	slowClients(t, s.opt.Dir, 1000)

	// Greedy clients next to them request as much as they can.
	ctx, cancel := context.WithCancel(t.Context())
	var greedy sync.WaitGroup
	var answers atomic.Int64
	for range 50 {
		greedy.Go(func() {
			for ctx.Err() == nil {
				if _, err := client.Status(ctx); err == nil {
					answers.Add(1)
				}
			}
		})
	}
	defer greedy.Wait()
	defer cancel()

	hang := time.After(2 * time.Minute)
	asked := time.Now()
	// A client that takes too long to ask is disconnected, and asks again.
	for _, err := client.Status(ctx); err != nil; _, err = client.Status(ctx) {
		select {
		case <-hang:
			t.Fatalf("beside a thousand clients: %v", err)
		default:
		}
	}
	t.Logf("answered after %s", time.Since(asked))
	for range 50 {
		done := make(chan struct{})
		// Like a wake-up from the kernel, this waits only for the loop.
		select {
		case s.calls <- func() { close(done) }:
			<-done
		case <-hang:
			t.Fatal("the loop does not answer")
		}
		// The accepted connections, the one that waits, the listener, and those that are being closed, which
		// on a busy machine takes a while. Without a limit it would be all of a thousand.
		if n := serverSockets(t, s.opt.Dir.Socket()); n > 10*control.MaxConns {
			t.Fatalf("%d connections at once, want about %d", n, control.MaxConns)
		}
	}
	t.Logf("%d answers to greedy clients", answers.Load())
}

// serverSockets counts this process's sockets with that name. A client's socket has none.
func serverSockets(t *testing.T, name string) (n int) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		fd, _ := strconv.Atoi(f.Name())
		if at, err := unix.Getsockname(fd); err == nil {
			if at, ok := at.(*unix.SockaddrUnix); ok && at.Name == name {
				n++
			}
		}
	}
	return n
}
