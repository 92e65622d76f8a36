package eviction

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// Kernel gives a pass the time and fresh readings of the node.
type Kernel interface {
	// Now returns the time since boot (CLOCK_BOOTTIME), which does not jump with the wall clock.
	Now() time.Duration
	// Observe reads every signal again. It marks a signal that cannot be read, without affecting the
	// others.
	Observe(*policy.Observations)
	// Layout returns which of nodefs, imagefs and containerfs share a device.
	Layout() policy.Layout
	// LayersInMemory reports whether what containers write to their layers is memory, as on a node whose root is a tmpfs.
	LayersInMemory() bool
	// Measure sets what each candidate uses, as far as it can be read without the runtime.
	Measure(cs []policy.Candidate)
	// DiskUsage returns what a sandbox uses of the disks as last measured, in bytes and in inodes, without reading its cgroups.
	DiskUsage(sandbox string) (bytes, inodes policy.DiskUsage)
	// CPUs returns how many CPUs the machine has: as many can fill the memory at once.
	CPUs() int
	// PodsMemory returns the working set of the pods cgroup, as of the last Observe.
	PodsMemory() policy.Amount
	// Remaining returns what a pod's cgroups still hold of a pool: what its stop has not given back.
	Remaining(pod inventory.Pod, p policy.Pool) policy.Amount
	// Unlisted reports whether pods run that are not listed or, for a disk signal, that no reclaim has
	// measured. largest is the highest usage among them, in the signal's unit. Pods that ConfirmUnlisted has
	// recently confirmed count only in largest.
	Unlisted(pods []inventory.Pod, s policy.Signal) (largest int64, found bool)
	// ConfirmUnlisted confirms the pods as unlisted that the last call of Unlisted found beside a listing which began at that
	// time, if an earlier call had found them.
	ConfirmUnlisted(listed time.Duration)
	// ForgetStalls makes the stall signals unknown until a whole window has been observed.
	ForgetStalls()
	// UnlistedIn returns the cgroups of the containers that the pod runs and that were not listed with it.
	UnlistedIn(inventory.Pod) []string
}

// Runtime lists the running pods. Inventory answers from memory. Before that, it waits for the next listing to end, the one in
// progress or another one, but not longer than wait. A slower listing is not canceled.
type Runtime interface {
	Inventory(ctx context.Context, wait time.Duration) inventory.Inventory
}

// Reclaimer frees a resource without stopping pods. The job runs beside the loop.
type Reclaimer interface {
	Reclaim(ctx context.Context, m policy.Met, layout policy.Layout, pods []inventory.Pod) ReliefJob
}

// Stopper stops one sandbox. The job runs beside the loop.
type Stopper interface {
	Stop(ctx context.Context, order StopOrder) StopJob
}

// Fleet permits gentle stops in a fleet of nodes.
type Fleet interface {
	// Permit returns what holds a stop of a sandbox back until the fleet permits it: a stop for a soft
	// threshold or for a limit. It answers from memory. A pass that no longer wants the stop does not ask.
	Permit(s *policy.Stop) policy.Held
}

