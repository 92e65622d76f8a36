package guard

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/policy"
)

// The history survives a restart and torn lines, and keeps the newest passes.
func TestHistorySurvives(t *testing.T) {
	dir := t.TempDir()
	h := OpenHistory(dir, 3)
	for id := range uint64(10) {
		h.Add(Pass{ID: id + 1, Held: HeldBudget})
	}
	if err := errors.Join(h.Save(), h.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, historyName), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("{\"id\":11,\"wake\":\"to"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	h = OpenHistory(dir, 3)
	defer func() { _ = h.Close() }()
	if last := h.Last(0); len(last) != 3 || last[0].ID != 8 || h.LastID() != 10 {
		t.Errorf("after a restart: %+v", last)
	}
	h.Resize(1)
	if last := h.Last(5); len(last) != 1 || last[0].ID != 10 {
		t.Errorf("resized: %+v", last)
	}
}

// A directory that cannot be written keeps the history in memory.
func TestHistoryWithoutDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := OpenHistory(filepath.Join(file, "below"), 3)
	h.Add(Pass{ID: 1})
	if h.Save() == nil || h.Broken() == nil || len(h.Last(0)) != 1 {
		t.Errorf("broken %v, %d passes", h.Broken(), len(h.Last(0)))
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	h.Add(Pass{ID: 2})
	if err := errors.Join(h.Save(), h.Broken(), h.Close()); err != nil {
		t.Errorf("once the directory can be made: %v", err)
	}
	again := OpenHistory(filepath.Join(file, "below"), 3)
	defer again.Close()
	if last := again.Last(0); len(last) != 2 || last[0].ID != 1 {
		t.Errorf("in the file: %+v", last)
	}
}

// A file that is as it should be is not written at a start; what comes while the disk is
// busy, more than is kept even, is in the file with the next save, and once.
func TestHistorySavesWhatIsNew(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, historyName)
	ids := func() (ids []uint64) {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		passes, _, _ := readHistory(f, 100)
		for _, p := range passes {
			ids = append(ids, p.ID)
		}
		return ids
	}
	h := OpenHistory(dir, 3)
	add := func(from, to uint64) {
		for id := from; id <= to; id++ {
			h.Add(Pass{ID: id})
		}
		if err := h.Save(); err != nil {
			t.Fatal(err)
		}
	}
	add(1, 2)
	add(3, 8) // more than are kept
	add(9, 9)
	if got, want := ids(), []uint64{1, 2, 6, 7, 8, 9}; !slices.Equal(got, want) {
		t.Errorf("the file has %v, want %v", got, want)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = OpenHistory(dir, 3)
	defer func() { _ = h.Close() }()
	if err := h.Save(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("a whole file was written at the start: %v", err)
	}
	add(10, 10)
	if got, want := ids(), []uint64{8, 9, 10}; !slices.Equal(got, want) {
		t.Errorf("with twice as many as are kept the file has %v, want %v", got, want)
	}
	if now, err := os.Stat(path); err != nil || now.Size() != h.file.size {
		t.Errorf("size %d, followed as %d: %v", now.Size(), h.file.size, err)
	}
}

func TestRunDirLock(t *testing.T) {
	d := RunDir(t.TempDir())
	release, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Lock(); !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), "pid ") {
		t.Errorf("the second: %v", err)
	}
	release()
	if release, err = d.Lock(); err != nil {
		t.Fatal(err)
	}
	release()
}

// fakeAnswers answers with what it has.
type fakeAnswers struct{ passes []Pass }

func (fakeAnswers) Status(context.Context) (Status, error) {
	return Status{APIVersion: APIVersion, Live: true}, nil
}
func (fakeAnswers) Rank(_ context.Context, s policy.Signal) (Ranking, error) {
	return Ranking{APIVersion: APIVersion, Signal: s}, nil
}
func (f fakeAnswers) History(int) []Pass { return f.passes }
func (fakeAnswers) Samples(last time.Duration) SampleList {
	return SampleList{APIVersion: APIVersion, Now: last}
}
func (fakeAnswers) Windows() []Window { return []Window{{Pass: 7}} }
func (fakeAnswers) Settings(context.Context) (Settings, error) {
	return Settings{APIVersion: APIVersion, Text: "mode"}, nil
}

