package guard

import (
	"context"
	"fmt"
	"time"

	"github.com/criguard/criguard/policy"
)

// enforce stops what no pressure asks for but the configuration does: a pod
// above its storage limit, and a pod that came while it is not admitted. It runs
// only when no stop is under way: relief comes first.
func (g *Guard) enforce(ctx context.Context, now time.Duration, p *Pass) {
	admission := g.cfg.Admission.Mode == AdmissionStop && g.pressure.Conditions != 0
	if !admission && len(g.cfg.Limits) == 0 && len(g.cfg.Annotations.TrustedNamespaces) == 0 {
		return
	}
	inv := g.runtime.Inventory(ctx, false)
	if g.enforceLimits(ctx, now, inv.Pods, p); p.Stop == nil && admission {
		g.enforceAdmission(ctx, now, inv.Pods, p)
	}
}

// enforceLimits stops the first pod that uses more ephemeral storage than it
// may: root filesystems, logs and local volumes together.
func (g *Guard) enforceLimits(ctx context.Context, now time.Duration, pods []Pod, p *Pass) {
	limited := false
	for i := range pods {
		limited = limited || pods[i].StorageLimit > 0
	}
	if !limited {
		return
	}
	cs := candidates(pods)
	g.kernel.Measure(cs, pods, policy.NodeFSAvailable)
	for i, c := range cs {
		if c.Protection != "" || pods[i].StorageLimit <= 0 || !c.Disk.Known {
			continue
		}
		used := c.Disk.Rootfs + c.Disk.Logs + c.Disk.Volumes
		if !policy.OverLimit(used, pods[i].StorageLimit) {
			continue
		}
		g.enforceOn(ctx, now, pods[i], StopView{
			Signal: signalLimit, Kind: kindLimit, Expected: used,
			Reason: fmt.Sprintf("uses %s of ephemeral storage, above its limit of %s",
				FormatBytes(used), FormatBytes(pods[i].StorageLimit)),
		}, p)
		if p.Stop != nil {
			return
		}
	}
}

// enforceAdmission stops the first pod that started while a condition holds
// under which pods of its class are not admitted, as the kubelet refuses them.
func (g *Guard) enforceAdmission(ctx context.Context, now time.Duration, pods []Pod, p *Pass) {
	for i := range pods {
		pod := &pods[i]
		if pod.Protection != "" || policy.Admit(g.pressure.Conditions, pod.QoS, pod.Critical) {
			continue
		}
		for _, c := range g.pressure.Conditions.List() {
			since, ok := g.condSince[c]
			if !ok || pod.Created <= since || policy.Admit(policy.ConditionsOf(c), pod.QoS, pod.Critical) {
				continue
			}
			g.enforceOn(ctx, now, *pod, StopView{
				Signal: c.String(), Kind: kindAdmission, Grace: min(g.cfg.Eviction.MaxPodGracePeriod, pod.Grace),
				Reason: fmt.Sprintf("%s pod started during %s", pod.QoS, c),
			}, p)
			if p.Stop != nil {
				return
			}
		}
	}
}

// enforceOn stops one pod for the configuration's sake, on the soft budget.
func (g *Guard) enforceOn(ctx context.Context, now time.Duration, pod Pod, view StopView, p *Pass) {
	m := policy.Met{Threshold: policy.Threshold{Signal: policy.NodeFSAvailable, Kind: policy.Soft}}
	if until, ok := g.skip[pod.ID]; ok && now < until {
		return
	}
	if held := g.restraint.CheckBudget(m.Kind, pod.Workload, now); held.By != "" {
		p.hold(m, held.By)
		p.HeldBy = view.Kind + " of " + pod.FullName()
		return
	}
	view.Pod, view.UID, view.Sandbox = pod.FullName(), pod.UID, pod.ID
	view.Available = g.obs[m.Signal].Available
	g.restraint.TakeBudget(m.Kind, pod.Workload, now)
	g.launch(ctx, now, m, pod, view, p)
	p.Held, p.HeldBy = "", ""
}
