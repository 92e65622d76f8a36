package top

import (
	"context"
	"sync"
	"time"
)

// pollShare limits the load on a slow node: after each request, poll waits at least pollShare times
// as long as the request took.
const pollShare = 9

// poll repeats a request, one at a time. A single goroutine uses it: it calls start when due fires
// and answered after each answer.
type poll[T any] struct {
	interval time.Duration // minimum time between two requests
	deadline time.Duration // timeout of a request
	answers  chan T
	due      *time.Timer

	wg     sync.WaitGroup
	cancel context.CancelFunc // nil when no request is running
	began  time.Time
	hurry  bool // the answer is no longer wanted: send the next request as soon as it arrives
}

// newPoll returns a poll that is due at once.
func newPoll[T any](interval, deadline time.Duration) *poll[T] {
	return &poll[T]{interval: interval, deadline: deadline, answers: make(chan T, 1), due: time.NewTimer(0)}
}

// start sends a request unless one is already running.
func (p *poll[T]) start(ctx context.Context, ask func(context.Context) T) {
	if p.cancel != nil {
		return
	}
	ctx, p.cancel = context.WithTimeout(ctx, p.deadline)
	p.began = time.Now()
	p.wg.Go(func() { p.answers <- ask(ctx) })
}

// restart cancels the running request and makes the next one due at once.
func (p *poll[T]) restart() {
	if p.cancel == nil {
		p.due.Reset(0)
		return
	}
	p.hurry = true
	p.cancel()
}

// answered ends a request and schedules the next one.
func (p *poll[T]) answered() {
	p.cancel()
	p.cancel = nil
	wait := max(p.interval, pollShare*time.Since(p.began))
	if p.hurry {
		wait = 0
	}
	p.hurry = false
	p.due.Reset(wait)
}

// end cancels the running request and waits for it to return.
func (p *poll[T]) end() {
	if p.cancel != nil {
		p.cancel()
	}
	p.wg.Wait()
	p.due.Stop()
}
