package eviction

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// takeOverWithin is how long after its grace period a stop that an earlier run of the service began is still
// continued, except on a disk. Later, its sandbox is chosen again, or another one.
const takeOverWithin = 10 * time.Second

// takeOver continues the stop of an earlier run of the service that a pool waits for, with the rest of its grace
// period: the run may have ended before the stop reached a single process, and stopping what has ended does no
// harm. takeOver records what became of a stop that ended without the service, or that is not needed any more.
func (g *Manager) takeOver(ctx context.Context, now time.Duration, i policy.Pool, p *api.Pass) {
	s := g.restraint.Unfinished(i)
	if s == nil || g.flightOf(s.Sandbox) != nil {
		return
	}
	inv := g.runtime.Inventory(ctx, 0)
	if inv.At < 0 {
		return
	}
	f := resume(s)
	age, within := now-s.At, takeOverWithin
	if i.IsDisk() {
		within = diskEffectWait
	}
	res := api.StopResult{Available: g.obs[s.Signal].Available, SettledIn: api.Duration(age)}
	pod := inventory.ByID(inv.Pods, s.Sandbox)
	protected := isProtected(pod)
	hard := slices.ContainsFunc(g.dueOf(&g.pressure, i), func(m policy.Met) bool { return m.Kind == policy.Hard && !g.canWait(m) })
	switch {
	case pod == nil, !g.runs(pod) && (protected || age >= s.Grace+within):
		if i.IsDisk() && age < s.Grace+diskRisingWait { // its files may still be being deleted
			f.order.Pod.ID, f.awaited, f.job, f.launched = s.Sandbox, true, emptied{}, now
			g.follow(f, min(s.At+s.Grace, now), now)
			g.pools[i].flight, g.flights = f, append(g.flights, f)
			return
		}
		if g.endedWithout(f, &res, p); age < s.Grace+within {
			g.gaveUnseen(f, now)
		}
		return
	case protected && pod.Protection == inventory.ProtectedUnclassified && age < s.Grace+within && !hard:
		return // until the runtime says what it is
	case protected:
		res.Errors = []string{protectedSince + pod.Protection}
	case s.Cause == policy.CausePressure && s.Kind == policy.Hard && g.runs(pod) && !g.isDue(i) &&
		!slices.ContainsFunc(s.Waits, func(w policy.Wait) bool { return g.isDue(w.Pool) }):
		if age < s.Grace+within {
			return // the kernel may still be ending its processes: if a threshold is met before they are gone, no other pod is stopped
		}
		res.Errors = []string{"not continued: no threshold is met any more"}
	case age < s.Grace+within:
		pod = new(*pod)
		pod.Disk.LogsPlace = s.LogsPlace // its disks are not measured yet
		f.order = g.orderFor(pod, s.Signal, s.Kind)
		f.order.Grace = max(s.Grace-age, 0)
		if f.awaited = i.IsDisk() || g.runs(pod) && g.kernel.Remaining(*pod, i) != policy.Known(0); f.awaited {
			g.pools[i].flight = f
		} else { // only the sandbox itself is left to stop
			g.gaveUnseen(f, now)
		}
		g.start(ctx, f)
		return
	default:
		res.Errors = []string{endedTooLate}
	}
	g.giveUp(f, &res, p)
}

// isDue reports whether a threshold of a pool is due, and cannot wait.
func (g *Manager) isDue(i policy.Pool) bool {
	due := g.dueOf(&g.pressure, i)
	return len(due) > 0 && !g.canWait(due[0])
}

// Why a stop of an earlier run of the service is not continued.
const (
	protectedSince = "protected since: "
	superseded     = "not continued: the pod is stopped for another reason"
	endedTooLate   = "the service was not running when the stop should have ended"
)

