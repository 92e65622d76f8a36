package eviction

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// pool is what the Manager knows of a pool beyond one pass. An episode lasts from when one of the pool's
// thresholds is first met until none has been met for episodeGap.
type pool struct {
	episode  bool
	began    time.Duration // of the episode
	met      time.Duration // when a threshold was last met
	lasts    bool          // a threshold was met at the last pass
	alarmed  bool          // an alarm was raised in this episode
	alarm    string        // why no pod is stopped, if that deserves an alarm; "" = none
	doubt    doubt         // about what holds the stop back
	observed []string      // sandboxes that observe mode has reported in this episode
	flight   *flight       // the stop in flight for the pool; nil = none
	held     api.Hold      // what holds a stop for the pool back, as of the last pass that looked at it
	reclaim  poolReclaim
}

// overdue reports whether the alarm for a reclaim that takes too long is raised.
func (p *pool) overdue() bool { return p.reclaim.overdue && p.episode }

// episodeGap is how long no threshold of a pool must be met for its episode to end.
const episodeGap = 30 * time.Second

// followEpisodes begins and ends the pools' episodes.
func (g *Manager) followEpisodes(now time.Duration) {
	for i := range policy.PoolCount {
		st, met := &g.pools[i], len(g.metOf(&g.pressure, i)) > 0
		if st.episode && !(met && st.lasts) && now-st.met >= episodeGap {
			st.episode, st.alarmed, st.observed = false, false, nil
		}
		if met && !st.episode {
			st.episode, st.began, st.reclaim.reported = true, now, false
		}
		if st.lasts = met; met {
			st.met = now
		} else {
			st.alarm, st.held, st.doubt = "", api.Hold{}, doubt{}
			st.reclaim.clear(i, now)
		}
		if st.episode {
			g.restraint.Episode(i, policy.Amount{}, now)
		}
	}
}

// metOf returns the met thresholds of a pool, without those that only warn.
func (g *Manager) metOf(pr *policy.Pressure, p policy.Pool) (met []policy.Met) {
	layout := g.kernel.Layout()
	for _, m := range pr.Met {
		if layout.Pool(m.Signal) == p && !m.WarnOnly {
			met = append(met, m)
		}
	}
	return met
}

// dueOf returns the due thresholds of a pool that are acted on: the hard ones, or else the soft ones. One that can wait does not
// keep the others waiting.
func (g *Manager) dueOf(pr *policy.Pressure, p policy.Pool) []policy.Met {
	due := slices.DeleteFunc(g.metOf(pr, p), func(m policy.Met) bool { return !m.Due })
	if urgent := slices.DeleteFunc(slices.Clone(due), g.canWait); len(urgent) > 0 {
		due = urgent
	}
	hard := slices.ContainsFunc(due, func(m policy.Met) bool { return m.Kind == policy.Hard })
	return slices.DeleteFunc(due, func(m policy.Met) bool { return hard && m.Kind == policy.Soft })
}

// canWait reports whether a threshold that is due costs no pod now.
func (g *Manager) canWait(m policy.Met) bool {
	return g.samples.Lasts(m.Signal, &g.obs, g.kernel.Now())
}

// outcome is what a pass decides about a stop for a pool. At most one field is set, none if no threshold is met.
type outcome struct {
	begun    bool        // in observe mode: reported
	unneeded bool        // the thresholds have cleared during the pass, or the victim is gone: the next pass looks again at once
	held     policy.Held // what holds the stop back
}

func heldBy(reason string) outcome { return outcome{held: policy.Held{By: reason}} }

