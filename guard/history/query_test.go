package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/guard/safetext"
)

// queried returns the IDs of the passes that a query selects.
func queried(t *testing.T, h *History, q api.HistoryQuery) (ids []uint64, note string) {
	t.Helper()
	note, err := h.Query(t.Context(), q, func(line []byte) error {
		var p api.Pass
		if err := json.Unmarshal(line, &p); err != nil {
			return fmt.Errorf("%w: %s", err, line)
		}
		ids = append(ids, p.ID)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids, note
}

// span returns the numbers from one to another, both included.
func span(from, to uint64) (ids []uint64) {
	for id := from; id <= to; id++ {
		ids = append(ids, id)
	}
	return ids
}

// saved returns a history in which this many passes were saved one by one.
func saved(t *testing.T, dir string, keep int, passes uint64) *History {
	t.Helper()
	h := Open(dir, keep)
	t.Cleanup(func() { _ = h.Close() })
	for _, p := range span(1, passes) {
		h.Add(rankedPass(p, 2))
		if err := h.Save(); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// Passes that are no longer in memory are read from the file, as if all of them were in one list.
func TestHistoryQuery(t *testing.T) {
	const passes = 300
	dir := t.TempDir()
	h := saved(t, dir, 200, passes)
	h.Add(rankedPass(passes+1, 2)) // not saved yet
	again := Open(dir, 200)
	defer again.Close()
	if n := len(h.records); n > recentPasses+1 {
		t.Errorf("%d passes in memory, want %d at most", n, recentPasses+1)
	}
	second := func(id int64) time.Time { return time.Unix(1_700_000_000+id, 0) }
	for _, c := range []struct {
		q        api.HistoryQuery
		from, to uint64
	}{
		{api.HistoryQuery{}, 102, 301},
		{api.HistoryQuery{N: 1}, 301, 301},
		{api.HistoryQuery{N: 20}, 282, 301},
		{api.HistoryQuery{N: 120}, 182, 301},
		{api.HistoryQuery{N: 1000}, 102, 301},
		{api.HistoryQuery{From: 299}, 299, 301},
		{api.HistoryQuery{From: 110}, 110, 301},
		{api.HistoryQuery{From: 1}, 102, 301},
		{api.HistoryQuery{From: 999}, 1, 0},
		{api.HistoryQuery{Since: second(290)}, 290, 301},
		{api.HistoryQuery{Since: second(150)}, 150, 301},
		{api.HistoryQuery{Since: second(150), N: 3}, 299, 301},
		{api.HistoryQuery{Since: second(999)}, 1, 0},
	} {
		if got, note := queried(t, h, c.q); !slices.Equal(got, span(c.from, c.to)) || note != "" {
			t.Errorf("%+v: %v (%s), want %d to %d", c.q, got, note, c.from, c.to)
		}
	}
	for _, q := range []api.HistoryQuery{{}, {From: 1}, {N: 1000}, {Since: second(1)}} {
		if got, note := queried(t, again, q); !slices.Equal(got, span(101, 300)) || note != "" {
			t.Errorf("after a restart, %+v: %v (%s)", q, got, note)
		}
	}
}

// Damaged lines are skipped: torn and foreign ones, and one that is longer than any pass.
func TestHistoryDamagedLines(t *testing.T) {
	dir := t.TempDir()
	h := saved(t, dir, 1000, 100)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, FileName)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	lines[9] = lines[9][:40] + "\n"                                                    // torn in the middle: pass 10
	lines[19] = lines[19][:40] + "\x00\xff" + lines[19][40:]                           // a bad byte: pass 20
	lines[29] = strings.Repeat("\x00", maxHistoryLine+100) + "\n"                      // pass 30
	lines[39] = "{\"time\":\"2026\"}\n\n[1]\n"                                         // pass 40
	lines[49] = `{"time":"2026-01-02T03:04:05Z","id":50,"at":"1ns"}` + "\n"            // in another order, and whole
	lines[54] = `{"id":55,"time":"2026-01-02T03:04:05Z","at":1,"conditions":1}` + "\n" // of another shape
	damaged := strings.Join(lines, "") + `{"id":101,"wake":"to`
	if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
		t.Fatal(err)
	}
	want := slices.DeleteFunc(span(1, 100), func(id uint64) bool { return id%10 == 0 && id < 50 || id == 55 })
	h = Open(dir, 1000)
	defer func() { _ = h.Close() }()
	if got, note := queried(t, h, api.HistoryQuery{}); !slices.Equal(got, want) || !strings.Contains(note, " skipped") {
		t.Errorf("%v (%s), want %v", got, note, want)
	}
	if h.LastID() != 100 {
		t.Errorf("the last pass is %d: the torn one counts", h.LastID())
	}
	h.Add(rankedPass(101, 2))
	if err := h.Save(); err != nil {
		t.Fatal(err)
	}
	again := Open(dir, 1000)
	defer again.Close()
	if got, _ := queried(t, again, api.HistoryQuery{}); !slices.Equal(got, append(want, 101)) {
		t.Errorf("with one more: %v", got)
	}
}

// After an upgrade, the lines of the version before may be unreadable. Only a query that selects them mentions them.
func TestHistoryUnreadableAtLoad(t *testing.T) {
	dir := t.TempDir()
	old := `{"id":1,"time":"2020-01-02T03:04:05Z","at":1,"conditions":1}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	h := saved(t, dir, 1000, 0)
	h.Add(rankedPass(2, 2))
	for q, want := range map[api.HistoryQuery]string{
		{}:                                   "passes are missing: read history: damaged line: 1 skipped",
		{N: 2}:                               "passes are missing: read history: damaged line: 1 skipped",
		{N: 1}:                               "",
		{From: 2}:                            "",
		{Since: time.Unix(1_600_000_000, 0)}: "",
	} {
		if got, note := queried(t, h, q); !slices.Equal(got, span(2, 2)) || note != want {
			t.Errorf("%+v: %v, note %q, want %q", q, got, note, want)
		}
	}
}

// A file of which no line is a pass, as after a power cut, is not an empty history, neither with the service nor without it.
func TestHistoryOfDamagedLinesAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte(strings.Repeat("\x00", 100)+"\n{\"id\":7,\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := saved(t, dir, 1000, 0)
	for q, want := range map[api.HistoryQuery]string{{}: "damaged line: 2 skipped", {N: 20}: "damaged line: 2 skipped", {From: 1}: ""} {
		got, note := queried(t, h, q)
		list, err := Read(t.Context(), dir, q)
		if len(got)+len(list.Passes) > 0 || err != nil || !strings.HasSuffix(note, want) || !strings.HasSuffix(list.Note, want) {
			t.Errorf("%+v: %v, note %q, without the service %v, note %q, error %v; want %q", q, got, note, list.Passes, list.Note, err, want)
		}
	}
}

// If a part of the file cannot be read, the newer passes are still in order.
func TestHistoryPartlyUnreadable(t *testing.T) {
	var text []byte
	for id := range uint64(4) {
		text = append(append(text, encodePass(&api.Pass{ID: id + 1}).line...), '\n')
	}
	lines, _, err := indexLines(bytes.NewReader(text), 10)
	if err != nil {
		t.Fatal(err)
	}
	lines[1].at = int64(len(text))
	var f file
	records, older, err := f.newest(bytes.NewReader(text), lines)
	if len(records) != 2 || records[0].id != 3 || records[1].id != 4 || older != 1 || !errors.Is(err, io.EOF) {
		t.Errorf("%+v, %d older, %v", records, older, err)
	}
}

// If the disk is mounted after the start, the file has passes of earlier runs: each pass is returned exactly
// once.
func TestHistoryFileComesLater(t *testing.T) {
	dir := t.TempDir()
	if err := saved(t, dir, 1000, 200).Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, FileName)
	if err := os.Rename(path, path+".disk"); err != nil {
		t.Fatal(err)
	}
	h := Open(dir, 1000)
	if err := os.Rename(path+".disk", path); err != nil {
		t.Fatal(err)
	}
	for _, id := range span(1, 60) {
		h.Add(rankedPass(id, 2))
	}
	if err := h.Save(); err != nil {
		t.Fatal(err)
	}
	want := slices.Concat(span(1, 200), span(1, 60))
	if got, note := queried(t, h, api.HistoryQuery{}); !slices.Equal(got, want) || note != "" {
		t.Errorf("got %d, %q, want %d", got, note, want)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = Open(dir, 1000)
	t.Cleanup(func() { _ = h.Close() })
	if got, note := queried(t, h, api.HistoryQuery{}); !slices.Equal(got, want) || note != "" {
		t.Errorf("after a restart: got %d, %q, want %d", got, note, want)
	}
	if got, _ := queried(t, h, api.HistoryQuery{N: 60}); !slices.Equal(got, want[200:]) {
		t.Errorf("newest 60: got %d", got)
	}
}

// The passes of earlier runs are returned even if this run has added few to them, and the start did not see the file.
func TestHistoryFileUnseenAtStart(t *testing.T) {
	stalls := func(f *file, keep int) ([]record, int, uint64, error) { return nil, 0, 0, errDiskHangs }
	for name, load := range map[string]func(*file, int) ([]record, int, uint64, error){"seen": (*file).load, "not seen": stalls} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := saved(t, dir, 300, 200).Close(); err != nil {
				t.Fatal(err)
			}
			h := open(file{dir: dir, readers: rundir.ForOperators()}, 300, load)
			t.Cleanup(func() { _ = h.Close() })
			for _, id := range span(201, 203) {
				h.Add(rankedPass(id, 2))
				if err := h.Save(); err != nil {
					t.Fatal(err)
				}
			}
			if got, note := queried(t, h, api.HistoryQuery{}); !slices.Equal(got, span(1, 203)) || note != "" {
				t.Errorf("got %d, %q", got, note)
			}
			h.Resize(100)
			if got, note := queried(t, h, api.HistoryQuery{}); !slices.Equal(got, span(104, 203)) || note != "" {
				t.Errorf("the newest 100: got %d, %q", got, note)
			}
		})
	}
}

// If the file is removed or unreadable, the recent passes are returned with a note. The next save creates a
// new file with all passes in memory.
func TestHistoryFileGone(t *testing.T) {
	dir := t.TempDir()
	h := saved(t, dir, 1000, 200)
	if err := os.Rename(filepath.Join(dir, FileName), filepath.Join(dir, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	got, note := queried(t, h, api.HistoryQuery{})
	if !slices.Equal(got, span(200-recentPasses+1, 200)) || !strings.Contains(note, "older passes are missing") || !strings.Contains(note, "no such file") {
		t.Errorf("%v, note %q", got, note)
	}
	if got, note := queried(t, h, api.HistoryQuery{N: 20}); !slices.Equal(got, span(181, 200)) || note != "" {
		t.Errorf("those in memory: %v, note %q", got, note)
	}
	h.Add(rankedPass(201, 2))
	if err := h.Save(); err != nil {
		t.Fatal(err)
	}
	again := Open(dir, 1000)
	defer again.Close()
	for what, h := range map[string]*History{"the service": h, "the next one": again} {
		if got, note := queried(t, h, api.HistoryQuery{}); !slices.Equal(got, span(152, 201)) || note != "" {
			t.Errorf("%s: %v, note %q", what, got, note)
		}
	}
}

// While the file cannot be written, the passes in memory are limited in bytes and the newest stay. Once it
// can be written, they are saved.
func TestHistoryUnwritable(t *testing.T) {
	const passes, pods = 1000, 110
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(file, "below")
	before := heapInUse()
	h := Open(dir, passes)
	defer func() { _ = h.Close() }()
	for id := range uint64(passes) {
		h.Add(rankedPass(id+1, pods))
		if id%10 == 0 && h.Save() == nil {
			t.Fatal("saved below a file")
		}
	}
	kept := heapInUse() - before
	t.Logf("%d passes of %d pods without a file: %.1f MiB of heap, %d passes", passes, pods, float64(kept)/(1<<20), len(h.records))
	if kept > unsavedBytes+1<<20 {
		t.Errorf("%d bytes of heap", kept)
	}
	got, note := queried(t, h, api.HistoryQuery{})
	if len(got) < 100 || !slices.Equal(got, span(passes-uint64(len(got))+1, passes)) || note != errLostPasses.Error() {
		t.Errorf("%v, note %q", got, note)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := h.Save(); err != nil {
		t.Fatal(err)
	}
	if inMemory := len(h.records); inMemory > recentPasses {
		t.Errorf("%d passes stay in memory", inMemory)
	}
	if again, note := queried(t, h, api.HistoryQuery{}); !slices.Equal(again, got) || note != "" {
		t.Errorf("with a file: %v, note %q", again, note)
	}
}

// While a stalled disk blocks the writer, new passes are encoded and limited in memory.
func TestHistoryWhileTheSaverWaits(t *testing.T) {
	h := Open(t.TempDir(), 1000)
	h.saving.Lock() // the writer waits for the disk
	defer h.saving.Unlock()
	before := heapInUse()
	for id := range uint64(1000) {
		h.Add(rankedPass(id+1, 110))
	}
	raw := 0
	for _, r := range h.records {
		if r.raw != nil {
			raw++
		}
	}
	if kept := heapInUse() - before; raw > rawPasses || kept > unsavedBytes+1<<20 {
		t.Errorf("%d passes are not encoded; %d bytes of heap", raw, kept)
	}
	if got, _ := queried(t, h, api.HistoryQuery{N: 3}); !slices.Equal(got, span(998, 1000)) {
		t.Errorf("%v", got)
	}
}

// A file that is compacted while a query reads it is read to its end.
func TestHistoryRewrittenWhileRead(t *testing.T) {
	dir := t.TempDir()
	h := saved(t, dir, 100, 199)
	before, err := os.Stat(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	var ids []uint64
	_, err = h.Query(t.Context(), api.HistoryQuery{}, func(line []byte) error {
		for id := h.LastID() + 1; len(ids) == 0 && id <= 400; id++ {
			h.Add(rankedPass(id, 2))
			if err := h.Save(); err != nil {
				return err
			}
		}
		l, _ := parseHead(line)
		ids = append(ids, l.id)
		return nil
	})
	if after, statErr := os.Stat(filepath.Join(dir, FileName)); err != nil || statErr != nil || os.SameFile(before, after) {
		t.Errorf("the file was not written again: %v, %v", err, statErr)
	}
	if !slices.Equal(ids, span(100, 199)) {
		t.Errorf("%v", ids)
	}
}

// Passes are added, saved and queried concurrently: a query never returns a duplicate or a gap.
func TestHistoryConcurrently(t *testing.T) {
	const passes = 400
	h := Open(t.TempDir(), 150)
	defer func() { _ = h.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				last := uint64(0)
				_, err := h.Query(ctx, api.HistoryQuery{}, func(line []byte) error {
					l, ok := parseHead(line)
					if !ok || last != 0 && l.id != last+1 {
						return fmt.Errorf("pass %d after %d", l.id, last)
					}
					last = l.id
					return nil
				})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := h.Save(); err != nil {
				t.Error(err)
			}
		}
	})
	for id := range uint64(passes) {
		h.Add(rankedPass(id+1, 20))
		if id%50 == 49 {
			if err := h.Save(); err != nil {
				t.Error(err)
			}
		}
	}
	cancel()
	wg.Wait()
	if err := h.Save(); err != nil {
		t.Fatal(err)
	}
	if got, _ := queried(t, h, api.HistoryQuery{}); !slices.Equal(got, span(passes-149, passes)) {
		t.Errorf("%v", got)
	}
}

// A hung disk delays a query for a few seconds and leaves few goroutines blocked.
func TestHistoryDiskHangs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h := saved(t, dir, 1000, 100)
		hang := make(chan struct{})
		read := func(_ context.Context, lines chan<- []byte) error {
			lines <- []byte("first")
			<-hang
			return nil
		}
		for range maxFileQueries + 1 {
			began, lines := time.Now(), 0
			fileErr, err := h.fromFile(t.Context(), read, func([]byte) error { lines++; return nil })
			if !errors.Is(fileErr, errFileTimeout) || err != nil || time.Since(began) != fileTimeout {
				t.Errorf("%v, %v after %s", fileErr, err, time.Since(began))
			}
		}
		if got, note := queried(t, h, api.HistoryQuery{}); !slices.Equal(got, span(51, 100)) || note != "older passes are missing: read history: timeout" {
			t.Errorf("%v, note %q", got, note)
		}
		busy := &History{readers: make(chan struct{})}
		if _, err := busy.readFile(t.Context(), api.HistoryQuery{}); !errors.Is(err, errFileTimeout) {
			t.Errorf("without a service: %v", err)
		}
		close(hang)
		synctest.Wait()
		if got, note := queried(t, h, api.HistoryQuery{}); !slices.Equal(got, span(1, 100)) || note != "" {
			t.Errorf("once the disk answers: %v, note %q", got, note)
		}
	})
}

// For any file contents, the lines that are found are inside the file and in order, and a pass is read as it
// was written.
func FuzzHistoryLines(f *testing.F) {
	line, err := safetext.JSON(rankedPass(7, 12))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(line, '\n'), uint8(3))
	f.Add([]byte("{\"id\":1,\"time\":\"x\"}\n{\"id\":18446744073709551616}\n\n{\"id\":2,\n}"), uint8(1))
	f.Add([]byte("{\"id\":3,\"time\":\"2026-01-02T03:04:05Z\",}\n{\"time\":1,\"id\":4}\n"), uint8(0))
	f.Fuzz(func(t *testing.T, text []byte, n uint8) {
		lines, _, err := indexLines(bytes.NewReader(text), int(n))
		if err != nil || len(lines) > int(n) {
			t.Fatalf("%d lines, %v", len(lines), err)
		}
		end := int64(0)
		for _, l := range lines {
			if l.at < end || l.at+int64(l.size) >= int64(len(text)) || l.id == 0 {
				t.Fatalf("%+v in %d bytes after %d", l, len(text), end)
			}
			end = l.at + int64(l.size)
			var p api.Pass
			if l.cut = l.long; l.cut {
				_, _ = l.read(bytes.NewReader(text), nil)
			}
			l.cut = false
			if got, err := l.read(bytes.NewReader(text), nil); err == nil && json.Unmarshal(got, &p) == nil && bytes.Count(got, []byte(`"id"`)) == 1 &&
				(p.ID != l.id || len(p.Ranked) > firstRanked && !l.long) {
				t.Errorf("%+v is pass %d with %d rows", l, p.ID, len(p.Ranked))
			}
		}
	})
}

// shortenLine gives the same ranking as decoding the pass and shortening it.
func TestShortenLine(t *testing.T) {
	for rows := range 14 {
		p := rankedPass(3, rows)
		p.Alarm = `no,"ranked":[{}],"ranked_more":3}` // a name may look like anything
		if rows > 0 {
			p.Ranked[0].Pod, p.Ranked[rows-1].Excluded = `"]},\\"{[`, `}],"ranked_more":1,"usage_known":`
		}
		for _, more := range []int{0, 7} {
			p.RankedMore = more
			line, err := safetext.JSON(&p)
			if err != nil {
				t.Fatal(err)
			}
			got, err := shortenLine(line)
			if rows == 0 {
				if !errors.Is(err, errNoRanking) {
					t.Errorf("without a ranking: %s, %v", got, err)
				}
				continue
			}
			short := p
			shorten(&short)
			if want, _ := safetext.JSON(&short); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d rows and %d more: %v\n%s\n%s", rows, more, err, got, want)
			}
			if l, ok := parseHead(line); !ok || l.long != (rows > firstRanked) {
				t.Errorf("%d rows: %+v", rows, l)
			}
		}
	}
	line, err := safetext.JSON(rankedPass(3, 12))
	if err != nil {
		t.Fatal(err)
	}
	for n := range line {
		if short, err := shortenLine(line[:n]); err == nil && len(short) > n {
			t.Fatalf("%d bytes of %d: %s", n, len(line), short)
		}
	}
}
