package guard

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/criguard/criguard/policy"
)

// kindDrain is the kind of a stop that an operator asked for.
const kindDrain = "drain"

// Bounds of a drain.
const (
	drainAtOnce   = 4 // stops under way
	maxDrainGrace = time.Hour
)

// DrainPlan is what a drain stops, in that order, and what stays and why.
type DrainPlan struct {
	APIVersion string     `json:"apiVersion"`
	Draining   bool       `json:"draining"`
	Left       int        `json:"left"` // sandboxes that are to be stopped, those under way included
	Pods       []DrainPod `json:"pods"`
}

// DrainPod is one sandbox of a drain.
type DrainPod struct {
	Pod      string        `json:"pod"`
	UID      string        `json:"uid"`
	Sandbox  string        `json:"sandbox"`
	Priority int64         `json:"priority"`
	QoS      string        `json:"qos"`
	Grace    time.Duration `json:"grace"`
	Stopping bool          `json:"stopping,omitempty"` // under way
	Stays    string        `json:"stays,omitempty"`    // why it is not stopped; "" = it is
}

// planDrain tells what a drain with that grace does to the pods that run.
func (g *Guard) planDrain(pods []Pod, grace time.Duration) DrainPlan {
	plan := DrainPlan{APIVersion: APIVersion, Draining: g.orders.Drain != nil, Pods: make([]DrainPod, 0, len(pods))}
	for _, p := range drainOrder(pods) {
		d := DrainPod{
			Pod: p.FullName(), UID: p.UID, Sandbox: p.ID, Priority: p.Priority, QoS: p.QoS.String(),
			Grace: min(grace, p.Grace), Stopping: g.flightOf(p.ID) != nil, Stays: p.Protection,
		}
		if d.Stays == "" {
			plan.Left++
		}
		plan.Pods = append(plan.Pods, d)
	}
	return plan
}

// drainOrder sorts the pods: the lowest priority goes first, then the class that
// was promised least, then the younger; what stays comes last.
func drainOrder(pods []Pod) []*Pod {
	order := make([]*Pod, len(pods))
	for i := range pods {
		order[i] = &pods[i]
	}
	stays := func(p *Pod) int {
		if p.Protection != "" {
			return 1
		}
		return 0
	}
	slices.SortFunc(order, func(a, b *Pod) int {
		return cmp.Or(
			cmp.Compare(stays(a), stays(b)), cmp.Compare(a.Priority, b.Priority), cmp.Compare(drainClass(a.QoS), drainClass(b.QoS)),
			cmp.Compare(b.Created, a.Created), cmp.Compare(a.ID, b.ID),
		)
	})
	return order
}

// drainClass is the place of a class: BestEffort was promised least.
func drainClass(q policy.QoS) int {
	return slices.Index([]policy.QoS{policy.BestEffort, policy.Burstable, policy.Guaranteed}, q)
}

// drain stops the next sandbox of a drain. One that came after the drain began is
// stopped, too; what comes back again and again is left alone longer each time.
func (g *Guard) drain(ctx context.Context, now time.Duration, p *Pass) {
	d := g.orders.Drain
	if d == nil || g.cfg.Mode == ModeObserve || p.Stop != nil {
		return
	}
	under := 0
	for _, f := range g.flights {
		if f.view.Kind == kindDrain {
			under++
		}
	}
	if under >= drainAtOnce {
		return
	}
	for _, pod := range drainOrder(g.runtime.Inventory(ctx, false).Pods) {
		if pod.Protection != "" {
			return
		}
		if g.mayDrain(pod, d, now) {
			g.launchDrain(ctx, now, d, *pod, p)
			g.drainMore = under+1 < drainAtOnce
			return
		}
	}
}

func (g *Guard) mayDrain(pod *Pod, d *Drain, now time.Duration) bool {
	if until, ok := g.drained[pod.ID]; ok && now < until || g.flightOf(pod.ID) != nil {
		return false
	}
	return pod.Created <= d.Since || g.restraint.CheckWorkload(pod.Workload, now) == ""
}

// launchDrain begins one stop of a drain. It costs no budget: somebody asked for
// it.
func (g *Guard) launchDrain(ctx context.Context, now time.Duration, d *Drain, pod Pod, p *Pass) {
	why := "the node is being drained"
	if pod.Created > d.Since {
		why = "started while the node is drained"
		g.restraint.Remember(pod.Workload, now)
	}
	if d.Reason != "" {
		why += ": " + d.Reason
	}
	p.Stop = &StopView{
		Pod: pod.FullName(), UID: pod.UID, Sandbox: pod.ID, Signal: kindDrain, Kind: kindDrain,
		Grace: min(d.Grace, pod.Grace), Reason: fmt.Sprintf("%s (priority %d, %s)", why, pod.Priority, pod.QoS),
	}
	maps.DeleteFunc(g.drained, func(_ string, until time.Duration) bool { return until <= now })
	// Until it is not listed any more it is not stopped again; one that outlives its
	// stop is tried again later.
	g.drained[pod.ID] = now + p.Stop.Grace + ineffective
	g.order(pod.ID, now)
	met := policy.Met{Threshold: policy.Threshold{Kind: policy.Soft}}
	g.fly(ctx, &flight{view: p.Stop, kind: policy.Soft, met: met, workload: pod.Workload, started: now}, pod, StopOrder{})
}

// flightOf is the stop under way of a sandbox; nil = there is none.
func (g *Guard) flightOf(sandbox string) *flight {
	for _, f := range g.flights {
		if f.view.Sandbox == sandbox {
			return f
		}
	}
	return nil
}
