package stop

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/reclaim"
)

// Options configure a Stopper. All are required.
type Options struct {
	Config  func() config.Config // the configuration in force
	Runtime *cri.Connector
	Cgroups reclaim.Cgroups
	Logs    reclaim.Logs
	// Stopping is called for each pod that is stopped: its images are kept for a while.
	Stopping func(inventory.Pod)
	// Ended is called when a pod has no process left, or its stop is over, and again when the runtime has given back what the pod
	// had in files in memory.
	Ended func()
}

// Stopper implements eviction.Stopper on the node.
type Stopper struct {
	opt     Options
	logs    reclaim.LogRemover
	ctx     context.Context //nolint:containedctx // of the stops, which outlive the pass that begins them
	running sync.WaitGroup  // stops that the runtime has not confirmed, and discards
}

// New returns a Stopper. Canceling ctx ends its stops and discards.
func New(ctx context.Context, o Options) *Stopper {
	return &Stopper{opt: o, logs: reclaim.LogRemover{Logs: o.Logs}, ctx: ctx}
}

// Wait waits until the stops and discards have finished.
func (s *Stopper) Wait() { s.running.Wait() }

// Stop starts a stop. If the stop is direct, Stop has sent SIGKILL to the containers' processes when it
// returns.
func (s *Stopper) Stop(_ context.Context, o eviction.StopOrder) eviction.StopJob {
	req := reclaim.StopRequest{
		Victim: reclaim.Victim{SandboxID: o.Pod.ID, Pod: o.Pod.FullName(), Cgroup: o.Pod.Cgroup, Unlisted: o.Unlisted},
		Grace:  o.Grace, Direct: o.Direct, Fallback: o.Fallback,
		StopTimeout: s.opt.Config().Eviction.StopTimeout,
	}
	for _, c := range o.Pod.Containers {
		req.Containers = append(req.Containers, reclaim.VictimContainer{ID: c.ID, Name: c.Name, Cgroup: c.Cgroup})
	}
	stop := reclaim.NewStops(stopsAt(s.opt.Runtime), s.opt.Cgroups).Stop(s.ctx, req)
	s.opt.Stopping(o.Pod)
	s.running.Go(func() {
		<-stop.Done()
		s.opt.Ended()
		if <-stop.Finished(); stop.Report().Shared {
			s.opt.Ended()
		}
	})
	job := &stopJob{stop, s, o}
	if o.Discard || o.DiscardLogs {
		job.Discard(o.Discard, o.DiscardLogs)
	}
	return job
}

// discardFor limits the retries when a runtime cannot remove what a stopped pod left. discardAgain is the
// first pause between retries.
const (
	discardFor   = 10 * time.Minute
	discardAgain = 50 * time.Millisecond
)

