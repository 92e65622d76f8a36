package critest

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Fault is a failure of some calls. The fields take effect in the order in which they are declared.
type Fault struct {
	Method string // "StopContainer"; "" = every method
	ID     string // only calls with this id; "" = all
	// Verbose limits the fault to verbose calls.
	Verbose bool
	Times   int // number of calls; 0 = until released

	Delay  time.Duration // the call waits this long
	Hang   bool          // the call waits until the fault is released or the client gives up
	Vanish bool          // the object of the call disappears just before
	// Err is the answer. A plain error gets code Unknown, as runtimes mostly return; see Code for
	// others.
	Err error
	// DoNothing reports success and changes nothing. It affects only stops and removals.
	DoNothing bool
	// Edit changes the answer, a message of k8s.io/cri-api. The call has its own message, but shares
	// the maps in it: replace them instead of changing them.
	Edit func(response any)
}

// Code returns an error with a gRPC code, for Fault.Err.
func Code(code codes.Code, message string) error { return status.Error(code, message) }

// fault is an active Fault.
type fault struct {
	Fault
	left     int
	released chan struct{}
}

// Inject activates a fault until release is called or the fault has met Times calls. Calls that hang in
// it continue on release. Several faults combine in the order of their injection.
func (s *Server) Inject(f Fault) (release func()) {
	in := &fault{Fault: f, left: f.Times, released: make(chan struct{})}
	s.mu.Lock()
	s.faults = append(s.faults, in)
	s.mu.Unlock()
	var once sync.Once
	return func() {
		once.Do(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.faults = slices.DeleteFunc(s.faults, func(other *fault) bool { return other == in })
			close(in.released)
		})
	}
}

// Hang makes every call hang until released, like a runtime that accepts connections and never answers.
func (s *Server) Hang() (release func()) { return s.Inject(Fault{Hang: true}) }

// faultsFor returns the faults that affect a call and counts it against them.
func (s *Server) faultsFor(c *Call) []*fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	var met []*fault
	for _, f := range s.faults {
		if (f.Method == "" || f.Method == c.Method) && (f.ID == "" || f.ID == c.ID) && (c.Verbose || !f.Verbose) {
			met = append(met, f)
			f.left--
		}
	}
	s.faults = slices.DeleteFunc(s.faults, func(f *fault) bool { return f.Times > 0 && f.left <= 0 })
	return met
}

// suffer answers a call under its faults.
func (s *Server) suffer(ctx context.Context, c *Call, answer func() (any, error)) (any, error) {
	faults := s.faultsFor(c)
	for _, f := range faults {
		if err := f.before(ctx, s, c); err != nil {
			return nil, err
		}
	}
	for _, f := range faults {
		if f.DoNothing {
			if empty := emptyAnswer(c.Method); empty != nil {
				return empty, nil
			}
		}
	}
	resp, err := answer()
	if err != nil {
		return nil, err
	}
	for _, f := range faults {
		if f.Edit != nil {
			f.Edit(resp)
		}
	}
	return resp, nil
}

// before applies the part of a fault that precedes the call itself.
func (f *fault) before(ctx context.Context, s *Server, c *Call) error {
	if f.Delay > 0 {
		t := time.NewTimer(f.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-f.released:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	if f.Hang {
		select {
		case <-f.released:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	if f.Vanish {
		s.Forget(c.ID)
	}
	return f.Err
}

// emptyAnswer returns the success of a stop or removal; nil for other methods.
func emptyAnswer(method string) any {
	switch method {
	case "StopContainer":
		return &runtimeapi.StopContainerResponse{}
	case "StopPodSandbox":
		return &runtimeapi.StopPodSandboxResponse{}
	case "RemoveContainer":
		return &runtimeapi.RemoveContainerResponse{}
	case "RemovePodSandbox":
		return &runtimeapi.RemovePodSandboxResponse{}
	case "RemoveImage":
		return &runtimeapi.RemoveImageResponse{}
	}
	return nil
}
