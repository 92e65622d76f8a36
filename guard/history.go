package guard

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// historyFile holds one pass per line. Once it has twice as many lines as
// passes are kept it is written anew.
const historyFile = "history.jsonl"

// maxHistoryLine bounds a line that is read back: a pass with a ranked table of
// a thousand pods is well below.
const maxHistoryLine = 4 << 20

// A ranked table of a hundred pods takes 40 KB, in memory and in the file. The newest
// are kept whole, of older ones the first rows.
const (
	wholeRankings = 16
	firstRanked   = 10
)

// History is the last passes that did something, oldest first, in memory and,
// as far as the directory can be written, in a file.
type History struct {
	mu     sync.Mutex
	dir    string
	keep   int
	passes []Pass
	lines  int
	size   int64 // of the file
	least  int64 // its size when it was written anew
	file   *os.File
	broken error // why the file is not written any more
}

// maxHistoryFile is from what size on the file is written anew, though it has few lines,
// once it has doubled.
const maxHistoryFile = 8 << 20

// OpenHistory reads what an earlier run left in dir and keeps at most n passes.
// A history that cannot be read or written is not an error: it stays in memory,
// and Broken says why.
func OpenHistory(dir string, n int) *History {
	h := &History{dir: dir, keep: n}
	if err := h.load(); err != nil {
		h.broken = err
	}
	return h
}

func (h *History) load() error {
	if err := os.MkdirAll(h.dir, 0o755); err != nil {
		return fmt.Errorf("create history directory: %w", err)
	}
	f, err := os.Open(filepath.Join(h.dir, historyFile))
	if err == nil {
		h.passes = readHistory(f, h.keep)
		h.shorten()
		err = f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read history: %w", err)
	}
	return h.rewrite()
}

// readHistory reads passes, skipping lines that are torn or foreign.
func readHistory(r io.Reader, keep int) []Pass {
	var passes []Pass
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 64<<10), maxHistoryLine)
	for sc.Scan() {
		var p Pass
		if json.Unmarshal(sc.Bytes(), &p) != nil || p.ID == 0 {
			continue
		}
		passes = append(passes, p)
	}
	if len(passes) > keep {
		passes = passes[len(passes)-keep:]
	}
	return passes
}

// Add appends a pass.
func (h *History) Add(p Pass) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.passes = append(h.passes, p)
	if len(h.passes) > h.keep {
		h.passes = append(h.passes[:0], h.passes[len(h.passes)-h.keep:]...)
	}
	h.shorten()
	if h.broken != nil {
		return
	}
	if h.lines >= 2*h.keep || h.size > max(maxHistoryFile, 2*h.least) {
		h.broken = h.rewrite()
		return
	}
	h.broken = h.append(p)
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

func (h *History) append(p Pass) error {
	line, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode pass: %w", err)
	}
	n, err := h.file.Write(append(line, '\n'))
	if h.size += int64(n); err != nil {
		return fmt.Errorf("append to history: %w", err)
	}
	h.lines++
	return nil
}

// rewrite writes the kept passes to a new file and goes on in that one.
func (h *History) rewrite() error {
	var buf bytes.Buffer
	for i := range h.passes {
		line, err := json.Marshal(h.passes[i])
		if err != nil {
			return fmt.Errorf("encode pass: %w", err)
		}
		buf.Write(line)
		buf.WriteByte('\n')
	}
	if err := RunDir(h.dir).writeFile(historyFile, buf.Bytes()); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(h.dir, historyFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("open history: %w", err)
	}
	if h.file != nil {
		_ = h.file.Close()
	}
	h.file, h.lines, h.size, h.least = f, len(h.passes), int64(buf.Len()), int64(buf.Len())
	return nil
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

// Broken says why the history stays in memory only; nil when it does not.
func (h *History) Broken() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.broken
}

// Close closes the file.
func (h *History) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.file == nil {
		return nil
	}
	f := h.file
	h.file, h.broken = nil, errors.New("history is closed")
	return f.Close()
}
