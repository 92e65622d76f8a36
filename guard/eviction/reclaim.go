package eviction

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// ReliefJob is a reclaim that runs beside the loop.
type ReliefJob interface {
	Done() <-chan struct{}
	// Overdue reports whether reclaiming has taken longer than ReclaimTimeout. The job then continues
	// without waiting for its end.
	Overdue() bool
	// Relief returns what the job did. It is valid once Done is closed.
	Relief() Relief
}

// Relief is the result of a reclaim job. For a disk signal, the job has also measured again how much each
// pod uses of the disks.
type Relief struct {
	// Inconclusive means that no stop may be based on this result: the job was cut short or, for a disk
	// signal, has not measured the pods.
	Inconclusive bool
	Late         bool     // the disk or a listing timed out, so something reclaimable may be left
	Away         bool     // the runtime did not answer
	WouldRelieve bool     // observe mode: what was not removed would be enough or, for inodes, may be
	Steps        []string // the steps that ran
	Reports      []reclaim.Report
	Freed        int64 // bytes, by statfs
	YoungImages  int   // unused images that are kept for their age
	YoungBytes   int64 // of them, as listed
}

// poolReclaim is the reclaim of one pool. At most one job runs at a time, and its result serves one stop. While
// a stop is held back, the reclaim is repeated once per interval.
type poolReclaim struct {
	job      ReliefJob
	relieves policy.Threshold
	started  time.Duration
	began    policy.Observations // when it started
	ended    time.Duration
	since    time.Duration // measurements of the pods' disks from before count no more
	ready    bool          // the result has not served a stop yet, and the pool has been short since
	away     bool          // the runtime did not answer: once it lists the pods again, the result serves no stop
	stale    bool          // the result will be out of date: a stop ended meanwhile, or the pool was clear
	reported bool          // a reclaim without any effect was recorded in this episode
	again    int           // consecutive repeats because the job had not measured some pods
	late     int           // consecutive jobs that were late and made no progress
	suffices bool          // observe mode: no pod would be stopped, because reclaiming would or may be enough
	overdue  bool          // the last reclaim took too long and raised the alarm
	young    string        // what the last reclaim kept for its age, and the remedy; "" = nothing
}

// ReclaimTimeout bounds how long a stop waits for a reclaim. A longer reclaim raises an alarm: a runtime, a
// ledger or a log directory that stalls must not disable stops.
const ReclaimTimeout = time.Minute

// remeasureAtMost bounds the consecutive repeats of a reclaim because of unmeasured pods, or a slow disk or
// runtime. If pods come and go all the time, or the disk is always slow, one pod has to be stopped in the end.
const remeasureAtMost = 3

// measuredWithin is how long the first reclaim of a disk needs at most until the pods are measured, which it begins after half a
// second at the latest. A runtime samples what they wrote every 10 s.
const measuredWithin = 15 * time.Second

// delay moves the begin of the running reclaim: it has not gone on while the machine slept.
func (r *poolReclaim) delay(d time.Duration) {
	r.started += d
	for s := range r.began {
		r.began[s].At += d
	}
}

// measures reports whether the pods are still being measured for the first time since the pool was short.
func (r *poolReclaim) measures(now time.Duration) bool {
	return r.job != nil && !r.job.Overdue() && r.again == 0 && now-r.started < measuredWithin
}

// Bounds of how long a stop waits for a reclaim, and so of how late it can be. The kernel reclaims 32 MiB
// within milliseconds, unless it has to write them to a slow disk first: that takes seconds and cannot be
// interrupted, and a leak uses up the rest meanwhile.
const (
	hardReclaimWait    = 150 * time.Millisecond // at a hard threshold, except for disks
	minDiskReclaimWait = 2 * time.Second
)

// reclaimWait returns how long a stop for a threshold waits for a reclaim. A disk must not be full before a
// stop has taken effect. One that is full already fills no further, and waits no longer for that, but for a reclaim that empties it:
// a filesystem deletes the files of a stopped pod only after those that the reclaim has removed.
func (g *Manager) reclaimWait(i policy.Pool, m policy.Met) time.Duration {
	switch {
	case i.IsDisk():
		left, fill := g.obs[m.Signal].Available, g.diskFill(i, m.Signal)
		if left <= 0 {
			if g.empties(i, m) {
				return ReclaimTimeout
			}
			return minDiskReclaimWait
		}
		if fill <= 0 {
			return ReclaimTimeout
		}
		until := time.Duration(min(float64(left)/float64(fill), ReclaimTimeout.Seconds()*2) * float64(time.Second))
		return min(max(until-time.Duration(i.Horizon())*time.Second, minDiskReclaimWait), ReclaimTimeout)
	case m.Kind == policy.Hard:
		return hardReclaimWait
	default:
		return ReclaimTimeout
	}
}

