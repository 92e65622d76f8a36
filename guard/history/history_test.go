package history

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

// Last returns the newest n passes, oldest first; all of them for n < 1.
func (h *History) Last(n int) (passes []api.Pass) {
	_, err := h.Query(context.Background(), api.HistoryQuery{N: n}, func(line []byte) error {
		passes = append(passes, api.Pass{})
		return json.Unmarshal(line, &passes[len(passes)-1])
	})
	if err != nil {
		return nil
	}
	return passes
}

// The history survives a restart and torn lines, and keeps the newest passes.
func TestHistorySurvives(t *testing.T) {
	dir := t.TempDir()
	h := Open(dir, 3)
	for id := range uint64(10) {
		h.Add(api.Pass{ID: id + 1, Held: api.HeldBudget})
	}
	if err := errors.Join(h.Save(), h.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, FileName), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("{\"id\":11,\"wake\":\"to"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	h = Open(dir, 3)
	defer func() { _ = h.Close() }()
	if last := h.Last(0); len(last) != 3 || last[0].ID != 8 || h.LastID() != 10 {
		t.Errorf("after a restart: %+v", last)
	}
	h.Resize(1)
	if last := h.Last(5); len(last) != 1 || last[0].ID != 10 {
		t.Errorf("resized: %+v", last)
	}
}

// A restarted service knows what its history says of the runtime.
func TestHistoryKnowsWhetherTheRuntimeWasDown(t *testing.T) {
	dir := t.TempDir()
	for i, c := range []struct {
		add  *api.RuntimeChange
		want bool
	}{{nil, false}, {&api.RuntimeChange{Error: "\"runtime\":"}, true}, {nil, true}, {&api.RuntimeChange{Up: true}, false}, {nil, false}} {
		h := Open(dir, 10)
		h.Add(api.Pass{ID: uint64(i) + 1, Held: api.HeldBudget, Runtime: c.add}) //nolint:gosec // not negative
		if err := errors.Join(h.Save(), h.Close()); err != nil {
			t.Fatal(err)
		}
		h = Open(dir, 10)
		if got := h.RuntimeDown(); got != c.want {
			t.Errorf("after pass %d: %t, want %t", i+1, got, c.want)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A restarted service knows which conditions its newest pass had.
func TestHistoryKnowsTheConditions(t *testing.T) {
	dir := t.TempDir()
	for i, want := range []policy.Conditions{0, policy.ConditionsOf(policy.MemoryPressure, policy.DiskPressure), 0} {
		h := Open(dir, 10)
		h.Add(api.Pass{ID: uint64(i) + 1, Conditions: want}) //nolint:gosec // not negative
		if err := errors.Join(h.Save(), h.Close()); err != nil {
			t.Fatal(err)
		}
		h = Open(dir, 10)
		if got := h.Conditions(); got != want {
			t.Errorf("after pass %d: %s, want %s", i+1, got, want)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := Open(t.TempDir(), 10).Conditions(); got != 0 {
		t.Errorf("without a pass: %s", got)
	}
}

// A directory that cannot be written keeps the history in memory.
func TestHistoryWithoutDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := Open(filepath.Join(file, "below"), 3)
	h.Add(api.Pass{ID: 1})
	if h.Save() == nil || h.Broken() == nil || len(h.Last(0)) != 1 {
		t.Errorf("broken %v, %d passes", h.Broken(), len(h.Last(0)))
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	h.Add(api.Pass{ID: 2})
	if err := errors.Join(h.Save(), h.Broken(), h.Close()); err != nil {
		t.Errorf("once the directory can be made: %v", err)
	}
	again := Open(filepath.Join(file, "below"), 3)
	defer again.Close()
	if last := again.Last(0); len(last) != 2 || last[0].ID != 1 {
		t.Errorf("in the file: %+v", last)
	}
}

// An intact file is not written at a start. Passes that arrive while the disk is busy are written once by
// the next save, but no more of them than are kept.
func TestHistorySavesWhatIsNew(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	ids := func() (ids []uint64) {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines, _, err := indexLines(f, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lines {
			ids = append(ids, l.id)
		}
		return ids
	}
	h := Open(dir, 3)
	add := func(from, to uint64) {
		for id := from; id <= to; id++ {
			h.Add(api.Pass{ID: id})
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
	h = Open(dir, 3)
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

// A year of stops on a node of a hundred pods fills neither memory nor disk: the last rankings are whole,
// and older ones keep only their first rows.
func TestHistoryShortensRankings(t *testing.T) {
	const passes, pods = 300, 110
	dir := t.TempDir()
	h := Open(dir, 1000)
	for id := range uint64(passes) {
		p := api.Pass{ID: id + 1, Ranked: make([]api.RankedView, pods)}
		for i := range p.Ranked {
			p.Ranked[i] = api.RankedView{Position: i + 1, Pod: "default/pod", Sandbox: strings.Repeat("0123456789abcdef", 4), UID: "8a6e0b7f-3f1d-4c11-9a6e-6f1c4c8e2d5c"}
		}
		h.Add(p)
		if err := h.Save(); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, FileName)); err != nil || info.Size() > maxFile+1<<20 {
		t.Errorf("%v, %v", info.Size(), err)
	}
	kept := h.Last(0)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	again := Open(dir, 1000)
	defer again.Close()
	for _, all := range [][]api.Pass{kept, again.Last(0)} {
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

// A disk that does not answer delays the start only for a moment. The passes of this run are kept nevertheless.
func TestOpenOnADiskThatStalls(t *testing.T) {
	dir, release := t.TempDir(), make(chan struct{})
	began := time.Now()
	h := open(file{dir: dir, readers: rundir.ForOperators()}, 10, func(*file, int) ([]record, int, uint64, error) {
		<-release
		return []record{{id: 7}}, 0, 7, nil
	})
	if took := time.Since(began); took < openWithin || h.LastID() != 0 {
		t.Errorf("after %s, the last pass is %d", took, h.LastID())
	}
	close(release)
	h.Add(api.Pass{ID: 1})
	if err := h.Save(); err != nil {
		t.Fatal(err)
	}
	if again := Open(dir, 10); again.LastID() != 1 {
		t.Errorf("saved up to pass %d, want 1", again.LastID())
	}
}

// A symbolic link in place of the file is not written through: it cannot be read or compacted, so it would grow for good.
func TestHistoryBehindALink(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "elsewhere.jsonl"), filepath.Join(dir, FileName)
	if err := errors.Join(os.WriteFile(target, nil, 0o600), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	h := Open(dir, 2)
	defer func() { _ = h.Close() }()
	for id := range uint64(20) {
		h.Add(api.Pass{ID: id + 1})
		if err := h.Save(); !errors.Is(err, syscall.ELOOP) || h.Broken() == nil {
			t.Fatalf("pass %d: %v", id+1, err)
		}
	}
	if st, err := os.Stat(target); err != nil || st.Size() > 0 || len(h.Last(0)) != 2 {
		t.Errorf("written %d bytes, %v; %d passes in memory", st.Size(), err, len(h.Last(0)))
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.Save(), h.Close()); err != nil || len(Open(dir, 2).records) != 2 {
		t.Errorf("without the link: %v", err)
	}
}