// serveControl serves a control socket and returns its directory.
func serveControl(t *testing.T) RunDir {
	t.Helper()
	d := RunDir(t.TempDir())
	for range 2 { // a socket that was left behind is replaced
		l, err := ListenControl(d)
		if err != nil {
			t.Fatal(err)
		}
		srv := NewServer(Handler(fakeAnswers{[]Pass{{ID: 7}}}, &fakeOperator{}, NewMetrics("test")))
		done := make(chan struct{})
		go func() { _ = srv.Serve(l); close(done) }()
		t.Cleanup(func() { _ = srv.Close(); <-done })
	}
	return d
}

// A path that no socket can have is told as that.
func TestControlSocketPathTooLong(t *testing.T) {
	dir := RunDir(filepath.Join(t.TempDir(), strings.Repeat("x", maxSocketPath)))
	if _, err := ListenControl(dir); err == nil || !strings.Contains(err.Error(), "longer than 107 bytes") || !strings.Contains(err.Error(), "--run-dir") {
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
	if l, err := c.Samples(t.Context(), time.Minute); err != nil || l.Now != time.Minute {
		t.Errorf("samples: %+v, %v", l, err)
	}
	if l, err := c.Samples(t.Context(), 0); err != nil || l.Now < 24*time.Hour {
		t.Errorf("all samples: %+v, %v", l, err)
	}
	if w, err := c.Windows(t.Context()); err != nil || len(w) != 1 || w[0].Pass != 7 {
		t.Errorf("windows: %+v, %v", w, err)
	}
	if s, err := c.Settings(t.Context()); err != nil || s.Text != "mode" {
		t.Errorf("settings: %+v, %v", s, err)
	}
	if _, err := NewClient(RunDir(t.TempDir())).Status(t.Context()); !errors.Is(err, ErrNoService) {
		t.Errorf("without a service: %v", err)
	}
}

// Slow and malformed clients do not keep others from an answer.
func TestControlSocketHostileClients(t *testing.T) {
	d := serveControl(t)
	for i := range guestsAtOnce - 1 {
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := NewClient(d)
	c.http.Timeout = 0 // ctx has one
	if _, err := c.Status(ctx); err != nil {
		t.Errorf("beside %d hostile clients: %v", guestsAtOnce-1, err)
	}
}

// fakeOperator keeps what it is told.
type fakeOperator struct {
	commands []Command
	by       []Peer
	err      error
}

func (f *fakeOperator) Command(_ context.Context, c Command, by Peer) (CommandAnswer, error) {
	f.commands, f.by = append(f.commands, c), append(f.by, by)
	return CommandAnswer{APIVersion: APIVersion, Message: "done"}, f.err
}

func (f *fakeOperator) Plan(context.Context) (DrainPlan, error) {
	return DrainPlan{APIVersion: APIVersion, Left: 3}, f.err
}

// A year of stops on a node of a hundred pods takes neither the memory nor the disk: the
// last rankings are whole, of older ones the first rows are kept.
func TestHistoryShortensRankings(t *testing.T) {
	const passes, pods = 300, 110
	dir := t.TempDir()
	h := OpenHistory(dir, 1000)
	for id := range uint64(passes) {
		p := Pass{ID: id + 1, Ranked: make([]RankedView, pods)}
		for i := range p.Ranked {
			p.Ranked[i] = RankedView{Position: i + 1, Pod: "default/pod", Sandbox: strings.Repeat("0123456789abcdef", 4), UID: "8a6e0b7f-3f1d-4c11-9a6e-6f1c4c8e2d5c"}
		}
		h.Add(p)
		if err := h.Save(); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, historyName)); err != nil || info.Size() > maxHistoryFile+1<<20 {
		t.Errorf("%v, %v", info.Size(), err)
	}
	kept := h.Last(0)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	again := OpenHistory(dir, 1000)
	defer again.Close()
	for _, all := range [][]Pass{kept, again.Last(0)} {
		if len(all) != passes {
			t.Fatalf("%d passes", len(all))
		}
		for i, p := range all {
			want := firstRanked
			if i >= passes-wholeRankings {
				want = pods
			}
			if len(p.Ranked) != want || p.RankedMore != pods-want || p.Ranked[0].Position != 1 {
				t.Fatalf("pass %d: %d ranked and %d more, want %d", p.ID, len(p.Ranked), p.RankedMore, want)
			}
		}
	}
}
