package gc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/disk"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// errPreempted reports that a reclaim under pressure ended a manual prune.
var errPreempted = errors.New("prune ended early: a threshold is met, and criguard reclaims for it (hint: prune again when criguard status shows no pressure)")

// errImagesApart reports that removing images does not help a prune to its end.
var errImagesApart = errors.New("the images are on another filesystem than that of the signal")

// Prune removes everything eligible by the current configuration, and records it. It returns cri.ErrNoRuntime
// if no runtime answers.
func (m *Manager) Prune(ctx context.Context, o api.PruneOptions, by api.Peer) ([]reclaim.Report, error) {
	c, err := m.current()
	if err != nil {
		return nil, cri.NoRuntime(err)
	}
	if !o.DryRun {
		m.opt.Log.Info("pruning", "action", "prune", "by", by.String(), "by_uid", by.UID, "by_pid", by.PID)
	}
	began, cfg, signal := time.Now(), m.config(), policy.ImageFSAvailable
	p := m.plan(cfg)
	p.DryRun, p.Progress, p.Orderly = o.DryRun, o.Progress, true
	if o.Containers && (cfg.Containers.GC || !o.Images) {
		p.Steps = append(p.Steps, reclaim.StepContainers, reclaim.StepSandboxes, reclaim.StepLogs)
	}
	if o.Images {
		p.Steps = append(p.Steps, reclaim.StepImages)
	}
	if o.IgnoreAge {
		p.Images.MinAge, p.Images.UnusedGrace = 0, 0
	}
	switch {
	case !o.Until.IsZero():
		signal, p.Target = o.Signal, m.until(o.Signal, o.Until.Of)
		if o.Images && m.imagesApart(o.Signal) {
			p.Steps = slices.DeleteFunc(p.Steps, func(s reclaim.Step) bool { return s == reclaim.StepImages })
			if len(p.Steps) == 0 {
				return nil, fmt.Errorf("prune until %s: %w", o.Signal, errImagesApart)
			}
		}
	case !o.DryRun:
		p.Target = m.unlimited()
	}
	reports := c.Collect(ctx, p)
	if err := unanswered(reports); err != nil {
		return nil, cri.NoRuntime(err)
	}
	if !o.DryRun {
		m.collected(reports)
		m.warnLedger(m.ledger.SaveEnd(m.opt.Now())) // without the service, this starts the ledger
		v := view(signal, reports, time.Since(began))
		if len(reports) == 0 { // the target was met
			for _, step := range p.Steps {
				v.Steps = append(v.Steps, string(step))
			}
		}
		go m.opt.Record(v, &by) // the answer does not wait for the loop
	}
	select {
	case <-p.Enough:
		return reports, errPreempted
	default:
		return reports, nil
	}
}

// imagesApart reports whether the images are on another filesystem than that of a disk signal; false if that is not known.
func (m *Manager) imagesApart(s policy.Signal) bool {
	paths := m.opt.Disks.Paths()
	images, err := m.opt.Disks.Read(paths.Image)
	if err != nil {
		return false
	}
	other, err := m.opt.Disks.Read(paths.Of(s))
	return err == nil && disk.Apart(images, other)
}

// unanswered returns the first error if no step got an answer from the runtime. A step that removed something did.
func unanswered(reports []reclaim.Report) (first error) {
	for i := range reports {
		whole := slices.IndexFunc(reports[i].Errors, func(f reclaim.Failure) bool {
			return f.Kind == "" && (errors.Is(f.Err, cri.ErrUnavailable) || errors.Is(f.Err, cri.ErrTimeout))
		})
		if whole < 0 || len(reports[i].Removed) > 0 {
			return nil
		}
		first = cmp.Or(first, reports[i].Errors[whole].Err)
	}
	return first
}

// unlimited returns a target that only measures how much a prune frees on the filesystems of images and layers.
// One that cannot be read does not count, and holds nothing back.
func (m *Manager) unlimited() reclaim.Target {
	paths, now := m.opt.Disks.Paths(), map[string]cgroup.Space{}
	for _, dir := range []string{paths.Image, paths.Of(policy.ContainerFSAvailable)} {
		fs, err := m.opt.Disks.Read(dir)
		shared := func(other cgroup.Space) bool { return !disk.Apart(fs, other) }
		if err == nil && !slices.ContainsFunc(slices.Collect(maps.Values(now)), shared) {
			now[dir] = fs
		}
	}
	return func(context.Context) (reclaim.Room, error) {
		room := reclaim.Room{Unlimited: true}
		for dir, last := range now {
			if fs, err := m.opt.Disks.Read(dir); err == nil {
				now[dir], last = fs, fs
			}
			room.Bytes += last.Available + last.Reserved
		}
		return room, nil
	}
}

// Images evaluates every image. It returns the prunable ones first, in the order of removal, then the kept
// ones with the reason. It returns cri.ErrNoRuntime if no runtime answers.
func (m *Manager) Images(ctx context.Context) (reclaim.ImageList, error) {
	c, err := m.current()
	if err != nil {
		return reclaim.ImageList{}, err
	}
	list, err := c.Images(ctx, m.plan(m.config()))
	return list, cri.NoRuntime(err)
}
