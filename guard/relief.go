package guard

import (
	"context"
	"slices"
	"time"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// ReliefJob is a reclaim that runs beside the loop.
type ReliefJob interface {
	Done() <-chan struct{}
	// Relief is what the job did; valid once Done is closed.
	Relief() Relief
}

// Relief is what a reclaim job did. For a disk signal the job has also measured
// afresh what each pod uses of the disks.
type Relief struct {
	// Inconclusive: no stop may rest on it. It was cut short, or for a disk signal has not
	// measured the pods.
	Inconclusive bool
	Late         bool     // the disk did not answer in time: what may go may be there still
	Steps        []string // the steps that ran
	Reports      []reclaim.Report
	Freed        int64 // bytes, by statfs
}

// relief is the reclaim of one signal: at most one runs, its result serves one
// decision, and while a stop is held back it is repeated once per interval.
type relief struct {
	job     ReliefJob
	started time.Duration
	ready   bool // the result has not served a stop yet, and the signal is met since
	told    bool // that reclaiming removes nothing, or would remove something, since the signal was clear
	ended   time.Duration
	stale   bool // a disk was clear, or a pod stopped for the signal, while the job ran: what it measures tells nothing of who fills it later
	again   int  // how many times in a row the job was repeated for pods that it had not measured
	late    int  // and how many it ended for a disk that does not answer, with nothing removed
}

// remeasureAtMost bounds how many times in a row pods are measured once more because
// others have come meanwhile, or a reclaim is repeated that a slow disk ended: where pods come and go
// all the time, or the disk is always slow, somebody must go.
const remeasureAtMost = 3

// hardReliefWait bounds how long a hard stop for memory waits for a reclaim, and how long
// it can be late by it. Where memory is to be had, the kernel gives a piece of 32 MiB back
// within milliseconds; where it has to be written to a slow disk first, the writing of one
// piece cannot be ended and takes seconds, in which a leak takes what is left.
const hardReliefWait = 150 * time.Millisecond

// waitsFor is what is left at now of the time that a hard stop for memory waits for the
// reclaim under way; false for one that is waited for to its end.
func (r *relief) waitsFor(m policy.Met, now time.Duration) (left time.Duration, bounded bool) {
	if r.job == nil || m.Kind != policy.Hard || m.Signal.Resource() != policy.ResourceMemory {
		return 0, false
	}
	return r.started + hardReliefWait - now, true
}

// reliefPause is how long the loop may sleep before a hard stop has waited long enough for
// a reclaim; false where none waits.
func (g *Guard) reliefPause(now time.Duration) (pause time.Duration, waits bool) {
	for _, m := range g.pressure.Met {
		if left, bounded := g.reliefs[m.Signal].waitsFor(m, now); bounded && left > 0 && (!waits || left < pause) {
			pause, waits = left, true
		}
	}
	return pause, waits
}

// spend ends what the last job is good for: it has served a stop, or none is needed.
func (r *relief) spend() { r.ready, r.again, r.late = false, 0, 0 }

// spendReliefs ends what the reclaims for a signal are good for, and for a disk's those for
// all disks, of those under way as well: a stop has been begun, what the pod took of any
// disk comes back, and the next is a matter of what is found after it.
func (g *Guard) spendReliefs(signal policy.Signal) {
	for s := range policy.SignalCount {
		if s == signal || s.IsDisk() && signal.IsDisk() {
			g.reliefs[s].spend()
			g.reliefs[s].stale = s.IsDisk() || g.reliefs[s].job != nil
		}
	}
}

// relieve starts the signal's reclaim, unless one runs or has just run. It reports
// true once there is nothing more to wait for, and what was found serves a stop. A hard
// stop for memory goes on without a reclaim that takes long, which ends by itself.
func (g *Guard) relieve(ctx context.Context, now time.Duration, m policy.Met, p *Pass) bool {
	r := &g.reliefs[m.Signal]
	if r.job == nil {
		if r.ready && now-r.ended < g.cfg.Eviction.Interval {
			return true
		}
		inv := g.runtime.Inventory(ctx, false)
		r.job, r.started, r.stale, r.ready = g.reclaimer.Reclaim(ctx, m, g.kernel.Layout(), inv.Pods), now, false, false
	}
	g.harvest(now, m.Signal, p)
	left, bounded := r.waitsFor(m, now)
	return r.ready || bounded && left <= 0
}

// remeasure repeats a disk signal's reclaim, and with it the measuring of pods. It reports
// false when that was done often enough.
func (g *Guard) remeasure(ctx context.Context, now time.Duration, m policy.Met, p *Pass) bool {
	r := &g.reliefs[m.Signal]
	if r.again >= remeasureAtMost {
		return false
	}
	r.again++
	r.ready = false
	g.relieve(ctx, now, m, p)
	return true
}

// harvest takes up what a signal's reclaim has done, when it is through: also
// when that relieved the signal, so that nobody waits for it any more.
func (g *Guard) harvest(now time.Duration, s policy.Signal, p *Pass) {
	r := &g.reliefs[s]
	if r.job == nil {
		return
	}
	select {
	case <-r.job.Done():
	default:
		return
	}
	done := r.job.Relief()
	v := ReclaimView{Signal: s, Steps: done.Steps, Freed: done.Freed, Took: now - r.started, Reports: done.Reports}
	switch {
	case !done.Late:
		r.late = 0
	case v.Removed() == 0:
		r.late++
	}
	inconclusive := done.Inconclusive || done.Late && r.late <= remeasureAtMost
	// What relieved the signal serves no stop: by the next one, others may use it up.
	r.job, r.ready, r.ended = nil, g.met(s) && !r.stale && !inconclusive, now
	if len(v.Steps) > 0 && (v.acted() || !r.told) {
		p.Reclaimed = append(p.Reclaimed, v)
		r.told = !v.acted()
	}
}

// met reports whether any threshold of a signal is met.
func (g *Guard) met(s policy.Signal) bool {
	return slices.ContainsFunc(g.pressure.Met, func(m policy.Met) bool { return m.Signal == s })
}
