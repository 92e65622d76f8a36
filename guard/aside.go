package guard

import (
	"context"
	"sync"
	"time"
)

// fileWait is how long a listing waits for a file on a disk that may stall.
const fileWait = 100 * time.Millisecond

// aside does what may hang, as reading a file of a disk that stalls does, in a goroutine of its
// own, of which there is one at most.
type aside[T any] struct {
	mu   sync.Mutex
	busy bool // one is under way
	last T
}

// get returns what do returns, or what it returned last where it is not through before ctx ends.
// One that somebody has given up waiting for is not waited for again and again: while it is under
// way, no other one is begun.
func (a *aside[T]) get(ctx context.Context, do func() T) T {
	if a.begin() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.end(do())
		}()
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

// begin reports false while one is under way.
func (a *aside[T]) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	begun := !a.busy
	a.busy = true
	return begun
}

func (a *aside[T]) end(v T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last, a.busy = v, false
}