// relieve acts on a pool whose thresholds are met: it waits for the last stop and for the reclaim, and then
// stops the pod whose stop helps. It returns the threshold that it acted on and the outcome.
func (g *Manager) relieve(ctx context.Context, now time.Duration, i policy.Pool, p *api.Pass) (policy.Met, outcome) {
	due := g.dueOf(&g.pressure, i)
	inGrace := len(due) == 0
	if inGrace {
		if due = g.metOf(&g.pressure, i); len(due) == 0 {
			return g.warnOnly(i)
		}
		if g.pools[i].flight == nil && !g.isBack(ctx, now, i, due) {
			return due[0], heldBy(api.HeldGrace)
		}
	}
	m := due[0]
	if g.inFlight(ctx, now, i, due, p) {
		return m, heldBy(api.HeldInFlight)
	}
	if inGrace {
		g.startReclaim(ctx, now, i, due, p)
	}
	if !g.reclaimed(now, i, m) {
		return m, heldBy(api.HeldReclaiming)
	}
	if g.pools[i].reclaim.suffices {
		return m, heldBy(api.HeldObserve)
	}
	// Reclaiming and measuring took time.
	pr := g.reobserve()
	if due = g.dueOf(&pr, i); inGrace {
		due = g.metOf(&pr, i)
	}
	if len(due) == 0 {
		g.pools[i].reclaim.ready = false
		return m, outcome{unneeded: true}
	}
	if i.IsDisk() && g.obs[m.Signal].At < g.pools[i].reclaim.ended {
		return m, heldBy(api.HeldReclaiming) // the disk is slow: the reading is older than the end of the reclaim
	}
	c, needed := g.decide(ctx, now, i, due, p)
	var out outcome
	switch job := g.pools[i].reclaim.job; {
	case !needed:
		out.unneeded = true
	case heldAlarms[c.Held] != "" && job != nil && !job.Overdue():
		out = heldBy(api.HeldReclaiming) // it may yet bring the relief, or measure the pods
	case c.Victim == nil:
		out = heldBy(c.Held)
	case inGrace && !c.Victim.CameBack:
		out = heldBy(api.HeldGrace)
	default:
		out = g.begin(ctx, c, p)
		if by := out.held.By; (by == api.HeldBudget || by == api.HeldBreaker) && c.Met.Kind == policy.Hard && c.TakeCulprit(out.held.RetryAfter) {
			out = g.begin(ctx, c, p)
		}
	}
	if !g.pools[i].doubt.holds(&c, &out.held.By) {
		g.alarmHeld(i, &c.Decision, out, p)
	}
	// This takes longer than choosing the victim, so it comes last. The first decision stays, unless a stop follows
	// from a later one.
	if p.Need == nil || out.begun {
		p.Need, p.Ranked = needOf(&c.Decision), RankedViews(&c.Decision, c.pods)
	}
	return c.Met, out
}

// warnOnly returns the threshold of a pool that is met but only warns.
func (g *Manager) warnOnly(i policy.Pool) (policy.Met, outcome) {
	for _, m := range g.pressure.Met {
		if m.WarnOnly && i == policy.PoolMemory {
			if m.Wait > 0 {
				return m, heldBy(api.HeldGrace)
			}
			return m, heldBy(api.HeldStallFloor)
		}
	}
	return policy.Met{}, outcome{}
}

// isBack reports whether the victim would be a sandbox that came back in this episode. It needs no new
// grace period.
func (g *Manager) isBack(ctx context.Context, now time.Duration, i policy.Pool, met []policy.Met) bool {
	if !g.restraint.Stopped(i, g.pools[i].began, now) {
		return false
	}
	c := g.choose(g.runtime.Inventory(ctx, 0), now, i, met)
	return c.Victim != nil && c.Victim.CameBack
}

// choice is a decision with the pods that it was made for.
type choice struct {
	policy.Decision
	at       time.Duration // when it was made
	pods     []inventory.Pod
	listed   time.Duration // when; negative = never
	measured []policy.Candidate
	cgroup   policy.Amount // working set of the pods cgroup
}

// measuredBefore is how long before a reclaim the measurements may have begun that it takes over from the one before.
const measuredBefore = 10 * time.Second

// choose measures the pods and decides which one to stop. It changes nothing that restrains a stop: it also answers commands.
func (g *Manager) choose(inv inventory.Inventory, now time.Duration, i policy.Pool, due []policy.Met) choice {
	cs := g.measured(inv, now)
	c := choice{at: now, pods: inv.Pods, listed: inv.At, measured: cs, cgroup: g.kernel.PodsMemory()}
	for j := range cs {
		pod := &cs[j]
		if i.IsDisk() && pod.DiskAt < g.pools[i].reclaim.since-measuredBefore {
			pod.Disk, pod.Inodes = policy.DiskUsage{}, policy.DiskUsage{} // another pod may have filled the disk since
		}
		pod.CameBack, pod.Had = g.restraint.CameBack(i, pod.Workload, pod.Created, g.pools[i].began, now)
	}
	if !i.IsDisk() {
		g.samples.Note(now, &g.obs, cs, c.cgroup)
	}
	c.Decision = policy.Decide(cs, policy.Shortage{
		Due: due, Layout: g.kernel.Layout(), Keys: g.cfg.Rank.Keys(due[0].Signal.Resource()),
		Observed: &g.obs, Before: &g.before, Samples: &g.samples, Pods: c.cgroup, Now: now,
	})
	return c
}

// use returns what the unprotected pods use of a pool. s is any of its signals.
func (g *Manager) use(c *choice, i policy.Pool, s policy.Signal) policy.Amount {
	return g.unprotected(c, i.UseSignal(s))
}

