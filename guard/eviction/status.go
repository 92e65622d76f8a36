package eviction

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/policy"
)

// Snapshot returns the state after the last pass.
func (g *Manager) Snapshot() api.State {
	st := api.State{
		Observing: g.cfg.Mode == config.ModeObserve, InFleet: g.cfg.Fleet.Enabled, InFlight: len(g.flights), Relieving: g.relieving(),
		Observations: &g.obs, Thresholds: g.thresholds, Pressure: g.pressure,
		Budget: func() policy.BudgetView { return g.restraint.Status(g.kernel.Now()) },
	}
	for i := range g.pools {
		st.Alarms[i] = g.pools[i].alarm != "" || g.pools[i].overdue()
	}
	for _, l := range g.restraint.Limited {
		st.Alarms[policy.PoolNodeBytes] = st.Alarms[policy.PoolNodeBytes] || l.Holds
	}
	return st
}

func (g *Manager) signalStatus(s policy.Signal, reason func(policy.Signal) string) api.SignalStatus {
	o := g.obs[s]
	st := api.SignalStatus{
		SignalView: api.SignalView{Signal: s, Available: o.Available, Capacity: o.Capacity, Status: o.Status.String()},
		Condition:  s.Condition().String(),
	}
	if o.Status != policy.OK {
		st.Error = reason(s)
	}
	for _, t := range g.thresholds {
		if t.Signal != s {
			continue
		}
		ts := api.ThresholdStatus{Kind: t.Kind.String(), Value: t.Value.String(), Amount: t.Value.Of(o.Capacity), Grace: api.Duration(t.Grace)}
		if !t.MinReclaim.IsZero() {
			ts.MinReclaim = t.MinReclaim.String()
		}
		if i := slices.IndexFunc(g.pressure.Met, func(m policy.Met) bool { return m.Compare(t) == 0 }); i >= 0 {
			ts.Met, ts.Due = true, g.pressure.Met[i].Due
		}
		st.Thresholds = append(st.Thresholds, ts)
	}
	return st
}

// RankNow ranks the listed pods for a signal as of now: for what its pool lacks while its threshold is due,
// and else by their order alone. It does not ask the runtime, so that an answer never delays a decision.
func (g *Manager) RankNow(ctx context.Context, s policy.Signal) api.Ranking {
	now, pool, layout := g.kernel.Now(), g.kernel.Layout().Pool(s), g.kernel.Layout()
	inv := g.runtime.Inventory(ctx, 0)
	keys := g.cfg.Rank.Keys(s.Resource())
	r := api.Ranking{APIVersion: api.APIVersion, Signal: s, Available: g.obs[s].Available, Capacity: g.obs[s].Capacity, Keys: keys}
	due := slices.DeleteFunc(g.dueOf(&g.pressure, pool), func(m policy.Met) bool { return m.Signal != s })
	if len(due) > 0 {
		c := g.choose(inv, now, pool, due)
		r.Need, r.Pods = needOf(&c.Decision), RankedViews(&c.Decision, inv.Pods)
		h := g.pools[pool].held
		if g.Orders.Pause != nil {
			h = api.Hold{Threshold: due[0].Threshold.String(), Reason: api.HeldPaused}
		}
		if h.Reason != "" {
			r.Held = &h
		}
		return r
	}
	cs := g.measured(inv, now)
	for i := range cs {
		cs[i].Growth = g.samples.Growth(&cs[i], pool, now)
	}
	r.Pods = RankedViews(&policy.Decision{Ranked: policy.Rank(cs, s, layout, keys)}, inv.Pods)
	return r
}

// MetNow returns the hard thresholds that are met and due as of the last observation, each with the pod that
// would be stopped first for it. In observe mode it returns nil.
func (g *Manager) MetNow(ctx context.Context) (all []api.MetNow) {
	if g.cfg.Mode == config.ModeObserve {
		return nil
	}
	inv := g.runtime.Inventory(ctx, 0)
	for _, m := range g.pressure.Met {
		if m.Kind != policy.Hard || !m.Due {
			continue
		}
		o := g.obs[m.Signal]
		v := api.MetNow{Signal: m.Signal, Value: m.Value.String(), Amount: m.Value.Of(o.Capacity), Available: o.Available, Capacity: o.Capacity}
		if inv.Err == nil {
			c := g.choose(inv, g.kernel.Now(), g.kernel.Layout().Pool(m.Signal), []policy.Met{m})
			if v.Held = c.Held; c.Victim != nil {
				v.First = c.Victim.Namespace + "/" + c.Victim.Name
			}
		}
		all = append(all, v)
	}
	return all
}

// Resumes returns the hard thresholds that are met at the end of a pause, as MetNow does, and says what follows: from these, or
// else from the soft ones, and from a drain. In observe mode nothing does.
func (g *Manager) Resumes(ctx context.Context) (hard []api.MetNow, says []string) {
	if g.cfg.Mode == config.ModeObserve {
		return nil, nil
	}
	hard = g.MetNow(ctx)
	for _, m := range hard {
		says = append(says, m.Would("criguard"))
	}
	for _, m := range g.pressure.Met {
		if len(hard) == 0 && m.Due && !m.WarnOnly {
			says = append(says, m.Threshold.String()+" is met: see `criguard status`")
		}
	}
	if g.Orders.Drain != nil {
		says = append(says, "the drain continues")
	}
	return hard, says
}

