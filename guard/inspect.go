package guard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"slices"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/disk"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/gc"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/machine"
	"github.com/criguard/criguard/guard/node"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// A Look inspects the node directly, without the service and without stopping anything.
type Look struct {
	host  *host
	guard *eviction.Manager
}

// OpenLook reads the node's signals and, if a runtime answers, lists its pods. If no runtime answers, Status
// reports it and Rank fails.
func OpenLook(ctx context.Context, cfg config.Config) (*Look, error) {
	n, err := openHost(cfg, machine.Real())
	if err != nil {
		return nil, err
	}
	l := &Look{host: n, guard: eviction.New(cfg, n.kernel, n, nil, nil, nil, policy.NewRestraint(n.bootID))}
	l.Refresh(ctx)
	// A hung filesystem is only detected after a timeout. Until then it is unknown which filesystems share a
	// device.
	for late := time.Now().Add(2 * disk.HangTimeout); !n.disks.Settled() && time.Now().Before(late) && ctx.Err() == nil; {
		time.Sleep(disk.ReadTimeout)
		l.guard.Observe()
	}
	return l, nil
}

// Refresh lists the pods and reads the signals again.
func (l *Look) Refresh(ctx context.Context) {
	l.host.lister.List(ctx)
	l.host.lookAtMounts(ctx)
	l.guard.Observe()
}

// Protect protects pods as operators do, by namespace/name with the reason.
func (l *Look) Protect(reasons map[string]string) { l.host.lister.Protect(reasons) }

// Close releases the node.
func (l *Look) Close() { l.host.Close() }

// Status returns the state of the node, and which service guards it.
func (l *Look) Status() api.Status {
	st := status(l.guard, l.host)
	if locks, err := nodeLocks(l.host.config()); err == nil {
		st.GuardedBy = rundir.Holder(locks...)
	}
	return st
}

// Rank ranks the pods for a signal. It returns cri.ErrNoRuntime if no runtime answers. For a disk signal it
// first measures what each pod uses.
func (l *Look) Rank(ctx context.Context, s policy.Signal) (api.Ranking, error) {
	inv := l.host.lister.Current()
	if inv.Err != nil {
		return api.Ranking{}, inv.Err
	}
	if s.IsDisk() {
		l.host.meter.Measure(ctx, inv.Pods)
	}
	return rank(ctx, l.guard, l.host, s), nil
}

// MetNow returns the hard thresholds of the configuration that are met now, see eviction.Manager. For a stall it first
// waits for a window, unless ctx ends before; for a disk it measures what each pod uses.
func (l *Look) MetNow(ctx context.Context) []api.MetNow {
	if cfg := l.host.config(); cfg.Hard().HaveStall() && l.host.kernel.AwaitStalls(ctx) {
		l.guard.Observe()
	}
	if slices.ContainsFunc(l.guard.Snapshot().Pressure.Met, func(m policy.Met) bool { return m.Signal.IsDisk() }) {
		l.host.meter.Measure(ctx, l.host.lister.Current().Pods)
	}
	return l.guard.MetNow(ctx)
}

// unread returns why a signal that the node may have was not read; nil = it was, or the node does not have it.
func (l *Look) unread(s policy.Signal) error {
	status, why := l.guard.Snapshot().Observations[s].Status, l.host.kernel.Reason(s)
	unreported := errors.Is(why, disk.ErrNoPath) && l.host.disks.Paths().Image == ""
	soon := errors.Is(why, node.ErrNotYet) || errors.Is(why, disk.ErrUnread) || errors.Is(why, disk.ErrNoLayout)
	if status == policy.Failed || status == policy.Absent && (unreported || soon) {
		return why
	}
	return nil
}

// Notes returns remarks about settings that do not fit this node as it is now.
func (l *Look) Notes() []string {
	cfg, inv := l.host.config(), l.host.lister.Current()
	notes := l.Status().Warnings
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if inv.Err != nil {
		if cfg.Runtime.Endpoint != "" {
			note("runtime.endpoint = %q does not answer: %v", cfg.Runtime.Endpoint, inv.Err)
		} else {
			note("%v", inv.Err)
		}
		note("without an answer of the runtime, the thresholds of its filesystems and the protect rules were not checked")
	}
	for _, dir := range []struct{ key, name string }{
		{"node.root_dir", cfg.Node.RootDir}, {"node.pod_log_dir", cfg.Node.PodLogDir}, {"the directory of metrics.textfile", path.Dir(cfg.Metrics.Textfile)},
	} {
		if _, err := os.Stat(dir.name); dir.name != "" && errors.Is(err, fs.ErrNotExist) {
			note("%s = %q does not exist", dir.key, dir.name)
		}
	}
	if _, err := l.host.layout.Inode(cfg.Node.PodsCgroup); cfg.Node.PodsCgroup != "" && err != nil {
		note("node.pods_cgroup = %q does not exist", cfg.Node.PodsCgroup)
	}
	if limit, ok := l.host.layout.RootLimit(); ok {
		note("this node is in a cgroup with a memory limit of %s, which no threshold covers (hint: limit the pods' cgroup, too)", api.FormatBytes(limit))
	}
	if _, err := os.Stat(cfg.Dir.FleetSocket()); cfg.Fleet.Enabled && errors.Is(err, fs.ErrNotExist) {
		note("fleet.enabled = true, and the fleet's agent has no socket (hint: systemctl enable --now criguard-fleet.socket)")
	}
	for i, r := range cfg.Protects {
		if inv.Err == nil && !slices.ContainsFunc(inv.Pods, func(p inventory.Pod) bool { return r.Match(p.Namespace, p.Name, p.Labels) }) {
			note("protect rule %d matches no pod that runs now", i+1)
		}
	}
	return notes
}

// gc returns garbage collection with the image ages that the service has saved.
func (l *Look) gc(readOnly bool) *gc.Manager {
	opt := l.host.gcOptions(slog.New(slog.DiscardHandler), func(api.ReclaimView, *api.Peer) {})
	opt.ReadOnly = readOnly
	return gc.New(opt)
}

// Images evaluates every image, see gc.Manager.
func (l *Look) Images(ctx context.Context) (reclaim.ImageList, error) {
	return l.gc(true).Images(ctx)
}

// Prune removes everything eligible by the service's rules and reports each step. It returns cri.ErrNoRuntime
// if no runtime answers.
func (l *Look) Prune(ctx context.Context, o api.PruneOptions) ([]reclaim.Report, error) {
	return l.gc(o.DryRun).Prune(ctx, o, api.Peer{})
}
