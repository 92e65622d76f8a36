package systemd

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipe is a pipe whose reader can stop.
type pipe struct {
	reads chan struct{} // closed = the reader reads
	text  strings.Builder
}

func (p *pipe) Write(b []byte) (int, error) {
	<-p.reads
	return p.text.Write(b)
}

// A log reader that stops blocks no one, and later learns how many lines it missed.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipe{reads: make(chan struct{})}
		q := newQueue(p)
		log := slog.New(slog.NewTextHandler(q, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		const missed = 3
		log.Info("first")
		synctest.Wait() // the first line is being written and takes no room
		began := time.Now()
		for i := range queuedLines + missed {
			log.Info("line", "n", i)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("waited for %s", took)
		}
		q.mu.Lock()
		dropped := q.dropped
		q.mu.Unlock()
		if dropped != missed {
			t.Errorf("%d lines are lost, want %d", dropped, missed)
		}
		close(p.reads)
		synctest.Wait()
		log.Info("after")
		log.Info("last")
		q.flush()
		log.Info("too late")
		q.flush()
		lines := strings.Split(strings.TrimSuffix(p.text.String(), "\n"), "\n")
		if len(lines) != 1+queuedLines+2 {
			t.Fatalf("%d lines:\n%s", len(lines), p.text.String())
		}
		for i, want := range map[int]string{
			0: "level=INFO msg=first", 1: "level=INFO msg=line n=0", queuedLines: fmt.Sprintf("level=INFO msg=line n=%d", queuedLines-1),
			queuedLines + 1: fmt.Sprintf("level=INFO msg=after dropped=%d", missed), queuedLines + 2: "level=INFO msg=last",
		} {
			if lines[i] != want {
				t.Errorf("line %d is %q, want %q", i, lines[i], want)
			}
		}
	})
}

// The program's exit does not wait forever for a reader.
func TestQueueFlushIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipe{reads: make(chan struct{})}
		q := newQueue(p)
		if _, err := q.Write([]byte("a\n")); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		q.flush()
		if took := time.Since(began); took != flushPatience {
			t.Errorf("waited for %s", took)
		}
		close(p.reads)
	})
}
