package cgroup

import "sync"

// Wake names what may have changed. It is a hint: the receiver must read again.
type Wake string

// The kinds of wake-ups.
const (
	WakeMemory       Wake = "memcg"         // v1: a cgroup's usage crossed a level in either direction
	WakeMemoryEvents Wake = "memory.events" // v2: a cgroup hit one of its limits
	WakeMemoryStall  Wake = "memory.stall"  // stalled on memory; the first after registering may be spurious
	WakeIOStall      Wake = "io.stall"      // stalled on I/O; as above
	WakeMounts       Wake = "mounts"        // something was mounted or unmounted
	WakePods         Wake = "pods"          // cgroups changed, or processes may have entered one
)

// wakeKinds is the number of kinds.
const wakeKinds = 6

// queue holds each kind of wake-up at most once until it is taken. A flood of wake-ups thus neither
// blocks nor grows the queue, and never displaces another kind.
type queue struct {
	out chan Wake

	mu     sync.Mutex // serializes senders
	closed bool
	merged []Wake
}

// put queues a wake-up unless the same kind is already queued.
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
		default: // the reader took it first
		}
	}
	for _, w := range q.merged {
		q.out <- w // never blocks: there is room for every kind, and no other sender
	}
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	close(q.out)
}
