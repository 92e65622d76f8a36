package hook

import (
	"context"
	"sync"
	"time"
)

// Results of an event, as metrics label them.
const (
	ResultOK      = "ok"
	ResultFailed  = "failed"
	ResultTimeout = "timeout"
	ResultDropped = "dropped" // too many events were waiting
)

// queueLength is the maximum number of queued events per hook. When the queue is full, the oldest
// event is dropped.
const queueLength = 64

// queued is an event that hooks run for.
type queued struct {
	Kind string    // for the program's environment and for counters
	Data []byte    // the program's standard input
	At   time.Time // when it happened
}

// runner runs one hook's program for one event after another.
type runner struct {
	run  func(context.Context, queued) outcome
	gate *gate
	ran  func(queued, outcome)

	mu     sync.Mutex
	queue  []queued
	closed bool
	more   chan struct{} // signals a change of the queue
}

// newRunner returns a runner for the program; loop starts it. ran is called after each run, in loop's
// goroutine.
func newRunner(p *program, g *gate, ran func(queued, outcome)) *runner {
	run := func(ctx context.Context, e queued) outcome { return p.runOnce(ctx, e.Data, "CRIGUARD_EVENT="+e.Kind) }
	return &runner{run: run, gate: g, ran: ran, more: make(chan struct{}, 1)}
}

// put queues an event without blocking. If the queue is full, it drops the oldest event and returns
// it. After end, it returns e itself.
func (r *runner) put(e queued) (dropped queued, full bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return e, true
	}
	if full = len(r.queue) >= queueLength; full {
		dropped = r.queue[0]
		r.queue = append(r.queue[:0], r.queue[1:]...)
	}
	r.queue = append(r.queue, e)
	r.nudge()
	return dropped, full
}

// end makes loop return after the queued events have run. Later events are dropped.
func (r *runner) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.nudge()
}

func (r *runner) nudge() {
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// loop runs the program for each event, one at a time and only while the gate is open. It returns
// when ctx ends, or when the runner is closed and its queue is empty.
func (r *runner) loop(ctx context.Context) {
	for {
		at, some, closed := r.oldest()
		switch {
		case some:
			if r.gate.wait(ctx, at) != nil {
				return
			}
			// The event may have been dropped while the gate was closed.
			if e, ok := r.take(at); ok {
				r.ran(e, r.run(ctx, e))
			}
		case closed:
			return
		default:
			select {
			case <-r.more:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (r *runner) oldest() (at time.Time, some, closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return at, false, r.closed
	}
	return r.queue[0].At, true, r.closed
}

func (r *runner) take(at time.Time) (queued, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 || !r.queue[0].At.Equal(at) {
		return queued{}, false
	}
	e := r.queue[0]
	r.queue = append(r.queue[:0], r.queue[1:]...)
	return e, true
}
