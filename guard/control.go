package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"sync"
	"time"

	"github.com/criguard/criguard/policy"
)

// Answerer answers what is asked over the control socket.
type Answerer interface {
	Status(ctx context.Context) (Status, error)
	Rank(ctx context.Context, s policy.Signal) (Ranking, error)
	History(n int) []Pass
}

// socketGroup may talk to the service beside root; without such a group only
// root may.
const socketGroup = "criguard"

// Bounds of the control socket: a slow or greedy client costs little.
const (
	controlTimeout   = 10 * time.Second
	controlHeader    = 8 << 10
	controlAtOnce    = 16
	controlIdleAfter = 5 * time.Second
)

// HistoryList is the history as programs get it.
type HistoryList struct {
	APIVersion string `json:"apiVersion"`
	Passes     []Pass `json:"passes"`
}

// apiError is the body of an answer that is not 200.
type apiError struct {
	Error string `json:"error"`
}

// Handler serves the control API and the metrics.
func Handler(a Answerer, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		st, err := a.Status(r.Context())
		reply(w, st, err)
	})
	mux.HandleFunc("GET /v1/rank", func(w http.ResponseWriter, r *http.Request) {
		s, err := policy.ParseSignal(r.FormValue("signal"))
		if err != nil {
			replyError(w, http.StatusBadRequest, err)
			return
		}
		ranking, err := a.Rank(r.Context(), s)
		reply(w, ranking, err)
	})
	mux.HandleFunc("GET /v1/history", func(w http.ResponseWriter, r *http.Request) {
		n := 0
		if v := r.FormValue("n"); v != "" {
			var err error
			if n, err = strconv.Atoi(v); err != nil {
				replyError(w, http.StatusBadRequest, fmt.Errorf("n = %q: not a number", v))
				return
			}
		}
		reply(w, HistoryList{APIVersion, a.History(n)}, nil)
	})
	mux.Handle("GET /metrics", metrics)
	return http.MaxBytesHandler(mux, controlHeader)
}

func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		code := http.StatusServiceUnavailable
		if errors.Is(err, ErrNoRuntime) {
			code = http.StatusBadGateway
		}
		replyError(w, code, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that went away is not our failure
}

func replyError(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(apiError{err.Error()})
}

// ListenControl opens the control socket, mode 0660, owned by group criguard
// where there is one. It replaces a socket that a killed service left behind:
// the caller holds the directory's lock.
func ListenControl(d RunDir) (net.Listener, error) {
	path := d.Socket()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove stale control socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("open control socket: %w", err)
	}
	if g, lookErr := user.LookupGroup(socketGroup); lookErr == nil {
		if gid, convErr := strconv.Atoi(g.Gid); convErr == nil {
			err = os.Chown(path, -1, gid)
		}
	}
	if err = errors.Join(err, os.Chmod(path, 0o660)); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("protect control socket: %w", err)
	}
	return limitListener(l, controlAtOnce), nil
}

// NewServer returns an HTTP server that malformed, slow or many clients cannot
// tie up.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: controlIdleAfter, ReadTimeout: controlTimeout,
		WriteTimeout: controlTimeout, IdleTimeout: controlIdleAfter, MaxHeaderBytes: controlHeader,
	}
}

// limitListener accepts at most n connections at a time; others wait in the
// kernel's queue.
func limitListener(l net.Listener, n int) net.Listener {
	return &limited{Listener: l, places: make(chan struct{}, n), closed: make(chan struct{})}
}

type limited struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &limitedConn{Conn: c, leave: l.places}, nil
}

func (l *limited) Close() error {
	err := l.Listener.Close()
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return err
}

type limitedConn struct {
	net.Conn
	once  sync.Once
	leave chan struct{}
}

func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.leave })
	return err
}