// Manager makes the eviction decisions and acts on them. It must be used from one goroutine.
type Manager struct {
	cfg       config.Config
	kernel    Kernel
	runtime   Runtime
	reclaimer Reclaimer
	stopper   Stopper
	fleet     Fleet
	restraint *policy.Restraint

	state      policy.State
	obs        policy.Observations
	before     policy.Observations // of the pass before
	settings   policy.Settings
	thresholds []policy.Threshold
	derived    derivedFrom // of the thresholds
	rederived  bool        // since Rederived was called
	pressure   policy.Pressure
	condSince  map[policy.Condition]time.Duration // since when those hold that the last pass found
	earlier    policy.Conditions                  // of an earlier run of the service, whose end is not recorded
	started    time.Duration                      // when this run of the service began

	// enforced is the restraint of the real stops while observe mode uses one of its own. It is nil while
	// restraint is the one of the real stops.
	enforced *policy.Restraint

	samples   policy.Samples
	listed    time.Duration // the listing of the last sample
	sampleAll bool          // take a sample in every pass, for a trace

	// unconfirmed are stops for memory that are over, but that the runtime has not confirmed.
	unconfirmed []*flight

	outage   outage
	pacer    pacer
	pools    [policy.PoolCount]pool
	flights  []*flight
	survived map[string]time.Duration // until when a sandbox is no candidate, because it outlived its stop
	emptied  map[string]emptiedPod    // sandboxes that a stop has emptied, and that may still be listed
	limitsAt time.Duration            // when the limits were last checked

	protected       map[string]bool      // whether a sandbox was protected when it was last sampled
	protectedBefore policy.ProtectedPods // in an earlier run of the service
	Orders          api.Orders           // the operators' commands
	Linger          func()               // see machine.Machine; nil = nothing
	LastID          uint64               // of the last record, perhaps of an earlier run of the service
	// again is true if another pass can act at once, unsaved if the restraint has changed in this pass, and sampled if this
	// pass has taken a sample that is worth saving, as one at savedAt was before.
	again, unsaved, sampled bool
	savedAt, keptAt         time.Duration // keptAt is when the restraint was last to be saved
}

// derivedFrom holds what the derived thresholds depend on.
type derivedFrom struct {
	layout      policy.Layout
	allocatable bool
	valid       bool
}

// New returns a Manager that has observed nothing yet. fleet is nil for a node on its own. restraint may carry
// the budget of an earlier run of the service, and [Manager.Samples] its samples.
func New(cfg config.Config, k Kernel, rt Runtime, rc Reclaimer, st Stopper, fleet Fleet, restraint *policy.Restraint) *Manager {
	g := &Manager{
		kernel: k, runtime: rt, reclaimer: rc, stopper: st, fleet: fleet, restraint: restraint, started: k.Now(),
		condSince: map[policy.Condition]time.Duration{},
		protected: map[string]bool{}, protectedBefore: restraint.Protected,
		survived: map[string]time.Duration{},
		emptied:  map[string]emptiedPod{},
	}
	g.outage.next = g.started + firstListing
	for _, sandbox := range g.protectedBefore.Sandboxes {
		g.protected[sandbox] = true
	}
	g.SetConfig(cfg)
	return g
}

// linger lets all else happen that happens at this time.
func (g *Manager) linger() {
	if g.Linger != nil {
		g.Linger()
	}
}

// Continue continues the records of an earlier run of the service: after that ID, and with what they say about the runtime
// and the conditions.
func (g *Manager) Continue(lastID uint64, runtimeDown bool, conditions policy.Conditions) {
	g.LastID, g.outage.recorded, g.earlier = lastID, runtimeDown, conditions
}

// endEarlier returns the conditions of an earlier run that do not hold any more, once. It waits for the signals that a
// service which has just started cannot read yet.
func (g *Manager) endEarlier(now time.Duration) (ended policy.Conditions) {
	if g.earlier &^= g.pressure.Conditions; now-g.started < firstListing {
		return 0
	}
	ended, g.earlier = g.earlier, 0
	return ended
}

// SetConfig applies a configuration from the next pass on. Running grace periods and conditions continue.
func (g *Manager) SetConfig(cfg config.Config) {
	if g.cfg.Mode != cfg.Mode {
		g.changeMode(cfg.Mode)
	}
	if !g.cfg.RemovesLike(&cfg) {
		for i := range g.pools { // the images that may be removed now may be enough
			r := &g.pools[i].reclaim
			r.invalidate()
			r.stale = r.stale || r.job != nil
		}
	}
	g.cfg = cfg
	g.settings = policy.Settings{
		TransitionPeriod: cfg.Eviction.PressureTransitionPeriod,
		SoftForgive:      cfg.Eviction.SoftForgive,
		UnseenAtMost:     unseenAtMost,
		StallFloor:       cfg.Eviction.StallFloor,
	}
	g.restraint.Configure(cfg.Budget.Policy(), cfg.Backoff.Policy())
	g.restraint.FollowTrace(false)
	g.derived.valid = false
}

