package main

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config/schema"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

// stand is a fake service on a control socket.
type stand struct {
	mu      sync.Mutex
	answers map[string]any // keyed by path
	asked   map[string]int
}

func (s *stand) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[r.URL.Path]++
	_ = json.NewEncoder(w).Encode(s.answers[r.URL.Path])
}

func (s *stand) serve(t *testing.T, dir string) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", rundir.Dir(dir).Socket())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Second}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	return func() { _ = server.Close(); <-done }
}

// source returns a topSource with a directory of its own.
func source(t *testing.T, conf string) (*topSource, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "top")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	o := &options{config: path, runDir: dir}
	src := &topSource{options: o, client: control.NewClient(o.dir())}
	t.Cleanup(src.close)
	return src, dir
}

// The history is fetched only after a new pass, and a direct look never replaces a service that has
// answered once.
func TestTopSource(t *testing.T) {
	src, dir := source(t, "")
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	pass := func(id uint64, pod string) api.Pass {
		return api.Pass{ID: id, Time: at.Add(time.Duration(id) * time.Second), Stop: &api.StopView{Pod: pod, Kind: "hard"}}
	}
	first, second := pass(1, "default/a"), pass(2, "default/b")
	s := &stand{asked: map[string]int{}, answers: map[string]any{
		"/v1/status":  api.Status{Live: true, LastPass: &first},
		"/v1/history": api.HistoryList{Passes: []api.Pass{first}},
		"/v1/rank":    api.Ranking{Live: true, Signal: policy.PIDAvailable},
	}}
	s.answers["/v1/samples"] = api.SampleList{Now: api.Duration(time.Minute), Series: api.Series{
		At:        []api.Duration{api.Duration(58 * time.Second), api.Duration(59 * time.Second), api.Duration(time.Minute)},
		Available: map[policy.Signal][]int64{policy.MemoryAvailable: {30, -1, 10}, policy.PIDAvailable: {7, 7}},
	}}
	stop := s.serve(t, dir)
	if before := src.before(t.Context()); before != nil {
		t.Errorf("before any service has answered there is %+v", before)
	}
	_, events, err := src.Status(t.Context())
	if err != nil || len(events) != 1 || events[0].What != "stop default/a (hard, grace 0s)" || !events[0].At.Equal(first.Time) {
		t.Fatalf("events %+v, %v", events, err)
	}
	for range 3 {
		if _, events, err := src.Status(t.Context()); err != nil || events != nil {
			t.Errorf("events %+v, %v: nothing has happened since", events, err)
		}
	}
	s.mu.Lock()
	if s.asked["/v1/history"] != 1 {
		t.Errorf("the history was asked for %d times", s.asked["/v1/history"])
	}
	s.answers["/v1/status"] = api.Status{Live: true, LastPass: &second}
	s.answers["/v1/history"] = api.HistoryList{Passes: []api.Pass{first, second}}
	s.mu.Unlock()
	if _, events, err := src.Status(t.Context()); err != nil || len(events) != 2 || events[1].What != "stop default/b (hard, grace 0s)" {
		t.Errorf("events %+v, %v", events, err)
	}
	amounts, span := map[policy.Signal][]int64{}, time.Duration(0)
	before := src.before(t.Context())
	for _, r := range before {
		amounts[r.Signal] = append(amounts[r.Signal], r.Available)
		if r.Signal == policy.MemoryAvailable {
			span = time.Since(r.At)
		}
	}
	if want := map[policy.Signal][]int64{policy.MemoryAvailable: {30, 10}, policy.PIDAvailable: {7, 7}}; !reflect.DeepEqual(amounts, want) {
		t.Errorf("before: %+v, want %+v", amounts, want)
	}
	if span > 10*time.Second {
		t.Errorf("the last reading is %s old", span)
	}
	if r, err := src.Rank(t.Context(), policy.PIDAvailable); err != nil || !r.Live {
		t.Errorf("ranking %+v, %v", r, err)
	}

	stop()
	if _, _, err := src.Status(t.Context()); !errors.Is(err, control.ErrNoService) {
		t.Errorf("without the service: %v", err)
	}
	if _, err := src.Rank(t.Context(), policy.PIDAvailable); !errors.Is(err, control.ErrNoService) {
		t.Errorf("without the service: %v", err)
	}
	stop = s.serve(t, dir)
	defer stop()
	if st, _, err := src.Status(t.Context()); err != nil || !st.Live {
		t.Errorf("the service is back: %+v, %v", st, err)
	}
}

// Until a service has answered, each poll inspects the node directly; a configuration mistake is
// reported.
func TestTopSourceWithoutService(t *testing.T) {
	src, _ := source(t, "[runtime]\nendpoint = \"unix:///nonexistent/criguard.sock\"\n")
	for range 2 {
		st, events, err := src.Status(t.Context())
		if err != nil || st.Live || len(st.Signals) == 0 || st.Version != version || events != nil {
			t.Errorf("status %+v, events %v, %v", st, events, err)
		}
	}
	if _, err := src.Rank(t.Context(), policy.MemoryAvailable); !errors.Is(err, cri.ErrNoRuntime) {
		t.Errorf("ranking without a runtime: %v", err)
	}
	broken, _ := source(t, "colour = 1\n")
	if _, _, err := broken.Status(t.Context()); !errors.Is(err, schema.ErrInvalid) {
		t.Errorf("a mistake in the configuration: %v", err)
	}
}

// A service of another runtime than that of --endpoint is not asked.
func TestTopSourceOfAnotherRuntime(t *testing.T) {
	src, dir := source(t, "# the defaults\n")
	s := &stand{asked: map[string]int{}, answers: map[string]any{
		"/v1/status": api.Status{Live: true, Runtime: api.RuntimeStatus{Endpoint: "unix:///nonexistent/service.sock"}},
		"/v1/rank":   api.Ranking{Live: true},
	}}
	defer s.serve(t, dir)()
	src.options.endpoint = "/nonexistent/other.sock"
	for range 2 {
		if st, _, err := src.Status(t.Context()); err != nil || st.Live || len(st.Signals) == 0 {
			t.Errorf("live %t, %d signals, %v", st.Live, len(st.Signals), err)
		}
	}
	if _, err := src.Rank(t.Context(), policy.MemoryAvailable); !errors.Is(err, cri.ErrNoRuntime) {
		t.Errorf("ranking: %v", err)
	}
	s.mu.Lock()
	s.answers["/v1/status"] = api.Status{Live: true, Runtime: api.RuntimeStatus{Endpoint: "unix:///nonexistent/other.sock"}}
	s.mu.Unlock()
	if st, _, err := src.Status(t.Context()); err != nil || !st.Live {
		t.Errorf("once it is the service's: %+v, %v", st, err)
	}
	same, dir := source(t, "# the defaults\n")
	defer s.serve(t, dir)()
	same.options.endpoint = "/nonexistent/other.sock"
	if st, _, err := same.Status(t.Context()); err != nil || !st.Live {
		t.Errorf("of the same runtime: %+v, %v", st, err)
	}
}
