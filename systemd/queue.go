package systemd

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// queuedLines is how many lines wait for whoever reads the log.
	queuedLines = 256
	// flushPatience is how long the last lines wait for him at the end.
	flushPatience = time.Second
)

// queue is a writer of lines that never waits for whoever reads them: a pipe whose reader has
// stopped, or a terminal that is held, would keep the decisions waiting. A line that finds no
// room is lost; the next one that does bears the count of the lost ones.
type queue struct {
	lines chan []byte
	done  chan struct{} // closed when all is written

	mu      sync.Mutex
	dropped uint64 // since the last line that found room
	closed  bool
}

func newQueue(out io.Writer) *queue {
	q := &queue{lines: make(chan []byte, queuedLines), done: make(chan struct{})}
	go func() {
		defer close(q.done)
		for line := range q.lines {
			_, _ = out.Write(line) // whom could it be told?
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
	queued := bytes.Clone(line) // it is the caller's again
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

// flush waits, bounded, until all is written. Later lines are lost.
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
