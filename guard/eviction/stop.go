package eviction

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// StopOrder is the order to stop one sandbox.
type StopOrder struct {
	Pod   inventory.Pod
	Grace time.Duration // 0 = at once
	// Direct kills the container cgroups at once, without waiting for the runtime. Fallback kills them if
	// the runtime has not confirmed the stop in time.
	Direct, Fallback bool
	// Unlisted is the cgroups of the pod's containers that the runtime cannot list. They are killed like the others.
	Unlisted []string
	// Discard removes the pod's dead containers, and DiscardLogs removes their logs: a stop for a pressed
	// disk, or for memory that holds their layers, is meant to free what they wrote.
	Discard, DiscardLogs bool
}

// StopJob is a stop that runs beside the loop.
type StopJob interface {
	Done() <-chan struct{}
	// Escalate ends the grace period of a soft stop now. With direct, it also kills the container cgroups, and those of containers
	// that have started since the stop began.
	Escalate(direct bool, unlisted []string)
	// Discard makes the stop remove what the fields of that name in its order say, in addition.
	Discard(containers, logs bool)
	// Outcome returns the result of the stop. It is valid once Done is closed.
	Outcome() StopOutcome
}

// StopOutcome is the result of a stop job.
type StopOutcome struct {
	Result  api.StopResult
	Nothing bool // the stop killed nothing: the sandbox was gone or could not be reached
	Shared  bool // the pod had memory in files that the runtime gives back when it stops the sandbox
	// Returned means that the files of the sandbox are known to be deleted, as in a simulation, and ends the
	// wait for a disk at once. A runtime does not say that: containerd reports a container as removed before
	// it begins to delete its files. So the stops of a node leave it false, and the filesystem shows the end.
	Returned bool
}

// flight is a stop in flight: its effect is not known yet.
type flight struct {
	view     *api.StopView // shared with the record of the pass that began the stop
	stop     policy.Stop   // if it is Over, only the disks in its Waits still wait for it
	since    time.Duration // since when its threshold had been met
	order    StopOrder
	launched time.Duration // when the job was started, after ranking
	job      StopJob
	awaited  bool          // its own pool waits for its effect, and it is over only then
	ended    time.Duration // when the job was seen done; 0 = not yet
	effect   effect        // since then
	ending   bool          // the service is ending: do not wait for the effect
	resumed  bool          // an earlier run of the service began it
}

// escalate turns a stop into what a hard stop for that signal would be, unless it is one already but for its budget. Observe
// mode changes no stop that began before it.
func (g *Manager) escalate(f *flight, s policy.Signal, now time.Duration, p *api.Pass) {
	direct := g.killsDirectly(s)
	if g.enforced != nil || f.ended != 0 || f.order.Direct || !direct && (f.stop.Kind == policy.Hard || f.view.Grace == 0) {
		return
	}
	f.job.Escalate(direct, g.kernel.UnlistedIn(f.order.Pod))
	g.restraint.Escalate(f.order.Pod.ID, now)
	f.order.Direct, f.stop.Kind, g.unsaved = direct, policy.Hard, true
	p.Escalated = f.view.Pod
}

// killsDirectly reports whether a hard stop for a signal kills without waiting for the runtime.
func (g *Manager) killsDirectly(s policy.Signal) bool {
	return g.cfg.Eviction.DirectKill == config.DirectKillHardMemory && s.Resource() == policy.ResourceMemory
}

