package guard

import (
	"context"
	"time"

	"github.com/criguard/criguard/policy"
)

// Kernel is what a pass asks of the node: the time and fresh readings.
type Kernel interface {
	// Now is the time since boot (CLOCK_BOOTTIME): wall-clock jumps do not show.
	Now() time.Duration
	// Observe reads every signal afresh. A signal that cannot be read is marked
	// failed and leaves the others alone.
	Observe(*policy.Observations)
	// Layout tells which of nodefs, imagefs and containerfs share a device.
	Layout() policy.Layout
	// Measure fills in what each candidate uses of the signal's resource, as far
	// as that can be read without the runtime. It reports strangers, and what the
	// largest uses: pods that run but are not among the candidates, and for a disk
	// those that a reclaim has not measured. Those that have outlived a listing a moment ago, as
	// Outlived told, count in what the largest uses alone.
	Measure([]policy.Candidate, []Pod, policy.Signal) (largest int64, strangers bool)
	// Outlived tells that the runtime was asked between the last two times that strangers were looked
	// for: those that were found both times are there although no listing has them.
	Outlived()
	// HasUnlisted reports whether a container of the pod runs that was not listed with it.
	HasUnlisted(Pod) bool
}

// Runtime gives the pods that run. It answers from memory; with fresh it asks
// the container runtime first, for as long as ctx allows.
type Runtime interface {
	Inventory(ctx context.Context, fresh bool) Inventory
}

// Reclaimer frees what nobody needs. The job runs beside the loop.
type Reclaimer interface {
	Reclaim(ctx context.Context, m policy.Met, layout policy.Layout, pods []Pod) ReliefJob
}

// Stopper stops one sandbox. The job runs beside the loop.
type Stopper interface {
	Stop(ctx context.Context, order StopOrder) StopJob
}

// Guard decides and acts. It is used from one goroutine.
type Guard struct {
	cfg       Config
	kernel    Kernel
	runtime   Runtime
	reclaimer Reclaimer
	stopper   Stopper
	restraint *policy.Restraint

	state      policy.State
	obs        policy.Observations
	settings   policy.Settings
	thresholds []policy.Threshold
	derived    derivedFrom
	pressure   policy.Pressure
	condSince  map[policy.Condition]time.Duration
	// started is when this run of the service began. A condition of the run before it may
	// be in its transition period then.
	started time.Duration
	// eased: in the last pass a breaker closed or a hold-down ended.
	eased bool

	// enforced is the restraint of the stops that were made, while observe mode has one of
	// its own; nil = restraint is.
	enforced *policy.Restraint
	waits    [policy.SignalCount]wait

	pacer   pacer
	reliefs [policy.SignalCount]relief
	flights []*flight
	skip    map[string]time.Duration // sandboxes whose stop killed nothing: until when they are passed over
	// ordered are the sandboxes that were to be stopped in the last hour, and when.
	ordered map[string]time.Duration
	// inherited is until when a stop that an earlier run of the service began may
	// still show its effect, by signal.
	inherited [policy.SignalCount]time.Duration
	// observed is the sandbox that observe mode said it would stop, by signal,
	// since that was last clear.
	observed [policy.SignalCount]string
	seq      uint64
	// orders are what operators asked for. Of a drain: sandboxes that it stopped and
	// until when they are left alone, and whether it can go on at once.
	orders    Orders
	drained   map[string]time.Duration
	drainMore bool
}

// derivedFrom is what the derived thresholds depend on.
type derivedFrom struct {
	layout      policy.Layout
	allocatable bool
	valid       bool
}

// inheritedDisk is for how much longer a stop for a disk counts that an earlier run of the
// service began: what the pod left may have to wait for the next collection of dead containers.
const inheritedDisk = containersEvery

