package cgroup

import "sync"

// Wake says what may have changed. It is a hint, to be followed by a fresh reading.
type Wake string

// The wakes.
const (
	WakeMemory       Wake = "memcg"         // v1: a cgroup's usage crossed a level, in either direction
	WakeMemoryEvents Wake = "memory.events" // v2: a cgroup met one of its limits
	WakeMemoryStall  Wake = "memory.stall"  // tasks stalled on memory; the first after registering may be spurious
	WakeIOStall      Wake = "io.stall"      // tasks stalled on I/O, likewise
	WakeMounts       Wake = "mounts"        // something was mounted or unmounted
	WakePods         Wake = "pods"          // a cgroup was made or removed
)

// wakeKinds is how many wakes there are.
const wakeKinds = 6

// queue holds each wake at most once until it is taken, so that a storm neither
// blocks nor grows, and never crowds another wake out.
type queue struct {
	out chan Wake

	mu     sync.Mutex // one sender at a time
	closed bool
	merged []Wake
}

// put adds a wake unless it waits already.
func (q *queue) put(wake Wake) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.merged = append(q.merged[:0], wake)
	for len(q.out) > 0 {
		select {
		case waiting := <-q.out:
			if waiting != wake {
				q.merged = append(q.merged, waiting)
			}
		default: // the reader was faster
		}
	}
	for _, w := range q.merged {
		q.out <- w // there is room for every kind, and no other sender
	}
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	close(q.out)
}