// inFlight reports whether a pool waits for its last stop, which may have begun in an earlier run of the
// service. A hard threshold does not wait for a soft stop: it escalates the stop if that helps and no
// operator has protected the pod since, and chooses for itself otherwise. A pod that is listed no more has
// ended, but what it used may still be coming back.
func (g *Manager) inFlight(ctx context.Context, now time.Duration, i policy.Pool, due []policy.Met, p *api.Pass) bool {
	st := &g.pools[i]
	f := st.flight
	if f == nil {
		if s := g.restraint.Unfinished(i); s != nil { // of an earlier run: nothing is listed yet, or another pool continues it
			if o := g.flightOf(s.Sandbox); o == nil || o.resumed && o.ended == 0 && o.stop.Pool != i {
				return true
			}
		}
		return i.IsDisk() && g.freedWithOther(ctx, now, due, p)
	}
	if due[0].Kind == policy.Soft || f.ended != 0 || g.canWait(due[0]) {
		return true
	}
	if f.stop.Kind == policy.Hard {
		g.escalate(f, due[0].Signal, now, p) // it may be hard only for a signal for which nothing is killed directly
		return true
	}
	c := g.choose(g.runtime.Inventory(ctx, 0), now, i, due)
	var helps bool
	at := slices.IndexFunc(c.Ranked, func(r policy.Ranked) bool { return r.ID == f.order.Pod.ID })
	if at >= 0 && (i.IsDisk() || c.Ranked[at].Protection != "" || g.runs(inventory.ByID(c.pods, f.order.Pod.ID))) {
		r := &c.Ranked[at]
		helps = r.Protection == "" && (!r.Known() || r.Yield >= c.Helps) // as on a disk that is being measured again
	} else { // its processes have ended, but not its files in memory
		left := g.kernel.Remaining(f.order.Pod, i)
		helps = i.IsDisk() || !left.Known || left.Value >= c.Helps
	}
	if !helps {
		st.flight = nil
		return false
	}
	g.escalate(f, due[0].Signal, now, p)
	return true
}

// freedWithOther reports whether a stop in flight for the other pool of a device gives back all that this pool lacks, as for
// its bytes and inodes. When its processes have ended, this lasts only while the pool's signal rises. At a hard threshold, its
// grace period ends, unless an operator has protected the pod since.
func (g *Manager) freedWithOther(ctx context.Context, now time.Duration, due []policy.Met, p *api.Pass) bool {
	lack := slices.MaxFunc(due, func(a, b policy.Met) int { return cmp.Compare(a.Lack, b.Lack) }).Lack
	for _, f := range g.flights {
		if !f.awaitedOn(due[0].Signal, g.kernel.Layout()) || f.ended != 0 && f.still(due[0].Signal, now) >= diskStill {
			continue
		}
		if !f.resumed && g.yield(f, due[0].Signal) < lack { // what the pod used is not known to the next run of the service
			continue
		}
		if due[0].Kind == policy.Hard && f.stop.Kind == policy.Soft && f.ended == 0 {
			if pod := inventory.ByID(g.runtime.Inventory(ctx, 0).Pods, f.order.Pod.ID); pod != nil && pod.Protection != "" {
				continue
			}
			g.escalate(f, due[0].Signal, now, p)
		}
		return true
	}
	return false
}

// runs reports whether a pod has tasks, as far as that is known. One without a container has none, although its cgroup is
// not known.
func (g *Manager) runs(pod *inventory.Pod) bool {
	return len(pod.Containers) > 0 && g.kernel.Remaining(*pod, policy.PoolPIDs) != policy.Known(0)
}

// report records the outcome of a stop, unless that was done, perhaps by an earlier run of the service.
func (g *Manager) report(f *flight, res *api.StopResult, p *api.Pass) {
	g.unsaved = true
	if view := *f.view; !f.resumed || view.Pass != 0 {
		view.Result = res
		p.Settled = append(p.Settled, view)
	}
}

