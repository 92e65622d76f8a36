package systemd

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// queuedLines is the capacity of the queue.
	queuedLines = 256
	// flushPatience is how long flush waits for the reader to take the last lines.
	flushPatience = time.Second
)

// queue is a writer of lines that never waits for their reader: a pipe whose reader has stopped, or a
// stopped terminal, must not block decisions. If the queue is full, a line is lost. The next line that
// fits carries the number of lost lines.
type queue struct {
	lines chan []byte
	done  chan struct{} // closed when everything is written

	mu      sync.Mutex
	dropped uint64 // since the last line that fit
	closed  bool
}

func newQueue(out io.Writer) *queue {
	q := &queue{lines: make(chan []byte, queuedLines), done: make(chan struct{})}
	go func() {
		defer close(q.done)
		for line := range q.lines {
			_, _ = out.Write(line) // an error could only be logged here
		}
	}()
	return q
}

// Write queues a line.
func (q *queue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return len(line), nil
	}
	queued := bytes.Clone(line) // the caller may reuse its buffer
	if q.dropped > 0 {
		queued = fmt.Appendf(bytes.TrimSuffix(queued, []byte("\n")), " dropped=%d\n", q.dropped)
	}
	select {
	case q.lines <- queued:
		q.dropped = 0
	default:
		q.dropped++
	}
	return len(line), nil
}

// flush waits up to flushPatience until everything is written. Later lines are lost.
func (q *queue) flush() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.lines)
	}
	q.mu.Unlock()
	select {
	case <-q.done:
	case <-time.After(flushPatience):
	}
}
