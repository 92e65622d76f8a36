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
)

// drainAtOnce is the maximum number of stops of a drain in flight.
const drainAtOnce = 4

// Plan returns what a drain with that grace period would do to the pods, or StopPod to a single one.
func (g *Manager) Plan(pods []inventory.Pod, grace time.Duration) api.DrainPlan {
	plan := api.DrainPlan{APIVersion: api.APIVersion, Draining: g.Orders.Drain != nil, Pods: make([]api.DrainPod, 0, len(pods))}
	for _, p := range drainOrder(pods) {
		plan.Pods = append(plan.Pods, api.DrainPod{
			Pod: p.FullName(), UID: p.UID, Sandbox: p.ID, Priority: p.Priority, QoS: p.QoS.String(),
			Grace: api.Duration(min(grace, p.Grace)), Stopping: g.flightOf(p.ID) != nil, Stays: p.Protection,
		})
		if p.Protection == "" {
			plan.Left++
		}
	}
	return plan
}

// StopPod stops a pod because an operator asked for it, and records that in p, whose ID is set. The stop takes
// nothing from the budget, and the workload's next stop does not back off because of it.
func (g *Manager) StopPod(ctx context.Context, pod *inventory.Pod, grace time.Duration, why string, p *api.Pass) {
	stop := recordOf(pod, policy.CauseCommand)
	stop.Workload = ""
	view := api.StopView{Signal: api.KindCommand, Kind: api.KindCommand, Grace: api.Duration(min(grace, pod.Grace)), Reason: why}
	if again, _, _ := g.renewed(ctx, pod); again != nil {
		pod = again
	}
	g.launch(ctx, time.Duration(p.At), &flight{view: &view, stop: stop, order: StopOrder{Pod: *pod}}, p)
}

// HasStopped reports whether a stop has just emptied a sandbox, which may still be listed. What has started in its pod's cgroup since
// may be in another sandbox: only a listing shows that.
func (g *Manager) HasStopped(sandbox string) bool {
	e, ended := g.emptied[sandbox]
	if !ended {
		return false
	}
	inv := g.runtime.Inventory(context.Background(), 0)
	return inv.Err != nil || inv.At < e.at || g.kernel.Now() < e.at+survivedPenalty && len(g.kernel.UnlistedIn(e.pod)) == 0
}

// drainOrder returns the pods in the order in which a drain stops them: lowest priority first, then
// BestEffort before Burstable before Guaranteed before unknown, then youngest first. Protected pods come
// last.
func drainOrder(pods []inventory.Pod) []*inventory.Pod {
	order := make([]*inventory.Pod, len(pods))
	for i := range pods {
		order[i] = &pods[i]
	}
	stays := func(p *inventory.Pod) int { return min(len(p.Protection), 1) }
	slices.SortFunc(order, func(a, b *inventory.Pod) int {
		return cmp.Or(
			cmp.Compare(stays(a), stays(b)), cmp.Compare(a.Priority, b.Priority), cmp.Compare(b.QoS, a.QoS),
			cmp.Compare(b.Created, a.Created), cmp.Compare(a.ID, b.ID),
		)
	})
	return order
}

// drain stops the next sandbox of a drain. That includes sandboxes created after the drain began, but a
// workload that keeps coming back is left alone for longer each time.
func (g *Manager) drain(ctx context.Context, now time.Duration, p *api.Pass) {
	d := g.Orders.Drain
	if d == nil || g.cfg.Mode == config.ModeObserve || p.Stop != nil {
		return
	}
	under := 0
	for _, f := range g.flights {
		if f.stop.Cause == policy.CauseDrain {
			under++
		}
	}
	if under >= drainAtOnce {
		return
	}
	inv := g.runtime.Inventory(ctx, 0)
	if inv.Err != nil {
		return // without the runtime, a pod would be killed at the end of its grace period, and never be told to end
	}
	for _, pod := range drainOrder(inv.Pods) {
		if pod.Protection != "" {
			return
		}
		if g.drainPod(ctx, now, d, *pod, p) {
			g.again = g.again || under+1 < drainAtOnce
			return
		}
	}
}

// drainPod begins one stop of a drain, unless something holds it back. An operator asked for it, so it takes
// nothing from the budget.
func (g *Manager) drainPod(ctx context.Context, now time.Duration, d *api.Drain, pod inventory.Pod, p *api.Pass) bool {
	if now < g.survived[pod.ID] || g.HasStopped(pod.ID) || g.flightOf(pod.ID) != nil {
		return false
	}
	stop, why := recordOf(&pod, policy.CauseDrain), "the node is being drained"
	if pod.Created <= time.Duration(d.Since) {
		stop.Workload = "" // its replacement is stopped at once, and only then backs off
	} else if why = "started while the node is drained"; g.restraint.Check(&stop, now).By != "" {
		return false
	}
	if d.Reason != "" {
		why += ": " + d.Reason
	}
	view := api.StopView{
		Signal: api.KindDrain, Kind: api.KindDrain, Grace: min(d.Grace, api.Duration(pod.Grace)),
		Reason: fmt.Sprintf("%s (priority %d, %s)", why, pod.Priority, pod.QoS),
	}
	return g.launchSoft(ctx, now, &flight{view: &view, stop: stop, order: StopOrder{Pod: pod}}, p)
}

// launchSoft launches a stop whose containers all are to end in their grace period, with those that have started since the
// listing. It returns false if these protect the pod, if the pod is gone, or if the fleet's permit has expired during another listing.
func (g *Manager) launchSoft(ctx context.Context, now time.Duration, f *flight, p *api.Pass) bool {
	again, listed, _ := g.renewed(ctx, &f.order.Pod)
	if listed && again == nil {
		return false // it is gone: what runs in its cgroup is another sandbox of the pod
	}
	if listed && g.asksFleet(&f.stop) && g.fleet.Permit(&f.stop).By != "" {
		return false
	}
	if again != nil {
		disk, inodes, keeps := f.order.Pod.Disk, f.order.Pod.Inodes, f.order.Pod.KeepsVolumes // as measured
		f.order.Pod = *again
		f.order.Pod.Disk, f.order.Pod.Inodes, f.order.Pod.KeepsVolumes = disk, inodes, keeps
		if again.Protection != "" {
			return false
		}
	}
	g.launch(ctx, now, f, p)
	return true
}
