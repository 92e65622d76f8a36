package history

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A stalled disk does not block the callers of Wake, and Stalled reports it.
func TestSaverStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, saves := make(chan struct{}), 0
		s := NewWriter(func() error { saves++; <-disk; return nil }, func(error) {})
		go s.Run()
		s.Wake()
		synctest.Wait()
		began := time.Now()
		for range 100 {
			s.Wake()
		}
		if waited := time.Since(began); waited != 0 || s.Stalled() != nil {
			t.Errorf("waited for %s; %v", waited, s.Stalled())
		}
		time.Sleep(10 * time.Second)
		if err := s.Stalled(); !errors.Is(err, errDiskHangs) || err.Error() != errDiskHangs.Error()+": writing has lasted for 10s" {
			t.Errorf("after 10s: %v", err)
		}
		disk <- struct{}{}
		synctest.Wait() // the hundred wake-ups cause one attempt, which stalls again
		if saves != 2 || s.Stalled() != nil {
			t.Errorf("%d attempts; %v", saves, s.Stalled())
		}
		s.Close()
		close(disk)
	})
}

// A failed write is retried without new data, and a last time when the service ends.
func TestSaverTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failure atomic.Pointer[error]
		full := errors.New("no space left on device")
		failure.Store(&full)
		told := make(chan error, 10)
		s := NewWriter(func() error {
			if err := failure.Load(); err != nil {
				return *err
			}
			return nil
		}, func(err error) { told <- err })
		go s.Run()
		s.Wake()
		time.Sleep(3*retryAfter + time.Second)
		if len(told) != 4 {
			t.Errorf("%d attempts in three minutes", len(told))
		}
		failure.Store(nil)
		time.Sleep(10 * retryAfter)
		if len(told) != 5 {
			t.Errorf("%d attempts, the last of them without a failure", len(told))
		}
		for i := range len(told) {
			if err := <-told; (err == nil) != (i == 4) {
				t.Errorf("attempt %d: %v", i, err)
			}
		}
		s.Close()
		if synctest.Wait(); len(told) != 1 {
			t.Errorf("at the end: %d attempts", len(told))
		}
	})
}
