package eviction

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// How long a stop's effect is waited for after the pod's processes have ended. A disk recovers long after
// that: the runtime must be asked to delete the files and may have to delete gigabytes, and containerd
// reports a container as removed before it begins to delete its files.
const (
	chargeStill     = 50 * time.Millisecond // for how long the memory of the pod has stopped falling
	sharedStill     = time.Second           // the same, while most of it waits for the runtime to unmount or remove its files
	diskEffectWait  = 30 * time.Second
	diskRisingWait  = 10 * time.Minute // while free space still rises: millions of files take a slow disk minutes
	diskStill       = 5 * time.Second  // for how long free space has stopped rising
	failedStill     = time.Second      // the same after a stop that has failed
	survivedPenalty = time.Minute      // a sandbox whose stop killed nothing is no candidate
	unmountWait     = time.Minute      // for the runtime to confirm a stop that is over, and to unmount the pod's files in memory
)

// effect is what can be observed of a stop whose processes have ended.
type effect struct {
	left  int64                            // what the pod's cgroups still held at the last reading
	fell  time.Duration                    // when that last fell
	rises [policy.SignalCount]reclaim.Rise // for disks
	peaks [policy.SignalCount]int64        // for disks: the most that was free
}

// isOver reports whether the stop has taken effect for its pool or had enough time to, and what came back from the pod.
// The node's signal does not matter: another leak may have taken what came back, and then it is next.
func (g *Manager) isOver(f *flight, out *StopOutcome, now time.Duration) (over bool, back int64) {
	switch {
	case !f.awaited:
		return true, f.stop.Expected
	case f.stop.Pool.IsDisk():
		return g.isDiskOver(f, f.stop.OwnWait(), out, now)
	}
	e := &f.effect
	left := g.kernel.Remaining(f.order.Pod, f.stop.Pool)
	if !left.Known {
		return true, f.stop.Expected
	}
	if f.stop.Pool == policy.PoolMemory {
		left.Value = max(left.Value-f.stop.Kept, 0)
	}
	if left.Value < e.left {
		e.left, e.fell = left.Value, now
	}
	still := chargeStill
	// What the runtime confirms of a sandbox says nothing of another one of the pod, whose containers it does not list.
	confirmed := out.Result.Confirmed && len(f.order.Unlisted) == 0
	removes := out.Shared && f.order.Discard && g.kernel.LayersInMemory() // with the containers, whatever it confirms of the sandbox
	comes := removes || !confirmed && (out.Shared || len(g.kernel.UnlistedIn(f.order.Pod)) > 0)
	if comes && e.left > f.stop.Expected/2 {
		still = sharedStill // the runtime ends what has started in the sandbox meanwhile, as it unmounts its files
	}
	over = e.left == 0 || now-e.fell >= still || now-f.ended >= g.cfg.Eviction.StopTimeout
	return over, max(f.stop.Expected-e.left, 0)
}

// isDiskOver is isOver for a disk. A pod that fills it keeps writing while it is measured, so it may have
// used more than expected. So while free space still rises on a device that is short, in bytes or inodes,
// the effect is not final.
func (g *Manager) isDiskOver(f *flight, w policy.Wait, out *StopOutcome, now time.Duration) (over bool, back int64) {
	layout, waited := g.kernel.Layout(), now-f.ended
	still, short := waited, false
	for _, m := range g.pressure.Met {
		if !layout.SameDevice(w.Signal, m.Signal) {
			continue
		}
		short = true
		still = min(still, f.still(m.Signal, now))
	}
	peak := &f.effect.peaks[w.Signal]
	*peak = max(*peak, g.obs[w.Signal].Free()) // another writer may have taken what came back
	back = min(max(*peak-w.Available, 0), w.Expected)
	if out.Returned {
		return true, w.Expected
	}
	if short && still < diskStill {
		return waited >= diskRisingWait, back
	}
	return waited >= diskEffectWait || back >= w.Expected-w.Expected/5 && (!short || w.Expected > 0), back
}

