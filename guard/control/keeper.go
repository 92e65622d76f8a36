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
}

// Keep serves a listener until ctx ends, nil if there is no socket yet. On each tick it checks whether the socket was removed.
func (k *Keeper) Keep(ctx context.Context, l net.Listener, tick <-chan time.Time) {
	var failed string
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
			var err error
			if l, err = k.Restore(); err != nil && err.Error() != failed {
				failed = err.Error()
				k.Failed(err)
			}
		}
		failed = ""
	}
}
