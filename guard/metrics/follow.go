package metrics

import (
	"slices"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/hook"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// budgetEvery is how often the budget gauges are updated, which is not free.
const budgetEvery = time.Second

// Observe updates the gauges after each pass. On an idle node it allocates next to nothing.
func (m *Metrics) Observe(p *api.Pass, st api.State) {
	wake, ok := m.wakes[p.Wake]
	if !ok {
		wake = m.wakes[wakeOther]
	}
	wake.Inc()
	m.passTime.Observe(p.Took.Seconds())
	m.inFlight.Set(float64(st.InFlight))
	m.observe.Set(bool01(st.Observing))
	m.inFleet.Set(bool01(st.InFleet))
	m.countHolds(p)
	for i, alarm := range st.Alarms {
		m.alarms[i].Set(bool01(alarm))
	}
	m.observeSignals(st.Observations)
	m.observeThresholds(st.Thresholds, st.Pressure, st.Observations)
	if p.Stop != nil || time.Duration(p.At)-m.counted >= budgetEvery {
		m.counted = time.Duration(p.At)
		m.observeBudget(st.Budget())
	}
}

func (m *Metrics) observeSignals(obs *policy.Observations) {
	for s := range policy.SignalCount {
		o, g := &obs[s], &m.signals[s]
		if o.Status == policy.Absent && g.observed == nil {
			continue
		}
		if g.observed == nil {
			name := s.String()
			*g = signalGauges{m.available.WithLabelValues(name), m.capacity.WithLabelValues(name), m.observed.WithLabelValues(name)}
		}
		g.observed.Set(bool01(o.Status == policy.OK))
		if o.Status == policy.OK {
			g.available.Set(float64(o.Available))
			g.capacity.Set(float64(o.Capacity))
		}
	}
}

func (m *Metrics) observeThresholds(ts []policy.Threshold, pr policy.Pressure, obs *policy.Observations) {
	if !m.known(ts) {
		m.threshold.Reset()
		m.met.Reset()
		m.limits = make([]thresholdGauges, len(ts))
		for i, t := range ts {
			s, k := t.Signal.String(), t.Kind.String()
			m.limits[i] = thresholdGauges{t, m.threshold.WithLabelValues(s, k), m.met.WithLabelValues(s, k)}
			m.zeroStops(s, k)
		}
	}
	for i := range m.limits {
		l := &m.limits[i]
		if o := &obs[l.Signal]; o.Status == policy.OK || !l.Value.IsPercent() { // a share of what is not known is not 0
			l.value.Set(float64(l.Value.Of(o.Capacity)))
		}
		l.met.Set(bool01(pr.IsMet(l.Threshold)))
	}
}

func (m *Metrics) observeBudget(b policy.BudgetView) {
	m.budget.WithLabelValues(policy.Hard.String()).Set(float64(b.Hard.Left))
	m.budget.WithLabelValues(policy.Soft.String()).Set(float64(b.Soft.Left))
	m.lastHour.WithLabelValues(policy.Hard.String()).Set(float64(b.Hard.LastHour))
	m.lastHour.WithLabelValues(policy.Soft.String()).Set(float64(b.Soft.LastHour))
	for p := range policy.PoolCount {
		m.breaker.WithLabelValues(p.String()).Set(bool01(slices.Contains(b.Breakers, p)))
	}
}

// Record counts the actions of a notable pass.
func (m *Metrics) Record(p *api.Pass) {
	for _, c := range policy.AllConditions() {
		m.condition.WithLabelValues(c.String()).Set(bool01(p.Conditions.Has(c)))
	}
	for i := range p.Reclaimed {
		if !p.Reclaimed[i].DryRun() {
			m.reclaimed(&p.Reclaimed[i])
		}
	}
	if p.Stop != nil && p.Stop.DryRun {
		m.stops.WithLabelValues(p.Stop.Signal, p.Stop.Kind, resultObserved).Inc()
	}
	for i := range p.Settled {
		m.settled(&p.Settled[i])
	}
}

// countHolds counts what holds stops back, each hold once for as long as it lasts.
func (m *Metrics) countHolds(p *api.Pass) {
	for _, h := range m.holds.Changes(p) {
		if slices.Contains(heldReasons(), h.Reason) {
			m.held.WithLabelValues(h.Reason).Inc()
		}
	}
}

func (m *Metrics) reclaimed(r *api.ReclaimView) {
	for i := range r.Reports {
		rep := &r.Reports[i]
		step := string(rep.Step)
		m.removed.WithLabelValues(step).Add(float64(len(rep.Removed) + rep.RemovedMore))
		m.freed.WithLabelValues(step).Add(float64(rep.Freed))
	}
}

// ReclaimErrors counts the errors of a collection, whether or not it is recorded.
func (m *Metrics) ReclaimErrors(reports []reclaim.Report) {
	for i := range reports {
		m.errors.WithLabelValues(string(reports[i].Step)).Add(float64(len(reports[i].Errors) + reports[i].ErrorsMore))
	}
}

func (m *Metrics) settled(s *api.StopView) {
	result := resultFailed
	switch {
	case s.Result.NotContinued:
		result = resultNotContinued
	case s.Result.Emptied:
		result = resultStopped
		if s.Result.EmptiedIn > 0 {
			m.emptied.WithLabelValues(s.Kind).Observe(s.Result.EmptiedIn.Seconds())
		}
		if s.Result.DeadIn > 0 {
			m.dead.WithLabelValues(s.Kind).Observe(s.Result.DeadIn.Seconds())
		}
	}
	m.stops.WithLabelValues(s.Signal, s.Kind, result).Inc()
}

// Inventory updates the metrics of the runtime and its pods.
func (m *Metrics) Inventory(inv inventory.Inventory) {
	m.runtimeUp.Set(bool01(inv.Err == nil))
	m.pods.Set(float64(len(inv.Pods)))
	protected := 0
	for i := range inv.Pods {
		if inv.Pods[i].Protection != "" {
			protected++
		}
	}
	m.protected.Set(float64(protected))
	m.listed.Store(int64(max(inv.At, 0)))
}

// Orders updates the pause and drain gauges.
func (m *Metrics) Orders(o api.Orders) {
	m.paused.Set(bool01(o.Pause != nil))
	m.drained.Set(bool01(o.Drain != nil))
}

// Reloaded records whether the configuration was accepted.
func (m *Metrics) Reloaded(err error) {
	m.reloadOK.Set(bool01(err == nil))
	if err == nil {
		m.reloadTime.SetToCurrentTime()
	}
}

// Hook counts the result of a hook's event, and how long the hook ran.
func (m *Metrics) Hook(event, result string, took time.Duration) {
	m.hooks.WithLabelValues(event, result).Inc()
	if result != hook.ResultDropped {
		m.hookTime.WithLabelValues(event).Observe(took.Seconds())
	}
}
