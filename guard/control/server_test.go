package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/guard/safetext"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// emitPasses passes each pass to emit, as a history does.
func emitPasses(passes []api.Pass, emit func([]byte) error) error {
	for i := range passes {
		line, err := safetext.JSON(&passes[i])
		if err == nil {
			err = emit(line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fakeAnswers is an Answerer with fixed answers.
type fakeAnswers struct{ passes []api.Pass }

func (fakeAnswers) Status(context.Context) (api.Status, error) {
	return api.Status{APIVersion: api.APIVersion, Live: true}, nil
}

func (fakeAnswers) Rank(_ context.Context, s policy.Signal) (api.Ranking, error) {
	return api.Ranking{APIVersion: api.APIVersion, Signal: s}, nil
}

func (f fakeAnswers) History(_ context.Context, _ api.HistoryQuery, emit func([]byte) error) (string, error) {
	return "", emitPasses(f.passes, emit)
}

func (fakeAnswers) Samples(last time.Duration) api.SampleList {
	return api.SampleList{APIVersion: api.APIVersion, Now: api.Duration(last)}
}

func (fakeAnswers) Windows() []api.Window { return []api.Window{{Pass: 7}} }

func (fakeAnswers) Images(context.Context) (reclaim.ImageList, error) {
	return reclaim.ImageList{Verdicts: []reclaim.Verdict{{Position: 1}}}, nil
}

func (fakeAnswers) Settings(context.Context) (api.Settings, error) {
	return api.Settings{APIVersion: api.APIVersion, Text: "mode"}, nil
}

// serveControl serves a control socket and returns its directory.
func serveControl(t *testing.T) rundir.Dir {
	t.Helper()
	return serveAnswers(t, fakeAnswers{[]api.Pass{{ID: 7}}})
}

func serveAnswers(t *testing.T, answers Answerer) rundir.Dir {
	t.Helper()
	d := rundir.Dir(t.TempDir())
	for range 2 { // a stale socket is replaced
		l, err := Listen(d)
		if err != nil {
			t.Fatal(err)
		}
		srv := NewServer(Handler(answers, &fakeOperator{}, http.NotFoundHandler(), http.NotFoundHandler()))
		done := make(chan struct{})
		go func() { _ = srv.Serve(l); close(done) }()
		t.Cleanup(func() { _ = srv.Close(); <-done })
	}
	return d
}

// A path that is too long for a socket is reported as such.
func TestControlSocketPathTooLong(t *testing.T) {
	dir := rundir.Dir(filepath.Join(t.TempDir(), strings.Repeat("x", config.MaxSocketPath)))
	if _, err := Listen(dir); err == nil || !strings.Contains(err.Error(), "longer than 107 bytes") || !strings.Contains(err.Error(), "--run-dir") {
		t.Errorf("%v", err)
	}
}

func TestControlSocket(t *testing.T) {
	d := serveControl(t)
	if st, err := os.Stat(d.Socket()); err != nil || st.Mode().Perm() != 0o660 {
		t.Errorf("socket: %v, %v", st.Mode(), err)
	}
	c := NewClient(d)
	if st, err := c.Status(t.Context()); err != nil || !st.Live {
		t.Errorf("status: %+v, %v", st, err)
	}
	if r, err := c.Rank(t.Context(), policy.PIDAvailable); err != nil || r.Signal != policy.PIDAvailable {
		t.Errorf("rank: %+v, %v", r, err)
	}
	if h, err := c.History(t.Context(), 0); err != nil || len(h) != 1 || h[0].ID != 7 {
		t.Errorf("history: %+v, %v", h, err)
	}
	if l, err := c.Samples(t.Context(), time.Minute); err != nil || time.Duration(l.Now) != time.Minute {
		t.Errorf("samples: %+v, %v", l, err)
	}
	if l, err := c.Samples(t.Context(), 0); err != nil || time.Duration(l.Now) < 24*time.Hour {
		t.Errorf("all samples: %+v, %v", l, err)
	}
	if w, err := c.Windows(t.Context()); err != nil || len(w) != 1 || w[0].Pass != 7 {
		t.Errorf("windows: %+v, %v", w, err)
	}
	if l, err := c.Images(t.Context()); err != nil || len(l.Verdicts) != 1 {
		t.Errorf("images: %+v, %v", l, err)
	}
	if s, err := c.Settings(t.Context()); err != nil || s.Text != "mode" {
		t.Errorf("settings: %+v, %v", s, err)
	}
	if _, err := NewClient(rundir.Dir(t.TempDir())).Status(t.Context()); !errors.Is(err, ErrNoService) {
		t.Errorf("without a service: %v", err)
	}
}

// laterHistory has a pass with a signal that this version does not know, as after a downgrade.
type laterHistory struct{ fakeAnswers }

func (laterHistory) History(_ context.Context, _ api.HistoryQuery, emit func([]byte) error) (string, error) {
	line := func(id uint64, signal string) error {
		return emit([]byte(fmt.Sprintf(`{"id":%d,"at":"1s","conditions":[],"signals":[{"signal":%q}]}`, id, signal)))
	}
	return "", errors.Join(line(1, "memory.available"), line(2, "later.available"), line(3, "pid.available"))
}

// One pass of a later version does not keep the others from being shown.
func TestHistoryOfALaterVersion(t *testing.T) {
	list, err := NewClient(serveAnswers(t, laterHistory{})).Passes(t.Context(), api.HistoryQuery{})
	if err != nil || len(list.Passes) != 2 || list.Passes[0].ID != 1 || list.Passes[1].ID != 3 || list.APIVersion != api.APIVersion {
		t.Fatalf("%+v, %v", list, err)
	}
	if !strings.Contains(list.Note, "1 of 3 passes left out") {
		t.Errorf("note %q", list.Note)
	}
}

// longHistory has as many passes as a service keeps at most, of 10 KB each.
type longHistory struct{ fakeAnswers }

func (longHistory) History(_ context.Context, _ api.HistoryQuery, emit func([]byte) error) (string, error) {
	line := []byte(fmt.Sprintf(`{"id":1,"at":"1s"%10000s}`, "")) // spaces, which take no time to read
	for range 10_000 {
		if err := emit(line); err != nil {
			return "", err
		}
	}
	return "", nil
}

// A client reads the longest history of long passes.
func TestLongHistory(t *testing.T) {
	c := NewClient(serveAnswers(t, longHistory{}))
	c.http.Timeout = time.Minute
	if list, err := c.Passes(t.Context(), api.HistoryQuery{}); err != nil || len(list.Passes) != 10_000 {
		t.Errorf("%d passes, %v", len(list.Passes), err)
	}
}

// Slow and malformed clients do not keep others from an answer.
func TestControlSocketHostileClients(t *testing.T) {
	d := serveControl(t)
	for i := range MaxConns - 1 {
		conn, err := net.Dial("unix", d.Socket())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if i%2 == 0 {
			_, _ = conn.Write([]byte("\x00\xff nonsense\r\n\r\n"))
		} else {
			_, _ = conn.Write([]byte("GET /v1/status HT"))
		}
	}
	c := NewClient(d)
	c.http.Timeout = time.Minute
	if _, err := c.Status(t.Context()); err != nil {
		t.Errorf("beside %d hostile clients: %v", MaxConns-1, err)
	}
}

// fakeOperator records the commands that it receives.
type fakeOperator struct {
	commands []api.Command
	by       []api.Peer
	err      error
	prune    func(context.Context, api.PruneOptions, api.Peer) ([]reclaim.Report, error)
}

func (f *fakeOperator) Command(_ context.Context, c api.Command, by api.Peer) (api.CommandAnswer, error) {
	f.commands, f.by = append(f.commands, c), append(f.by, by)
	return api.CommandAnswer{APIVersion: api.APIVersion, Message: "done"}, f.err
}

func (f *fakeOperator) Prune(ctx context.Context, o api.PruneOptions, by api.Peer) ([]reclaim.Report, error) {
	if f.prune == nil {
		return nil, cri.ErrNoRuntime
	}
	return f.prune(ctx, o, by)
}

func (f *fakeOperator) Plan(context.Context) (api.DrainPlan, error) {
	return api.DrainPlan{APIVersion: api.APIVersion, Left: 3}, f.err
}

// A query survives the round trip through the URL; invalid parameters are errors.
func TestParseHistoryQuery(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 123456789, time.UTC)
	for _, q := range []api.HistoryQuery{{}, {N: 7}, {Since: at, From: 9}} {
		r := newRequest(t, "/v1/history?"+historyValues(q).Encode())
		if got, err := parseHistoryQuery(r); err != nil || got.N != q.N || got.From != q.From || !got.Since.Equal(q.Since) {
			t.Errorf("%+v, %v, want %+v", got, err, q)
		}
	}
	for _, bad := range []string{"n=x", "since=yesterday", "from=-1"} {
		if q, err := parseHistoryQuery(newRequest(t, "/v1/history?"+bad)); err == nil {
			t.Errorf("%s: %+v", bad, q)
		}
	}
}

func newRequest(t *testing.T, target string) *http.Request {
	t.Helper()
	return httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody)
}
