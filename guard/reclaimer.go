package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// steps lists what is reclaimed for a signal: the steps that free something on
// the pressed device, as far as the configuration allows them.
func (c *Config) steps(s policy.Signal, l policy.Layout) []reclaim.Step {
	if s.Class() == policy.ClassPID {
		return c.allowed(reclaim.StepSandboxes)
	}
	if s == policy.SwapAvailable {
		return nil // to reclaim memory fills the swap
	}
	if s.Class() == policy.ClassMemory || s.IsStall() {
		return c.allowed(reclaim.StepMemory)
	}
	node := s == policy.NodeFSAvailable || s == policy.NodeFSInodesFree
	image := s == policy.ImageFSAvailable || s == policy.ImageFSInodesFree
	switch {
	case l == policy.DedicatedImageFS && node:
		return c.allowed(reclaim.StepLogs)
	case l == policy.DedicatedImageFS:
		return c.allowed(reclaim.StepContainers, reclaim.StepSandboxes, reclaim.StepImages)
	case l == policy.SplitFS && image:
		return c.allowed(reclaim.StepImages)
	case l == policy.SplitFS:
		return c.allowed(reclaim.StepContainers, reclaim.StepSandboxes, reclaim.StepLogs)
	default:
		return c.allowed(reclaim.StepContainers, reclaim.StepSandboxes, reclaim.StepLogs, reclaim.StepImages)
	}
}

func (c *Config) allowed(steps ...reclaim.Step) []reclaim.Step {
	var out []reclaim.Step
	for _, s := range steps {
		switch s {
		case reclaim.StepMemory:
			if !c.Eviction.MemoryReclaim {
				continue
			}
		case reclaim.StepImages:
			if c.Images.Prune == PruneNever {
				continue
			}
		default:
			if !c.Containers.GC {
				continue
			}
		}
		out = append(out, s)
	}
	return out
}

// reclaimer reclaims on the node for a signal.
type reclaimer struct {
	node   *node
	keeper *housekeeper
}

// reliefAtMost bounds a reclaim for memory or PIDs, the wait for its turn included: to prune
// images or a hundred dead sandboxes takes minutes, which a node without memory or PIDs does
// not have. What is left over goes with the next reclaim: a removal that was cut short is
// one that the runtime takes up again.
const reliefAtMost = 2 * time.Second

// Reclaim starts the steps of a signal. Without any, and with nothing to measure,
// it is done at once: no goroutine stands between a memory threshold and the kill.
func (r *reclaimer) Reclaim(ctx context.Context, m policy.Met, layout policy.Layout, pods []Pod) ReliefJob {
	cfg := r.keeper.config()
	steps := cfg.steps(m.Signal, layout)
	disk := m.Signal.IsDisk()
	if len(steps) == 0 && !disk {
		return finishedRelief{}
	}
	j := &reliefJob{done: make(chan struct{})}
	plan, started := r.plan(cfg, steps, m, pods), time.Now()
	go func() {
		defer func() { close(j.done); r.node.wake("reclaim") }()
		acting, end, ok := r.keeper.acting(ctx)
		defer end()
		ctx := acting
		if !disk {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, reliefAtMost)
			defer cancel()
		}
		if disk && slices.Contains(plan.Steps, reclaim.StepLogs) && r.node.meter.logsApart(r.node.kernel.disks.probe) { // nothing of them is on the pressed disk
			plan.Steps = slices.DeleteFunc(plan.Steps, func(s reclaim.Step) bool { return s == reclaim.StepLogs })
		}
		if c, err := r.keeper.collect(); ok && err == nil && len(plan.Steps) > 0 {
			reports := c.Collect(ctx, plan)
			r.keeper.tellNotes(reports)
			j.relief = relieved(reports)
			j.relief.Late = slices.ContainsFunc(reports, func(r reclaim.Report) bool { return errors.Is(r.Err(), errDiskHangs) })
		}
		if disk {
			if room, err := plan.Target(ctx); err == nil && room.Met() {
				j.relief.Inconclusive = true // nobody will be stopped
				return
			} else if errors.Is(err, errDiskHangs) {
				j.relief.Late = true
			}
			r.measure(ctx, started)
		}
		j.relief.Inconclusive = !ok || acting.Err() != nil
	}()
	return j
}

// measure finds out what each pod uses of the disks, of those that run by now: one that was
// not listed yet when the reclaim began may be what fills the disk.
func (r *reclaimer) measure(ctx context.Context, since time.Time) {
	list, cancel := context.WithTimeout(ctx, sampleWait)
	defer cancel()
	r.node.meter.measureSince(ctx, r.node.lister.List(list).Pods, since)
}

func (r *reclaimer) plan(cfg Config, steps []reclaim.Step, m policy.Met, pods []Pod) reclaim.Plan {
	p := r.keeper.plan(cfg)
	p.Steps = steps
	p.Containers.Finished = true
	p.Target = r.target(m)
	if m.Signal.Resource() == policy.ResourceMemory {
		p.Memory = r.memoryTargets(cfg, m, pods)
	}
	return p
}

var errNoTotal = errors.New("the filesystem tells no total of it")

// target measures the pressed filesystem against the threshold and its minimum
// reclaim. Other resources have no target: what may go goes.
func (r *reclaimer) target(m policy.Met) reclaim.Target {
	if !m.Signal.IsDisk() {
		return nil
	}
	return r.node.until(m.Signal, func(int64) int64 { return m.Target })
}

// until measures the filesystem of a disk signal against what is to be available of its
// total. One that is not known, or has nothing of the kind, is an error: as one of size 0 it
// would have any share available.
func (n *node) until(s policy.Signal, available func(total int64) int64) reclaim.Target {
	return func(context.Context) (reclaim.Room, error) {
		fs, err := n.kernel.disks.probe(n.kernel.disks.getPaths().of(s))
		if err != nil {
			return reclaim.Room{}, fmt.Errorf("%s: %w", s, err)
		}
		room := reclaim.Room{Bytes: fs.Available, Inodes: fs.InodesFree}
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

// memoryTargets asks the pods that rank first to give back what is missing.
func (r *reclaimer) memoryTargets(cfg Config, m policy.Met, pods []Pod) []reclaim.MemoryTarget {
	cs := candidates(pods)
	r.node.kernel.Measure(cs, pods, m.Signal)
	var targets []reclaim.MemoryTarget
	missing := m.Deficit
	for _, v := range policy.Rank(cs, m.Signal, policy.SingleFS, cfg.Rank.Memory, m.Deficit) {
		p := podByID(pods, v.ID)
		if v.Excluded != "" || missing <= 0 || p.Cgroup == "" || !v.Memory.Known {
			continue
		}
		want := min(missing, v.Memory.Value) // what is in swap is no memory to be had
		targets = append(targets, reclaim.MemoryTarget{Cgroup: p.Cgroup, Name: p.FullName(), Bytes: want})
		missing -= want
	}
	return targets
}

func relieved(reports []reclaim.Report) Relief {
	v := view(0, reports, 0)
	return Relief{Steps: v.Steps, Reports: v.Reports, Freed: v.Freed}
}

// reliefJob is a reclaim under way.
type reliefJob struct {
	done   chan struct{}
	relief Relief
}

func (j *reliefJob) Done() <-chan struct{} { return j.done }
func (j *reliefJob) Relief() Relief        { return j.relief }

// moment reads both clocks.
func (n *node) moment() reclaim.Moment {
	return reclaim.Moment{Boot: n.kernel.Now(), Wall: time.Now()}
}
