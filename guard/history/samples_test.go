package history

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

const gib = 1 << 30

// seen returns an observation of memory; pid.available fails and all other signals are absent.
func seen(available int64, at time.Duration) *policy.Observations {
	var obs policy.Observations
	obs[policy.MemoryAvailable] = policy.ObserveUsed(4*gib, 4*gib-available, at)
	obs[policy.PIDAvailable] = policy.Observation{At: at, Status: policy.Failed}
	return &obs
}

func stopPass(id uint64, at time.Duration) *api.Pass {
	return &api.Pass{ID: id, At: api.Duration(at), Time: time.Unix(0, 0).Add(at), Stop: &api.StopView{Signal: "memory.available", Kind: "hard"}}
}

// A calm node is sampled once a second, and ten minutes are kept, however often it was sampled near a
// threshold.
func TestSamplesAreBounded(t *testing.T) {
	s := NewSamples(t.TempDir())
	now := time.Duration(0)
	for ; now < 15*time.Minute; now += 5 * time.Millisecond {
		s.Add(seen(now.Microseconds(), now), now)
	}
	all := s.Last(time.Hour, now)
	if n := len(all.At); n != calmSamples+denseSamples {
		t.Fatalf("%d samples are kept, want %d", n, calmSamples+denseSamples)
	}
	if reach := now - time.Duration(all.At[0]); reach < 10*time.Minute {
		t.Errorf("the oldest is %s old, want 10m at least", reach)
	}
	for i := 1; i < len(all.At); i++ {
		if gap := time.Duration(all.At[i] - all.At[i-1]); gap <= 0 || gap > calmEvery {
			t.Fatalf("%s after the sample before", gap)
		}
		if got := all.Available[policy.MemoryAvailable][i]; got != time.Duration(all.At[i]).Microseconds() {
			t.Fatalf("at %s: %d", all.At[i], got)
		}
	}
	if _, ok := all.Available[policy.PIDAvailable]; ok || len(all.Available) != 1 {
		t.Errorf("signals that were never read are listed: %v", all.Capacity)
	}
	if few := s.Last(10*time.Second, now); len(few.At) > 10+denseSamples || now-time.Duration(few.At[0]) > 10*time.Second {
		t.Errorf("of the last 10s: %d, the oldest %s old", len(few.At), now-time.Duration(few.At[0]))
	}
	if n := testing.AllocsPerRun(100, func() { now += time.Second; s.Add(seen(1, now), now) }); n > 1 { // seen allocates
		t.Errorf("%g allocations for a sample", n)
	}
}

// A window has the minute before and the minute after the stop, and the thresholds. A restart loads the same
// window again.
func TestWindowAroundStop(t *testing.T) {
	dir := t.TempDir()
	s := NewSamples(dir)
	limit, err := policy.ParseQuantity("1Gi")
	if err != nil {
		t.Fatal(err)
	}
	ts := []policy.Threshold{{Signal: policy.MemoryAvailable, Kind: policy.Hard, Value: limit}}
	const stopAt = 5 * time.Minute
	for now := time.Duration(0); now < 10*time.Minute; now += 50 * time.Millisecond {
		if s.Add(seen(gib, now), now) {
			if err := s.Save(); err != nil {
				t.Fatal(err)
			}
		}
		if now == stopAt {
			s.Stop(stopPass(7, now), ts)
			if w := s.Windows(); len(w) != 1 || time.Duration(w[0].At[len(w[0].At)-1]) != stopAt {
				t.Fatalf("right after the stop: %d windows", len(w))
			}
		}
		if now == stopAt+windowReach && len(files(t, dir)) != 0 {
			t.Fatal("a window was written before it was through")
		}
	}
	if got := files(t, dir); len(got) != 1 {
		t.Fatalf("files %v", got)
	}
	for what, s := range map[string]*Samples{"kept": s, "after a restart": NewSamples(dir)} {
		ws := s.Windows()
		if len(ws) != 1 || ws[0].Pass != 7 || time.Duration(ws[0].StopAt) != stopAt || !ws[0].Time.Equal(time.Unix(300, 0)) {
			t.Fatalf("%s: %+v", what, ws)
		}
		w := ws[0]
		first, last := time.Duration(w.At[0]), time.Duration(w.At[len(w.At)-1])
		if stopAt-first < 59*time.Second || stopAt-first > windowReach || last-stopAt < 59*time.Second || last-stopAt > windowReach {
			t.Errorf("%s: from %s to %s", what, first, last)
		}
		if n := len(w.At); n < 2*windowDense+100 || n > 2*windowDense+2*61 {
			t.Errorf("%s: %d samples", what, n)
		}
		if len(w.Limits) != 1 || w.Limits[0] != (api.Limit{Signal: policy.MemoryAvailable, Kind: policy.Hard, Amount: gib}) {
			t.Errorf("%s: thresholds %v", what, w.Limits)
		}
	}
}

