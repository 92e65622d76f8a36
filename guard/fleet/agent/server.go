package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/policy"
)

// NewServer returns the server of an agent. It limits headers, bodies and times as the control socket's does.
func NewServer(a *Agent) *http.Server { return control.NewServer(a.handler()) }

// Limit limits the number of a listener's connections.
func Limit(l net.Listener) net.Listener { return control.NewLimitListener(l) }

func (a *Agent) handler() http.Handler {
	mux := http.NewServeMux()
	handle(mux, "PUT /v1/state", func(r *http.Request) (any, error) {
		var s State
		if err := parse(r, &s); err != nil {
			return nil, err
		}
		if err := s.check(); err != nil {
			return nil, err
		}
		a.SetState(s)
		return a.Status(), nil
	})
	handle(mux, "PUT /v1/permits/{pool}/{sandbox}", func(r *http.Request) (any, error) {
		pool, sandbox, err := pod(r)
		if err != nil {
			return nil, err
		}
		var q Request
		if err := parse(r, &q); err != nil {
			return nil, err
		}
		if err := q.check(sandbox); err != nil {
			return nil, err
		}
		return a.Request(pool, sandbox, q), nil
	})
	handle(mux, "DELETE /v1/permits/{pool}/{sandbox}", func(r *http.Request) (any, error) {
		pool, sandbox, err := pod(r)
		if err != nil {
			return nil, err
		}
		a.Withdraw(pool, sandbox)
		return a.Status(), nil
	})
	mux.HandleFunc("GET /v1/metrics", a.serveMetrics)
	handle(mux, "GET /v1/status", func(*http.Request) (any, error) { return a.Status(), nil })
	return mux
}

// handle answers with a JSON value, or with the fault of the request.
func handle(mux *http.ServeMux, pattern string, answer func(r *http.Request) (any, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		code := http.StatusOK
		v, err := answer(r)
		if err != nil {
			code, v = http.StatusBadRequest, api.Error{APIVersion: api.APIVersion, Error: err.Error()}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v) // a client that disconnects is not our failure
	})
}

func parse(r *http.Request, v any) error {
	if err := json.NewDecoder(r.Body).Decode(v); err != nil {
		return fmt.Errorf("parse request: %w", err)
	}
	return nil
}

func pod(r *http.Request) (pool policy.Pool, sandbox string, err error) {
	if err := pool.UnmarshalText([]byte(r.PathValue("pool"))); err != nil {
		return 0, "", errors.New("no such pool")
	}
	return pool, r.PathValue("sandbox"), nil
}