// stillRises reports whether a disk that waits for a stop is short, and its free space rises: a stop that has failed may have ended
// some of the pod's containers, whose files are being deleted.
func (g *Manager) stillRises(f *flight, now time.Duration) bool {
	return f.awaited && f.stop.Pool.IsDisk() && slices.ContainsFunc(g.pressure.Met, func(m policy.Met) bool {
		return g.kernel.Layout().SameDevice(f.stop.Signal, m.Signal) && f.still(m.Signal, now) < failedStill
	})
}

// Slept is called before the first pass after the machine slept, with how long. Nothing grows and nothing comes back meanwhile.
func (g *Manager) Slept(d time.Duration) {
	g.samples.Slept(d, g.kernel.Now())
	for _, f := range g.flights {
		f.delay(d)
	}
	for _, f := range g.unconfirmed {
		if !slices.Contains(g.flights, f) { // a disk may still wait for it
			f.delay(d)
		}
	}
	for i := range g.pools {
		g.pools[i].reclaim.delay(d)
	}
}

// settle checks the stops in flight and records those that are over.
func (g *Manager) settle(now time.Duration, p *api.Pass) {
	g.unconfirmed = slices.DeleteFunc(g.unconfirmed, func(f *flight) bool { return g.unmounted(f, now) })
	g.flights = slices.DeleteFunc(g.flights, func(f *flight) bool { return g.settled(f, now, p) })
}

// gave notes that a stop has given back an amount of a pool, also for a run that follows: otherwise, that would take what fills the pool
// again for what comes back.
func (g *Manager) gave(i policy.Pool, amount int64, now time.Duration) {
	g.samples.Gave(i, amount, now)
	g.sampled = true
}

// unmounted notes how much of the memory that a stop left has come back since, and reports whether no more will.
func (g *Manager) unmounted(f *flight, now time.Duration) bool {
	confirmed := f.job.Outcome().Result.Confirmed // before the reading
	if left := g.kernel.Remaining(f.order.Pod, policy.PoolMemory); left.Known {
		g.unsaved = g.Enforced().Left(f.order.Pod.ID, left.Value) || g.unsaved
	}
	return confirmed || now-f.ended >= unmountWait
}

// settled reports whether a stop is over for its own pool and for the disks that wait for it, too.
func (g *Manager) settled(f *flight, now time.Duration, p *api.Pass) bool {
	select {
	case <-f.job.Done():
	default:
		return false
	}
	out := f.job.Outcome()
	if f.ending && !out.Result.Emptied {
		return false // the next run of the service takes it over
	}
	if f.ended == 0 {
		if len(f.stop.Waits) > 0 {
			g.invalidateReclaims(policy.PoolNodeBytes)
		}
		g.follow(f, now, now)
	}
	for _, m := range g.pressure.Met {
		f.effect.rises[m.Signal].See(now, g.obs[m.Signal].Free(), m.Deficit/100)
	}
	if !f.stop.Over && g.settledForPool(f, &out, now, p) {
		f.stop.Over, f.awaited = true, false
	}
	for _, w := range f.stop.Waits {
		if over, _ := g.isDiskOver(f, w, &out, now); over {
			g.endWait(f, w.Pool)
			g.invalidateReclaims(w.Pool)
		}
	}
	return !f.stop.Pending()
}