// diskFill returns how fast a disk fills, per second: of late or since its reclaim began, whichever is more. What fills it
// may pause for a second, or have almost no room left.
func (g *Manager) diskFill(i policy.Pool, s policy.Signal) int64 {
	fill := g.samples.Fill(s, &g.obs, g.kernel.Now())
	began, now, span := g.sinceReclaim(i, s)
	if span == 0 {
		return fill
	}
	return max(fill, policy.PerSecond(began.Available-now.Available, span))
}

// sinceReclaim returns a disk's readings when its reclaim began and now, and the time between them, at least 1 s. The time is 0 if no
// reclaim runs or one of them failed.
func (g *Manager) sinceReclaim(i policy.Pool, s policy.Signal) (began, now policy.Observation, span time.Duration) {
	r := &g.pools[i].reclaim
	began, now = r.began[s], g.obs[s]
	if r.job != nil && began.Status == policy.OK && now.Status == policy.OK {
		span = max(g.kernel.Now()-r.started, now.At-began.At, time.Second)
	}
	return began, now, span
}

// emptiesAtLeast is the part of what lacks that a reclaim has to free of a full disk within ReclaimTimeout. Less may be files that
// come and go.
const emptiesAtLeast = 10

// empties reports whether a disk has more free space than when its reclaim began, by enough for emptiesAtLeast.
func (g *Manager) empties(i policy.Pool, m policy.Met) bool {
	began, now, span := g.sinceReclaim(i, m.Signal)
	freed := now.Free() - began.Free()
	return span > 0 && freed > 0 && float64(freed)*(ReclaimTimeout.Seconds()/span.Seconds()) >= float64(m.Lack)/emptiesAtLeast
}

// reclaimPause shortens a pause of the loop if a stop has waited long enough for a reclaim before it ends.
func (g *Manager) reclaimPause(pause, now time.Duration) time.Duration {
	for i := range policy.PoolCount {
		r := &g.pools[i].reclaim
		if r.job == nil {
			continue
		}
		due := g.dueOf(&g.pressure, i)
		if len(due) == 0 {
			continue
		}
		if left := r.started + g.reclaimWait(i, due[0]) - now; left > 0 {
			pause = min(pause, max(left, minPause))
		}
	}
	return pause
}

// invalidate discards the result of the last job: it has served a stop, or no stop is needed.
func (r *poolReclaim) invalidate() { r.ready, r.again, r.late = false, 0, 0 }

// clear records that the pool is not short any more.
func (r *poolReclaim) clear(i policy.Pool, now time.Duration) {
	r.invalidate()
	if r.job != nil {
		r.since = now
	}
	r.stale, r.young = i.IsDisk(), ""
	r.overdue = r.overdue && r.job != nil
}

// invalidateReclaims discards the results for a pool after a stop, including those of running jobs. For a
// disk, it discards those of all disks: the pod's space on every disk comes back, and the next stop must
// rest on new measurements.
func (g *Manager) invalidateReclaims(pool policy.Pool) {
	for i := range policy.PoolCount {
		if i == pool || i.IsDisk() && pool.IsDisk() {
			r := &g.pools[i].reclaim
			r.invalidate()
			r.stale, r.since = i.IsDisk() || r.job != nil, g.kernel.Now()
		}
	}
}

// startReclaim starts a pool's reclaim, unless one is running or has just ended. A pool with several
// thresholds reclaims for the one that lacks most.
func (g *Manager) startReclaim(ctx context.Context, now time.Duration, i policy.Pool, due []policy.Met, p *api.Pass) {
	r := &g.pools[i].reclaim
	inv := g.runtime.Inventory(ctx, 0)
	if r.job != nil || r.ready && now-r.ended < g.cfg.Eviction.Interval && !r.isBack(inv) {
		return
	}
	m := slices.MaxFunc(due, func(a, b policy.Met) int { return cmp.Compare(a.Lack, b.Lack) })
	r.job, r.relieves = g.reclaimer.Reclaim(ctx, m, g.kernel.Layout(), inv.Pods), m.Threshold
	g.linger() // it goes as far as it can before the next one begins
	r.started, r.began, r.since, r.stale, r.ready = now, g.obs, now, false, false
	g.harvest(now, i, p)
}

