package hook

import (
	"context"
	"sync"
	"time"
)

// QueueLength is how many events wait for one hook; the oldest is dropped for a
// further one.
const QueueLength = 64

// Event is something that a hook is run for.
type Event struct {
	Kind string    // for the program's environment, and for who counts
	Data []byte    // the program's standard input
	At   time.Time // when it happened
}

// Runner runs one hook's program for one event after another.
type Runner struct {
	run  func(context.Context, Event) Result
	gate *Gate
	ran  func(Event, Result)

	mu     sync.Mutex
	queue  []Event
	closed bool
	more   chan struct{} // has an element when there is something to look at
}

// NewRunner returns a runner for the program, which Run sets going. ran hears of each
// run, in Run's goroutine.
func NewRunner(p Program, g *Gate, ran func(Event, Result)) *Runner {
	run := func(ctx context.Context, e Event) Result { return p.Run(ctx, e.Data, "CRIGUARD_EVENT="+e.Kind) }
	return &Runner{run: run, gate: g, ran: ran, more: make(chan struct{}, 1)}
}

// Put queues an event; it never waits. It returns the event that had to be dropped
// for it, if any.
func (r *Runner) Put(e Event) (dropped Event, full bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return e, true
	}
	if full = len(r.queue) >= QueueLength; full {
		dropped = r.queue[0]
		r.queue = append(r.queue[:0], r.queue[1:]...)
	}
	r.queue = append(r.queue, e)
	r.nudge()
	return dropped, full
}

// Close lets Run return once what is queued has been run. Later events are dropped.
func (r *Runner) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.nudge()
}

func (r *Runner) nudge() {
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// Run runs the program for each event, one at a time and when the gate is open,
// until ctx ends or the runner is closed and through.
func (r *Runner) Run(ctx context.Context) {
	for {
		at, some, closed := r.oldest()
		switch {
		case some:
			if r.gate.Wait(ctx, at) != nil {
				return
			}
			// While the gate was shut the event may have been dropped.
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

func (r *Runner) oldest() (at time.Time, some, closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return at, false, r.closed
	}
	return r.queue[0].At, true, r.closed
}

func (r *Runner) take(at time.Time) (Event, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 || !r.queue[0].At.Equal(at) {
		return Event{}, false
	}
	e := r.queue[0]
	r.queue = append(r.queue[:0], r.queue[1:]...)
	return e, true
}