// begin takes a token from the budget and starts the stop, unless something holds it back.
func (g *Manager) begin(ctx context.Context, c choice, p *api.Pass) outcome {
	now, m, v, st := c.at, c.Met, c.Victim, &g.pools[c.Pool]
	pod := inventory.ByID(c.pods, v.ID)
	f := g.flightOf(v.ID)
	if f != nil && (!f.stop.Over || c.Pool.IsDisk() || g.enforced != nil) {
		// It is already being stopped for another reason.
		if m.Kind == policy.Hard {
			g.escalate(f, m.Signal, now, p)
		}
		long := m.Kind == policy.Soft && time.Duration(f.view.Grace) > g.cfg.Eviction.MaxPodGracePeriod
		free := !f.stop.Over && (!f.awaited || f.stop.Cause == policy.CauseLimit && f.stop.Pool.IsDisk() && !c.Pool.IsDisk()) // memory comes first
		g.discard(f, v, m.Signal)
		if f.awaited && f.stop.Pool == c.Pool {
			st.flight = f // the pool has chosen it again
		} else if free && !long {
			if f.awaited {
				g.pools[f.stop.Pool].flight = nil
				g.awaitDisk(f, f.stop.OwnWait())
				g.invalidateReclaims(f.stop.Pool)
			}
			f.stop.Kept = v.Kept
			g.await(f, c.Pool, m, v.Yield) // the grace period of a stop of its own would not be longer
		} else if c.Pool.IsDisk() {
			g.awaitDisk(f, policy.Wait{Pool: c.Pool, Signal: m.Signal, Available: g.obs[m.Signal].Free(), Expected: v.Yield})
		}
		return heldBy(api.HeldInFlight)
	}
	stop := policy.Stop{
		Workload: v.Workload, Sandbox: v.ID, Created: v.Created, Cause: policy.CausePressure, Kind: m.Kind, Pool: c.Pool, Signal: m.Signal,
		Kept: v.Kept, Expected: v.Yield, Need: c.Need, Outside: g.outside(&c, m.Signal), CameBack: v.CameBack, Culprit: c.Why == policy.ByCulprit,
	}
	if held := g.restraint.Check(&stop, now); held.By != "" {
		return outcome{held: held}
	}
	if slices.Contains(st.observed, pod.ID) {
		return heldBy(api.HeldObserve) // already reported in this episode
	}
	if g.asksFleet(&stop) {
		if held := g.fleet.Permit(&stop); held.By != "" {
			return outcome{held: held}
		} else if len(g.stillMet(m)) == 0 {
			return outcome{unneeded: true} // the permit stays unused
		}
	}
	var unlisted []string
	if again, listed, late := g.renewed(ctx, pod); listed {
		met := g.stillMet(m) // listing took time
		if again == nil || again.Protection != "" || len(met) == 0 {
			return outcome{unneeded: true}
		}
		if g.asksFleet(&stop) {
			if held := g.fleet.Permit(&stop); held.By != "" { // the permit has expired meanwhile
				return outcome{held: held}
			}
		}
		if pod = again; late { // the runtime cannot list them, but they belong to the pod
			unlisted = g.kernel.UnlistedIn(*pod)
		}
	}
	view := api.StopView{
		Signal: m.Signal.String(), Kind: m.Kind.String(),
		Available: g.obs[m.Signal].Available, Expected: v.Yield,
	}
	if m.Kind == policy.Soft {
		view.Grace = api.Duration(min(g.cfg.Eviction.MaxPodGracePeriod, pod.Grace))
	}
	pod = new(*pod)
	pod.Disk, pod.Inodes, pod.KeepsVolumes = v.Disk, v.Inodes, v.KeepsVolumes // as measured for the ranking
	stop.LogsPlace, stop.Free = v.Disk.LogsPlace, g.obs[m.Signal].Free()
	order := g.orderFor(pod, m.Signal, m.Kind)
	order.Unlisted = unlisted
	if f != nil { // a container has started in it while disks wait for its files
		stop.Waits = g.takeWaits(f)
	}
	if st.flight = g.launch(ctx, now, &flight{view: &view, stop: stop, since: m.Since, order: order, awaited: true}, p); st.flight == nil {
		st.observed = append(st.observed, pod.ID)
	}
	p.Stop.Reason = reason(&c.Decision, now) // format the reason after the kill
	return outcome{begun: true}
}

// renewed returns the pod itself or, if a container has started in it since the listing, perhaps in place of a listed one, the
// pod by another listing (listed), nil if it is gone: a stop would kill the wrong containers, and without their grace period. One that
// another listing lacks, too, may never be listed. late means that the runtime did not list the pods in time.
func (g *Manager) renewed(ctx context.Context, pod *inventory.Pod) (again *inventory.Pod, listed, late bool) {
	if len(g.kernel.UnlistedIn(*pod)) == 0 {
		return pod, false, false
	}
	id, asked := pod.ID, g.kernel.Now()
	g.relist(ctx, func(inv inventory.Inventory) bool {
		again, late = inventory.ByID(inv.Pods, id), inv.Err != nil || inv.At < asked
		return again != nil && len(g.kernel.UnlistedIn(*again)) > 0
	})
	return again, true, late
}

// asksFleet reports whether a stop needs a permit, as those for soft thresholds and limits do. Observe mode makes none.
func (g *Manager) asksFleet(s *policy.Stop) bool {
	gentle := s.Cause == policy.CauseLimit || s.Cause == policy.CausePressure && s.Kind == policy.Soft
	return gentle && g.fleet != nil && g.cfg.Mode == config.ModeEnforce
}

