package guard

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A disk that stalls does not hold up those who hand something over, and is told.
func TestSaverStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, saves := make(chan struct{}), 0
		s := newSaver(func() error { saves++; <-disk; return nil }, func(error) {})
		go s.run()
		s.wake()
		synctest.Wait()
		began := time.Now()
		for range 100 {
			s.wake()
		}
		if waited := time.Since(began); waited != 0 || s.stalled() != nil {
			t.Errorf("waited for %s; %v", waited, s.stalled())
		}
		time.Sleep(10 * time.Second)
		if err := s.stalled(); !errors.Is(err, errNoDisk) || err.Error() != errNoDisk.Error()+": writing has lasted for 10s" {
			t.Errorf("after 10s: %v", err)
		}
		disk <- struct{}{}
		synctest.Wait() // the hundred are one attempt, which stalls again
		if saves != 2 || s.stalled() != nil {
			t.Errorf("%d attempts; %v", saves, s.stalled())
		}
		s.finish()
		close(disk)
	})
}

// What could not be written is tried again without anything new, and for the last time at
// the end of the service.
func TestSaverTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failure atomic.Pointer[error]
		full := errors.New("no space left on device")
		failure.Store(&full)
		told := make(chan error, 10)
		s := newSaver(func() error {
			if err := failure.Load(); err != nil {
				return *err
			}
			return nil
		}, func(err error) { told <- err })
		go s.run()
		s.wake()
		time.Sleep(3*saveAgain + time.Second)
		if len(told) != 4 {
			t.Errorf("%d attempts in three minutes", len(told))
		}
		failure.Store(nil)
		time.Sleep(10 * saveAgain)
		if len(told) != 5 {
			t.Errorf("%d attempts, the last of them without a failure", len(told))
		}
		for i := range len(told) {
			if err := <-told; (err == nil) != (i == 4) {
				t.Errorf("attempt %d: %v", i, err)
			}
		}
		s.finish()
		if synctest.Wait(); len(told) != 1 {
			t.Errorf("at the end: %d attempts", len(told))
		}
	})
}