// New returns a guard that has observed nothing yet. The restraint may carry
// the budget of an earlier run of the service.
func New(cfg Config, k Kernel, rt Runtime, rc Reclaimer, st Stopper, restraint *policy.Restraint) *Guard {
	g := &Guard{
		kernel: k, runtime: rt, reclaimer: rc, stopper: st, restraint: restraint, started: k.Now(),
		condSince: map[policy.Condition]time.Duration{},
		skip:      map[string]time.Duration{},
		ordered:   map[string]time.Duration{},
		drained:   map[string]time.Duration{},
	}
	g.SetConfig(cfg)
	if last, ok := restraint.LastStop(); ok {
		for s := range policy.SignalCount {
			g.inherited[s] = last + policy.ReliefWait(s)
			if s.IsDisk() {
				g.inherited[s] += inheritedDisk
			}
		}
	}
	return g
}

// SetConfig puts another configuration in force from the next pass on. Grace
// periods and conditions that run go on.
func (g *Guard) SetConfig(cfg Config) {
	if g.cfg.Mode != cfg.Mode {
		g.changeMode(cfg.Mode)
	}
	g.cfg = cfg
	g.settings = policy.Settings{
		TransitionPeriod: cfg.Eviction.PressureTransitionPeriod,
		SoftForgive:      cfg.Eviction.SoftForgive,
		UnseenAtMost:     unseenAtMost,
		StallFloor:       cfg.Eviction.StallFloor,
	}
	g.restraint.Configure(cfg.Budget.Policy(), cfg.Backoff.Policy())
	g.derived.valid = false
}

// changeMode begins to make stops, or to say them only: what was done in the one way is not
// done in the other.
func (g *Guard) changeMode(to Mode) {
	if g.enforced != nil {
		g.restraint, g.enforced = g.enforced, nil
	}
	if to == ModeObserve {
		g.restraint, g.enforced = policy.NewRestraint(""), g.restraint
	}
	for s := range policy.SignalCount {
		g.observed[s], g.waits[s] = "", wait{}
		g.reliefs[s].spend()
		g.reliefs[s].told, g.reliefs[s].stale = false, true
	}
}

// Pass makes one round: observe, decide, relieve, stop. It returns what it saw
// and did; Pass.Notable tells whether that is worth recording.
func (g *Guard) Pass(ctx context.Context, wake string) Pass {
	now := g.kernel.Now()
	g.kernel.Observe(&g.obs)
	g.derive()
	before := g.pressure.Conditions
	g.state, g.pressure = policy.Evaluate(g.state, g.thresholds, g.settings, &g.obs, now)
	p := Pass{At: now, Wake: wake, Conditions: g.pressure.Conditions, Changed: g.pressure.Conditions != before}
	g.noteConditions(now)
	g.settle(now, &p)
	for s := range policy.SignalCount {
		g.harvest(now, s, &p)
	}
	g.drainMore = false
	if g.paused(now, &p) {
		g.waits = [policy.SignalCount]wait{}
		g.holdAll(&p)
	} else {
		g.relieveAndStop(ctx, now, &p)
	}
	if p.Notable() {
		g.seq++
		p.ID = g.seq
		p.observe(&g.obs, g.pressure)
		if p.Stop != nil && !p.Stop.DryRun {
			p.Stop.Pass = p.ID
		}
	}
	p.Took = g.kernel.Now() - now
	return p
}

// relieveAndStop does what this pass comes to.
func (g *Guard) relieveAndStop(ctx context.Context, now time.Duration, p *Pass) {
	if len(g.pressure.Met) > 0 {
		g.act(ctx, now, p)
	}
	if p.Stop == nil && len(g.flights) == 0 {
		g.enforce(ctx, now, p)
	}
	g.drain(ctx, now, p)
}

// derive adds the thresholds that follow from the node's layout, again when it
// has changed.
func (g *Guard) derive() {
	d := derivedFrom{layout: g.kernel.Layout(), valid: true}
	o := g.obs[policy.AllocatableMemoryAvailable]
	d.allocatable = o.Status != policy.Absent
	if d == g.derived {
		return
	}
	g.thresholds = policy.Derive(g.cfg.Eviction.Thresholds, d.layout, d.allocatable, g.cfg.Eviction.Off...)
	g.derived = d
}

