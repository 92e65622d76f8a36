package control

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/rundir"
)

// At the limit, the client that was silent longest is disconnected; one with a request in progress stays.
func TestLimitListenerMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLimitListener(nil)
		enter := func() (*clientConn, bool) {
			g := &clientConn{Conn: &closable{}, listener: d}
			return g, d.add(g, time.Now())
		}
		var guests []*clientConn
		for range MaxConns {
			g, ok := enter()
			if !ok {
				t.Fatal("no room in an empty house")
			}
			guests = append(guests, g)
		}
		if _, ok := enter(); ok {
			t.Fatal("somebody had to go at once")
		}
		guests[0].setBusy(true)
		time.Sleep(idleTimeout)
		if _, ok := enter(); !ok {
			t.Fatal("nobody had to go")
		}
		if gone := func(g *clientConn) bool { return g.Conn.(*closable).closed }; gone(guests[0]) || !gone(guests[1]) || gone(guests[2]) {
			t.Errorf("the wrong one went: %t %t %t", gone(guests[0]), gone(guests[1]), gone(guests[2]))
		}
		for _, g := range d.conns {
			g.setBusy(true)
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

// Requests of other users than root leave some connections for root.
func TestReserveForRoot(t *testing.T) {
	d, held, release := newLimitListener(nil), make(chan struct{}), make(chan struct{})
	h := tracked(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			held <- struct{}{}
			<-release
		}
	}))
	ask := func(path string, other bool) int {
		c := &clientConn{Conn: &closable{}, listener: d, other: other}
		if !d.add(c, time.Now()) {
			t.Error("no connection is free")
		}
		defer func() { _ = c.Close() }()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(withConn(t.Context(), c), http.MethodGet, path, http.NoBody))
		return w.Code
	}
	var wg sync.WaitGroup
	for range MaxConns - reserved {
		wg.Go(func() { ask("/long", true) })
		<-held
	}
	if got := ask("/short", true); got != http.StatusServiceUnavailable {
		t.Errorf("one more of another user: status %d", got)
	}
	if got := ask("/short", false); got != http.StatusOK {
		t.Errorf("of root: status %d", got)
	}
	close(release)
	wg.Wait()
	if got := ask("/short", true); got != http.StatusOK {
		t.Errorf("afterwards: status %d", got)
	}
}

// failing is a listener whose Accept fails at first.
type failing struct {
	net.Listener
	errs []error
}

func (f *failing) Accept() (net.Conn, error) {
	if len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		return nil, err
	}
	return &closable{}, nil
}

func (f *failing) Close() error { return nil }

// An error of Accept does not end the server, and Close ends the wait after one.
func TestLimitListenerAcceptsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimitListener(&failing{errs: []error{syscall.ENOMEM, syscall.ENOBUFS}})
		if c, err := l.Accept(); c == nil || err != nil {
			t.Errorf("%v, %v", c, err)
		}
		l = NewLimitListener(&failing{errs: []error{net.ErrClosed}})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// closable is a connection that records whether it was closed.
type closable struct {
	net.Conn
	closed bool
}

func (c *closable) Close() error { c.closed = true; return nil }

// A command carries its peer, and its errors keep their meaning across the socket.
func TestControlCommands(t *testing.T) {
	d := rundir.Dir(t.TempDir())
	l, err := Listen(d)
	if err != nil {
		t.Fatal(err)
	}
	o := &fakeOperator{}
	srv := NewServer(Handler(fakeAnswers{}, o, http.NotFoundHandler(), http.NotFoundHandler()))
	done := make(chan struct{})
	go func() { _ = srv.Serve(l); close(done) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	c := NewClient(d)
	want := api.Command{Command: api.CommandPause, For: api.Duration(time.Minute), Reason: "test"}
	if a, err := c.Command(t.Context(), want); err != nil || a.Message != "done" || len(o.commands) != 1 || o.commands[0] != want {
		t.Fatalf("%+v, %v; got %+v", a, err, o.commands)
	}
	if by := (api.Peer{UID: os.Getuid(), PID: os.Getpid()}); o.by[0] != by {
		t.Errorf("given by %+v, want %+v", o.by[0], by)
	}
	if p, err := c.Drain(t.Context()); err != nil || p.Left != 3 {
		t.Errorf("plan %+v, %v", p, err)
	}
	if _, err := c.Command(t.Context(), api.Command{Command: "format"}); err == nil || !strings.Contains(err.Error(), "not a command") || len(o.commands) != 1 {
		t.Errorf("a bad command: %v", err)
	}
	o.err = api.ErrRefused
	if _, err := c.Command(t.Context(), want); !errors.Is(err, api.ErrRefused) {
		t.Errorf("a refusal: %v", err)
	}
	if _, err := NewClient(rundir.Dir(t.TempDir())).Command(t.Context(), want); !errors.Is(err, ErrNoService) {
		t.Errorf("without a service: %v", err)
	}
}

// A history that is written pass by pass is the same JSON.
func TestHistoryStreams(t *testing.T) {
	for _, passes := range [][]api.Pass{nil, {{ID: 1}}, {{ID: 1}, {ID: 2, Held: api.HeldBudget}}} {
		w := &answerRecorder{}
		replyHistory(w, func(emit func([]byte) error) (string, error) { return "a \"note\"", emitPasses(passes, emit) })
		var got api.HistoryList
		if err := json.Unmarshal([]byte(w.String()), &got); err != nil || got.APIVersion != api.APIVersion || got.Note != "a \"note\"" || len(got.Passes) != len(passes) {
			t.Errorf("%d passes: %v\n%s", len(passes), err, w.String())
		}
	}
}

type answerRecorder struct{ strings.Builder }

func (*answerRecorder) Header() http.Header { return http.Header{} }
func (*answerRecorder) WriteHeader(int)     {}

// An address that another program has is served as soon as that program has left it. The reason is reported once.
func TestKeeperServesAnAddressThatWasTaken(t *testing.T) {
	other, err := net.Listen("tcp", "127.23.5.1:0") // no other program gets its port meanwhile
	if err != nil {
		t.Fatal(err)
	}
	addr, failures := other.Addr().String(), 0
	k := &Keeper{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }),
		Failed:  func(error) { failures++ }, Ended: func(err error) { t.Error(err) },
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := k.ListenTCP(ctx, addr)
	if l != nil || failures != 1 {
		t.Fatalf("listens: %t, %d failures", l != nil, failures)
	}
	tick, ended := make(chan time.Time), make(chan struct{})
	go func() {
		defer close(ended)
		k.Keep(ctx, l, tick)
	}()
	tick <- time.Now()
	tick <- time.Now() // the first attempt is over
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	for range 3 { // the last one finds that it is served
		tick <- time.Now()
	}
	resp, err := http.Get("http://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	cancel()
	<-ended
	if resp.StatusCode != http.StatusTeapot || failures != 1 {
		t.Errorf("status %d, %d failures", resp.StatusCode, failures)
	}
	if c, err := net.Dial("tcp", addr); err == nil {
		_ = c.Close()
		t.Error("it is still served at the end")
	}
}