// settledForPool reports whether a stop is over for its own pool, and records its outcome then.
func (g *Manager) settledForPool(f *flight, out *StopOutcome, now time.Duration, p *api.Pass) bool {
	over, back := g.isOver(f, out, now)
	killed := (!out.Nothing || f.resumed) && (out.Result.Emptied || !f.awaited)
	if !over && !f.ending && (killed || !out.Nothing && g.stillRises(f, now)) {
		return false
	}
	if !killed || f.stop.Cause.ByOperator() { // a drained sandbox may stay listed for a while
		remember(g.survived, f.order.Pod.ID, now)
	}
	if out.Result.Emptied {
		maps.DeleteFunc(g.emptied, func(_ string, e emptiedPod) bool { return e.at+survivedPenalty <= now && e.at < g.listed })
		g.emptied[f.order.Pod.ID] = emptiedPod{f.order.Pod, now}
	}
	r := g.Enforced() // observe mode has no stops in flight
	switch {
	case f.ending && (f.awaited || !f.stop.Cause.ByOperator()): // the next run of the service waits for the effect
		r.Report(f.order.Pod.ID)
	case out.Nothing && !f.resumed:
		r.Undo(f.order.Pod.ID)
	case r.EndWait(f.order.Pod.ID, f.stop.Pool): // an earlier run of the service saw that it was over for its pool
	default:
		if r.End(f.order.Pod.ID, back); out.Shared && !out.Result.Confirmed && f.stop.Pool == policy.PoolMemory {
			g.unconfirmed = append(g.unconfirmed, f)
		}
	}
	if f.awaited {
		if st := &g.pools[f.stop.Pool]; st.flight == f {
			st.flight = nil
		}
		if f.stop.Pool == policy.PoolMemory && back > 0 {
			g.kernel.ForgetStalls() // the window still has the stall that the pod caused, and another pod would be stopped for it
		}
		g.gave(f.stop.Pool, back, now)
		g.invalidateReclaims(f.stop.Pool)
	}
	if f.stop.Cause == policy.CauseLimit {
		g.invalidateReclaims(policy.PoolNodeBytes) // what it has given back of the disks may be enough
	}
	res := out.Result
	res.Available, res.SettledIn, res.Freed = g.obs[f.stop.Signal].Available, api.Duration(now-f.stop.At), back
	if f.resumed {
		res.EmptiedIn += api.Duration(f.launched - f.stop.At)
	} else if f.stop.Cause == policy.CausePressure && res.Emptied {
		res.DeadIn = api.Duration(f.launched-f.since) + res.EmptiedIn
	}
	g.report(f, &res, p)
	return true
}

// yield returns what a stop in flight gives back of a signal, as its pod was measured when the stop began.
func (g *Manager) yield(f *flight, s policy.Signal) int64 {
	return policy.Rank([]policy.Candidate{f.order.Pod.Candidate}, s, g.kernel.Layout(), nil)[0].Yield
}

// await lets a pool wait for a stop of another cause as for one of its own: while what it gives back is not there yet, the pool
// would choose another pod.
func (g *Manager) await(f *flight, i policy.Pool, m policy.Met, yield int64) {
	f.stop.Pool, f.stop.Signal, f.stop.Expected, f.stop.Available, f.since = i, m.Signal, yield, m.Available, m.Since
	f.stop.LogsPlace, f.stop.Free = f.order.Pod.Disk.LogsPlace, g.obs[m.Signal].Free()
	f.stop.EndWait(i)
	f.awaited, g.pools[i].flight, g.unsaved = true, f, true
	g.Enforced().Await(&f.stop) // the next run of the service waits for it, too
}

// awaitDisk notes that a disk has chosen the pod of a stop, too. When its processes have ended, the disk waits for what it leaves there.
func (g *Manager) awaitDisk(f *flight, w policy.Wait) {
	if f.ended != 0 && !f.hasEmptied() {
		return
	}
	known := slices.ContainsFunc(f.stop.Waits, func(o policy.Wait) bool { return o.Signal == w.Signal })
	g.unsaved = g.unsaved || !known
	f.stop.AwaitDisk(w)
	g.Enforced().AwaitDisk(f.stop.Sandbox, w)
	if f.ended != 0 {
		g.awaitFiles(f)
	}
}

// awaitedOn reports whether a pool of the device of that signal waits for a stop.
func (f *flight) awaitedOn(s policy.Signal, l policy.Layout) bool {
	return f.awaited && l.SameDevice(f.stop.Signal, s) ||
		f.ended != 0 && slices.ContainsFunc(f.stop.Waits, func(w policy.Wait) bool { return l.SameDevice(w.Signal, s) })
}

