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
		emptied := stop.Report().Emptied
		if !emptied {
			<-stop.Finished()
		}
		// What is dead goes at once: a network plugin that fails keeps a runtime from
		// confirming for a minute, in which the space that the stop is for is not free.
		if o.Discard || o.DiscardLogs {
			s.discard(o, emptied)
		}
		<-stop.Finished()
	})
	return &stopJob{stop}
}

// How long a runtime is asked to remove what a stopped pod left, and how soon again at first.
const (
	discardFor   = 10 * time.Minute
	discardAgain = 50 * time.Millisecond
)

// discard removes a stopped pod's dead containers, those that had ended before, too, or their
// logs, or both. A runtime that cannot do so now, which a full disk alone may keep it from, is asked again: no
// collection of dead containers takes the newest of a pod, and it is what fills the disk.
// emptied says that nothing of the pod is alive, whatever the runtime knows of it.
func (s *stopper) discard(o StopOrder, emptied bool) {
	ctx, cancel := context.WithTimeout(s.ctx, discardFor)
	defer cancel()
	var left []string
	for _, c := range o.Pod.Containers {
		left = append(left, c.ID)
	}
	listed := false
	for again := discardAgain; ; again = min(2*again, max(s.node.interval(), discardAgain)) {
		if client, err := s.node.conn.Client(); err == nil {
			if !listed {
				left, listed = s.withDead(ctx, client, o.Pod.ID, left)
			}
			left = slices.DeleteFunc(left, func(id string) bool { return s.discarded(ctx, client, id, o, emptied) })
			if listed && len(left) == 0 {
				return
			}
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return
		}
	}
}

// withDead adds a sandbox's containers that have ended to those that were listed running; false
// when the runtime does not tell.
func (s *stopper) withDead(ctx context.Context, client *cri.Client, sandbox string, ids []string) (all []string, ok bool) {
	containers, err := client.Containers(ctx)
	if err != nil {
		return ids, false
	}
	for i := range containers {
		if c := &containers[i]; c.SandboxID == sandbox && c.State == cri.Exited && !slices.Contains(ids, c.ID) {
			ids = append(ids, c.ID)
		}
	}
	return ids, true
}

// discarded removes a container, its log, or both, and reports whether there is nothing more to
// do: it is gone, or it runs after all. While a shim hangs, the runtime says so of a dead one, too.
func (s *stopper) discarded(ctx context.Context, client *cri.Client, id string, o StopOrder, dead bool) bool {
	d, err := client.ContainerStatus(ctx, id)
	if err == nil && d.State != cri.Exited {
		return !dead
	}
	if err == nil && o.Discard {
		err = client.RemoveContainer(ctx, id)
	}
	if err == nil && o.DiscardLogs {
		err = reclaim.Logs(s.node.podLogs).RemoveOf(d.LogPath, d.Name, d.Attempt)
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
