package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/disk"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// reliefAtMost limits a reclaim for memory or PIDs, including the wait for its turn. Pruning images or
// removing a hundred dead sandboxes takes minutes, which a node without memory or PIDs does not have. The
// next reclaim continues: a runtime can resume a removal that was cut short.
const reliefAtMost = 2 * time.Second

// Reclaim starts the reclaim steps of a signal. If there are none and no disk to measure, it is done at once
// without a goroutine, so that nothing delays a kill for memory.
func (m *Manager) Reclaim(ctx context.Context, met policy.Met, layout policy.Layout, pods []inventory.Pod) eviction.ReliefJob {
	w := m.mandate()
	cfg := w.cfg
	steps := eviction.Steps(&cfg, met.Signal, layout, policy.LogsPlace{})
	onDisk := met.Signal.IsDisk()
	if len(steps) == 0 && !onDisk {
		return eviction.Finished(eviction.Relief{})
	}
	j := &reliefJob{done: make(chan struct{})}
	plan, started := m.plan(cfg), time.Now()
	plan.Steps, plan.Containers.Finished, plan.Target = steps, true, m.target(met)
	if met.Signal.Resource() == policy.ResourceMemory {
		plan.Memory = m.memoryTargets(cfg, met, pods)
	}
	if onDisk {
		plan.Ended = m.stopped()
	}
	c, _ := m.current() // nil if no runtime answers
	if c != nil && !onDisk && plan.NeedsTurn() {
		plan.Turn = c.Ask() // before a disk's reclaim of this pass: PIDs cannot wait for that
	}
	go func() {
		defer func() { close(j.done); m.opt.Wake() }()
		acting, end, ok := w.begin(ctx)
		defer end()
		var measuring measurement
		if onDisk {
			plan.Steps = eviction.Steps(&cfg, met.Signal, layout, m.opt.Meter.LogsPlace(m.opt.Disks.Read))
			measuring = m.beginMeasuring(acting, started)
			defer measuring.cancel()
		}
		if len(plan.Steps) > 0 {
			j.relief = m.relieve(ctx, j, met.Signal, c, &w, plan)
			j.relief.WouldRelieve = plan.DryRun && slices.ContainsFunc(j.relief.Reports, func(r reclaim.Report) bool { return r.Met || r.AtMost })
		}
		if onDisk {
			if v := view(met.Signal, j.relief.Reports, 0); v.Acted() {
				awaitFreed(acting, plan.Target)
			}
			if room, err := plan.Target(acting); err == nil && room.Met() {
				j.relief.Inconclusive = true // no pod has to be stopped
				return
			} else if errors.Is(err, disk.ErrHangs) {
				j.relief.Late = true
			}
			measuring.finish()
		}
		j.relief.Inconclusive = j.relief.Inconclusive || !ok || acting.Err() != nil
	}()
	return j
}

// freedStill is for how long nothing must have come back.
const freedStill = time.Second

// awaitFreed waits for what a reclaim has removed, which takes a slow disk seconds to delete. A stop waits for it no longer than for
// the rest of the reclaim.
func awaitFreed(ctx context.Context, target reclaim.Target) {
	_ = reclaim.Settling{Still: freedStill, AtMost: eviction.ReclaimTimeout, Percent: 1}.Await(ctx, target, reclaim.Room.Met)
}

// How long a reclaim runs before the pods are measured beside it, and how long what was measured then is worth after it has
// ended. A stop may not be able to wait until it ends: on a disk that fills fast, it waits for two seconds.
const (
	measureAfter = 500 * time.Millisecond
	measureWorth = 30 * time.Second
)

// measurement is the measurement of the pods for a reclaim.
type measurement struct {
	cancel func()
	finish func() // ends it, and repeats it if it is not worth anything any more
}

// beginMeasuring measures the pods for a reclaim that has started, when it has run for measureAfter or with finish.
func (m *Manager) beginMeasuring(ctx context.Context, started time.Time) measurement {
	ctx, cancel := context.WithCancel(ctx)
	var began time.Time
	measure := func() {
		began = time.Now()
		// A pod that started after the reclaim began may be the one that fills the disk.
		list, cancel := context.WithTimeout(ctx, disk.SampleTimeout)
		defer cancel()
		m.opt.Meter.MeasureSince(ctx, m.opt.Lister.List(list).Pods, started)
	}
	done := make(chan struct{})
	timer := time.AfterFunc(measureAfter, func() {
		defer close(done)
		measure()
	})
	join := sync.OnceValue(func() (runs bool) {
		if timer.Stop() {
			return false
		}
		<-done
		return true
	})
	return measurement{
		cancel: func() { cancel(); join() },
		finish: func() {
			if !join() || time.Since(began) > measureWorth {
				measure()
			}
		},
	}
}

