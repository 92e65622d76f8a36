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

// Fault is something that goes wrong with some calls. What is set happens in the
// order of the fields.
type Fault struct {
	Method string // "StopContainer"; "" = every method
	ID     string // only calls that name this id; "" = all
	// Verbose meets only calls that ask for all there is.
	Verbose bool
	Times   int // for how many calls; 0 = until released

	Delay  time.Duration // the call waits that long
	Hang   bool          // the call waits until the fault is released or the client gives up
	Vanish bool          // the object it names is gone just before
	// Err is the answer. A plain error is answered as runtimes mostly do, with code
	// Unknown; see Code for others.
	Err error
	// DoNothing answers well and leaves everything as it is. It is for the calls
	// that stop and remove.
	DoNothing bool
	// Edit changes the answer, a message of k8s.io/cri-api. It is the call's own;
	// maps in it are not: replace them.
	Edit func(response any)
}

// Code is an error with a gRPC code of its own, for Fault.Err.
func Code(code codes.Code, message string) error { return status.Error(code, message) }

// fault is a Fault in force.
type fault struct {
	Fault
	left     int
	released chan struct{}
}

// Inject puts a fault in force, until release is called or it has happened often
// enough. Calls that hang in it go on when it is released. Faults add up, in the
// order they were injected.
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

// Hang makes every call hang until released: a runtime that accepts and never
// answers.
func (s *Server) Hang() (release func()) { return s.Inject(Fault{Hang: true}) }

// faultsFor takes the faults that meet a call.
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

// suffer answers a call through its faults.
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

// before is what a fault does ahead of the call proper.
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

// emptyAnswer is the success of a call that stops or removes; nil for others.
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
