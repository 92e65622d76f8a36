package guard

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/reclaim"
)

// stopper stops sandboxes on the node.
type stopper struct {
	node *node
	ctx  context.Context //nolint:containedctx // of the stops: they outlive the pass that begins them
	// stopped hears of each pod that is stopped: its images are kept for a while.
	stopped func(Pod)
	running sync.WaitGroup // stops of which the runtime has not confirmed all
}

// wait waits until the runtime has confirmed the stops that were made, or ctx has ended.
func (s *stopper) wait() { s.running.Wait() }

// Stop starts the stop; with a direct one, the containers' processes have been
// sent SIGKILL when it returns.
func (s *stopper) Stop(_ context.Context, o StopOrder) StopJob {
	req := reclaim.StopRequest{
		Victim: reclaim.Victim{SandboxID: o.Pod.ID, Pod: o.Pod.FullName(), Cgroup: o.Pod.Cgroup},
		Grace:  o.Grace, Direct: o.Direct, Fallback: o.Fallback,
		StopTimeout: s.node.config().Eviction.StopTimeout,
	}
	for _, c := range o.Pod.Containers {
		req.Containers = append(req.Containers, reclaim.VictimContainer{ID: c.ID, Name: c.Name, Cgroup: c.Cgroup})
	}
	stop := reclaim.NewStops(runtimeStops{s.node.conn}, s.node.kernel).Stop(s.ctx, req)
	s.stopped(o.Pod)
	s.running.Go(func() {
		<-stop.Done()
		s.node.wake("stop")
		<-stop.Finished()
		if o.Discard {
			s.discard(o.Pod, stop.Report().Emptied)
		}
	})
	return &stopJob{stop}
}

// discardFor bounds how long a runtime is asked to remove what a stopped pod left.
const discardFor = 10 * time.Minute

// discard removes a stopped pod's dead containers. A runtime that cannot do so now, which
// a full disk alone may keep it from, is asked again: no collection of dead containers
// takes the newest of a pod, and it is what fills the disk. emptied says that nothing of
// the pod is alive, whatever the runtime knows of it.
func (s *stopper) discard(p Pod, emptied bool) {
	ctx, cancel := context.WithTimeout(s.ctx, discardFor)
	defer cancel()
	left := slices.Clone(p.Containers)
	for {
		left = slices.DeleteFunc(left, func(c PodContainer) bool { return s.discarded(ctx, c.ID, emptied) })
		if len(left) == 0 {
			return
		}
		select {
		case <-time.After(s.node.interval()):
		case <-ctx.Done():
			return
		}
	}
}

// discarded removes a container, and reports whether there is nothing more to do: it is
// gone, or it runs after all. While a shim hangs, the runtime says so of a dead one, too.
func (s *stopper) discarded(ctx context.Context, id string, dead bool) bool {
	client, err := s.node.conn.Client()
	if err != nil {
		return false
	}
	d, err := client.ContainerStatus(ctx, id)
	if err == nil && d.State != cri.Exited {
		return !dead
	}
	if err == nil {
		err = client.RemoveContainer(ctx, id)
	}
	return err == nil || errors.Is(err, cri.ErrGone)
}

// stopJob is a stop under way.
type stopJob struct {
	stop *reclaim.Stop
}

func (j *stopJob) Done() <-chan struct{} { return j.stop.Done() }
func (j *stopJob) Escalate(direct bool)  { j.stop.Escalate(direct) }

func (j *stopJob) Outcome() StopOutcome {
	r := j.stop.Report()
	out := StopOutcome{Nothing: r.Nothing, Result: StopResult{
		Emptied: r.Emptied, EmptiedIn: r.EmptiedAfter, Confirmed: r.Confirmed, Method: string(r.Method),
	}}
	for _, err := range r.Errors {
		out.Result.Errors = append(out.Result.Errors, err.Error())
	}
	return out
}

// runtimeStops stops through whichever runtime answers at the time of the call.
type runtimeStops struct{ conn *Conn }

func (r runtimeStops) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	c, err := r.conn.Client()
	if err != nil {
		return err
	}
	return c.StopContainer(ctx, id, grace)
}

func (r runtimeStops) StopSandbox(ctx context.Context, id string) error {
	c, err := r.conn.Client()
	if err != nil {
		return err
	}
	return c.StopSandbox(ctx, id)
}
