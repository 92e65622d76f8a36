package agent

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/policy"
)

// idle returns an agent that does not run, so that it never asks.
func idle() *Agent {
	return New(Options{Rates: fleet.DefaultRates(), Soft: policy.Bucket{Burst: 1, Every: time.Minute}, Rand: rand.New(rand.NewPCG(1, 2)), Now: func() time.Duration { return time.Hour }})
}

func TestServer(t *testing.T) {
	a := idle()
	h := NewServer(a).Handler
	const request = `{"kind":"soft","workload":"shop/web"}`
	for _, tt := range []struct {
		method, path, body string
		code               int
		answer             string // part of it
	}{
		{"PUT", "/v1/state", `{"wants":["memory"],"digest":"d1","version":"v1","later":1}`, 200, `"wants":["memory"]`},
		{"PUT", "/v1/permits/memory/u1", request, 200, `"state":"denied","reason":"waiting for the first contact","retry_after":"`},
		{"PUT", "/v1/permits/nodefs%20bytes/u2", request, 200, `"state":"denied"`},
		{"GET", "/v1/status", "", 200, `"pool":"nodefs bytes","sandbox":"u2","kind":"soft","workload":"shop/web"`},
		{"DELETE", "/v1/permits/memory/u1", "", 200, `"requests":[{"pool":"nodefs bytes"`},
		{"DELETE", "/v1/permits/memory/u1", "", 200, `"requests":[{"pool":"nodefs bytes"`},
		{"PUT", "/v1/state", `{}`, 200, `"wants":[],"requests":[]`},
		{"PUT", "/v1/state", `{"wants":["heat"]}`, 400, "heat"},
		{"PUT", "/v1/state", `{"wants":"memory"}`, 400, "parse request"},
		{"PUT", "/v1/state", `{"wants":[` + strings.Repeat(`"memory",`, 9) + `"memory"]}`, 400, "too long"},
		{"PUT", "/v1/state", `{"digest":"` + strings.Repeat("x", 600) + `"}`, 400, "too long"},
		{"PUT", "/v1/state", `{"digest":"` + strings.Repeat("x", 10_000) + `"}`, 400, "read request"},
		{"PUT", "/v1/permits/heat/u1", request, 400, "no such pool"},
		{"PUT", "/v1/permits/memory/u1", `{"kind":"hard","workload":"shop/web"}`, 400, "soft or limit"},
		{"PUT", "/v1/permits/memory/u1", `{"kind":"soft"}`, 400, "workload"},
		{"PUT", "/v1/permits/memory/u1", ``, 400, "parse request"},
		{"PUT", "/v1/permits/memory/" + strings.Repeat("u", 200), request, 400, "sandbox"},
		{"DELETE", "/v1/permits/heat/u1", "", 400, "no such pool"},
		{"GET", "/v1/permits/memory/u1", "", 405, ""},
		{"GET", "/v2", "", 404, ""},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, strings.NewReader(tt.body)))
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.answer) {
			t.Errorf("%s %s %.100s: %d %s, want %d %s", tt.method, tt.path, tt.body, w.Code, w.Body, tt.code, tt.answer)
		}
	}
}

// Whatever a client sends, the agent answers, and remembers no more than one request for each pool.
func FuzzServer(f *testing.F) {
	f.Add("PUT", "/v1/state", `{"wants":["memory"],"digest":"d1"}`)
	f.Add("PUT", "/v1/permits/memory/u1", `{"kind":"soft","workload":"shop/web"}`)
	f.Add("DELETE", "/v1/permits/memory/u1", "")
	a := idle()
	h := NewServer(a).Handler
	f.Fuzz(func(t *testing.T, method, path, body string) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://agent/"+path, strings.NewReader(body))
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		s := a.Status()
		if text, err := json.Marshal(s); err != nil || len(s.Requests) > int(policy.PoolCount) || len(text) > 20_000 {
			t.Errorf("status of %d bytes: %v", len(text), err)
		}
		if w.Code == http.StatusOK && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s: %s", method, path, fmt.Sprint(w.Body))
		}
	})
}
