package guard

import (
	"slices"
	"sync"
)

// A ranked table of a hundred pods takes 40 KB, in memory and in the file. The newest
// are kept whole, of older ones the first rows.
const (
	wholeRankings = 16
	firstRanked   = 10
)

// History is the last passes that did something, oldest first. They are kept in memory,
// and none of its methods but Save touches the disk.
type History struct {
	mu     sync.Mutex
	keep   int
	passes []Pass
	news   backlog
	broken error // why the file is not as it should be

	saving sync.Mutex
	file   historyFile
}

// OpenHistory reads what an earlier run left in dir and keeps at most n passes.
// A history that cannot be read or written is not an error: it stays in memory,
// and Broken says why.
func OpenHistory(dir string, n int) *History {
	h := &History{keep: n, file: historyFile{dir: dir}}
	h.passes, h.broken = h.file.load(n)
	h.shorten()
	return h
}

// Add appends a pass.
func (h *History) Add(p Pass) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.passes = append(h.passes, p)
	h.news.added++
	if len(h.passes) > h.keep {
		h.passes = append(h.passes[:0], h.passes[len(h.passes)-h.keep:]...)
	}
	h.shorten()
}

// Save puts the passes that are new into the file. It takes as long as the disk does.
// What could not be written is tried again by the next call.
func (h *History) Save() error {
	h.saving.Lock()
	defer h.saving.Unlock()
	h.mu.Lock()
	all, keep, news := slices.Clone(h.passes), h.keep, h.news
	h.mu.Unlock()
	err := h.file.save(all, news.unsaved(len(all)), keep)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken = err; err == nil {
		h.news.saved = news.added
	}
	return err
}

// shorten leaves the first rows of the rankings that are not among the newest.
func (h *History) shorten() {
	whole := 0
	for i := len(h.passes) - 1; i >= 0; i-- {
		p := &h.passes[i]
		if len(p.Ranked) <= firstRanked {
			continue
		}
		if whole++; whole > wholeRankings {
			p.RankedMore = len(p.Ranked) - firstRanked
			p.Ranked = slices.Clone(p.Ranked[:firstRanked])
		}
	}
}

// Resize changes how many passes are kept.
func (h *History) Resize(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keep = n
	if len(h.passes) > n {
		h.passes = append([]Pass(nil), h.passes[len(h.passes)-n:]...)
	}
}

// Last returns the newest n passes, oldest first; all of them for n < 1.
func (h *History) Last(n int) []Pass {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n < 1 || n > len(h.passes) {
		n = len(h.passes)
	}
	return append([]Pass(nil), h.passes[len(h.passes)-n:]...)
}

// LastID is the newest pass's ID, 0 without one: a restarted service counts on.
func (h *History) LastID() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.passes) == 0 {
		return 0
	}
	return h.passes[len(h.passes)-1].ID
}

// Broken says why the file is not as it should be; nil when it is.
func (h *History) Broken() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.broken
}

// Close closes the file as it is.
func (h *History) Close() error {
	h.saving.Lock()
	defer h.saving.Unlock()
	return h.file.close()
}