// noteConditions remembers since when each condition holds, ends the hold-down for those
// that hold no more, and closes the breaker of signals that are clear. What an earlier run
// of the service left of either ends in the same way, with no pressure in this one.
func (g *Guard) noteConditions(now time.Duration) {
	g.eased = false
	for _, c := range policy.AllConditions() {
		_, held := g.condSince[c]
		switch {
		case g.pressure.Conditions.Has(c):
			if !held {
				g.condSince[c] = now
			}
		case held || now-g.started >= g.settings.TransitionPeriod:
			delete(g.condSince, c)
			g.eased = g.restraint.Ended(c) || g.eased
		}
	}
	var met, shared [policy.SignalCount]bool
	layout := g.kernel.Layout()
	for _, m := range g.pressure.Met {
		met[m.Signal] = true
		for s := range policy.SignalCount {
			shared[s] = shared[s] || layout.Shares(m.Signal, s)
		}
	}
	for s := range policy.SignalCount {
		if !met[s] && g.obs[s].Status == policy.OK {
			if !shared[s] { // or else the next stop for it would be one more of the same disk
				g.eased = g.restraint.Cleared(s) || g.eased
			}
			r := &g.reliefs[s]
			r.spend()
			r.told, r.stale = false, s.IsDisk()
			g.observed[s], g.waits[s] = "", wait{}
		}
	}
}

// judgeStop tells the breaker whether a stop moved its signal, and with it those that
// count the same: a disk that pods do not fill has one breaker, however many signals are
// about it.
func (g *Guard) judgeStop(signal policy.Signal, moved bool) {
	layout := g.kernel.Layout()
	for s := range policy.SignalCount {
		if layout.Shares(signal, s) {
			g.restraint.Judge(s, moved)
		}
	}
}

// act takes the met thresholds in their order and acts on the first that
// allows it. What holds one back never holds another.
func (g *Guard) act(ctx context.Context, now time.Duration, p *Pass) {
	for _, m := range g.pressure.Met {
		held := g.actOn(ctx, now, m, p)
		p.hold(m, held)
		if p.Stop != nil {
			p.Held = ""
			return
		}
	}
}

// actOn relieves one met threshold, gently first. It returns what held a stop
// back; "" when one was begun or none is needed any more.
func (g *Guard) actOn(ctx context.Context, now time.Duration, m policy.Met, p *Pass) string {
	if f := g.blocking(m); f != nil {
		if m.Kind == policy.Hard && m.Due && !m.WarnOnly {
			g.escalate(f, m.Signal, p)
			return g.stopCause(ctx, now, m, f, p)
		}
		return HeldInFlight
	}
	if now < g.inherited[m.Signal] {
		return HeldInFlight
	}
	if !m.Due {
		if m.WarnOnly {
			return HeldGrace
		}
		if held := g.stopReturned(ctx, now, m, p); held != "" {
			return held
		}
		if p.Stop != nil {
			return ""
		}
		return HeldGrace
	}
	if !g.relieve(ctx, now, m, p) {
		return HeldReclaiming
	}
	// Reclaiming and measuring took time: the signal is read again right before
	// anything is stopped, and it alone decides.
	g.kernel.Observe(&g.obs)
	if g.relieved(m) {
		g.reliefs[m.Signal].ready = false
		return ""
	}
	if m.Signal.IsDisk() && g.obs[m.Signal].At < g.reliefs[m.Signal].ended {
		return HeldReclaiming // the disk is slow: what was read is of before the reclaim ended
	}
	if m.WarnOnly {
		return HeldStallFloor
	}
	return g.stopFirst(ctx, now, m, p)
}

// relieved tells whether, as the signal was read last, nobody need be stopped for a
// met threshold: also when it could not be read.
func (g *Guard) relieved(m policy.Met) bool {
	o := g.obs[m.Signal]
	return o.Status != policy.OK || policy.Relieved(m.Threshold, o)
}