// changeMode switches between making stops and only reporting them. Stops of one mode do not restrain the
// other.
func (g *Manager) changeMode(to config.Mode) {
	if g.enforced != nil {
		g.restraint, g.enforced = g.enforced, nil
	}
	if to == config.ModeObserve {
		g.restraint, g.enforced = policy.NewRestraint(""), g.restraint
	}
	for p := range g.pools {
		g.pools[p].observed = nil
		r := &g.pools[p].reclaim
		r.reported, r.stale, r.suffices = false, true, false
	}
}

// Pass makes one pass: observe, decide, reclaim, stop. It returns what it saw and did. Pass.Notable reports
// whether the pass is worth recording.
func (g *Manager) Pass(ctx context.Context, wake string) api.Pass {
	now := g.kernel.Now()
	before := g.pressure.Conditions
	g.before = g.obs
	g.observe(now)
	p := api.Pass{At: api.Duration(now), Wake: wake, Conditions: g.pressure.Conditions, Changed: g.pressure.Conditions != before}
	p.End(g.endEarlier(now))
	g.again, g.unsaved, g.sampled = false, false, false
	if g.sampleAll {
		g.sample(ctx)
	}
	for _, c := range g.pressure.Conditions.List() {
		if !before.Has(c) {
			g.condSince[c] = now
		}
	}
	g.followEpisodes(now)
	g.settle(now, &p)
	for i := range policy.PoolCount {
		g.takeOver(ctx, now, i, &p)
		g.harvest(now, i, &p)
	}
	g.takeOverOrdered(ctx, now, &p)
	p.Command = g.Orders.Expire(now)
	p.Runtime = g.outage.follow(now, g.runtime.Inventory(ctx, 0).Err)
	switch {
	case g.Orders.Pause != nil:
		for _, m := range g.pressure.Met {
			p.Hold(m.Threshold.String(), policy.Held{By: api.HeldPaused})
		}
	case p.Command != nil && p.Command.Command == api.CommandResume:
		g.again = true // garbage collection begins again after this pass, and a reclaim before that would remove nothing
	default:
		g.act(ctx, now, &p)
	}
	if p.Stop == nil && p.Escalated == "" && g.isSampleDue(ctx, now) { // otherwise, the pods may use less by now than the signals say
		g.sample(ctx)
	}
	if g.unsaved = g.unsaved || now-g.keptAt >= keepRestraint && g.restraint.Remembers(); g.unsaved {
		g.keptAt = now
	}
	if p.Notable() {
		if p.ID == 0 {
			p.ID = g.NextID()
		}
		p.Observe(&g.obs, g.pressure)
	}
	p.Took = api.Duration(g.kernel.Now() - now)
	return p
}

// act relieves the pools in their order, until it begins a stop. Then it applies the configuration's rules,
// and then a drain. A pool that is held back never holds back another one.
func (g *Manager) act(ctx context.Context, now time.Duration, p *api.Pass) {
	pools := 0 // that are due; their reclaims start whatever is in flight
	for i := range policy.PoolCount {
		if due := g.dueOf(&g.pressure, i); len(due) > 0 {
			pools++
			g.startReclaim(ctx, now, i, due, p)
		}
	}
	for i := range policy.PoolCount {
		m, out := g.relieve(ctx, g.kernel.Now(), i, p) // for another pool, it may have listed the pods, which takes time
		if g.pools[i].held = (api.Hold{}); out.held.By != "" {
			g.pools[i].held = api.Hold{Threshold: m.Threshold.String(), Reason: out.held.By, Detail: out.held.Detail}
			p.Hold(m.Threshold.String(), out.held)
		}
		g.again = g.again || out.unneeded // a leak crosses a threshold more than once if the readings are not exact
		if out.begun {
			p.Unhold()
			g.again = g.again || pools > 1
			break
		}
	}
	if p.Stop == nil && !g.relieving() {
		g.enforce(ctx, g.kernel.Now(), p)
	}
	g.drain(ctx, g.kernel.Now(), p)
}