// A program that reads the windows gets a list, also before the first stop.
func TestNoWindows(t *testing.T) {
	if all := NewSamples(t.TempDir()).Windows(); all == nil || len(all) > 0 {
		t.Errorf("%+v, want an empty list", all)
	}
}

// The newest windows stay, in memory and on disk. A drain has no signal, so it has no window.
func TestWindowsAreBounded(t *testing.T) {
	dir := t.TempDir()
	s := NewSamples(dir)
	now := time.Duration(0)
	for id := range uint64(2 * maxWindows) {
		now += 100 * time.Millisecond
		s.Add(seen(gib, now), now)
		s.Stop(stopPass(id+1, now), nil)
	}
	p := stopPass(99, now)
	p.Stop.Signal = "drain"
	s.Stop(p, nil)
	s.Close()
	if err := s.Save(); err != nil {
		t.Fatal(err)
	}
	for what, s := range map[string]*Samples{"kept": s, "after a restart": NewSamples(dir)} {
		ws := s.Windows()
		if len(ws) != maxWindows || ws[0].Pass != maxWindows+1 || ws[maxWindows-1].Pass != 2*maxWindows {
			t.Errorf("%s: %d windows", what, len(ws))
		}
	}
	if got := files(t, dir); len(got) != maxWindows {
		t.Errorf("%d files", len(got))
	}
}

// Torn, foreign and inconsistent files are ignored. If the directory is not writable, the windows stay in
// memory.
func TestWindowsLiveWithBadFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, WindowDir), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"stop-1.json": `{"pass":1,"at":[1`,
		"stop-2.json": `{"pass":2,"at":["1ns","2ns"],"available":{"memory.available":[1]}}`,
		"stop-3.json": `{"pass":4}`,
		"stop-5.json": `{"pass":5,"at":["1ns"],"available":{"memory.available":[1]}}`,
		"notes.txt":   `{"pass":6}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, WindowDir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if ws := NewSamples(dir).Windows(); len(ws) != 1 || ws[0].Pass != 5 {
		t.Errorf("read %+v", ws)
	}
	s := NewSamples(filepath.Join(dir, WindowDir, "notes.txt", "below"))
	s.Add(seen(gib, 0), 0)
	s.Stop(stopPass(1, 0), nil)
	s.Close()
	if err := s.Save(); err == nil || len(s.Windows()) != 1 {
		t.Errorf("without a directory: %v, %d windows", err, len(s.Windows()))
	}
	if err := os.Remove(filepath.Join(dir, WindowDir, "notes.txt")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Save(), s.Save()); err != nil || len(files(t, filepath.Join(dir, WindowDir, "notes.txt", "below"))) != 1 {
		t.Errorf("once the directory can be made: %v", err)
	}
}

// A parsed window never has a column that is shorter than its times.
func FuzzWindow(f *testing.F) {
	f.Add([]byte(`{"pass":5,"at":[1],"available":{"memory.available":[1]},"thresholds":[{"signal":"pid.available","kind":"soft","amount":3}]}`))
	f.Add([]byte(`{"available":{"memory.available":[]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := parseWindow(b)
		if err != nil {
			return
		}
		for s, column := range w.Available {
			if len(column) != len(w.At) {
				t.Errorf("%s has %d values at %d times", s, len(column), len(w.At))
			}
		}
		if _, err := json.Marshal(w); err != nil {
			t.Error(errors.Unwrap(err))
		}
	})
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, WindowDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}
