package guard

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// Kinds of stop, beside the thresholds' hard and soft.
const (
	kindLimit     = "limit"
	kindAdmission = "admission"
)

// signalLimit is what a stop for a limit of storage is recorded under.
const signalLimit = "ephemeral-storage"

// StopOrder is one sandbox to stop.
type StopOrder struct {
	Pod   Pod
	Grace time.Duration // 0 = at once
	// Direct kills the container cgroups at once, without waiting for the
	// runtime; Fallback does so when the runtime has not confirmed in time.
	Direct, Fallback bool
	// Discard removes the dead containers, DiscardLogs their logs: on a pressed disk, what
	// they wrote is what the stop is for.
	Discard, DiscardLogs bool
}

// StopJob is a stop that runs beside the loop.
type StopJob interface {
	Done() <-chan struct{}
	// Escalate ends the grace period of a soft stop now; with direct, the container
	// cgroups are killed, too.
	Escalate(direct bool)
	// Outcome is what became of it; valid once Done is closed.
	Outcome() StopOutcome
}

// StopOutcome is what a stop job found.
type StopOutcome struct {
	Result   StopResult
	Nothing  bool // it killed nothing: the sandbox was gone, or could not be reached
	Returned bool // what the sandbox used is known to be back
}

// ineffective is how long a sandbox is passed over whose stop killed nothing.
const ineffective = time.Minute

// flight is a stop whose effect is not known yet.
type flight struct {
	view      *StopView // the pass's own
	kind      policy.Kind
	met       policy.Met
	workload  string
	started   time.Duration
	launched  time.Duration // when the job was started, after ranking
	job       StopJob
	escalated bool                     // it has no grace period any more
	direct    bool                     // its cgroups were killed without waiting for the runtime
	ended     time.Duration            // when the job was seen done; 0 = not yet
	rises     [policy.SignalCount]rise // since ended
	unawaited bool                     // the service ends: its effect is not waited for
}

// judged reports whether a signal asked for the stop, and says whether it helped.
func (f *flight) judged() bool {
	switch f.view.Kind {
	case kindAdmission, kindLimit, kindDrain:
		return false
	default:
		return true
	}
}

// escalate makes of a stop what a hard one for a signal would be, unless it is that already.
func (g *Guard) escalate(f *flight, s policy.Signal, p *Pass) {
	direct := g.killsDirectly(s)
	if f.ended != 0 || f.direct || !direct && (f.escalated || f.kind == policy.Hard) {
		return
	}
	f.escalated, f.direct = true, direct
	f.job.Escalate(direct)
	p.Escalated = f.view.Pod
}

// killsDirectly tells whether a hard stop for a signal does not wait for the runtime.
func (g *Guard) killsDirectly(s policy.Signal) bool {
	return g.cfg.Eviction.DirectKill == DirectKillHardMemory && s.Resource() == policy.ResourceMemory
}

// blocking returns the stop in flight that m has to wait for: any one, but that a soft
// stop never delays a hard one of another resource, unless what it left is being deleted from
// the same disk; one for a disk never a hard one of memory or PIDs, which do not wait for
// files to be deleted; and a drain delays nothing.
func (g *Guard) blocking(m policy.Met) *flight {
	layout := g.kernel.Layout()
	for _, f := range g.flights {
		if f.view.Kind == kindDrain {
			continue // nobody waits for what no pressure asked for
		}
		deleting := f.ended != 0 && layout.SameDevice(f.met.Signal, m.Signal)
		slow := f.kind == policy.Soft && f.met.Signal.Resource() != m.Signal.Resource() && !deleting ||
			f.met.Signal.IsDisk() && !m.Signal.IsDisk()
		if slow && m.Kind == policy.Hard {
			continue
		}
		return f
	}
	return nil
}

