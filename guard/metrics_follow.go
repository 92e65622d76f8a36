package guard

import (
	"slices"
	"time"

	"github.com/criguard/criguard/policy"
)

// budgetEvery is how often the budget is looked at, which is not free.
const budgetEvery = time.Second

// Observe follows the guard, after every pass. On an idle node it allocates nothing
// to speak of.
func (m *Metrics) Observe(p *Pass, g *Guard) {
	wake, ok := m.wakes[p.Wake]
	if !ok {
		wake = m.wakes[wakeOther]
	}
	wake.Inc()
	m.passTime.Observe(p.Took.Seconds())
	m.inFlight.Set(float64(len(g.flights)))
	m.observe.Set(bool01(g.cfg.Mode == ModeObserve))
	m.observeSignals(&g.obs)
	m.observeThresholds(g.thresholds, g.pressure, &g.obs)
	if p.Stop != nil || p.At-m.counted >= budgetEvery {
		m.counted = p.At
		m.observeBudget(g.restraint.Status(p.At))
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
		l.value.Set(float64(l.Value.Of(obs[l.Signal].Capacity)))
		l.met.Set(bool01(isMet(pr, l.Threshold)))
	}
}

func (m *Metrics) observeBudget(b policy.BudgetView) {
	m.budget.WithLabelValues(policy.Hard.String()).Set(float64(b.Hard.Left))
	m.budget.WithLabelValues(policy.Soft.String()).Set(float64(b.Soft.Left))
	m.lastHour.Set(float64(b.LastHour))
	for s := range policy.SignalCount {
		m.breaker.WithLabelValues(s.String()).Set(bool01(slices.Contains(b.Breakers, s)))
	}
}

// Record counts what a notable pass did.
func (m *Metrics) Record(p *Pass) {
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
	if m.hold.news(p) && slices.Contains(heldReasons(), p.Held) {
		m.held.WithLabelValues(p.Held).Inc()
	}
}

func (m *Metrics) reclaimed(r *ReclaimView) {
	for i := range r.Reports {
		rep := &r.Reports[i]
		step := string(rep.Step)
		m.removed.WithLabelValues(step).Add(float64(len(rep.Removed) + rep.RemovedMore))
		m.freed.WithLabelValues(step).Add(float64(max(rep.Freed, 0)))
		m.errors.WithLabelValues(step).Add(float64(len(rep.Errors) + rep.ErrorsMore))
	}
}

func (m *Metrics) settled(s *StopView) {
	result := resultFailed
	if s.Result.Emptied {
		result = resultStopped
		m.emptied.WithLabelValues(s.Kind).Observe(s.Result.EmptiedIn.Seconds())
		if s.Result.DeadIn > 0 {
			m.dead.WithLabelValues(s.Kind).Observe(s.Result.DeadIn.Seconds())
		}
	}
	m.stops.WithLabelValues(s.Signal, s.Kind, result).Inc()
}

// Inventory follows the runtime and its pods.
func (m *Metrics) Inventory(inv Inventory) {
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

// Orders follows what operators have asked for.
func (m *Metrics) Orders(o Orders) {
	m.paused.Set(bool01(o.Pause != nil))
	m.drained.Set(bool01(o.Drain != nil))
}

// reload follows what became of the configuration.
func (m *Metrics) reload(err error) {
	m.reloadOK.Set(bool01(err == nil))
	if err == nil {
		m.reloadTime.SetToCurrentTime()
	}
}

// Hook follows what became of a hook's event.
func (m *Metrics) Hook(event, result string, took time.Duration) {
	m.hooks.WithLabelValues(event, result).Inc()
	if result != hookDropped {
		m.hookTime.WithLabelValues(event).Observe(took.Seconds())
	}
}
