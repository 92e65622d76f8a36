package guard

import (
	"context"
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
}

// Stop starts the stop; with a direct one, the containers' processes have been
// sent SIGKILL when it returns.
func (s *stopper) Stop(_ context.Context, o StopOrder) StopJob {
	req := reclaim.StopRequest{
		Victim: reclaim.Victim{SandboxID: o.Pod.ID, Pod: o.Pod.FullName(), Cgroup: o.Pod.Cgroup},
		Grace:  o.Grace, Direct: o.Direct, Fallback: o.Fallback, EscalateDirect: o.EscalateDirect,
		StopTimeout: s.node.config().Eviction.StopTimeout,
	}
	for _, c := range o.Pod.Containers {
		req.Containers = append(req.Containers, reclaim.VictimContainer{ID: c.ID, Name: c.Name, Cgroup: c.Cgroup})
	}
	stop := reclaim.NewStops(runtimeStops{s.node.conn}, s.node.kernel).Stop(s.ctx, req)
	s.stopped(o.Pod)
	go func() {
		<-stop.Done()
		s.node.wake("stop")
		if o.Discard {
			<-stop.Finished()
			s.discard(o.Pod)
		}
	}()
	return stopJob{stop}
}

// discard removes a stopped pod's dead containers. One that runs after all, or
// cannot be removed now, is left to the next collection.
func (s *stopper) discard(p Pod) {
	client, err := s.node.conn.Client()
	if err != nil {
		return
	}
	for _, c := range p.Containers {
		if d, err := client.ContainerDetail(s.ctx, c.ID); err == nil && d.State == cri.Exited {
			_ = client.RemoveContainer(s.ctx, c.ID)
		}
	}
	s.node.wake("stop")
}

// stopJob is a stop under way.
type stopJob struct{ stop *reclaim.Stop }

func (j stopJob) Done() <-chan struct{} { return j.stop.Done() }
func (j stopJob) Escalate()             { j.stop.Escalate() }

func (j stopJob) Outcome() StopOutcome {
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
