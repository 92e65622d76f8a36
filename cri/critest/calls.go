package critest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Call is one call by a client.
type Call struct {
	Method  string        // "StopContainer"
	ID      string        // of the sandbox, container or image in the request; "" = none
	Grace   time.Duration // of StopContainer
	Verbose bool
	Bounded bool          // the client set a deadline
	Left    time.Duration // until that deadline, on arrival; it may have passed
	Took    time.Duration // until the answer; 0 = not answered yet
	began   time.Time
}

// callLog records the calls of clients in the order of arrival.
type callLog struct {
	mu    sync.Mutex
	calls []*Call
	grown chan struct{} // closed when a call arrives or is answered
}

func newCallLog() *callLog { return &callLog{grown: make(chan struct{})} }

func (l *callLog) begin(ctx context.Context, method string, req any) *Call {
	c := &Call{Method: method, ID: idOf(req), began: time.Now()}
	if deadline, ok := ctx.Deadline(); ok {
		c.Bounded, c.Left = true, time.Until(deadline)
	}
	if r, ok := req.(*runtimeapi.StopContainerRequest); ok {
		c.Grace = time.Duration(r.GetTimeout()) * time.Second
	}
	if r, ok := req.(interface{ GetVerbose() bool }); ok {
		c.Verbose = r.GetVerbose()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, c)
	l.wake()
	return c
}

func (l *callLog) end(c *Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.Took = max(time.Since(c.began), 1)
	l.wake()
}

func (l *callLog) wake() {
	close(l.grown)
	l.grown = make(chan struct{})
}

// of returns copies of the calls of some methods, or of all if none is given.
func (l *callLog) of(methods []string) ([]Call, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Call
	for _, c := range l.calls {
		if len(methods) == 0 || slices.Contains(methods, c.Method) {
			out = append(out, *c)
		}
	}
	return out, l.grown
}

// Calls returns the calls of these methods, or all calls, in the order of arrival.
func (s *Server) Calls(methods ...string) []Call {
	calls, _ := s.log.of(methods)
	return calls
}

// ForgetCalls empties the record.
func (s *Server) ForgetCalls() {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.log.calls = nil
}

// WaitCalls waits until n calls of a method have arrived, answered or not, and returns them. The test
// fails if they do not arrive within a minute.
func (s *Server) WaitCalls(tb testing.TB, method string, n int) []Call {
	tb.Helper()
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	for {
		calls, grown := s.log.of([]string{method})
		if len(calls) >= n {
			return calls
		}
		select {
		case <-grown:
		case <-timeout.C:
			tb.Fatalf("critest: %d of %d calls of %s came", len(calls), n, method)
		}
	}
}

// idOf returns the id in a request.
func idOf(req any) string {
	switch r := req.(type) {
	case interface{ GetPodSandboxId() string }:
		return r.GetPodSandboxId()
	case interface{ GetContainerId() string }:
		return r.GetContainerId()
	case interface{ GetImage() *runtimeapi.ImageSpec }:
		return r.GetImage().GetImage()
	}
	return ""
}
