package cri_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
)

// pipes is a listener whose connections are in memory. While it is suspended, the server reads nothing from them and answers
// nothing.
type pipes struct {
	conns     chan net.Conn
	done      chan struct{}
	suspended atomic.Bool
	resume    chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return suspendable{c, p}, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *pipes) dial(context.Context, string) (net.Conn, error) {
	near, far := net.Pipe()
	p.conns <- far
	return near, nil
}

type suspendable struct {
	net.Conn
	of *pipes
}

func (c suspendable) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.of.suspended.Load() {
		<-c.of.resume
	}
	return n, err
}

// inMemory calls test with a runtime, a client that waits two seconds for it, and what suspends the runtime.
func inMemory(t *testing.T, test func(t *testing.T, s *critest.Server, c *cri.Client, p *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{conns: make(chan net.Conn), done: make(chan struct{}), resume: make(chan struct{})}
		s := critest.New(t, critest.Containerd2, critest.WithListener(func() (net.Listener, error) { return p, nil }))
		c, err := cri.Network{DialSocket: p.dial}.Dial(s.Endpoint(), 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		test(t, s, c, p)
	})
}

// The connection to a suspended runtime is dropped, with the calls that gRPC has queued for it. When it continues, it is found.
func TestSuspendedRuntime(t *testing.T) {
	inMemory(t, func(t *testing.T, _ *critest.Server, c *cri.Client, p *pipes) {
		if _, err := c.Version(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.suspended.Store(true)
		var err error
		for began := time.Now(); !errors.Is(err, cri.ErrUnavailable); time.Sleep(10 * time.Second) {
			if took := time.Since(began); took > 8*time.Minute {
				t.Fatalf("after %s: %v", took, err)
			}
			if _, err = c.Version(t.Context()); err == nil {
				t.Fatal("a suspended runtime answers")
			}
		}
		p.suspended.Store(false)
		close(p.resume)
		time.Sleep(10 * time.Second)
		if _, err := c.Version(t.Context()); err != nil || c.Connections() < 2 {
			t.Errorf("when it continues: %v, %d connections", err, c.Connections())
		}
	})
}

// A runtime that is silent for hours, because nothing happens in it, keeps its connection: it answers pings, and does not mind them.
func TestSilentRuntimeStaysConnected(t *testing.T) {
	inMemory(t, func(t *testing.T, _ *critest.Server, c *cri.Client, _ *pipes) {
		const silent = 3 * time.Hour
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), silent)
		defer cancel()
		err := watch(ctx, c, "", nil) // the runtime knows the deadline, too, and may be the first to say that it is over
		if !errors.Is(err, cri.ErrTimeout) && !errors.Is(err, context.DeadlineExceeded) || time.Since(began) < silent || c.Connections() != 1 {
			t.Errorf("after %v: %v, %d connections", time.Since(began), err, c.Connections())
		}
	})
}

// A runtime that answers no call in time keeps its connection, and so does one that is rarely called.
func TestSlowRuntimeStaysConnected(t *testing.T) {
	for _, pause := range []time.Duration{0, time.Second, 7 * time.Minute} {
		inMemory(t, func(t *testing.T, s *critest.Server, c *cri.Client, _ *pipes) {
			release := s.Inject(critest.Fault{Hang: true})
			for began := time.Now(); time.Since(began) < 3*time.Hour; time.Sleep(pause) {
				if _, err := c.Version(t.Context()); !errors.Is(err, cri.ErrTimeout) {
					t.Fatalf("pause %s: after %s: %v", pause, time.Since(began), err)
				}
			}
			release()
			if _, err := c.Version(t.Context()); err != nil || c.Connections() != 1 {
				t.Errorf("pause %s: %v, %d connections", pause, err, c.Connections())
			}
		})
	}
}