// ranking ranks the pods for a met threshold, with fresh usage. What the largest
// pod uses that runs and could not be listed, or not be measured, comes with it; 0 = none.
func (g *Guard) ranking(ctx context.Context, m policy.Met) (ranked []policy.Ranked, pods []Pod, stranger int64) {
	inv := g.runtime.Inventory(ctx, false)
	cs, stranger, strangers := g.measured(inv.Pods, m.Signal)
	ranked = g.ranked(cs, m.Signal, m.Deficit)
	if m.Signal.IsDisk() || !strangers && (len(ranked) == 0 || stranger <= ranked[0].Usage) {
		return ranked, inv.Pods, stranger
	}
	// Something runs that was not listed. To take a listed pod for it would
	// be a wrong stop: ask the runtime first.
	asked := g.kernel.Now()
	inv = g.runtime.Inventory(ctx, true)
	if cs, stranger, strangers = g.measured(inv.Pods, m.Signal); strangers && inv.At >= asked {
		g.kernel.Outlived() // it was listed indeed
	}
	// That took time: whether a stop is still needed, and what it frees, is
	// judged from here.
	g.kernel.Observe(&g.obs)
	return g.ranked(cs, m.Signal, m.Deficit), inv.Pods, stranger
}

// measured gives the pods as candidates, with what they use by now, and what the kernel
// tells of strangers.
func (g *Guard) measured(pods []Pod, s policy.Signal) (cs []policy.Candidate, stranger int64, strangers bool) {
	cs = candidates(pods)
	stranger, strangers = g.kernel.Measure(cs, pods, s)
	return cs, stranger, strangers
}

// ranked ranks candidates by the configuration's keys.
func (g *Guard) ranked(cs []policy.Candidate, s policy.Signal, deficit int64) []policy.Ranked {
	return policy.Rank(cs, s, g.kernel.Layout(), g.cfg.Rank.Keys(s.Resource()), deficit)
}

// stopFirst stops the sandbox that ranks first, unless something holds it back.
func (g *Guard) stopFirst(ctx context.Context, now time.Duration, m policy.Met, p *Pass) string {
	if held := g.restraint.Check(m.Kind, m.Signal, "", now); held.By == HeldBreaker {
		return held.By
	}
	ranked, pods, stranger := g.ranking(ctx, m)
	if g.relieved(m) {
		return ""
	}
	// The record is written once the stop has begun: it takes longer than to choose.
	defer func() { p.Ranked = rankedViews(ranked, pods) }()
	victim, held := policy.Choose(ranked, m.Deficit, g.restrains(m, now))
	if victim == nil {
		return g.heldBack(now, m, ranked, held, p)
	}
	if g.waits[m.Signal].caused(victim) == 0 {
		g.waits[m.Signal] = wait{} // it is over: who may be stopped is not held back
	}
	switch {
	case policy.Uncounted(ranked):
		return HeldUncounted
	case m.Signal.IsDisk() && !victim.Known && g.runtime.Inventory(ctx, false).Err != nil:
		return HeldUnlisted // who fills the disk is not known, and nobody would delete what a stopped pod left
	case stranger <= victim.Usage:
	case !m.Signal.IsDisk():
		return HeldUnlisted
	case g.remeasure(ctx, now, m, p):
		return HeldReclaiming
	}
	return g.begin(ctx, now, m, *victim, pods, p)
}

// stopReturned stops a workload that was stopped and has come back while the
// pressure goes on: it need not earn its place again, and no grace period runs
// for it.
func (g *Guard) stopReturned(ctx context.Context, now time.Duration, m policy.Met, p *Pass) string {
	if !g.restraint.AnyStopped() {
		return ""
	}
	ranked, pods, _ := g.ranking(ctx, m)
	if g.relieved(m) {
		return ""
	}
	standing := g.restrains(m, now)
	for i := range ranked {
		if ranked[i].Excluded != "" {
			break
		}
		if s := standing(&ranked[i]); !s.Returned || s.Passed || !ranked[i].Known || ranked[i].Frees <= 0 {
			continue
		} else if s.Held != "" {
			return s.Held
		}
		p.Ranked = rankedViews(ranked, pods)
		return g.begin(ctx, now, m, ranked[i], pods, p)
	}
	return ""
}

