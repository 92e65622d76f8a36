package top

import (
	"context"
	"sync"
	"time"
)

// pollShare bounds the load on a node that is slow to answer: between two questions there is
// so many times as long as the last took.
const pollShare = 9

// poll asks again and again, one question at a time. It is used from one goroutine, which starts
// a question when due says so and calls answered for each answer.
type poll[T any] struct {
	interval time.Duration // between two questions, at least
	deadline time.Duration // of a question
	answers  chan T
	due      *time.Timer

	wg     sync.WaitGroup
	cancel context.CancelFunc // nil while nothing is asked
	began  time.Time
	hurry  bool // the answer will be of no use: ask again as soon as it is there
}

// newPoll is due at once.
func newPoll[T any](interval, deadline time.Duration) *poll[T] {
	return &poll[T]{interval: interval, deadline: deadline, answers: make(chan T, 1), due: time.NewTimer(0)}
}

// start asks, unless something is asked already.
func (p *poll[T]) start(ctx context.Context, ask func(context.Context) T) {
	if p.cancel != nil {
		return
	}
	ctx, p.cancel = context.WithTimeout(ctx, p.deadline)
	p.began = time.Now()
	p.wg.Go(func() { p.answers <- ask(ctx) })
}

// restart gives up what is asked and makes the next question due at once.
func (p *poll[T]) restart() {
	if p.cancel == nil {
		p.due.Reset(0)
		return
	}
	p.hurry = true
	p.cancel()
}

// answered makes ready for the next question.
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

// end gives up what is asked and waits for that.
func (p *poll[T]) end() {
	if p.cancel != nil {
		p.cancel()
	}
	p.wg.Wait()
	p.due.Stop()
}