// discard removes a stopped pod's dead containers, including those that ended earlier, or their logs, or
// both. It retries because a full disk can make a removal fail, and garbage collection never removes the
// newest container of a pod, the one that fills the disk. emptied says that the pod has no process left, even
// if the runtime reports otherwise.
func (s *Stopper) discard(o eviction.StopOrder, emptied bool) {
	ctx, cancel := context.WithTimeout(s.ctx, discardFor)
	defer cancel()
	var left []string
	for _, c := range o.Pod.Containers {
		left = append(left, c.ID)
	}
	logs := map[string]cri.ContainerDetail{}
	listed := false
	for again := discardAgain; ; again = min(2*again, max(s.opt.Config().Eviction.Interval, discardAgain)) {
		if client, err := s.opt.Runtime.Client(); err == nil {
			if !listed {
				left, listed = s.withDead(ctx, client, o.Pod.ID, left)
			}
			left = slices.DeleteFunc(left, func(id string) bool { return s.discarded(ctx, client, id, o, emptied, logs) })
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

// withDead adds a sandbox's exited containers to ids. It returns false if the runtime cannot list them.
func (s *Stopper) withDead(ctx context.Context, client *cri.Client, sandbox string, ids []string) (all []string, ok bool) {
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

// discarded removes a container, its log, or both. It returns true if nothing is left to do: the container is
// gone, or it runs after all. With dead, a container that the runtime calls running only has a hung shim, so
// discarded returns false. If the log cannot be removed, the container is removed all the same, and logs keeps what
// only the runtime knew of the log.
func (s *Stopper) discarded(ctx context.Context, client *cri.Client, id string, o eviction.StopOrder, dead bool, logs map[string]cri.ContainerDetail) bool {
	d, err := client.ContainerStatus(ctx, id)
	if log, left := logs[id]; left && errors.Is(err, cri.ErrGone) {
		listed, err := client.Containers(ctx)
		return err == nil && (reclaim.LogIsTaken(log, listed) || s.logs.Remove(ctx, log) == nil)
	}
	// One that was only created has no process, either, and the pod is gone that would start it.
	if err == nil && d.State != cri.Exited && !(dead && d.State == cri.Created) {
		return !dead
	}
	if err == nil && o.DiscardLogs { // first: a new container may get its name, and its log, when it is gone
		err = s.logs.Remove(ctx, d)
		delete(logs, id)
		if o.Discard && err != nil {
			logs[id], err = d, nil
		}
	}
	if err == nil && o.Discard {
		err = client.RemoveContainer(ctx, id)
	}
	_, logLeft := logs[id]
	return !logLeft && (err == nil || errors.Is(err, cri.ErrGone))
}

// errEnded is the error of a stop that the end of the service cut short.
var errEnded = errors.New("the service ended before the pod was stopped")

// stopJob is a stop in flight.
type stopJob struct {
	stop    *reclaim.Stop
	stopper *Stopper
	order   eviction.StopOrder
}

func (j *stopJob) Done() <-chan struct{}                   { return j.stop.Done() }
func (j *stopJob) Escalate(direct bool, unlisted []string) { j.stop.Escalate(direct, unlisted) }

// Discard discards dead containers as soon as the pod has no process left. A failing network plugin can delay the runtime's
// confirmation for a minute, and until then the space that the stop is for is not free.
func (j *stopJob) Discard(containers, logs bool) {
	o := j.order
	o.Discard, o.DiscardLogs = containers, logs
	j.stopper.running.Go(func() {
		<-j.stop.Done()
		emptied := j.stop.Report().Emptied
		if !emptied {
			<-j.stop.Finished()
		}
		j.stopper.discard(o, emptied)
	})
}

func (j *stopJob) Outcome() eviction.StopOutcome {
	r := j.stop.Report()
	out := eviction.StopOutcome{Nothing: r.Nothing, Shared: r.Shared, Result: api.StopResult{
		Emptied: r.Emptied, EmptiedIn: api.Duration(r.EmptiedAfter), Confirmed: r.Confirmed, Method: string(r.Method),
	}}
	if r.Emptied && r.Method == reclaim.ByDirect && !r.Shared {
		// The runtime was asked when the pod had ended, and gives back nothing: whether it fails before the stop is recorded is chance.
		r.Errors = r.Errors[:len(r.Errors)-r.Late]
	}
	for _, err := range r.Errors {
		if errors.Is(err, context.Canceled) {
			err = errEnded
		}
		out.Result.Errors = append(out.Result.Errors, err.Error())
	}
	return out
}

// runtimeStops stops through the runtime that answered when the stop began. If that goes away and the connector moves to another
// one, the other one does not know the pod, and answers that it is stopped.
type runtimeStops struct {
	client *cri.Client
	err    error // no runtime has answered yet
}

func stopsAt(conn *cri.Connector) reclaim.Stopper {
	client, err := conn.Client()
	return runtimeStops{client, err}
}

func (r runtimeStops) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	if r.err != nil {
		return r.err
	}
	return r.client.StopContainer(ctx, id, grace)
}

func (r runtimeStops) StopSandbox(ctx context.Context, id string) error {
	if r.err != nil {
		return r.err
	}
	return r.client.StopSandbox(ctx, id)
}
