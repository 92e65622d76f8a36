package history

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/lastgood"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/guard/safetext"
	"github.com/criguard/criguard/policy"
)

// A ranking of a hundred pods takes 40 KB. The newest rankings are kept whole, older ones only with their
// first rows.
const (
	wholeRankings = 16
	firstRanked   = 10
)

// Limits of the passes in memory, which is locked. All other passes are read from the file.
const (
	recentPasses = 50
	recentBytes  = 256 << 10 // bytes of saved passes
	unsavedBytes = 2 << 20   // bytes of all passes while the file cannot be written
	rawPasses    = 4         // not encoded yet, because the writer waits for the disk
)

// errLostPasses reports passes that were dropped from memory before they were written.
var errLostPasses = errors.New("older passes are lost: history file not written")

// History holds the last notable passes, oldest first. The file has all of them and memory the newest. Only
// Open, Save, Query and Close access the disk.
type History struct {
	mu      sync.Mutex
	keep    int
	records []record // the newest passes
	older   int      // number of kept passes that only the file has
	lost    bool     // passes were dropped before they were written
	last    uint64   // ID of the newest pass
	news    backlog  // of records
	broken  error    // why the file does not have all passes

	saving sync.Mutex
	file   file

	readers chan struct{} // one element for each query that reads the file
}

// record is a pass in memory.
type record struct {
	id    uint64
	time  time.Time
	raw   *api.Pass // until it is encoded
	line  []byte    // JSON
	short []byte    // line with only the first rows of the ranking; nil = line has no further rows
}

// openWithin limits how long a disk delays the start, when nothing is guarded.
const openWithin = 2 * time.Second

// Open reads the history that an earlier run left in dir, and keeps at most n passes. A history that cannot
// be read or written is not an error: the newest passes stay in memory, and Broken returns the reason.
func Open(dir string, n int) *History {
	return open(file{dir: dir, readers: rundir.ForOperators()}, n, (*file).load)
}

func open(empty file, n int, load func(f *file, keep int) ([]record, int, uint64, error)) *History {
	h := &History{keep: n, file: empty, readers: make(chan struct{}, maxFileQueries), broken: errDiskHangs}
	read := func() *History {
		l := &History{file: empty}
		l.records, l.older, l.last, l.broken = load(&l.file, n)
		return l
	}
	if l := inTime(read); l != nil {
		h.file, h.records, h.older, h.last, h.broken = l.file, l.records, l.older, l.last, l.broken
	}
	h.trim()
	return h
}

// inTime returns what read returns, or nil if that takes longer than openWithin.
func inTime[T any](read func() *T) *T {
	ctx, cancel := context.WithTimeout(context.Background(), openWithin)
	defer cancel()
	var once lastgood.Value[*T]
	return once.Get(ctx, read)
}

// Add appends a pass. It never blocks.
func (h *History) Add(p api.Pass) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.records = append(h.records, record{id: p.ID, time: p.Time, raw: &p})
	h.last = p.ID
	h.news.added++
	// The writer encodes passes outside the loop. While it waits for the disk, raw passes would pile up.
	raw := 0
	for i := len(h.records) - 1; i >= 0; i-- {
		if h.records[i].raw == nil {
			continue
		}
		if raw++; raw > rawPasses {
			h.keepEncoded(i, encodePass(h.records[i].raw))
		}
	}
	h.trim()
}

// encoded is a pass in its file format.
type encoded struct {
	line, short []byte
	err         error
}

// encodePass encodes a pass, and a second time without most of a long ranking.
func encodePass(p *api.Pass) (e encoded) {
	if e.line, e.err = safetext.JSON(p); e.err == nil && len(p.Ranked) > firstRanked {
		short := *p
		shorten(&short)
		e.short, e.err = safetext.JSON(&short)
	}
	return e
}

// shorten keeps only the first rows of a pass's ranking.
func shorten(p *api.Pass) {
	if more := len(p.Ranked) - firstRanked; more > 0 {
		p.Ranked, p.RankedMore = p.Ranked[:firstRanked:firstRanked], p.RankedMore+more
	}
}

// keepEncoded replaces a raw pass with its encoding. The caller holds the lock.
func (h *History) keepEncoded(i int, e encoded) {
	if e.err != nil { // plain data always encodes; otherwise drop the pass
		h.records = slices.Delete(h.records, i, i+1)
		h.news.added--
		h.broken = cmp.Or(h.broken, fmt.Errorf("encode pass: %w", e.err))
		return
	}
	r := &h.records[i]
	r.raw, r.line, r.short = nil, e.line, e.short
}

