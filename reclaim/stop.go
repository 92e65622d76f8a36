package reclaim

import (
	"context"
	"sync"
	"time"
)

// DefaultStopTimeout is how long a stop waits for the runtime before it kills by itself, unless the
// request sets a timeout.
const DefaultStopTimeout = 2 * time.Second

// Victim is the sandbox to stop.
type Victim struct {
	SandboxID  string
	Pod        string // namespace/name, for errors
	Cgroup     string // the pod's own, which is never killed; "" = unknown
	Containers []VictimContainer
	Unlisted   []string // cgroups of containers that the runtime does not list, directly below the pod's own
}

// VictimContainer is a container of the sandbox to stop.
type VictimContainer struct {
	ID, Name string
	Cgroup   string // the leaf, relative to the hierarchy; "" = unknown: only the runtime can stop it
}

// StopRequest describes how to stop a sandbox.
type StopRequest struct {
	Victim
	Grace  time.Duration // for the containers to exit by themselves; 0 = no grace period
	Direct bool          // kill the containers' cgroups at once, before the first call to the runtime
	// Fallback kills the cgroups if the runtime has not emptied them StopTimeout after the grace
	// period, and the sandbox's own as soon as those of the containers are empty.
	Fallback    bool
	StopTimeout time.Duration // 0 = DefaultStopTimeout
}

// Method is how the containers were emptied, or should have been.
type Method string

// The methods of a stop.
const (
	ByRuntime  Method = "runtime"
	ByDirect   Method = "direct"   // the cgroups were killed at once
	ByFallback Method = "fallback" // the cgroups were killed because the runtime was too slow
)

// StopReport is the result of a stop.
type StopReport struct {
	// Emptied: no process is left in any container cgroup; this decides whether the stop succeeded. A
	// container with an unknown cgroup counts as empty when the runtime reports that it ended. If no
	// process was ever seen in any of the cgroups, all count as empty when the runtime reports that the
	// sandbox is stopped.
	Emptied      bool
	EmptiedAfter time.Duration
	// Confirmed: the runtime reports that every container and the sandbox are stopped. It may never do
	// so; that is not a failure of the stop.
	Confirmed      bool
	ConfirmedAfter time.Duration
	// Shared: when the processes had ended, the pod still had memory in files, such as those in /dev/shm. The runtime
	// gives it back when it stops the sandbox.
	Shared bool
	Method Method
	// Killed counts the SIGKILLs that were sent directly.
	Killed int
	// Nothing: this stop did not end a single process. The sandbox had ended before, or neither the
	// runtime nor the kernel managed to end it.
	Nothing bool
	// Errors lists the errors on the way, each once, even if the stop succeeded in the end. The last Late of them came after
	// Done: only the runtime's confirmation was still missing.
	Errors []error
	Late   int
}

// Stops stops sandboxes.
type Stops struct {
	runtime Stopper
	cgroups Cgroups
}

// NewStops returns a Stops that uses a runtime and the kernel.
func NewStops(runtime Stopper, cgroups Cgroups) *Stops {
	return &Stops{runtime, cgroups}
}

// Stop is a stop in progress.
type Stop struct {
	req       StopRequest
	runtime   Stopper
	cgroups   Cgroups
	started   time.Time
	leaves    []*leaf       // guarded by mu once the stop has begun
	escalated chan struct{} // closed by Escalate
	news      chan struct{} // holds one element if the runtime has reported something new
	done      chan struct{} // closed when the outcome is known
	finished  chan struct{} // closed when nothing runs any more

	mu      sync.Mutex
	report  StopReport
	killing bool // kill the cgroups instead of waiting
	acted   bool // this stop ended some process
	alive   bool // the pod had processes when the stop began, but none in a container's cgroup
	early   int  // errors before done was closed
}

// Stop begins to stop a sandbox and returns at once; with Direct, it kills the cgroups before it
// returns. The stop continues until Finished, or until ctx ends.
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
	st.checkPodCgroup()
	go st.run(ctx)
	return st
}

// Escalate ends the grace period now; with direct, it kills the cgroups before it returns. Either
// happens only once. unlisted are the cgroups of containers, directly below the pod's own, that have started since the stop began: a
// kubelet restarts one that ends before the others.
func (s *Stop) Escalate(direct bool, unlisted []string) {
	s.add(unlisted)
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

// Done is closed when the containers are empty or could not be emptied. The stop may still be waiting
// for the runtime's confirmation.
func (s *Stop) Done() <-chan struct{} { return s.done }

// Finished is closed when the runtime has also confirmed or the stop has given up on it: nothing of the
// stop runs any more.
func (s *Stop) Finished() <-chan struct{} { return s.finished }

// Report returns the current state of the stop. After Done, it changes only with reports from the
// runtime.
func (s *Stop) Report() StopReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.report
	r.Nothing = !s.acted
	r.Errors = append([]error(nil), r.Errors...)
	select {
	case <-s.done:
		r.Late = len(r.Errors) - s.early
	default:
	}
	return r
}
