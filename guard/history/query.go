package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/criguard/criguard/guard/api"
)

// Limits of a query that reads the file: a hung disk blocks few goroutines and does not block the answer.
const (
	maxFileQueries = 2
	fileTimeout    = 4 * time.Second // without a further line
)

// errFileTimeout reports that reading the history file takes too long.
var errFileTimeout = errors.New("timeout")

// Query passes the selected passes to emit as JSON, oldest first. It reads the older ones from the file. If
// that fails, it emits only the recent ones, and the note gives the reason. It returns the error of emit. A
// line is valid until emit returns.
func (h *History) Query(ctx context.Context, q api.HistoryQuery, emit func(line []byte) error) (note string, err error) {
	h.encode()
	h.mu.Lock()
	records, keep, older, lost := slices.Clone(h.records), h.keep, h.older, h.lost && h.broken != nil
	h.mu.Unlock()
	records = slices.DeleteFunc(records, func(r record) bool { return r.raw != nil }) // added since encode
	var recent [][]byte
	whole := wholeRankings
	for _, r := range records {
		if r.short != nil {
			whole--
		}
		if q.Selects(r.id, r.time) {
			recent = append(recent, r.line)
		}
	}
	if q.N > 0 && len(recent) > q.N {
		recent = recent[len(recent)-q.N:]
	}
	if older > 0 && (q.N == 0 || len(recent) < q.N) && !(len(records) > 0 && records[0].id <= q.From) {
		file := fileQuery{HistoryQuery: q, keep: keep - len(records), newer: len(records) + savedMeanwhile, whole: whole}
		if len(records) > 0 {
			file.before = records[0].id
		}
		if q.N > 0 {
			file.N = q.N - len(recent)
		}
		var fileErr error
		read := func(ctx context.Context, lines chan<- []byte) error { return h.file.query(ctx, file, lines) }
		if fileErr, err = h.fromFile(ctx, read, emit); err != nil {
			return "", err
		}
		if fileErr != nil {
			note = fmt.Sprintf("older passes are missing: read history: %s", fileErr)
		}
	}
	skipped := 0
	if q.From == 0 {
		skipped = h.file.unknown
	}
	for _, l := range h.file.skipped {
		if q.Selects(l.id, time.Unix(0, l.time)) {
			skipped++
		}
	}
	if skipped > 0 && note == "" && (q.N == 0 || len(recent) < q.N) {
		note = "passes are missing: read history: " + skippedError(skipped).Error()
	}
	if lost && note == "" {
		note = errLostPasses.Error()
	}
	for _, line := range recent {
		if err := emit(line); err != nil {
			return "", err
		}
	}
	return note, nil
}

// fileQuery is the part of a query that the file answers.
type fileQuery struct {
	api.HistoryQuery
	keep   int    // number of older passes that are kept
	before uint64 // ID of the first pass in memory; 0 = there are no passes in memory
	newer  int    // maximum number of lines for passes that are in memory or were saved since
	whole  int    // number of whole rankings that the file may contribute
}

// older returns the lines before those in memory. It compares positions, because IDs restart at 1 if the file
// could not be read at the start, as on a disk that is mounted later.
func (q *fileQuery) older(all []lineAt) []lineAt {
	at := len(all) - 1
	for at >= 0 && all[at].id != q.before {
		at--
	}
	switch {
	case at >= 0:
		all = all[:at]
	case q.before > 0: // the file has no pass that is in memory
		all = slices.DeleteFunc(all, func(l lineAt) bool { return l.id >= q.before })
	}
	return all[max(len(all)-max(q.keep, 0), 0):]
}

// savedMeanwhile is the maximum number of passes saved while a query reads the file.
const savedMeanwhile = 100

// fromFile passes the lines that read sends to emit. It runs read in its own goroutine, which stays behind
// if the disk hangs.
func (h *History) fromFile(ctx context.Context, read func(context.Context, chan<- []byte) error, emit func([]byte) error) (fileErr, err error) {
	timeout := time.NewTimer(fileTimeout)
	defer timeout.Stop()
	select {
	case h.readers <- struct{}{}:
	case <-timeout.C:
		return errFileTimeout, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines, end := make(chan []byte), make(chan error, 1)
	go func() {
		defer func() { <-h.readers }()
		end <- read(ctx, lines)
	}()
	for {
		timeout.Reset(fileTimeout)
		select {
		case line := <-lines:
			if err := emit(line); err != nil {
				return nil, err
			}
		case err := <-end:
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return err, nil
		case <-timeout.C:
			return errFileTimeout, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// query sends the selected passes. A line is valid until the next one is received.
func (f *file) query(ctx context.Context, q fileQuery, lines chan<- []byte) error {
	file, err := f.readers.Open(f.path())
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	all, skipped, err := indexLines(file, q.keep+q.newer)
	if err != nil {
		return err
	}
	all = q.older(all)
	markShort(all, q.whole)
	all = slices.DeleteFunc(all, func(l lineAt) bool { return !q.Selects(l.id, time.Unix(0, l.time)) })
	enough := q.N > 0 && len(all) >= q.N
	if enough {
		all = all[len(all)-q.N:]
	}
	if enough || q.From > 0 { // the damaged lines without an ID are probably others
		skipped = 0
	}
	var buffers [2][]byte // the receiver uses one of them
	sent := 0
	for _, l := range all {
		line, err := l.read(file, buffers[sent%2])
		if errors.Is(err, errDamagedLine) {
			skipped++
			continue
		}
		if err != nil {
			return err
		}
		buffers[sent%2] = line
		select {
		case lines <- line:
			sent++
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return skippedError(skipped)
}

// skippedError reports how many lines were skipped; nil for 0.
func skippedError(n int) error {
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d skipped", errDamagedLine, n)
}