// orderFor returns the order to stop a pod for a threshold of that signal. The stop also removes what the pod leaves on another
// disk that is short: a reclaim does that only when the runtime has stopped the sandbox, and another pod may be stopped before.
func (g *Manager) orderFor(pod *inventory.Pod, s policy.Signal, kind policy.Kind) StopOrder {
	o := StopOrder{Pod: *pod, Direct: kind == policy.Hard && g.killsDirectly(s)}
	g.discardOn(&o, s)
	for _, m := range g.pressure.Met {
		if m.Due {
			g.discardOn(&o, m.Signal)
		}
	}
	return o
}

// discardOn adds what the pod leaves on the device of a disk signal or in memory, also if nothing else removes containers
// ([containers] gc).
func (g *Manager) discardOn(o *StopOrder, s policy.Signal) {
	l := g.kernel.Layout()
	o.Discard = o.Discard || l.SameDevice(s, policy.ContainerFSAvailable) || l.Pool(s) == policy.PoolMemory && g.kernel.LayersInMemory()
	o.DiscardLogs = o.DiscardLogs || o.Pod.Disk.LogsOn(s, l)
}

// discard makes a stop whose pod a signal has chosen, too, remove what the pod leaves there, as a stop of its own would.
func (g *Manager) discard(f *flight, v *policy.Ranked, s policy.Signal) {
	if g.kernel.Layout().Pool(s).IsDisk() {
		pod := &f.order.Pod
		pod.Disk, pod.Inodes, pod.KeepsVolumes = v.Disk, v.Inodes, v.KeepsVolumes // as measured for the ranking
	}
	o := f.order
	g.discardOn(&o, s)
	if g.enforced == nil && (o.Discard != f.order.Discard || o.DiscardLogs != f.order.DiscardLogs) {
		f.order = o
		f.job.Discard(o.Discard, o.DiscardLogs)
	}
}

// launch records a stop and starts its job. In observe mode, it only records the stop and returns nil.
func (g *Manager) launch(ctx context.Context, now time.Duration, f *flight, p *api.Pass) *flight {
	f.view.DryRun = g.cfg.Mode == config.ModeObserve
	f.stop.Over, f.stop.Judged = f.view.DryRun, f.view.DryRun
	if p.ID == 0 {
		p.ID = g.NextID()
	}
	f.stop.Pass, f.stop.Pod, f.stop.UID = p.ID, f.order.Pod.FullName(), f.order.Pod.UID
	f.stop.At, f.stop.Grace, f.stop.Available = now, time.Duration(f.view.Grace), f.view.Available
	if f.stop.Cause != policy.CausePressure {
		f.stop.Name = f.view.Signal
	}
	g.supersede(f.order.Pod.ID, now, p)
	if backoff := g.restraint.Begin(f.stop, now); f.stop.Workload != "" {
		f.view.Backoff = api.Duration(backoff)
	}
	p.Stop, g.unsaved = f.view, true
	f.view.Pod, f.view.UID, f.view.Sandbox, f.view.Workload = f.order.Pod.FullName(), f.order.Pod.UID, f.order.Pod.ID, f.stop.Workload
	if f.view.DryRun {
		return nil
	}
	f.view.Pass, f.order.Grace = p.ID, time.Duration(f.view.Grace)
	g.start(ctx, f)
	return f
}

// start starts the job of a stop.
func (g *Manager) start(ctx context.Context, f *flight) {
	f.order.Fallback = g.cfg.Eviction.DirectKill != config.DirectKillNever
	f.launched = g.kernel.Now()
	f.job = g.stopper.Stop(ctx, f.order)
	g.flights = append(g.flights, f)
}

// relieving reports whether a stop is in flight that criguard decided on or that a pool waits for. An
// operator's other stops relieve nothing, and their grace periods may be long.
func (g *Manager) relieving() bool {
	return slices.ContainsFunc(g.flights, func(f *flight) bool { return f.awaited || f.stop.Over || !f.stop.Cause.ByOperator() })
}

// flightOf returns the stop in flight of a sandbox, or nil.
func (g *Manager) flightOf(sandbox string) *flight {
	for _, f := range g.flights {
		if f.order.Pod.ID == sandbox {
			return f
		}
	}
	return nil
}
