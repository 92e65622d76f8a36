package reclaim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrStalled means that a call has not returned in time. It continues in the background.
var ErrStalled = errors.New("the disk does not answer")

// worker runs calls that may block for ever, such as on a stalled disk, in a goroutine of their own,
// one at a time. The zero value is ready.
type worker struct {
	mu    sync.Mutex
	done  chan struct{} // closed when the call in flight returns; nil = no call is in flight
	began time.Time
}

// do runs f and waits until it returns, but no longer than atMost (ErrStalled) or until ctx ends. f
// then continues in the background and must not write variables that the caller reads. While a call is
// overdue, later calls fail without a wait and do not begin.
func (w *worker) do(ctx context.Context, atMost time.Duration, f func()) error {
	for {
		done, began, mine := w.begin(f)
		late := time.NewTimer(atMost - time.Since(began))
		select {
		case <-done:
			late.Stop()
			if mine {
				return nil
			}
		case <-late.C:
			return fmt.Errorf("%w: a call has taken longer than %s", ErrStalled, atMost)
		case <-ctx.Done():
			late.Stop()
			return ctx.Err()
		}
	}
}

// begin starts f unless another call is in flight, and returns the call in flight.
func (w *worker) begin(f func()) (done <-chan struct{}, began time.Time, mine bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done != nil {
		return w.done, w.began, false
	}
	own := make(chan struct{})
	w.done, w.began = own, time.Now()
	go func() {
		f()
		w.mu.Lock()
		w.done = nil
		w.mu.Unlock()
		close(own)
	}()
	return own, w.began, true
}

// result holds the results of a worker's call.
type result[T any] struct {
	value T
	err   error
}

// call runs f in a worker and returns its results.
func call[T any](ctx context.Context, w *worker, atMost time.Duration, f func() (T, error)) (T, error) {
	answer := make(chan result[T], 1)
	if err := w.do(ctx, atMost, func() {
		value, err := f()
		answer <- result[T]{value, err}
	}); err != nil {
		var none T
		return none, err
	}
	r := <-answer
	return r.value, r.err
}
