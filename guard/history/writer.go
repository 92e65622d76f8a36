package history

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// retryAfter is the delay before a retry after a failure. slowWrite is how long a write may take before
// Stalled reports it.
const (
	retryAfter = 10 * time.Second
	slowWrite  = 2 * time.Second
)

// Writer writes data from memory to disk in its own goroutine. If a disk stalls, as worn-out, frozen and
// overloaded disks do, only this goroutine waits for it.
type Writer struct {
	save   func() error
	result func(error) // called with the result of each attempt

	kick  chan struct{} // one pending element is enough
	end   chan struct{}
	since atomic.Pointer[time.Time] // start of the attempt in progress; nil = no attempt in progress
}

// NewWriter returns a Writer that calls save and reports the result of each attempt to result.
func NewWriter(save func() error, result func(error)) *Writer {
	return &Writer{save: save, result: result, kick: make(chan struct{}, 1), end: make(chan struct{})}
}

// Wake requests a save. It never blocks.
func (s *Writer) Wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// Run saves until Close, and then once more.
func (s *Writer) Run() {
	var again <-chan time.Time
	for ending := false; !ending; {
		select {
		case <-s.end:
			ending = true
		case <-s.kick:
		case <-again:
		}
		began := time.Now()
		s.since.Store(&began)
		err := s.save()
		s.since.Store(nil)
		s.result(err)
		again = nil
		if err != nil {
			again = time.After(retryAfter)
		}
	}
}

// errDiskHangs reports a disk that does not answer.
var errDiskHangs = errors.New("the disk does not answer")

// Stalled returns an error with the duration of the write in progress, if it takes longer than slowWrite;
// otherwise nil.
func (s *Writer) Stalled() error {
	began := s.since.Load()
	if began == nil {
		return nil
	}
	if d := time.Since(*began); d > slowWrite {
		return fmt.Errorf("%w: writing has lasted for %s", errDiskHangs, d.Round(time.Second))
	}
	return nil
}

// Close ends Run.
func (s *Writer) Close() { close(s.end) }

// backlog counts the elements added to a list, and how many of those are saved to a file.
type backlog struct{ added, saved uint64 }

// unsaved returns how many of the newest elements are not saved, out of the kept ones.
func (b backlog) unsaved(kept int) int {
	return int(min(b.added-b.saved, uint64(kept))) //nolint:gosec // at most kept
}
