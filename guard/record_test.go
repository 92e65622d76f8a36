package guard

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/guard/trace"
	"github.com/criguard/criguard/policy"
)

// sink is a buffer that can be read while it is written.
type sink struct {
	mu sync.Mutex
	bytes.Buffer
}

func (s *sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Buffer.Write(b)
}

func (s *sink) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.String()
}

// record records a node with this threshold of meminfo.available and returns the trace so far, and a function
// that ends the recording.
func record(t *testing.T, threshold string, interval time.Duration) (h *host, out *sink, finish func()) {
	t.Helper()
	srv := critest.New(t, critest.Containerd2)
	srv.AddPod(critest.PodSpec{Name: "a"})
	h = connectedNode(t, srv, "eviction.hard = { 'memory.available' = '0%', 'pid.available' = '0%', 'meminfo.available' = '"+threshold+"' }")
	l := &Look{host: h, guard: eviction.New(h.config(), h.kernel, h, nil, nil, nil, policy.NewRestraint(h.bootID))}
	l.Refresh(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	out = &sink{}
	done := make(chan error)
	go func() { done <- l.Record(ctx, out, interval, nil) }()
	return h, out, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Near a threshold, record writes a line as soon as the threshold is crossed, however long the interval is.
func TestRecordCrossing(t *testing.T) {
	h, out, finish := record(t, "1000Ki", time.Hour)
	nodetest.Await(t, "the first line", func() bool { return strings.Contains(out.text(), "\n") })
	nodetest.Write(t, string(h.proc), map[string]string{"meminfo": "MemTotal: 4194304 kB\nMemFree: 500 kB\nMemAvailable: 500 kB\nInactive(file): 0 kB\n"})
	nodetest.Await(t, "the crossing", func() bool { return strings.Contains(out.text(), `"meminfo.available":{"available":512000}`) })
	finish()
	in := trace.NewReader(strings.NewReader(out.text()))
	for i := 0; ; i++ {
		l, err := in.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil || l.Recorded != (i == 0) || (len(l.Pods) == 1) != (i == 0) {
			t.Fatalf("line %d: %+v, %v", i+1, l, err)
		}
	}
}

// Far from every threshold, the interval is the time between two lines.
func TestRecordInterval(t *testing.T) {
	_, out, finish := record(t, "0%", 20*time.Millisecond)
	nodetest.Await(t, "ten lines", func() bool { return strings.Count(out.text(), "\n") >= 10 })
	finish()
	_, out, finish = record(t, "0%", time.Hour)
	nodetest.Await(t, "the first line", func() bool { return strings.Contains(out.text(), "\n") })
	finish()
	if n := strings.Count(out.text(), "\n"); n != 1 {
		t.Errorf("%d lines within less than the interval", n)
	}
}

// A trace needs a runtime that answers at the start.
func TestRecordNeedsRuntime(t *testing.T) {
	h := connectedNode(t, critest.New(t, critest.Containerd2))
	l := &Look{host: h, guard: eviction.New(h.config(), h.kernel, h, nil, nil, nil, policy.NewRestraint(h.bootID))}
	if err := l.Record(t.Context(), io.Discard, time.Second, nil); !errors.Is(err, cri.ErrNoRuntime) {
		t.Errorf("before any listing: %v", err)
	}
}
