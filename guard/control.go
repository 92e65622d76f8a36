package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/criguard/criguard/policy"
)

// Answerer answers what is asked over the control socket.
type Answerer interface {
	Status(ctx context.Context) (Status, error)
	Rank(ctx context.Context, s policy.Signal) (Ranking, error)
	History(n int) []Pass
	Samples(last time.Duration) SampleList
	Windows() []Window
	Settings(ctx context.Context) (Settings, error)
}

// socketGroup may talk to the service beside root; without such a group only
// root may.
const socketGroup = "criguard"

// Bounds of a request: a slow or greedy client costs little.
const (
	controlTimeout   = 10 * time.Second
	controlHeader    = 8 << 10
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

// Handler serves the control API.
func Handler(a Answerer, o Operator, m *Metrics) http.Handler {
	mux := http.NewServeMux()
	handleQuestions(mux, a)
	handleSamples(mux, a)
	handleCommands(mux, o)
	mux.Handle("GET /metrics", m.Handler())
	mux.Handle("GET /v1/metrics", m.OwnHandler())
	return mux
}

// handleQuestions answers what changes nothing.
func handleQuestions(mux *http.ServeMux, a Answerer) {
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
		replyHistory(w, a.History(n))
	})
}

// handleSamples answers with what was seen of the signals, and the configuration that
// they were held to.
func handleSamples(mux *http.ServeMux, a Answerer) {
	mux.HandleFunc("GET /v1/samples", func(w http.ResponseWriter, r *http.Request) {
		last := time.Duration(math.MaxInt64 / 2)
		if v := r.FormValue("last"); v != "" {
			var err error
			if last, err = time.ParseDuration(v); err != nil || last <= 0 {
				replyError(w, http.StatusBadRequest, fmt.Errorf("last = %q: want a duration above 0, as 1m", v))
				return
			}
		}
		reply(w, a.Samples(last), nil)
	})
	mux.HandleFunc("GET /v1/windows", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, WindowList{APIVersion: APIVersion, Windows: a.Windows()}, nil)
	})
	mux.HandleFunc("GET /v1/config", func(w http.ResponseWriter, r *http.Request) {
		c, err := a.Settings(r.Context())
		reply(w, c, err)
	})
}

// handleCommands takes what operators ask for. The socket's permissions say who
// may; the kernel says who it was.
func handleCommands(mux *http.ServeMux, o Operator) {
	mux.HandleFunc("POST /v1/command", func(w http.ResponseWriter, r *http.Request) {
		by, ok := peerOf(r)
		if !ok {
			replyError(w, http.StatusForbidden, fmt.Errorf("%w: who asks is not known", ErrRefused))
			return
		}
		c, err := ParseCommand(r.Body)
		if err != nil {
			replyError(w, http.StatusBadRequest, err)
			return
		}
		answer, err := o.Command(r.Context(), c, by)
		if errors.Is(err, ErrRefused) {
			replyError(w, http.StatusConflict, err)
			return
		}
		reply(w, answer, err)
	})
	mux.HandleFunc("GET /v1/drain", func(w http.ResponseWriter, r *http.Request) {
		plan, err := o.Plan(r.Context())
		reply(w, plan, err)
	})
}

// replyHistory writes one pass after another: all of them at once would take
// megabytes for each client.
func replyHistory(w http.ResponseWriter, passes []Pass) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	sep := `{"apiVersion":"` + APIVersion + `","passes":[`
	for i := range passes {
		if _, err := io.WriteString(w, sep); err != nil || enc.Encode(&passes[i]) != nil {
			return // a client that went away is not our failure
		}
		sep = ","
	}
	if len(passes) > 0 {
		sep = ""
	}
	_, _ = io.WriteString(w, sep+"]}\n")
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
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("open control socket: %s: longer than %d bytes (hint: --run-dir names another directory)", path, maxSocketPath)
	}
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
	return newDoor(l), nil
}

// NewServer returns an HTTP server that malformed, slow or many clients cannot
// tie up, when it listens at a door.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: attended(h), ConnContext: withGuest, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo), ReadHeaderTimeout: controlIdleAfter, ReadTimeout: controlTimeout,
		WriteTimeout: controlTimeout, IdleTimeout: controlIdleAfter, MaxHeaderBytes: controlHeader,
	}
}
