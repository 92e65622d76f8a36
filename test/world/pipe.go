package world

import (
	"context"
	"net"
	"sync"

	"github.com/criguard/criguard/guard/api"
)

// pipe is a socket in memory: what dials it is accepted at the other end.
type pipe struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
}

func newPipe() *pipe {
	p := &pipe{conns: make(chan net.Conn), done: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.done) })
	return p
}

// Accept implements [net.Listener].
func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (p *pipe) Close() error {
	p.close()
	return nil
}

// Addr implements [net.Listener].
func (p *pipe) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// dial connects to the listener.
func (p *pipe) dial(ctx context.Context, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	refused := &net.OpError{Op: "dial", Net: "unix", Err: net.ErrClosed}
	select {
	case <-p.done:
		return nil, refused
	default:
	}
	select {
	case p.conns <- rootConn{far}:
		return near, nil
	case <-p.done:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// rootConn is a connection whose peer is root. It implements [control.Peered].
type rootConn struct{ net.Conn }

// Peer implements [control.Peered].
func (rootConn) Peer() api.Peer { return api.Peer{PID: 1} }
