package reclaim

import (
	"context"
	"sync"
	"time"
)

// DefaultStopTimeout is how long a stop waits for the runtime before it kills by
// itself, unless the request says otherwise.
const DefaultStopTimeout = 2 * time.Second

// Victim is the sandbox to stop.
type Victim struct {
	SandboxID  string
	Pod        string // namespace/name, for errors
	Cgroup     string // the pod's own, which is never killed; "" = not known
	Containers []VictimContainer
}

// VictimContainer is a container of the sandbox to stop.
type VictimContainer struct {
	ID, Name string
	Cgroup   string // the leaf, relative to the hierarchy; "" = not known: the runtime alone can stop it
}

// StopRequest says how to stop a sandbox.
type StopRequest struct {
	Victim
	Grace  time.Duration // what the containers get to end by themselves; 0 = none
	Direct bool          // kill the containers' cgroups at once, before the runtime is asked
	// Fallback kills the cgroups when the runtime has not emptied them StopTimeout
	// after the grace period.
	Fallback    bool
	StopTimeout time.Duration // 0 = DefaultStopTimeout
}

// Method is what emptied the containers, or was to.
type Method string

// The methods of a stop.
const (
	ByRuntime  Method = "runtime"
	ByDirect   Method = "direct"   // the cgroups were killed at once
	ByFallback Method = "fallback" // the cgroups were killed after the runtime was too slow
)

// StopReport is what became of a stop.
type StopReport struct {
	// Emptied: no process is left in any container cgroup. That is the truth about
	// a stop. A container whose cgroup is not known counts as empty when the runtime
	// says that it ended; where no process was ever seen in any of them, they do when the
	// runtime says that the sandbox is stopped.
	Emptied      bool
	EmptiedAfter time.Duration
	// Confirmed: the runtime has stopped every container and the sandbox, as it
	// says. It may lag behind for ever, which is no failure of the stop.
	Confirmed      bool
	ConfirmedAfter time.Duration
	Method         Method
	// Killed is how many times a process was sent SIGKILL directly.
	Killed int
	// Nothing: not one process ended by this stop. The sandbox had ended before,
	// or neither the runtime nor the kernel could be made to end it.
	Nothing bool
	// Errors are what went wrong on the way, each once, also when all went well in
	// the end.
	Errors []error
}

// Stops stops sandboxes.
type Stops struct {
	runtime Stopper
	cgroups Cgroups
}

// NewStops returns what stops sandboxes through a runtime and the kernel.
func NewStops(runtime Stopper, cgroups Cgroups) *Stops {
	return &Stops{runtime, cgroups}
}

// Stop is a stop under way.
type Stop struct {
	req       StopRequest
	runtime   Stopper
	cgroups   Cgroups
	started   time.Time
	leaves    []*leaf
	escalated chan struct{} // closed by Escalate
	news      chan struct{} // holds one element when the runtime has said something new
	done      chan struct{} // closed when the outcome is known
	finished  chan struct{} // closed when nothing runs any more

	mu      sync.Mutex
	report  StopReport
	killing bool // kill the cgroups rather than wait
	acted   bool // some process ended by this stop
	alive   bool // the pod had processes when the stop began, none of them in a container's cgroup
}

// Stop begins to stop a sandbox and returns at once; with Direct, the cgroups
// were killed when it returns. It goes on until Finished, or until ctx ends.
func (s *Stops) Stop(ctx context.Context, req StopRequest) *Stop {
	if req.StopTimeout <= 0 {
		req.StopTimeout = DefaultStopTimeout
	}
	req.Grace = max(req.Grace, 0)
	st := &Stop{
		req: req, runtime: s.runtime, cgroups: s.cgroups, started: time.Now(),
		escalated: make(chan struct{}), news: make(chan struct{}, 1),
		done: make(chan struct{}), finished: make(chan struct{}),
		report: StopReport{Method: ByRuntime},
	}
	st.leaves = st.findLeaves()
	if req.Direct {
		st.kill(ByDirect)
	}
	st.look()
	st.lookElsewhere()
	go st.run(ctx)
	return st
}

// Escalate ends the grace period now; with direct, the cgroups were killed when it
// returns. Either happens once.
func (s *Stop) Escalate(direct bool) {
	s.mu.Lock()
	select {
	case <-s.escalated:
	default:
		close(s.escalated)
	}
	direct = direct && !s.killing
	s.mu.Unlock()
	if direct {
		s.kill(ByDirect)
	}
}

// Done is closed when the containers are empty, or when they could not be
// emptied. The runtime may still be chased for its confirmation.
func (s *Stop) Done() <-chan struct{} { return s.done }

// Finished is closed when the runtime has confirmed, too, or was given up on:
// nothing of the stop runs any more.
func (s *Stop) Finished() <-chan struct{} { return s.finished }

// Report is what is known of the stop by now. After Done, only what the runtime
// says is added to it.
func (s *Stop) Report() StopReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.report
	r.Nothing = !s.acted
	r.Errors = append([]error(nil), r.Errors...)
	return r
}

// Wait waits until Done and returns the report. When ctx ends first it returns
// what is known by then and the context's error; the stop goes on.
func (s *Stop) Wait(ctx context.Context) (StopReport, error) {
	select {
	case <-s.done:
		return s.Report(), nil
	case <-ctx.Done():
		return s.Report(), ctx.Err()
	}
}