// outside returns what is used outside the unprotected pods, as a signal counts it.
func (g *Manager) outside(c *choice, s policy.Signal) policy.Amount {
	return g.obs.Outside(s, g.unprotected(c, s))
}

// unprotected returns what the unprotected pods use, as a signal counts it.
func (g *Manager) unprotected(c *choice, s policy.Signal) policy.Amount {
	return policy.Unprotected(c.measured, s, g.kernel.Layout(), c.cgroup)
}

// decide chooses the victim, after it has judged the last stop. If another pod that is not listed or not
// measured may be the right one, it lists or measures again first. needed is false if no threshold is met
// any more after that.
func (g *Manager) decide(ctx context.Context, now time.Duration, i policy.Pool, due []policy.Met, p *api.Pass) (c choice, needed bool) {
	c = g.choose(g.runtime.Inventory(ctx, 0), now, i, due)
	g.reprotect(c.measured) // before the stop measures what is outside
	g.unsaved = g.restraint.Episode(i, g.use(&c, i, due[0].Signal), now) || g.unsaved
	largest, unlisted := g.unlisted(&c)
	judge := func(stops bool) {
		if unlisted && !i.IsDisk() && !stops {
			return // what a pod uses that is not listed yet would look like growth outside the pods
		}
		outside := func(s policy.Signal) policy.Amount { return g.outside(&c, s) }
		if c.Victim != nil && g.restraint.Judge(i, outside, g.use(&c, i, due[0].Signal), now) {
			g.unsaved = true
			c = g.choose(g.runtime.Inventory(ctx, 0), now, i, due) // a workload whose stop was fruitless has not come back
		}
	}
	judge(false)
	// One that the runtime has confirmed not to list is like a protected pod.
	larger := func() bool { return unlisted && c.Victim != nil && largest > c.Victim.Usage }
	if i.IsDisk() {
		g.measureAgain(ctx, now, &c, larger(), p)
		return c, true
	}
	hard := due[0].Kind == policy.Hard
	doubtful := func() bool { // a pod runs that was not listed, and it would be wrong to stop a listed pod in its place
		mayFill := unlisted && c.Why != policy.ByCulprit && c.Fills(largest) // if it is new, it has grown by all that it uses
		return larger() || mayFill || unlisted && (c.Victim == nil || !hard) || c.listed < 0
	}
	if doubtful() {
		g.relist(ctx, func(inv inventory.Inventory) bool {
			if due = g.stillMet(due...); len(due) == 0 { // listing took time
				return false
			}
			now = g.kernel.Now()
			c = g.choose(inv, now, i, due)
			g.reprotect(c.measured)
			largest, unlisted = g.unlisted(&c)
			judge(false)
			return doubtful()
		})
		if len(due) == 0 {
			return c, false
		}
	}
	wrong := func() bool { return larger() && c.Why != policy.ByCulprit }
	if !wrong() {
		judge(true) // after the next stop, the last one cannot be judged any more
	}
	if c.Victim == nil && c.listed < 0 || wrong() {
		c.Victim, c.Held = nil, api.HeldUnlisted // in the first case, the pods were never listed
	}
	return c, true
}

// unlisted searches for pods that are not listed, and confirms those that the listing lacks although it began after a search that
// found them: a listing may take longer than a pass waits for it.
func (g *Manager) unlisted(c *choice) (largest int64, found bool) {
	if largest, found = g.kernel.Unlisted(c.pods, c.Met.Signal); found && !c.Pool.IsDisk() {
		g.kernel.ConfirmUnlisted(c.listed)
	}
	return largest, found
}

// relist waits for the next listing of the pods and calls lacks with it, or with the last one if none ends in time. If one that
// was in progress lacks something, relist waits for the next.
func (g *Manager) relist(ctx context.Context, lacks func(inventory.Inventory) bool) {
	last, until := g.runtime.Inventory(ctx, 0).At, g.kernel.Now()+inventory.FreshTimeout
	for again := true; again; {
		asked := g.kernel.Now()
		inv := g.runtime.Inventory(ctx, until-asked)
		again = lacks(inv) && inv.At > last && inv.At < asked
		last = inv.At
	}
}

// stillMet reads the signals again and returns those of the thresholds that are met, as they are met now.
func (g *Manager) stillMet(due ...policy.Met) []policy.Met {
	return slices.DeleteFunc(g.reobserve().Met, func(m policy.Met) bool {
		return m.WarnOnly || !slices.ContainsFunc(due, func(d policy.Met) bool { return d.Compare(m.Threshold) == 0 })
	})
}

