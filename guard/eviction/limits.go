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

// enforce stops a pod that no threshold requires to be stopped but the configuration does: one that exceeds
// its storage limit, or one that started while its class is not admitted. It runs only while criguard
// relieves nothing, because relief comes first.
func (g *Manager) enforce(ctx context.Context, now time.Duration, p *api.Pass) {
	inv := g.runtime.Inventory(ctx, 0)
	g.enforceLimits(ctx, now, inv.Pods, p)
	if p.Stop == nil && g.cfg.Admission.Mode == config.AdmissionStop && g.pressure.Conditions != 0 {
		g.enforceAdmission(ctx, now, inv.Pods, p)
	}
}

// enforceLimits stops a pod that exceeds its limit of ephemeral storage: root filesystems, logs and local volumes together.
func (g *Manager) enforceLimits(ctx context.Context, now time.Duration, pods []inventory.Pod, p *api.Pass) {
	over, all := g.overLimit(pods), g.restraint.Limited
	// While stops are paused, while a disk is relieved, and while the machine sleeps, no limit is checked.
	unchecked := now - g.limitsAt
	if g.limitsAt = now; unchecked < limitedFor/2 {
		unchecked = 0
	}
	for uid, l := range all {
		l.Seen = min(l.Seen+unchecked, now)
		l.Holds = l.Holds && slices.ContainsFunc(over, func(p *inventory.Pod) bool { return limitKey(p) == uid })
		if all[uid] = l; now-l.Seen > limitedFor {
			delete(all, uid)
		}
	}
	for _, pod := range over {
		if g.keepsFiles(pod, now, p) {
			continue
		}
		used := pod.Disk.Total().Value
		pod.KeepsVolumes = g.restraint.ByPod(now).KeepsVolumes(pod.UID, pod.ID)
		if g.enforceOn(ctx, now, *pod, policy.CauseLimit, api.StopView{
			Signal: api.SignalLimit, Kind: api.KindLimit, Expected: used,
			Reason: fmt.Sprintf("uses %s of ephemeral storage, above its limit of %s",
				api.FormatBytes(used), api.FormatBytes(pod.StorageLimit)),
		}, p) {
			g.restraint.Limit(limitKey(pod), policy.Limited{Sandbox: pod.ID, Kept: keptOf(pod).Value, Pod: pod.FullName(), Seen: now})
			return
		}
	}
}

// overLimit returns the pods that exceed their limits, with their usage, in the order in which they are stopped: lowest priority
// first, then the one that exceeds its limit by the most, then the youngest.
func (g *Manager) overLimit(pods []inventory.Pod) (over []*inventory.Pod) {
	for i := range pods {
		if pods[i].StorageLimit <= 0 || pods[i].Protection != "" {
			continue
		}
		disk, inodes := g.kernel.DiskUsage(pods[i].ID)
		if policy.OverLimit(disk.Total().Value, pods[i].StorageLimit) { // a lower bound is enough
			pod := pods[i]
			pod.Disk, pod.Inodes = disk, inodes
			over = append(over, &pod)
		}
	}
	excess := func(p *inventory.Pod) int64 { return p.Disk.Total().Value - p.StorageLimit }
	slices.SortFunc(over, func(a, b *inventory.Pod) int {
		return cmp.Or(
			cmp.Compare(a.Priority, b.Priority), cmp.Compare(excess(b), excess(a)),
			cmp.Compare(b.Created, a.Created), cmp.Compare(a.ID, b.ID),
		)
	})
	return over
}

// limitKey names a pod among those that were stopped for their limits. One without a UID does not come back.
func limitKey(p *inventory.Pod) string { return cmp.Or(p.UID, p.ID) }

// keptOf is what a stop leaves of a pod's files if a kubelet starts it again.
func keptOf(p *inventory.Pod) policy.Measured { return p.Disk.Volumes.Plus(p.Disk.Logs) }

// keepsTooMuch is why the stop of a pod for its limit is held.
const keepsTooMuch = "its volumes and logs alone exceed its limit, and a stop does not free them"

// limitedFor is how long a pod that is not above its limit, or not listed, is remembered.
const limitedFor = time.Hour

// keepsFiles reports whether a pod was stopped for its limit, is back with the same volumes and logs, and these alone exceed the
// limit: a kubelet keeps them, so that another stop would help as little. It holds the stop with an alarm, until these have grown by a
// tenth of the limit, or what a stop gives back exceeds it alone.
func (g *Manager) keepsFiles(pod *inventory.Pod, now time.Duration, p *api.Pass) bool {
	before, again := g.restraint.Limited[limitKey(pod)]
	last, measured := before, keptOf(pod)
	kept := measured.Value
	if measured.Quality != policy.QualityExact { // while it is measured
		kept = max(kept, last.Kept)
	}
	if !again || last.Sandbox == pod.ID || !policy.OverLimit(kept, pod.StorageLimit) {
		return false
	}
	if last.Back != pod.ID { // before its stop, it has written more than what was measured then
		last.Back, last.Kept = pod.ID, max(last.Kept, kept)
	}
	last.Holds = kept-last.Kept <= pod.StorageLimit/10 && !policy.OverLimit(pod.Disk.Rootfs.Value, pod.StorageLimit)
	if last.Holds {
		p.Hold(api.KindLimit+" of "+pod.FullName(), policy.Held{By: api.HeldBreaker, Detail: keepsTooMuch})
		if !last.Alarmed && p.Alarm == "" {
			last.Alarmed = true
			p.Alarm, p.AlarmBy, p.AlarmKind = pod.FullName()+": "+keepsTooMuch+" (hint: delete the pod)", api.SignalLimit, api.AlarmNoRelief
		}
	}
	g.unsaved = g.unsaved || last != before
	last.Seen = now
	g.restraint.Limit(limitKey(pod), last)
	return last.Holds
}

