package reclaim

import (
	"slices"
	"sync"
)

// turns lets runs wait for each other, in the order in which they asked for a turn.
type turns struct {
	mu    sync.Mutex
	queue []*Turn // the first one has its turn
}

// Turn is the place of a run in the queue of a Collector.
type Turn struct {
	turns *turns
	comes chan struct{} // closed when it is its turn
}

// ask joins the queue.
func (q *turns) ask() *Turn {
	t := &Turn{q, make(chan struct{})}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queue = append(q.queue, t); len(q.queue) == 1 {
		close(t.comes)
	}
	return t
}

// Leave leaves the queue. Of nil, or again, it does nothing.
func (t *Turn) Leave() {
	if t == nil {
		return
	}
	q := t.turns
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.queue, t)
	if i < 0 {
		return
	}
	if q.queue = slices.Delete(q.queue, i, i+1); i == 0 && len(q.queue) > 0 {
		close(q.queue[0].comes)
	}
}
