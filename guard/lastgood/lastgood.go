// Package lastgood wraps calls that may block for a long time, such as reading a file from a stalled disk. A
// caller waits for a limited time, and otherwise gets the last value that was read.
package lastgood

import (
	"context"
	"sync"
	"time"
)

// FileTimeout is how long a listing waits for a file on a disk that may stall.
const FileTimeout = 100 * time.Millisecond

// Value holds the last value that a call returned. At most one call is in progress at a time. The
// zero Value holds the zero T.
type Value[T any] struct {
	mu   sync.Mutex
	busy bool
	last T
}

// Get runs read in a goroutine of its own and returns its result, or the result of the last read that
// returned if ctx ends first. While an earlier read is still in progress, it returns at once.
func (v *Value[T]) Get(ctx context.Context, read func() T) T {
	if v.begin() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			v.end(read())
		}()
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.last
}

// begin reports false if a read is in progress.
func (v *Value[T]) begin() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	begun := !v.busy
	v.busy = true
	return begun
}

func (v *Value[T]) end(t T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last, v.busy = t, false
}

// Within runs read in a goroutine of its own and returns its result, or another value if that takes longer than d.
func Within[T any](d time.Duration, read func() T, otherwise T) T {
	done := make(chan T, 1)
	go func() { done <- read() }()
	select {
	case v := <-done:
		return v
	case <-time.After(d):
		return otherwise
	}
}