// isBack reports whether the runtime, which took no part in the last reclaim, has listed the pods since.
func (r *poolReclaim) isBack(inv inventory.Inventory) bool {
	return r.away && inv.Err == nil && inv.At >= r.started
}

// beginsReclaim reports whether a disk's reclaim has begun at that time.
func (g *Manager) beginsReclaim(now time.Duration) bool {
	for i := range policy.PoolCount {
		if r := &g.pools[i].reclaim; i.IsDisk() && r.job != nil && r.started == now {
			return true
		}
	}
	return false
}

// reclaimed reports whether a stop need not wait for a reclaim any more: one has ended since the last stop
// for the pool, or takes too long. Then the job ends by itself.
func (g *Manager) reclaimed(now time.Duration, i policy.Pool, m policy.Met) bool {
	r := &g.pools[i].reclaim
	return r.ready || r.job != nil && now-r.started >= g.reclaimWait(i, m)
}

// remeasure repeats a disk's reclaim, because that measures the pods again. It returns false if it was
// repeated often enough, or if the stop does not wait for it any more.
func (g *Manager) remeasure(ctx context.Context, now time.Duration, i policy.Pool, m policy.Met, p *api.Pass) bool {
	r := &g.pools[i].reclaim
	if r.again >= remeasureAtMost || r.job != nil {
		return false
	}
	r.again++
	r.ready = false
	g.startReclaim(ctx, now, i, []policy.Met{m}, p)
	return true
}

// harvest records the result of a pool's reclaim whose job is done, even if the pool is relieved and no stop
// waits for it any more.
func (g *Manager) harvest(now time.Duration, i policy.Pool, p *api.Pass) {
	r := &g.pools[i].reclaim
	if r.job == nil {
		return
	}
	if !r.overdue && p.Alarm == "" && r.job.Overdue() {
		r.overdue = true
		p.Alarm, p.AlarmBy, p.AlarmKind = r.alarm(), r.relieves.String(), api.AlarmReclaim
	}
	select {
	case <-r.job.Done():
	default:
		return
	}
	r.overdue = r.overdue && r.job.Overdue()
	done := r.job.Relief()
	r.young, r.suffices = "", done.WouldRelieve && g.cfg.Mode == config.ModeObserve
	if done.YoungImages > 0 {
		r.young = fmt.Sprintf("%d unused images (%s) are too young to be removed: `criguard prune --ignore-age` removes them",
			done.YoungImages, api.FormatBytes(done.YoungBytes))
	}
	v := api.ReclaimView{
		Signal: r.relieves.Signal, Steps: done.Steps,
		Freed: done.Freed, Took: api.Duration(now - r.started), Reports: done.Reports,
	}
	for _, step := range stepsFor(v.Signal, g.kernel.Layout(), policy.LogsPlace{}) {
		if isOff(&g.cfg, step) {
			v.Off = append(v.Off, string(step))
		}
	}
	inv := g.runtime.Inventory(context.Background(), 0)
	r.away = done.Away && (inv.Err != nil || inv.At < r.started)
	late := done.Late || done.Away && !r.away // the runtime is back, or has just gone, or only a listing of the reclaim failed
	switch {
	case !late:
		r.late = 0
	case !progressed(&v):
		r.late++
	}
	inconclusive := done.Inconclusive || late && r.late <= remeasureAtMost
	// A reclaim that relieved the pool serves no stop: other pods may use up the space before the next one.
	r.job, r.ready, r.ended = nil, len(g.metOf(&g.pressure, i)) > 0 && !r.stale && !inconclusive, now
	if len(v.Steps) > 0 && (v.Acted() || !r.reported) {
		p.Reclaimed = append(p.Reclaimed, v)
		r.reported = !v.Acted()
	}
}

// progressed reports whether a late reclaim removed something, and so did each of its steps that failed: a step
// that never gets to its first removal is no reason to wait for the next reclaim for ever.
func progressed(v *api.ReclaimView) bool {
	return v.Acted() && !slices.ContainsFunc(v.Reports, func(r reclaim.Report) bool { return len(r.Errors) > 0 && len(r.Removed) == 0 })
}

// alarm returns the alarm for a reclaim that takes too long.
func (r *poolReclaim) alarm() string {
	return fmt.Sprintf("%s: a reclaim has taken longer than %s; stops no longer wait for it", r.relieves.Signal, policy.ShortDuration(ReclaimTimeout))
}

// Finished is a job that is done and has that result.
type Finished Relief

// Done returns a closed channel.
func (Finished) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// Overdue returns false.
func (Finished) Overdue() bool { return false }

// Relief returns the result.
func (f Finished) Relief() Relief { return Relief(f) }