// relieve runs a plan and waits up to eviction.ReclaimTimeout for it. Then it begins no further removal, but
// lets the one in flight finish, because an interrupted removal leaves remains. Until it finishes, relieve
// does not start other disk reclaims: they would only wait for it.
func (m *Manager) relieve(ctx context.Context, j *reliefJob, s policy.Signal, c *reclaim.Collector, w *mandate, plan reclaim.Plan) eviction.Relief {
	onDisk := s.IsDisk()
	if onDisk && m.overdue.Load() > 0 {
		j.overdue.Store(true)
		return eviction.Relief{}
	}
	acting, end, ok := w.begin(ctx)
	if c == nil || !ok {
		end()
		plan.Turn.Leave()
		return eviction.Relief{Away: onDisk && c == nil}
	}
	if !onDisk {
		var cancel context.CancelFunc
		acting, cancel = context.WithTimeout(acting, reliefAtMost)
		all := end
		end = func() { cancel(); all() }
	}
	if plan.NeedsTurn() {
		m.preempt()
	}
	enough, ended, began := make(chan struct{}), make(chan []reclaim.Report, 1), time.Now()
	plan.Enough = enough
	paused := false
	go func() {
		defer end()
		reports := c.Collect(acting, plan)
		paused = errors.Is(acting.Err(), context.Canceled)
		ended <- reports
	}()
	select {
	case reports := <-ended:
		m.collected(reports)
		relief := relieved(reports)
		relief.Inconclusive = paused
		relief.Late = onDisk && slices.ContainsFunc(reports, isLate)
		relief.Away = onDisk && slices.ContainsFunc(reports, isAway)
		return relief
	case <-time.After(eviction.ReclaimTimeout):
	}
	close(enough)
	j.overdue.Store(true)
	if onDisk {
		m.overdue.Add(1)
	}
	m.opt.Wake() // for the alarm
	go func() {
		reports := <-ended
		if onDisk {
			m.overdue.Add(-1)
		}
		m.collected(reports)
		if v := view(s, reports, time.Since(began)); v.Removed() > 0 {
			m.opt.Record(v, nil)
		}
	}()
	return eviction.Relief{}
}

var errNoTotal = errors.New("the filesystem reports no total")

// target measures the pressed filesystem against the threshold plus its minimum reclaim. Other resources have
// no target: the plan removes everything eligible.
func (m *Manager) target(met policy.Met) reclaim.Target {
	if !met.Signal.IsDisk() {
		return nil
	}
	return m.until(met.Signal, func(int64) int64 { return met.Target })
}

// until returns a target that measures the filesystem of a disk signal against how much of its total should
// be available. An unknown filesystem, or one without bytes or inodes, is an error: with a total of 0, any
// share would count as available.
func (m *Manager) until(s policy.Signal, available func(total int64) int64) reclaim.Target {
	return func(context.Context) (reclaim.Room, error) {
		fs, err := m.opt.Disks.Read(m.opt.Disks.Paths().Of(s))
		if err != nil {
			return reclaim.Room{}, fmt.Errorf("%s: %w", s, err)
		}
		room := reclaim.Room{Bytes: fs.Available + fs.Reserved, Inodes: fs.InodesFree, Lag: fs.Lag}
		var total int64
		if s.Resource() == policy.ResourceInodes {
			total, room.LackInodes = fs.Inodes, available(fs.Inodes)-fs.InodesFree
		} else {
			total, room.LackBytes = fs.Total, available(fs.Total)-fs.Available
		}
		if total == 0 {
			return reclaim.Room{}, fmt.Errorf("%s: %w", s, errNoTotal)
		}
		return room, nil
	}
}

// memoryTargets spreads the deficit over the pods that rank first.
func (m *Manager) memoryTargets(cfg config.Config, met policy.Met, pods []inventory.Pod) []reclaim.MemoryTarget {
	cs := inventory.Candidates(pods)
	m.opt.Node.Measure(cs)
	var targets []reclaim.MemoryTarget
	missing := met.Deficit
	for _, v := range policy.Rank(cs, met.Signal, policy.SingleFS, cfg.Rank.Memory) {
		p := inventory.ByID(pods, v.ID)
		if v.Excluded != "" || missing <= 0 || p.Cgroup == "" || !v.Memory.Known {
			continue
		}
		want := min(missing, v.Memory.Value) // a pod's swap does not count as memory to reclaim
		targets = append(targets, reclaim.MemoryTarget{Cgroup: p.Cgroup, Name: p.FullName(), Bytes: want})
		missing -= want
	}
	return targets
}

// isLate reports whether a disk or a runtime that was too slow cut a step short, so that something reclaimable may be left. A
// removal that timed out is not one: the step goes on without its item.
func isLate(r reclaim.Report) bool {
	return r.Unread || errors.Is(r.Err(), disk.ErrHangs) ||
		slices.ContainsFunc(r.Errors, func(f reclaim.Failure) bool { return f.Kind == "" && errors.Is(f.Err, cri.ErrTimeout) })
}

// isAway reports whether the runtime did not answer a listing of a step. containerd refuses all calls until it has recovered its pods.
func isAway(r reclaim.Report) bool {
	return slices.ContainsFunc(r.Errors, func(f reclaim.Failure) bool {
		return f.Kind == "" && (errors.Is(f.Err, cri.ErrUnavailable) || errors.Is(f.Err, cri.ErrTimeout) || errors.Is(f.Err, cri.ErrRefused))
	})
}

func relieved(reports []reclaim.Report) eviction.Relief {
	v := view(0, reports, 0)
	relief := eviction.Relief{Steps: v.Steps, Reports: v.Reports, Freed: v.Freed}
	for i := range reports {
		images, bytes := reports[i].YoungImages()
		relief.YoungImages, relief.YoungBytes = relief.YoungImages+images, relief.YoungBytes+bytes
	}
	return relief
}

// reliefJob is a reclaim in progress.
type reliefJob struct {
	done    chan struct{}
	overdue atomic.Bool
	relief  eviction.Relief
}

func (j *reliefJob) Done() <-chan struct{}   { return j.done }
func (j *reliefJob) Overdue() bool           { return j.overdue.Load() }
func (j *reliefJob) Relief() eviction.Relief { return j.relief }