// measureAgain holds back a stop for a disk while the usage of a pod that may be the right one is not fully
// known, until the pods were measured often enough. larger means that an unmeasured pod uses more than the
// victim. A usage of which nothing is known holds it back for a while although it does not wait for the reclaim any
// more: that pod may have filled the disk just now. It also waits while the runtime is down, because only the runtime
// deletes what a pod wrote.
func (g *Manager) measureAgain(ctx context.Context, now time.Duration, c *choice, larger bool, p *api.Pass) {
	unknown := func(r policy.Ranked) bool { return r.Protection == "" && !r.Known() }
	inv, r := g.runtime.Inventory(ctx, 0), &g.pools[c.Pool].reclaim
	switch {
	case (c.Victim != nil || c.Held == policy.HeldUnknown) && inv.Err != nil:
		c.Victim, c.Held = nil, api.HeldUnlisted
	case c.Victim != nil && r.ready && r.isBack(inv): // since this pass began: the next one repeats the reclaim
		c.Victim, c.Held = nil, api.HeldReclaiming
	case c.Victim != nil && (larger || slices.ContainsFunc(c.Ranked, unknown)) && r.measures(now):
		c.Victim, c.Held = nil, api.HeldReclaiming
	case (larger || policy.Unmeasured(c.Ranked, c.Victim)) && g.remeasure(ctx, now, c.Pool, c.Met, p):
		c.Victim, c.Held = nil, api.HeldReclaiming
	}
}

// needOf returns what a decision rests on, for the record.
func needOf(d *policy.Decision) *api.Need {
	n := &api.Need{
		Pool: d.Pool, Deficit: d.Deficit, Fill: d.Fill, OutsideFill: d.Outside, Need: d.Need, Helps: d.Helps, Attainable: d.Attainable, Tiers: d.Tiers,
	}
	if d.Culprit != nil {
		n.Culprit, n.CulpritGrowth = d.Culprit.Namespace+"/"+d.Culprit.Name, d.Culprit.Growth.Value
	}
	if d.Protected != nil {
		n.Protected, n.ProtectedGrowth = d.Protected.Namespace+"/"+d.Protected.Name, d.Protected.Growth.Value
	}
	return n
}

// doubt is about a hold that rests only on what may be taken within the next seconds: a program that begins looks like a
// leak for a second.
type doubt struct {
	lasts bool
	since time.Duration
	held  string // what held the stop back at the last decision
}

// doubtFor is how long such a hold must last to be believed. Its rates are averages over at most that long.
const doubtFor = 10 * time.Second

// holds reports whether what holds a stop back is too doubtful for an alarm. Until it is believed, protected pods stay the
// reason if they were: otherwise both would alternate in the history.
func (d *doubt) holds(c *choice, held *string) bool {
	if !c.Doubtful {
		d.lasts = false
	} else if !d.lasts {
		d.lasts, d.since = true, c.at
	}
	doubtful := d.lasts && *held == c.Held && c.at-d.since < doubtFor
	if doubtful && *held == api.HeldOutside && d.held == api.HeldProtected {
		*held = api.HeldProtected
	}
	if !api.Transient(*held) {
		d.held = *held
	}
	return doubtful
}

// heldAlarms are the alarms by what holds a stop back.
var heldAlarms = map[string]string{
	api.HeldBreaker:   "breaker open: the last stops did not relieve it, because too little came back or it was taken outside pods; no more pods are stopped for it",
	api.HeldOutside:   "used outside pods: stopping pods would not relieve it",
	api.HeldProtected: "used by protected pods: stopping the others would not relieve it",
	api.HeldUnknown:   "no pod is stopped, because the usage of a pod is unknown",
}

// alarmHeld raises the alarm of a pool for which no pod is stopped although it is due, once per episode. The
// status has the latest reason, until another one holds, a pod is stopped or no threshold of the pool is met.
func (g *Manager) alarmHeld(i policy.Pool, d *policy.Decision, out outcome, p *api.Pass) {
	st := &g.pools[i]
	alarm, ok := heldAlarms[out.held.By]
	switch {
	case out.begun, out.unneeded, !ok && !api.Transient(out.held.By):
		st.alarm = ""
	case !ok || !st.alarmed && p.Alarm != "": // in the second case, the next pass raises it
	default:
		if d.Protected != nil {
			alarm = strings.Replace(alarm, "outside pods", "outside the pods that may be stopped", 1) +
				fmt.Sprintf("; %s/%s, which is protected, grows most", d.Protected.Namespace, d.Protected.Name)
		}
		st.alarm = i.String() + ": " + alarm
		if young := st.reclaim.young; young != "" {
			st.alarm += "; " + young
		}
		if !st.alarmed {
			p.Alarm, p.AlarmBy, p.AlarmKind, st.alarmed = st.alarm, d.Met.Threshold.String(), api.AlarmNoRelief, true
		}
	}
}
