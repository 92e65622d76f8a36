package gc

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// collectCgroups removes the empty pod cgroups of sandboxes that are no longer listed, because each one keeps
// kernel memory. It leaves them to a kubelet if there is one, and leaves slices to systemd.
func (m *Manager) collectCgroups(ctx context.Context) {
	w := m.mandate()
	ctx, end, ok := w.begin(ctx)
	defer end()
	old := m.opt.Node.QuietFor(w.cfg.Containers.MinAge)
	client, err := m.opt.Client()
	if err != nil || !ok || len(old) == 0 {
		return
	}
	started := time.Now()
	sandboxes, err := client.Sandboxes(ctx)
	if err != nil || m.opt.Node.KubeletSign(ctx, sandboxes) != "" {
		return
	}
	pods := m.opt.Lister.Current().Pods
	r := reclaim.Report{Step: reclaim.StepCgroups, DryRun: w.cfg.Mode == config.ModeObserve}
	now := m.opt.Now()
	for rel, since := range old {
		owned := strings.HasSuffix(rel, ".slice") ||
			slices.ContainsFunc(sandboxes, func(s cri.Sandbox) bool { return inventory.IsCgroupOf(rel, s.UID) }) ||
			slices.ContainsFunc(pods, func(p inventory.Pod) bool { return p.Cgroup == rel || p.Owns(rel) })
		if owned || ctx.Err() != nil {
			continue
		}
		it := reclaim.Item{Kind: reclaim.KindCgroup, ID: rel, Name: path.Base(rel), Age: api.Rounded(now - since), Why: "empty, and its pod is gone"}
		if !r.DryRun {
			switch err := m.opt.Node.RemoveQuiet(rel, since); {
			case errors.Is(err, cgroup.ErrGone):
				continue
			case err != nil:
				r.Errors = append(r.Errors, reclaim.Failure{Kind: it.Kind, ID: it.ID, Name: it.Name, Message: err.Error(), Err: err})
				continue
			}
		}
		r.Removed = append(r.Removed, it)
	}
	slices.SortFunc(r.Removed, func(a, b reclaim.Item) int { return strings.Compare(a.ID, b.ID) })
	r.Took = api.Duration(time.Since(started))
	m.collected([]reclaim.Report{r})
	m.record(ctx, policy.MemoryAvailable, []reclaim.Report{r}, time.Duration(r.Took))
}
