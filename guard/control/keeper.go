package control

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// KeepEvery is how often the service checks that its socket still exists: soon enough for a user who wonders why
// no command works.
const KeepEvery = 5 * time.Second

// Keeper serves a socket, and another one in its place when it was removed.
type Keeper struct {
	Handler http.Handler
	Removed func() bool                  // reports whether the socket was removed
	Restore func() (net.Listener, error) // returns another one
	Failed  func(error)                  // takes each new error of Restore
	Ended   func(error)                  // takes the error of a server that has ended by itself

	failed string // the last error that Failed took
}

// ListenTCP makes Keep serve an address, and returns the listener for it: nil if there is none yet, as while another program
// listens there.
func (k *Keeper) ListenTCP(ctx context.Context, addr string) net.Listener {
	listens := false
	k.Removed = func() bool { return !listens }
	k.Restore = func() (net.Listener, error) {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		listens = true
		return NewLimitListener(l), nil
	}
	return k.restore()
}

// restore returns another listener, or nil.
func (k *Keeper) restore() net.Listener {
	l, err := k.Restore()
	switch {
	case err == nil:
		k.failed = ""
		return l
	case err.Error() != k.failed:
		k.failed = err.Error()
		k.Failed(err)
	}
	return nil
}

// Keep serves a listener until ctx ends, nil if there is no socket yet. On each tick it checks whether the socket was removed.
func (k *Keeper) Keep(ctx context.Context, l net.Listener, tick <-chan time.Time) {
	for {
		srv, ended := NewServer(k.Handler), make(chan struct{})
		go func(l net.Listener) {
			defer close(ended)
			if l == nil {
				return
			}
			if err := srv.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
				k.Ended(err)
			}
		}(l)
		for l = nil; l == nil; {
			select {
			case <-ctx.Done():
				_ = srv.Close()
				<-ended
				return
			case <-tick:
			}
			if !k.Removed() {
				continue
			}
			_ = srv.Close() // also removes the path, so that it comes before the new socket
			<-ended
			l = k.restore()
		}
	}
}