// How often pods are sampled for their growth besides after each listing. A rate is an average since a sample
// that is at least 1 s old: the older that sample, the slower a fast leak looks.
const (
	sampleClose = 250 * time.Millisecond // while the fastest fill could reach a threshold within a second
	sampleNear  = time.Second            // while less than a fifth of the capacity is above a threshold
	sampleIdle  = 8 * time.Second        // so that there always is a sample
)

// saveSamples is how often samples are saved at most.
const saveSamples = time.Second

// keepRestraint is how often the restraint is saved at least while it remembers stops: until when a breaker is needed, and what a pod
// keeps, change without a stop.
const keepRestraint = time.Minute

// isSampleDue reports whether the pods were listed or changed enough since the last sample, or a disk's reclaim begins now: how
// fast the disk fills from then on says how long a stop waits.
func (g *Manager) isSampleDue(ctx context.Context, now time.Duration) bool {
	age, sampled := g.samples.Age(now)
	return !g.sampleAll && (!sampled || g.runtime.Inventory(ctx, 0).At != g.listed || age >= g.SamplePause() || g.beginsReclaim(now))
}

// IsCalm reports whether nothing is being stopped, no threshold is met, and none of memory, swap or tasks is near.
func (g *Manager) IsCalm() bool {
	return len(g.flights) == 0 && len(g.pressure.Met) == 0 && g.SamplePause() > sampleNear
}

// SamplePause returns how old the last sample may become, by the nearest threshold of memory, swap or PIDs.
func (g *Manager) SamplePause() time.Duration {
	pause := sampleIdle
	for _, t := range g.thresholds {
		o := g.obs[t.Signal]
		if o.Status != policy.OK || t.Signal.IsDisk() || t.Signal.IsStall() {
			continue
		}
		switch above := o.Available - t.Value.Of(o.Capacity); {
		case t.Signal.IsMemoryAmount() && above < g.pacer.fastest():
			return sampleClose
		case above < o.Capacity/5:
			pause = sampleNear
		}
	}
	return pause
}

// sample takes a sample of the signals and the pods, once these were listed: in a later sample, each would seem new.
func (g *Manager) sample(ctx context.Context) {
	inv := g.runtime.Inventory(ctx, 0)
	now := g.kernel.Now() // a listing has taken time
	if g.listed = inv.At; inv.At >= 0 {
		cs := g.measured(inv, now)
		g.reprotect(cs)
		g.samples.Add(now, &g.obs, cs, g.kernel.PodsMemory())
	}
	if g.sampled = g.sampled || now-g.savedAt >= saveSamples; g.sampled {
		g.savedAt = now
	}
}

// reprotect notes which pods are protected. Those that have become so, or are not any more, are no growth of what is used outside the
// unprotected pods: otherwise stops before that would look fruitless, and open the breaker.
func (g *Manager) reprotect(cs []policy.Candidate) {
	var less, more []policy.Candidate // of what is outside
	if len(cs) > 0 && len(g.protected) > 2*len(cs)+maxForgotten {
		maps.DeleteFunc(g.protected, func(id string, _ bool) bool {
			return !slices.ContainsFunc(cs, func(c policy.Candidate) bool { return c.ID == id })
		})
	}
	for i := range cs {
		c, is := cs[i], cs[i].Protection != ""
		was, known := g.protected[c.ID]
		known = known || c.Created < g.protectedBefore.At
		if known && was == is || c.Protection == inventory.ProtectedUnclassified {
			continue
		}
		g.protected[c.ID], g.unsaved = is, g.unsaved || is
		switch c.Protection = ""; {
		case !known:
		case is:
			more = append(more, c)
		default:
			less = append(less, c)
		}
	}
	if len(less)+len(more) > 0 {
		g.restraint.Reprotect(func(s policy.Signal, at time.Duration) policy.Amount {
			use := func(cs []policy.Candidate) policy.Amount {
				cs = slices.DeleteFunc(slices.Clone(cs), func(c policy.Candidate) bool { return c.Created > at })
				return policy.Unprotected(cs, s, g.kernel.Layout(), policy.Amount{})
			}
			m, l := use(more), use(less)
			return policy.Amount{Value: m.Value - l.Value, Known: m.Known && l.Known}
		})
		g.unsaved = true
	}
}