// encode encodes every raw pass without holding the lock: it takes half a millisecond for a hundred pods.
func (h *History) encode() {
	for {
		h.mu.Lock()
		i := slices.IndexFunc(h.records, func(r record) bool { return r.raw != nil })
		if i < 0 {
			h.mu.Unlock()
			return
		}
		raw := h.records[i].raw
		h.mu.Unlock()
		e := encodePass(raw)
		h.mu.Lock()
		if i = slices.IndexFunc(h.records, func(r record) bool { return r.raw == raw }); i >= 0 {
			h.keepEncoded(i, e)
			h.trim()
		}
		h.mu.Unlock()
	}
}

// trim keeps the passes in memory within their limits. The caller holds the lock.
func (h *History) trim() {
	whole, size := 0, 0
	for i := len(h.records) - 1; i >= 0; i-- {
		r := &h.records[i]
		if r.short != nil {
			if whole++; whole > wholeRankings {
				r.line, r.short = r.short, nil
			}
		}
		size += len(r.line)
	}
	for i := 0; i < len(h.records)-1 && size > unsavedBytes; i++ {
		if r := &h.records[i]; r.short != nil {
			size -= len(r.line) - len(r.short)
			r.line, r.short = r.short, nil
		}
	}
	drop, saved := 0, len(h.records)-h.news.unsaved(len(h.records))
	for ; drop < len(h.records)-1; drop++ {
		left := len(h.records) - drop
		tooMany := left > h.keep || size > unsavedBytes
		if !tooMany && (drop >= saved || left <= recentPasses && size <= recentBytes) {
			break
		}
		size -= len(h.records[drop].line)
	}
	if drop > saved {
		h.lost = true
	}
	h.older = min(h.older+min(drop, saved), max(h.keep-len(h.records)+drop, 0))
	if drop > 0 {
		h.records = slices.Clone(h.records[drop:])
	}
}

// Save writes the new passes to the file, and blocks as long as the disk does. The next call retries the
// passes that this call could not write.
func (h *History) Save() error {
	h.saving.Lock()
	defer h.saving.Unlock()
	h.encode()
	h.mu.Lock()
	keep, news := h.keep, h.news
	lines := make([][]byte, len(h.records))
	for i, r := range h.records {
		lines[i] = r.line
	}
	fresh := news.unsaved(len(lines))
	if n := slices.IndexFunc(lines, func(l []byte) bool { return l == nil }); n >= 0 { // added since encode
		late := len(lines) - n
		lines, fresh, news.added = lines[:n], max(fresh-late, 0), news.added-uint64(late) //nolint:gosec // not negative
	}
	h.mu.Unlock()
	written, err := h.file.save(lines, fresh, keep)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken = err; written {
		h.news.saved, h.lost = news.added, false
		// The start may not have seen the file, as on a disk that stalled or was mounted later.
		h.older = max(h.file.lines-len(h.records)+h.news.unsaved(len(h.records)), 0)
		h.trim()
	}
	return err
}

// Resize changes how many passes are kept.
func (h *History) Resize(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keep = n
	h.trim()
}

// LastID returns the newest pass's ID, from which a restarted service continues; 0 without a pass.
func (h *History) LastID() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// RuntimeDown reports whether the last of the newest passes that recorded a change of the runtime says that it is
// unavailable.
func (h *History) RuntimeDown() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range slices.Backward(h.records) {
		var p api.Pass
		if bytes.Contains(r.line, []byte(`"runtime":`)) && json.Unmarshal(r.line, &p) == nil && p.Runtime != nil {
			return !p.Runtime.Up
		}
	}
	return false
}

// Conditions returns those of the newest pass; 0 without a pass.
func (h *History) Conditions() policy.Conditions {
	h.mu.Lock()
	defer h.mu.Unlock()
	var p struct {
		Conditions policy.Conditions `json:"conditions"`
	}
	if n := len(h.records); n == 0 || json.Unmarshal(h.records[n-1].line, &p) != nil {
		return 0
	}
	return p.Conditions
}

// Broken returns why the file does not have all passes; nil if it has.
func (h *History) Broken() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.broken
}

// Close closes the file. It does not save.
func (h *History) Close() error {
	h.saving.Lock()
	defer h.saving.Unlock()
	return h.file.close()
}