// Status returns what the Manager knows: conditions, signals, budget, alarms and stops in flight. reason
// returns why a signal cannot be observed. swapUnaccounted means that the kernel does not account the swap
// of pods.
func (g *Manager) Status(reason func(policy.Signal) string, swapUnaccounted bool) api.Status {
	g.derive() // the configuration may be newer than the last pass
	st := api.Status{
		APIVersion: api.APIVersion, Mode: g.cfg.Mode.String(), Conditions: g.pressure.Conditions,
		Signals: []api.SignalStatus{}, Budget: api.BudgetOf(g.restraint.Status(g.kernel.Now())), ClearsIn: map[string]api.Duration{},
	}
	for _, c := range g.pressure.Conditions.List() {
		if left := g.state.ClearsIn(c, &g.pressure, g.settings, g.kernel.Now()); left > 0 {
			st.ClearsIn[c.String()] = api.Rounded(left)
		}
	}
	for _, f := range g.flights {
		st.InFlight = append(st.InFlight, f.view.Pod+" for "+f.view.Signal)
	}
	for s := range policy.SignalCount {
		st.Signals = append(st.Signals, g.signalStatus(s, reason))
	}
	for i := range g.pools {
		pool := &g.pools[i]
		if pool.alarm != "" {
			st.Alarms = append(st.Alarms, pool.alarm)
		}
		if pool.overdue() {
			st.Alarms = append(st.Alarms, pool.reclaim.alarm())
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(g.restraint.Limited)) {
		if l := g.restraint.Limited[uid]; l.Holds {
			st.Alarms = append(st.Alarms, l.Pod+": "+keepsTooMuch)
		}
	}
	for _, t := range g.thresholds {
		if o := g.obs[t.Signal]; o.Status == policy.OK && t.Unreachable(o.Capacity) {
			st.Warnings = append(st.Warnings, fmt.Sprintf("%s: its minimum reclaim of %s can never be met and is ignored", t, t.MinReclaim))
		}
	}
	if note := g.SwapNote(swapUnaccounted); note != "" {
		st.Warnings = append(st.Warnings, note)
	}
	return st
}

// Holds returns what holds stops back, for each pool in acting order.
func (g *Manager) Holds() (all []api.Hold) {
	for i := range g.pools {
		if h := g.pools[i].held; h.Reason != "" {
			all = append(all, h)
		}
	}
	return all
}

// HeldNow returns what holds a stop back now, if last did so at the last record. A new grace period makes no record, because
// it may lead to the same reason again.
func (g *Manager) HeldNow(last api.Hold) api.Hold {
	if len(g.pressure.Met) == 0 && !last.OfPod() {
		return api.Hold{}
	}
	for _, h := range g.Holds() {
		if h.Threshold == last.Threshold && h.Reason == api.HeldGrace && g.Orders.Pause == nil {
			return h
		}
	}
	return last
}

// SwapNote returns a note if pods are ranked by memory alone for a swap threshold, because the kernel does not
// account their swap (unaccounted). Otherwise it returns "".
func (g *Manager) SwapNote(unaccounted bool) string {
	set := slices.ContainsFunc(g.thresholds, func(t policy.Threshold) bool { return t.Signal == policy.SwapAvailable })
	if !set || g.obs[policy.SwapAvailable].Status != policy.OK || !unaccounted {
		return ""
	}
	return policy.SwapAvailable.String() + ": the kernel does not account the swap of pods, so that only their memory counts (hint: put swapaccount=1 on the kernel's command line)"
}

// Thresholds reads the signals and returns the thresholds in force, each with its amount on this node:
// "memory.available hard 100Mi", "nodefs.available soft 15% (6.0Gi) for 1m". It changes no pass.
func (g *Manager) Thresholds() (all []string) {
	g.kernel.Observe(&g.obs)
	g.derive()
	for _, t := range g.thresholds {
		text, amount := fmt.Sprintf("%s %s %s", t.Signal, t.Kind, t.Value), t.Value.Of(g.obs[t.Signal].Capacity)
		if t.Value.IsPercent() && amount > 0 && !t.Signal.IsStall() {
			text += " (" + api.FormatAmount(t.Signal, amount) + ")"
		}
		if t.Kind == policy.Soft {
			text += " for " + policy.ShortDuration(t.Grace)
		}
		all = append(all, text)
	}
	return all
}

// Config returns the configuration in force.
func (g *Manager) Config() *config.Config { return &g.cfg }

// Enforced returns the stop budget and the other limits on real stops, which outlive the service.
func (g *Manager) Enforced() *policy.Restraint { return cmp.Or(g.enforced, g.restraint) }

// Unsaved reports whether the restraint changed in the last pass.
func (g *Manager) Unsaved() bool { return g.unsaved }

// Samples returns the samples of the signals and the pods.
func (g *Manager) Samples() *policy.Samples { return &g.samples }

// Sampled reports whether the samples are to be saved after the last pass.
func (g *Manager) Sampled() bool { return g.sampled }
