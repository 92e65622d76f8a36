package guard

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// saveAgain is how long after a failure the next attempt is made, and saveSlow how long one
// takes that is worth telling.
const (
	saveAgain = time.Minute
	saveSlow  = 2 * time.Second
)

// saver writes to the disk what is kept in memory, in a goroutine of its own: where a disk
// stalls, as worn-out, frozen and overloaded ones do, nothing but this waits for it.
type saver struct {
	save func() error
	told func(error) // of each attempt

	kick  chan struct{} // one waiting is enough
	end   chan struct{}
	since atomic.Pointer[time.Time] // when the attempt under way began; nil = none is
}

func newSaver(save func() error, told func(error)) *saver {
	return &saver{save: save, told: told, kick: make(chan struct{}, 1), end: make(chan struct{})}
}

// wake says that there is something to save.
func (s *saver) wake() {
	hint(s.kick)
}

// run saves until finish, and once more then.
func (s *saver) run() {
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
		s.told(err)
		again = nil
		if err != nil {
			again = time.After(saveAgain)
		}
	}
}

// errNoDisk is a disk that does not answer.
var errNoDisk = errors.New("the disk does not answer")

// stalled says for how long the disk has not answered, once that is longer than one takes
// that works.
func (s *saver) stalled() error {
	began := s.since.Load()
	if began == nil {
		return nil
	}
	if d := time.Since(*began); d > saveSlow {
		return fmt.Errorf("%w: writing has lasted for %s", errNoDisk, d.Round(time.Second))
	}
	return nil
}

// finish ends run.
func (s *saver) finish() { close(s.end) }

// backlog counts what came to a list that its owner keeps, and how much of that is in a file.
type backlog struct{ added, saved uint64 }

// unsaved is how many of the newest are in no file, of those that are kept.
func (b backlog) unsaved(kept int) int {
	return int(min(b.added-b.saved, uint64(kept))) //nolint:gosec // at most kept
}