// begin takes a token from the budget and starts the stop.
func (g *Guard) begin(ctx context.Context, now time.Duration, m policy.Met, v policy.Ranked, pods []Pod, p *Pass) string {
	if held := g.restraint.Check(m.Kind, m.Signal, g.backingOff(&v), now); held.By != "" {
		g.waits[m.Signal] = wait{} // who the cause is decides nothing now
		return held.By
	}
	pod := podByID(pods, v.ID)
	if pod == nil {
		return HeldNoCandidate
	}
	if f := g.flightOf(v.ID); f != nil {
		// It is being stopped already, for something else.
		if m.Kind == policy.Hard {
			g.escalate(f, m.Signal, p)
		}
		return HeldInFlight
	}
	if g.cfg.Mode == ModeObserve {
		if g.observed[m.Signal] == pod.ID {
			return HeldObserve // it was said, and nothing has changed since
		}
		g.observed[m.Signal] = pod.ID
	}
	switch pod = g.current(ctx, *pod); {
	case pod == nil:
		return HeldNoCandidate
	case g.relieved(m):
		return ""
	}
	view := StopView{
		Pod: pod.FullName(), UID: pod.UID, Sandbox: pod.ID, Signal: m.Signal.String(), Kind: m.Kind.String(),
		Available: g.obs[m.Signal].Available, Expected: v.Frees,
	}
	if m.Kind == policy.Soft {
		view.Grace = min(g.cfg.Eviction.MaxPodGracePeriod, pod.Grace)
	}
	took, back := g.waits[m.Signal].caused(&v), time.Duration(0)
	if g.restraint.HoldDown(m.Signal, pod.Workload, v.Created) {
		back = now - g.restraint.Stopped(pod.Workload)
	}
	g.restraint.Take(m.Kind, m.Signal, pod.Workload, now)
	g.waits[m.Signal] = wait{}
	g.spendReliefs(m.Signal)
	victim := *pod
	victim.Disk = v.Disk // as it was measured
	g.launch(ctx, now, m, victim, view, p)
	p.Stop.Reason = reason(m, v, grounds(m, v, took, back), now) // words can wait until the kill is done
	return ""
}

// launch starts a stop job; in observe mode it only says so.
func (g *Guard) launch(ctx context.Context, now time.Duration, m policy.Met, pod Pod, view StopView, p *Pass) {
	view.DryRun = g.cfg.Mode == ModeObserve
	p.Stop = &view
	g.order(pod.ID, now)
	if view.DryRun {
		return
	}
	f := &flight{view: p.Stop, kind: m.Kind, met: m, workload: pod.Workload, started: now}
	order := StopOrder{Direct: m.Kind == policy.Hard && g.killsDirectly(m.Signal)}
	if f.judged() && m.Signal.IsDisk() {
		steps := g.cfg.steps(m.Signal, g.kernel.Layout())
		order.Discard, order.DiscardLogs = slices.Contains(steps, reclaim.StepContainers), slices.Contains(steps, reclaim.StepLogs) && !pod.Disk.LogsApart
	}
	g.fly(ctx, f, pod, order)
}

// order notes that a sandbox is to be stopped.
func (g *Guard) order(sandbox string, now time.Duration) {
	maps.DeleteFunc(g.ordered, func(_ string, at time.Duration) bool { return now-at > time.Hour })
	g.ordered[sandbox] = now
}

// fly starts the job of a stop.
func (g *Guard) fly(ctx context.Context, f *flight, pod Pod, o StopOrder) {
	o.Pod, o.Grace, o.Fallback = pod, f.view.Grace, g.cfg.Eviction.DirectKill != DirectKillNever
	f.direct, f.launched = o.Direct, g.kernel.Now()
	f.job = g.stopper.Stop(ctx, o)
	g.flights = append(g.flights, f)
}