// takeOverOrdered is takeOver for the stops that no pool waits for: no threshold decides whether they are still needed.
func (g *Manager) takeOverOrdered(ctx context.Context, now time.Duration, p *api.Pass) {
	for _, s := range g.restraint.Ordered() {
		if g.flightOf(s.Sandbox) != nil {
			continue
		}
		inv := g.runtime.Inventory(ctx, 0)
		if inv.At < 0 {
			return
		}
		f, age, pod := resume(&s), now-s.At, inventory.ByID(inv.Pods, s.Sandbox)
		res := api.StopResult{SettledIn: api.Duration(age)}
		late := age >= s.Grace+takeOverWithin
		switch {
		case pod == nil, !g.runs(pod) && (isProtected(pod) || late):
			g.endedWithout(f, &res, p)
			continue
		case isProtected(pod) && pod.Protection == inventory.ProtectedUnclassified && !late:
			continue // as above
		case isProtected(pod):
			res.Errors = []string{protectedSince + pod.Protection}
		case late:
			res.Errors = []string{endedTooLate}
		default:
			f.order = StopOrder{Pod: *pod}
			if s.Released {
				f.order.Pod.Disk.LogsPlace = s.LogsPlace
				f.order = g.orderFor(&f.order.Pod, s.Signal, s.Kind)
			}
			f.order.Grace = max(s.Grace-age, 0)
			g.start(ctx, f)
			continue
		}
		g.giveUp(f, &res, p)
	}
}

// resume returns the flight of a stop that an earlier run of the service began, without its order.
func resume(s *policy.Stop) *flight {
	signal, kind := s.Signal.String(), s.Kind.String()
	if s.Cause != policy.CausePressure {
		kind = string(s.Cause)
		signal = cmp.Or(s.Name, kind)
	}
	return &flight{stop: *s, resumed: true, view: &api.StopView{
		Pass: s.Pass, Pod: s.Pod, UID: s.UID, Sandbox: s.Sandbox, Workload: s.Workload, Signal: signal, Kind: kind,
		Grace: api.Duration(s.Grace), Reason: "begun by an earlier run of the service", Available: s.Available, Expected: s.Expected,
	}}
}

// isProtected reports whether a listed pod has been protected since its stop began. Without containers, a pod may only seem to be.
func isProtected(pod *inventory.Pod) bool {
	return pod != nil && pod.Protection != "" && (len(pod.Containers) > 0 || pod.Protection != inventory.ProtectedUnclassified)
}

// endedWithout records a stop whose pod has ended without this run of the service.
func (g *Manager) endedWithout(f *flight, res *api.StopResult, p *api.Pass) {
	res.Emptied, res.Method, res.Freed = true, string(reclaim.ByRuntime), f.stop.Expected
	g.restraint.End(f.stop.Sandbox, res.Freed)
	g.report(f, res, p)
}

// gaveUnseen notes what a stop has given back, unless the earlier run of the service did. A pod that has taken it meanwhile is the one that
// fills its pool.
func (g *Manager) gaveUnseen(f *flight, now time.Duration) {
	if f.stop.Pass != 0 {
		g.gave(f.stop.Pool, f.stop.Expected, now)
	}
}

// giveUp records a stop that is not continued: it killed nothing.
func (g *Manager) giveUp(f *flight, res *api.StopResult, p *api.Pass) {
	res.NotContinued = true
	g.report(f, res, p)
	g.restraint.Undo(f.stop.Sandbox)
}

// supersede gives up a sandbox's stop of an earlier run of the service that is not continued yet, before a stop for another reason.
func (g *Manager) supersede(sandbox string, now time.Duration, p *api.Pass) {
	for i := range policy.PoolCount {
		if s := g.restraint.Unfinished(i); s != nil && s.Sandbox == sandbox && g.flightOf(sandbox) == nil {
			res := api.StopResult{Available: g.obs[s.Signal].Available, SettledIn: api.Duration(now - s.At), Errors: []string{superseded}}
			g.giveUp(resume(s), &res, p)
		}
	}
}