// hasEmptied reports whether a stop whose job is done has ended the pod's processes.
func (f *flight) hasEmptied() bool {
	out := f.job.Outcome()
	return out.Result.Emptied && (!out.Nothing || f.resumed)
}

// awaitFiles lets the disks that have chosen the pod of a stop, whose job is done, wait for the files that it leaves, if they still
// need that.
func (g *Manager) awaitFiles(f *flight) {
	for _, w := range f.stop.Waits {
		st := &g.pools[w.Pool]
		short := g.obs[w.Signal].Status != policy.OK || len(g.metOf(&g.pressure, w.Pool)) > 0 // one that is not read yet may be
		if st.flight == nil && f.hasEmptied() && short {
			st.flight = f
		}
		if st.flight != f {
			g.endWait(f, w.Pool)
		}
	}
}

// endWait ends the wait of a disk for a stop.
func (g *Manager) endWait(f *flight, i policy.Pool) {
	if st := &g.pools[i]; st.flight == f {
		st.flight = nil
	}
	f.stop.EndWait(i)
	g.unsaved = g.Enforced().EndWait(f.stop.Sandbox, i) || g.unsaved
}

// takeWaits ends a stop that is over for its own pool, and returns the waits of the disks, for another stop of the pod.
func (g *Manager) takeWaits(f *flight) []policy.Wait {
	waits := f.stop.Waits
	for _, w := range waits {
		g.endWait(f, w.Pool)
		g.invalidateReclaims(w.Pool)
	}
	g.flights = slices.DeleteFunc(g.flights, func(o *flight) bool { return o == f })
	return waits
}

// follow begins to follow the effect of a stop whose processes ended at that time.
func (g *Manager) follow(f *flight, ended, now time.Duration) {
	f.ended, f.effect = ended, effect{left: math.MaxInt64, fell: now} // the pod may have grown past what was expected
	for s := range policy.SignalCount {
		f.effect.rises[s] = reclaim.Rise{Highest: g.obs[s].Free(), At: now}
	}
	g.awaitFiles(f)
}

// emptiedPod is a pod that a stop has emptied, as it was when the stop began, and when it was over. A container that is not among
// those of then has started since.
type emptiedPod struct {
	pod inventory.Pod
	at  time.Duration
}

// emptied is the job of a stop whose processes ended while the service was not running.
type emptied struct{}

func (emptied) Done() <-chan struct{}   { return Finished{}.Done() }
func (emptied) Escalate(bool, []string) {}
func (emptied) Discard(_, _ bool)       {}
func (emptied) Outcome() StopOutcome {
	return StopOutcome{Result: api.StopResult{Emptied: true, Method: string(reclaim.ByRuntime)}}
}

// still returns for how long a signal has not risen since the pod's processes ended.
func (f *flight) still(s policy.Signal, now time.Duration) time.Duration {
	return now - f.effect.rises[s].At
}

// delay moves the times since which the effect has been followed.
func (f *flight) delay(by time.Duration) {
	if f.ended == 0 {
		return
	}
	f.ended, f.effect.fell = f.ended+by, f.effect.fell+by
	for s := range f.effect.rises {
		f.effect.rises[s].At += by
	}
}

// remember adds a sandbox for survivedPenalty, and drops those whose time is over.
func remember(until map[string]time.Duration, sandbox string, now time.Duration) {
	maps.DeleteFunc(until, func(_ string, end time.Duration) bool { return end <= now })
	until[sandbox] = now + survivedPenalty
}

// Conclude settles the stops whose jobs are done, without waiting for their effect. It leaves stops that the
// end of the service cuts short to the next run.
func (g *Manager) Conclude() api.Pass {
	p := api.Pass{At: api.Duration(g.kernel.Now()), Wake: "end", Conditions: g.pressure.Conditions}
	g.kernel.Observe(&g.obs)
	for _, f := range g.flights {
		f.ending = true
	}
	g.settle(time.Duration(p.At), &p)
	p.ID = g.NextID()
	return p
}