// enforceAdmission stops a pod that started during a condition under which its class is not admitted, in the order of a
// drain. The kubelet refuses such pods.
func (g *Manager) enforceAdmission(ctx context.Context, now time.Duration, pods []inventory.Pod, p *api.Pass) {
	for _, pod := range drainOrder(pods) {
		for _, c := range g.pressure.Conditions.List() {
			if pod.Protection != "" || pod.Created <= g.condSince[c] || policy.Admit(policy.ConditionsOf(c), pod.QoS, pod.Critical) {
				continue
			}
			if g.enforceOn(ctx, now, *pod, policy.CauseAdmission, api.StopView{
				Signal: c.String(), Kind: api.KindAdmission, Grace: api.Duration(min(g.cfg.Eviction.MaxPodGracePeriod, pod.Grace)),
				Reason: fmt.Sprintf("%s pod started during %s", pod.QoS, c),
			}, p) {
				return
			}
		}
	}
}

// enforceOn begins a stop that the configuration requires, from the soft budget, and reports whether it did.
func (g *Manager) enforceOn(ctx context.Context, now time.Duration, pod inventory.Pod, cause policy.Cause, view api.StopView, p *api.Pass) bool {
	if now < g.survived[pod.ID] || g.HasStopped(pod.ID) || g.flightOf(pod.ID) != nil {
		return false
	}
	stop := recordOf(&pod, cause)
	held := g.restraint.Check(&stop, now)
	if held.By == "" && g.asksFleet(&stop) {
		held = g.fleet.Permit(&stop)
	}
	if held.By != "" {
		p.Hold(view.Kind+" of "+pod.FullName(), held)
		return false
	}
	order := StopOrder{Pod: pod}
	if cause == policy.CauseLimit {
		for _, m := range g.pressure.Met {
			g.discardOn(&order, m.Signal)
		}
	}
	f := &flight{view: &view, stop: stop, order: order}
	if !g.launchSoft(ctx, now, f, p) {
		return false
	}
	if order.Discard || order.DiscardLogs {
		g.awaitOnDisk(f)
	}
	p.Unhold()
	return true
}

// recordOf returns the record of a stop that no pool requires.
func recordOf(pod *inventory.Pod, cause policy.Cause) policy.Stop {
	return policy.Stop{Workload: pod.Workload, Sandbox: pod.ID, Created: pod.Created, Cause: cause, Kind: policy.Soft}
}

// awaitOnDisk lets the pool of a disk that is short wait for what a stop gives back there.
func (g *Manager) awaitOnDisk(f *flight) {
	if g.flightOf(f.order.Pod.ID) != f {
		return // observe mode
	}
	for _, m := range g.pressure.Met {
		i := g.kernel.Layout().Pool(m.Signal)
		if !i.IsDisk() || g.pools[i].flight != nil {
			continue
		}
		if yield := g.yield(f, m.Signal); yield > 0 {
			g.await(f, i, m, yield)
			return
		}
	}
}

// Steps returns the reclaim steps for a signal: those that free something on the pressed device and that
// the configuration allows.
func Steps(c *config.Config, s policy.Signal, l policy.Layout, p policy.LogsPlace) []reclaim.Step {
	return slices.DeleteFunc(stepsFor(s, l, p), func(s reclaim.Step) bool { return isOff(c, s) })
}

// ImagePolicy returns which images the configuration allows to remove.
func ImagePolicy(c *config.Images) *reclaim.ImagePolicy {
	return &reclaim.ImagePolicy{
		Prune: reclaim.Prune(c.Prune), MinAge: c.MinAge, UnusedGrace: c.UnusedGrace,
		MaxAge: c.MaxAge, Keep: c.Keep, AirGapDirs: c.AirgapDirs, Hold: c.HoldAfterRuntimeRestart,
	}
}

// stepsFor returns the reclaim steps that free something on the pressed device.
func stepsFor(s policy.Signal, l policy.Layout, p policy.LogsPlace) (steps []reclaim.Step) {
	switch l.Pool(s) {
	case policy.PoolMemory:
		if s == policy.SwapAvailable {
			return nil // reclaiming memory would fill the swap
		}
		return []reclaim.Step{reclaim.StepMemory}
	case policy.PoolPIDs:
		return []reclaim.Step{reclaim.StepSandboxes}
	}
	logs := p.LogsOn(s, l)
	if logs || l.SameDevice(s, policy.ContainerFSAvailable) { // the log of a dead container is removed with it
		steps = append(steps, reclaim.StepContainers, reclaim.StepSandboxes)
	}
	if logs {
		steps = append(steps, reclaim.StepLogs)
	}
	if l.SameDevice(s, policy.ImageFSAvailable) {
		steps = append(steps, reclaim.StepImages)
	}
	return steps
}

// isOff reports whether the configuration switches a step off.
func isOff(c *config.Config, s reclaim.Step) bool {
	switch s {
	case reclaim.StepMemory:
		return !c.Eviction.MemoryReclaim
	case reclaim.StepImages:
		return c.Images.Prune == config.PruneNever
	default:
		return !c.Containers.GC
	}
}
