package guard

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// slowClients keeps n connections busy in every way that costs a server
// something, until the test ends.
func slowClients(t *testing.T, d RunDir, n int) {
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

// misbehave is what the i-th client does until its connection is closed.
func misbehave(conn net.Conn, i int) {
	switch i % 5 {
	case 0: // says nothing at all
		_, _ = io.Copy(io.Discard, conn)
	case 1: // one byte at a time, for ever
		for _, b := range []byte("GET /v1/status HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 1<<20)) {
			if _, err := conn.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond) // the client's slowness, which nothing waits for
		}
	case 2: // nonsense
		_, _ = conn.Write([]byte("\x00\xff nonsense\r\n\r\n"))
		_, _ = io.Copy(io.Discard, conn)
	case 3: // announces more than it sends
		_, _ = io.WriteString(conn, "POST /v1/command HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n{")
		_, _ = io.Copy(io.Discard, conn)
	case 4: // a header without an end
		for {
			if _, err := io.WriteString(conn, strings.Repeat("a", 1000)); err != nil {
				return
			}
		}
	}
}

// A thousand clients that are slow, silent or mad keep neither
// others from an answer nor the loop from its passes.
func TestThousandClients(t *testing.T) {
	cfg, err := ParseConfig("test", strings.NewReader(effectNode(t, "runtime.endpoint = '/none'\nhistory.dir = '"+t.TempDir()+"'")))
	if err != nil {
		t.Fatal(err)
	}
	s, client, end := servedEffect(t, cfg)
	defer end()
	slowClients(t, s.opt.RunDir, 1000)

	// Greedy ones beside them: they ask for all they can get.
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
	// One that takes longer than a guest's patience to ask is sent away, and asks again.
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
		// As a kernel's wake does, this waits for the loop alone.
		select {
		case s.calls <- func() { close(done) }:
			<-done
		case <-hang:
			t.Fatal("the loop does not come")
		}
		// The guests, the one at the door, the listener, and those that are leaving, which on a
		// busy machine takes a while; without a limit it is all of a thousand.
		if n := serverSockets(t, s.opt.RunDir.Socket()); n > 10*guestsAtOnce {
			t.Fatalf("%d connections at once, want about %d", n, guestsAtOnce)
		}
	}
	t.Logf("%d answers to greedy clients", answers.Load())
}

// serverSockets counts this process's sockets of that name: a client's have none.
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

// A full house: the client that was silent longest goes, one that is being
// answered stays.
func TestDoorMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(nil)
		enter := func() (*guest, bool) {
			g := &guest{Conn: &closable{}, door: d}
			return g, d.enter(g, time.Now())
		}
		var guests []*guest
		for range guestsAtOnce {
			g, ok := enter()
			if !ok {
				t.Fatal("no room in an empty house")
			}
			guests = append(guests, g)
		}
		if _, ok := enter(); ok {
			t.Fatal("somebody had to go at once")
		}
		guests[0].setAsks(true)
		time.Sleep(guestPatience)
		if _, ok := enter(); !ok {
			t.Fatal("nobody had to go")
		}
		if gone := func(g *guest) bool { return g.Conn.(*closable).closed }; gone(guests[0]) || !gone(guests[1]) || gone(guests[2]) {
			t.Errorf("the wrong one went: %t %t %t", gone(guests[0]), gone(guests[1]), gone(guests[2]))
		}
		for _, g := range d.guests {
			g.setAsks(true)
		}
		time.Sleep(time.Minute)
		if _, ok := enter(); ok {
			t.Error("one that is being answered had to go")
		}
		_ = guests[0].Close()
		if _, ok := enter(); !ok {
			t.Error("no room after one has left")
		}
	})
}

// closable is a connection that knows whether it was closed.
type closable struct {
	net.Conn
	closed bool
}

func (c *closable) Close() error { c.closed = true; return nil }

// Commands carry who gave them, and their errors keep their meaning.
func TestControlCommands(t *testing.T) {
	d := RunDir(t.TempDir())
	l, err := ListenControl(d)
	if err != nil {
		t.Fatal(err)
	}
	if _, bounded := l.(*door); !bounded {
		t.Error("any number of clients is let in")
	}
	o := &fakeOperator{}
	srv := NewServer(Handler(fakeAnswers{}, o, NewMetrics("test")))
	done := make(chan struct{})
	go func() { _ = srv.Serve(l); close(done) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	c := NewClient(d)
	want := Command{Command: CommandPause, For: TraceDuration(time.Minute), Reason: "test"}
	if a, err := c.Command(t.Context(), want); err != nil || a.Message != "done" || len(o.commands) != 1 || o.commands[0] != want {
		t.Fatalf("%+v, %v; got %+v", a, err, o.commands)
	}
	if by := (Peer{UID: os.Getuid(), PID: os.Getpid()}); o.by[0] != by {
		t.Errorf("given by %+v, want %+v", o.by[0], by)
	}
	if p, err := c.Drain(t.Context()); err != nil || p.Left != 3 {
		t.Errorf("plan %+v, %v", p, err)
	}
	if _, err := c.Command(t.Context(), Command{Command: "format"}); err == nil || !strings.Contains(err.Error(), "none of") || len(o.commands) != 1 {
		t.Errorf("a bad command: %v", err)
	}
	o.err = ErrRefused
	if _, err := c.Command(t.Context(), want); !errors.Is(err, ErrRefused) {
		t.Errorf("a refusal: %v", err)
	}
	if _, err := NewClient(RunDir(t.TempDir())).Command(t.Context(), want); !errors.Is(err, ErrNoService) {
		t.Errorf("without a service: %v", err)
	}
}

// A history is written pass by pass, and is the same JSON.
func TestHistoryStreams(t *testing.T) {
	for _, passes := range [][]Pass{nil, {{ID: 1}}, {{ID: 1}, {ID: 2, Held: HeldBudget}}} {
		w := &answerRecorder{}
		replyHistory(w, passes)
		var got HistoryList
		if err := json.Unmarshal([]byte(w.String()), &got); err != nil || got.APIVersion != APIVersion || len(got.Passes) != len(passes) {
			t.Errorf("%d passes: %v\n%s", len(passes), err, w.String())
		}
	}
}

type answerRecorder struct{ strings.Builder }

func (*answerRecorder) Header() http.Header { return http.Header{} }
func (*answerRecorder) WriteHeader(int)     {}
