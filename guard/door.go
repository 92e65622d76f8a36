package guard

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Bounds of a door.
const (
	guestsAtOnce = 32
	// guestPatience is how long a client may take for its request while others
	// wait at a full house.
	guestPatience = 100 * time.Millisecond
)

// door lets a bounded number of clients in. When the house is full the one that
// has been in longest without asking anything has to go: slow or silent clients,
// however many, cost little and keep nobody else out.
type door struct {
	net.Listener
	mu     sync.Mutex
	guests []*guest      // in the order they came, or asked last
	left   chan struct{} // has an element when somebody went
	closed chan struct{}
	once   sync.Once
}

func newDoor(l net.Listener) *door {
	return &door{Listener: l, left: make(chan struct{}, 1), closed: make(chan struct{})}
}

// guest is a client's connection.
type guest struct {
	net.Conn
	door  *door
	since time.Time // it came, or had its last answer
	asks  bool      // its request is there, and is being answered
}

// Accept waits for a client, and then for a place.
func (d *door) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g := &guest{Conn: c, door: d}
	for !d.enter(g, time.Now()) {
		select {
		case <-d.left:
		case <-time.After(guestPatience):
		case <-d.closed:
			_ = c.Close()
			return nil, net.ErrClosed
		}
	}
	return g, nil
}

// enter gives a guest a place, where need be somebody else's.
func (d *door) enter(g *guest, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.guests) >= guestsAtOnce {
		i := d.slowest(now)
		if i < 0 {
			return false
		}
		_ = d.guests[i].Conn.Close()
		d.guests = append(d.guests[:i], d.guests[i+1:]...)
	}
	g.since = now
	d.guests = append(d.guests, g)
	return true
}

// slowest is the guest that has to go first; -1 = none has to.
func (d *door) slowest(now time.Time) int {
	for i, g := range d.guests {
		if !g.asks && now.Sub(g.since) >= guestPatience {
			return i
		}
	}
	return -1
}

// Close ends the listening.
func (d *door) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Listener.Close()
}

// Close gives the place back.
func (g *guest) Close() error {
	d := g.door
	d.mu.Lock()
	for i := range d.guests {
		if d.guests[i] == g {
			d.guests = append(d.guests[:i], d.guests[i+1:]...)
			break
		}
	}
	d.mu.Unlock()
	hint(d.left)
	return g.Conn.Close()
}

func (g *guest) setAsks(asks bool) {
	g.door.mu.Lock()
	defer g.door.mu.Unlock()
	g.asks, g.since = asks, time.Now()
}

// guestKey is the key of a guest in its requests' context.
type guestKey struct{}

// withGuest makes the connection known to what answers it.
func withGuest(ctx context.Context, c net.Conn) context.Context {
	if g, ok := c.(*guest); ok {
		return context.WithValue(ctx, guestKey{}, g)
	}
	return ctx
}

// attended reads the whole request, and keeps the guest's place while it is
// answered.
func attended(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCommand))
		if err != nil {
			replyError(w, http.StatusBadRequest, fmt.Errorf("read request: %w", err))
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if g, ok := r.Context().Value(guestKey{}).(*guest); ok {
			g.setAsks(true)
			defer g.setAsks(false)
		}
		h.ServeHTTP(w, r)
	})
}
