package control

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/criguard/criguard/guard/api"
)

// MaxConns is how many connections a limit listener accepts at a time.
const MaxConns = 32

// reserved is how many connections other users than root leave for root, when all others are busy with long requests.
const reserved = 4

// errBusy refuses a request to keep the reserve.
var errBusy = statusError{http.StatusServiceUnavailable, fmt.Errorf("%d requests of other users than root are in progress: try again later", MaxConns-reserved)}

// idleTimeout is how long a connection may stay open without a complete request while others wait.
const idleTimeout = 100 * time.Millisecond

// limitListener limits the number of connections. At the limit, it closes the connection that has been open
// longest without a request, so slow or silent clients cost little and do not block others.
type limitListener struct {
	net.Listener
	mu     sync.Mutex
	conns  []*clientConn // ordered by the time of connection or last answer
	freed  chan struct{} // has an element after a connection was closed
	closed chan struct{}
	once   sync.Once
}

// NewLimitListener returns a listener that accepts at most MaxConns connections of l at a time. NewServer's
// handlers mark connections as busy.
func NewLimitListener(l net.Listener) net.Listener { return newLimitListener(l) }

func newLimitListener(l net.Listener) *limitListener {
	return &limitListener{Listener: l, freed: make(chan struct{}, 1), closed: make(chan struct{})}
}

// clientConn is a client's connection.
type clientConn struct {
	net.Conn
	listener *limitListener
	other    bool      // of another user than root
	since    time.Time // time of connection or last answer
	busy     bool      // a request is in progress
}

// acceptAgain is the pause after an error of Accept.
const acceptAgain = time.Second

// Accept waits for a client, and then for a free slot. An error such as ENOMEM, which would end the server for good, is
// only a pause.
func (l *limitListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	for err != nil {
		select {
		case <-time.After(acceptAgain):
		case <-l.closed:
			return nil, net.ErrClosed
		}
		c, err = l.Listener.Accept()
	}
	peer, known := peerOfConn(c)
	conn := &clientConn{Conn: c, listener: l, other: known && peer.UID != 0}
	for !l.add(conn, time.Now()) {
		select {
		case <-l.freed:
		case <-time.After(idleTimeout):
		case <-l.closed:
			_ = c.Close()
			return nil, net.ErrClosed
		}
	}
	return conn, nil
}

// add registers a connection, in place of the slowest one if necessary; false = all are busy.
func (l *limitListener) add(c *clientConn, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) >= MaxConns {
		i := l.slowest(now)
		if i < 0 {
			return false
		}
		_ = l.conns[i].Conn.Close()
		l.conns = append(l.conns[:i], l.conns[i+1:]...)
	}
	c.since = now
	l.conns = append(l.conns, c)
	return true
}

// slowest returns the index of the connection to close first; -1 = no connection may be closed.
func (l *limitListener) slowest(now time.Time) int {
	for i, c := range l.conns {
		if !c.busy && now.Sub(c.since) >= idleTimeout {
			return i
		}
	}
	return -1
}

// Close stops listening.
func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// Close closes the connection and makes room for another.
func (c *clientConn) Close() error {
	l := c.listener
	l.mu.Lock()
	for i := range l.conns {
		if l.conns[i] == c {
			l.conns = append(l.conns[:i], l.conns[i+1:]...)
			break
		}
	}
	l.mu.Unlock()
	select {
	case l.freed <- struct{}{}:
	default: // one pending element is enough
	}
	return c.Conn.Close()
}

// setBusy begins or ends a request; false = it must not begin, because of the reserve.
func (c *clientConn) setBusy(busy bool) bool {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if busy && c.other {
		left := MaxConns - reserved
		for _, o := range c.listener.conns {
			if o.other && o.busy {
				left--
			}
		}
		if left <= 0 {
			return false
		}
	}
	c.busy, c.since = busy, time.Now()
	return true
}

// connKey is the context key of a request's connection.
type connKey struct{}

// withConn adds the connection to the context of its requests.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if conn, ok := c.(*clientConn); ok {
		return context.WithValue(ctx, connKey{}, conn)
	}
	return ctx
}

// tracked reads the whole request and marks the connection as busy until it is answered.
func tracked(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, api.MaxCommand))
		if err != nil {
			replyError(w, badRequest(fmt.Errorf("read request: %w", err)))
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if c, ok := r.Context().Value(connKey{}).(*clientConn); ok {
			if !c.setBusy(true) {
				replyError(w, errBusy)
				return
			}
			defer c.setBusy(false)
		}
		h.ServeHTTP(w, r)
	})
}