// Saved returns what the next run of the service needs: the limits on real stops, and which pods are protected.
func (g *Manager) Saved() *policy.Restraint {
	r := g.Enforced()
	if g.listed <= 0 {
		return r // it has what the last run knew
	}
	r.Protected = policy.ProtectedPods{At: g.listed}
	for id, is := range g.protected {
		if is {
			r.Protected.Sandboxes = append(r.Protected.Sandboxes, id)
		}
	}
	slices.Sort(r.Protected.Sandboxes)
	return r
}

// maxForgotten is how many pods that have ended are remembered.
const maxForgotten = 64

// measured returns the listed pods with what they use now, and with what stops have done to them.
func (g *Manager) measured(inv inventory.Inventory, now time.Duration) []policy.Candidate {
	cs, stops := inventory.Candidates(inv.Pods), g.restraint.ByPod(now)
	g.kernel.Measure(cs)
	for i := range cs {
		c, pod := &cs[i], &inv.Pods[i]
		used := c.Memory
		if len(pod.Containers) == 0 {
			used = policy.Amount{} // its cgroup may not be known
		}
		c.Kept = stops.KeptMemory(c.UID, c.ID, used)
		if pod.IdleCgroup != "" { // what its containers have left outlives a stop
			c.Kept, c.PIDs.Value = max(c.Kept, c.Memory.Value+c.Swap.Value), 0
		}
		c.KeepsVolumes = stops.KeepsVolumes(c.UID, c.ID)
		c.Survived = now < g.survived[c.ID]
		e, ended := g.emptied[c.ID]
		c.Ended = ended && inv.At < e.at && len(g.kernel.UnlistedIn(e.pod)) == 0
	}
	return cs
}

// derive adds the thresholds that follow from the node's layout and allocatable memory. It recomputes them
// only if one of these has changed.
func (g *Manager) derive() {
	d := derivedFrom{g.kernel.Layout(), g.obs[policy.AllocatableMemoryAvailable].Status != policy.Absent, true}
	if d != g.derived {
		g.rederived = true
		g.thresholds = policy.Derive(g.cfg.Eviction.Thresholds, d.layout, d.allocatable, g.cfg.Eviction.Off...)
		g.derived = d
	}
}

// Hard returns the hard thresholds in force, with those that follow from others.
func (g *Manager) Hard() config.HardThresholds {
	g.derive() // the configuration may have changed since the last pass
	return g.cfg.HardOf(g.thresholds)
}

// Rederived reports whether the thresholds were derived again since the last call.
func (g *Manager) Rederived() bool {
	defer func() { g.rederived = false }()
	return g.rederived
}

// reobserve reads the signals again and returns the thresholds that are met now. Whether to stop a pod
// rests on the newest reading. Grace periods and conditions keep what the pass saw first.
func (g *Manager) reobserve() policy.Pressure {
	g.kernel.Observe(&g.obs)
	_, pr := policy.Evaluate(g.state, g.thresholds, g.settings, &g.obs, g.kernel.Now())
	return pr
}

// Observe reads the signals and evaluates the thresholds, without acting.
func (g *Manager) Observe() { g.observe(g.kernel.Now()) }

func (g *Manager) observe(now time.Duration) {
	g.kernel.Observe(&g.obs)
	g.derive()
	g.state, g.pressure = policy.Evaluate(g.state, g.thresholds, g.settings, &g.obs, now)
}

// AwaitJobs waits until the jobs of all stops in flight are done.
func (g *Manager) AwaitJobs() {
	for _, f := range g.flights {
		<-f.job.Done()
	}
}

// NextID returns the ID of the next record.
func (g *Manager) NextID() uint64 {
	g.LastID++
	return g.LastID
}

// FollowTrace makes the time between two passes count in full, however long it is, and samples every pass. A change of the configuration
// ends the first.
func (g *Manager) FollowTrace() {
	g.settings.UnseenAtMost, g.sampleAll = 0, true
	g.restraint.FollowTrace(true)
}
