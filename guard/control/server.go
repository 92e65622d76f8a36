package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/guard/safetext"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// Answerer answers the read-only requests of the control socket.
type Answerer interface {
	Status(ctx context.Context) (api.Status, error)
	Rank(ctx context.Context, s policy.Signal) (api.Ranking, error)
	History(ctx context.Context, q api.HistoryQuery, emit func(line []byte) error) (note string, err error)
	Samples(last time.Duration) api.SampleList
	Windows() []api.Window
	Settings(ctx context.Context) (api.Settings, error)
	// Images returns the verdict about every image. It returns cri.ErrNoRuntime if no runtime answers.
	Images(ctx context.Context) (reclaim.ImageList, error)
}

// Operator executes commands.
type Operator interface {
	// Command executes a command for a peer. It returns api.ErrRefused if the state of the service does not
	// allow it.
	Command(ctx context.Context, c api.Command, by api.Peer) (api.CommandAnswer, error)
	// Plan returns the progress of a drain, or what a drain would do.
	Plan(ctx context.Context) (api.DrainPlan, error)
	// Prune removes everything eligible, for a peer. It returns cri.ErrNoRuntime if no runtime answers.
	Prune(ctx context.Context, o api.PruneOptions, by api.Peer) ([]reclaim.Report, error)
}

// Limits of a request: a slow or greedy client costs little.
const (
	requestTimeout = 10 * time.Second
	maxHeader      = 8 << 10
	idleAfter      = 5 * time.Second
)

// statusError is an error with the HTTP status of its answer.
type statusError struct {
	code int
	error
}

func badRequest(err error) error { return statusError{http.StatusBadRequest, err} }

// Handler serves the control API. The handler metrics serves all metrics, ownMetrics only criguard's own.
func Handler(a Answerer, o Operator, metrics, ownMetrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	handleQuestions(mux, a)
	handleImages(mux, a)
	handleCommands(mux, o)
	handlePrune(mux, o)
	mux.Handle("GET /metrics", metrics)
	mux.Handle("GET /v1/metrics", ownMetrics)
	return mux
}

// handle serves a request whose answer is a JSON value.
func handle[T any](mux *http.ServeMux, pattern string, answer func(r *http.Request) (T, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		v, err := answer(r)
		if err != nil {
			replyError(w, err)
			return
		}
		reply(w, http.StatusOK, v)
	})
}

// handleQuestions serves the requests that change nothing.
func handleQuestions(mux *http.ServeMux, a Answerer) {
	handle(mux, "GET /v1/status", func(r *http.Request) (api.Status, error) { return a.Status(r.Context()) })
	handle(mux, "GET /v1/config", func(r *http.Request) (api.Settings, error) { return a.Settings(r.Context()) })
	handle(mux, "GET /v1/rank", func(r *http.Request) (api.Ranking, error) {
		s, err := policy.ParseSignal(r.FormValue("signal"))
		if err != nil {
			return api.Ranking{}, badRequest(err)
		}
		return a.Rank(r.Context(), s)
	})
	mux.HandleFunc("GET /v1/history", func(w http.ResponseWriter, r *http.Request) {
		q, err := parseHistoryQuery(r)
		if err != nil {
			replyError(w, badRequest(err))
			return
		}
		replyHistory(w, func(emit func([]byte) error) (string, error) { return a.History(r.Context(), q, emit) })
	})
	handle(mux, "GET /v1/samples", func(r *http.Request) (api.SampleList, error) {
		last := time.Duration(math.MaxInt64 / 2)
		if v := r.FormValue("last"); v != "" {
			var err error
			if last, err = time.ParseDuration(v); err != nil || last <= 0 {
				return api.SampleList{}, badRequest(fmt.Errorf("last = %q: want a duration above 0, as 1m", v))
			}
		}
		return a.Samples(last), nil
	})
	handle(mux, "GET /v1/windows", func(*http.Request) (api.WindowList, error) {
		return api.WindowList{APIVersion: api.APIVersion, Windows: a.Windows()}, nil
	})
}

// handleCommands serves the operators' commands. The socket's permissions decide who may send one, and the
// kernel identifies the sender.
func handleCommands(mux *http.ServeMux, o Operator) {
	handle(mux, "POST /v1/command", func(r *http.Request) (api.CommandAnswer, error) {
		by, err := peerOf(r)
		if err != nil {
			return api.CommandAnswer{}, err
		}
		c, err := api.ParseCommand(r.Body)
		if err != nil {
			return api.CommandAnswer{}, badRequest(err)
		}
		return o.Command(r.Context(), c, by)
	})
	handle(mux, "GET /v1/drain", func(r *http.Request) (api.DrainPlan, error) { return o.Plan(r.Context()) })
}

func replyError(w http.ResponseWriter, err error) {
	code := http.StatusServiceUnavailable
	var se statusError
	switch {
	case errors.As(err, &se):
		code = se.code
	case errors.Is(err, api.ErrBadCommand):
		code = http.StatusBadRequest
	case errors.Is(err, api.ErrNoPod):
		code = http.StatusNotFound
	case errors.Is(err, api.ErrRefused):
		code = http.StatusConflict
	case errors.Is(err, cri.ErrNoRuntime):
		code = http.StatusBadGateway
	}
	reply(w, code, api.Error{APIVersion: api.APIVersion, Error: err.Error()})
}

// reply writes a JSON value as the answer.
func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	enc := json.NewEncoder(safetext.NewWriter(w))
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // a client that disconnects is not our failure
}

// Listen opens the control socket with mode 0660, owned by the group criguard if it exists. It replaces a
// socket that a killed service left behind, so the caller must hold the directory's lock.
func Listen(d rundir.Dir) (net.Listener, error) {
	path := d.Socket()
	if len(path) > config.MaxSocketPath {
		return nil, fmt.Errorf("open control socket: %s: longer than %d bytes (hint: --run-dir names another directory)", path, config.MaxSocketPath)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove stale control socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("open control socket: %w", err)
	}
	if gid, ok := rundir.OperatorsGroup(); ok {
		err = os.Chown(path, -1, gid)
	}
	if err = errors.Join(err, os.Chmod(path, 0o660)); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("protect control socket: %w", err)
	}
	return NewLimitListener(l), nil
}

// NewServer returns an HTTP server that malformed, slow or many clients cannot block, if it serves a
// listener of Listen.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: tracked(h), ConnContext: withConn, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo), ReadHeaderTimeout: idleAfter, ReadTimeout: requestTimeout,
		WriteTimeout: requestTimeout, IdleTimeout: idleAfter, MaxHeaderBytes: maxHeader,
	}
}
