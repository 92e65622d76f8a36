package guard

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// Metrics counts what the guard sees and does, for Prometheus. Labels are
// bounded: signals, kinds, steps and results, never a pod or an image.
type Metrics struct {
	registry  *prometheus.Registry
	available [policy.SignalCount]prometheus.Gauge
	capacity  [policy.SignalCount]prometheus.Gauge
	seen      [policy.SignalCount]bool
	signals   *prometheus.GaugeVec
	limits    *prometheus.GaugeVec
	threshold *prometheus.GaugeVec
	met       *prometheus.GaugeVec
	condition *prometheus.GaugeVec
	passes    prometheus.Counter
	passTime  prometheus.Histogram
	stops     *prometheus.CounterVec
	stopTime  *prometheus.HistogramVec
	removed   *prometheus.CounterVec
	freed     *prometheus.CounterVec
	held      *prometheus.CounterVec
	runtimeUp prometheus.Gauge
	pods      prometheus.Gauge
	paused    prometheus.Gauge
	drained   prometheus.Gauge
	lastHeld  string
}

// Results of a stop, as a label.
const (
	resultStopped  = "stopped"
	resultFailed   = "failed"
	resultObserved = "observed" // observe mode: said, not done
)

// NewMetrics registers everything, with every bounded counter at zero.
func NewMetrics(version string) *Metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "criguard_" + name, Help: help}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "criguard_" + name, Help: help}, labels)
	}
	m := &Metrics{
		registry:  prometheus.NewRegistry(),
		signals:   gauge("signal_available", "What a signal has left: bytes, inodes or tasks; parts per million for stalls.", "signal"),
		limits:    gauge("signal_capacity", "What a signal has in all, in the unit of criguard_signal_available.", "signal"),
		threshold: gauge("threshold", "A configured threshold on this node, in the unit of its signal.", "signal", "kind"),
		met:       gauge("threshold_met", "1 while the threshold is met.", "signal", "kind"),
		condition: gauge("condition", "1 while the pressure condition holds, its transition period included.", "condition"),
		passes:    prometheus.NewCounter(prometheus.CounterOpts{Name: "criguard_passes_total", Help: "Rounds of observing and deciding."}),
		passTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "criguard_pass_duration_seconds", Help: "How long a pass took.",
			Buckets: []float64{1e-5, 1e-4, 5e-4, 1e-3, 5e-3, 2e-2, 0.1, 1},
		}),
		stops: counter("stops_total", "Sandboxes stopped.", "signal", "kind", "result"),
		stopTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "criguard_stop_emptied_seconds", Help: "From the order to stop until every container cgroup was empty.",
			Buckets: []float64{0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30},
		}, []string{"kind"}),
		removed:   counter("reclaimed_total", "Things removed by reclaiming.", "step"),
		freed:     counter("reclaimed_bytes_total", "Bytes freed by reclaiming, as the filesystem says.", "signal"),
		held:      counter("held_total", "Stops held back, each once.", "reason"),
		runtimeUp: prometheus.NewGauge(prometheus.GaugeOpts{Name: "criguard_runtime_up", Help: "1 while the container runtime answers."}),
		pods:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "criguard_pods", Help: "Sandboxes that run."}),
		paused:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "criguard_paused", Help: "1 while an operator's pause lasts."}),
		drained:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "criguard_drained", Help: "1 from drain until undrain."}),
	}
	info := gauge("build_info", "The version that runs.", "version")
	info.WithLabelValues(version).Set(1)
	m.registry.MustRegister(
		m.signals, m.limits, m.threshold, m.met, m.condition, m.passes, m.passTime, m.stops, m.stopTime,
		m.removed, m.freed, m.held, m.runtimeUp, m.pods, m.paused, m.drained, info,
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(),
	)
	for _, c := range policy.AllConditions() {
		m.condition.WithLabelValues(c.String())
	}
	for _, s := range reclaim.Steps() {
		m.removed.WithLabelValues(string(s))
	}
	for _, h := range []string{HeldBudget, HeldBackoff, HeldBreaker, HeldProtected, HeldNoCandidate, HeldStallFloor} {
		m.held.WithLabelValues(h)
	}
	return m
}

// Configure sets the thresholds' gauges anew.
func (m *Metrics) Configure(ts []policy.Threshold, obs *policy.Observations) {
	m.threshold.Reset()
	m.met.Reset()
	for _, t := range ts {
		s, k := t.Signal.String(), t.Kind.String()
		m.threshold.WithLabelValues(s, k).Set(float64(t.Value.Of(obs[t.Signal].Capacity)))
		m.met.WithLabelValues(s, k).Set(0)
		for _, r := range []string{resultStopped, resultFailed} {
			m.stops.WithLabelValues(s, k, r)
		}
	}
}

// Observe follows the signals, after every pass.
func (m *Metrics) Observe(p *Pass, obs *policy.Observations) {
	m.passes.Inc()
	m.passTime.Observe(p.Took.Seconds())
	for s := range policy.SignalCount {
		o := &obs[s]
		if o.Status != policy.OK {
			continue
		}
		if !m.seen[s] {
			m.seen[s] = true
			m.available[s] = m.signals.WithLabelValues(s.String())
			m.capacity[s] = m.limits.WithLabelValues(s.String())
		}
		m.available[s].Set(float64(o.Available))
		m.capacity[s].Set(float64(o.Capacity))
	}
}

// Record counts what a notable pass did.
func (m *Metrics) Record(p *Pass) {
	for _, c := range policy.AllConditions() {
		m.condition.WithLabelValues(c.String()).Set(bool01(p.Conditions.Has(c)))
	}
	for i := range p.Reclaimed {
		r := &p.Reclaimed[i]
		if r.DryRun() {
			continue
		}
		m.freed.WithLabelValues(r.Signal.String()).Add(float64(max(r.Freed, 0)))
		for _, rep := range r.Reports {
			m.removed.WithLabelValues(string(rep.Step)).Add(float64(len(rep.Removed)))
		}
	}
	if p.Stop != nil && p.Stop.DryRun {
		m.stops.WithLabelValues(p.Stop.Signal, p.Stop.Kind, resultObserved).Inc()
	}
	for i := range p.Settled {
		s := &p.Settled[i]
		result := resultFailed
		if s.Result.Emptied {
			result = resultStopped
			m.stopTime.WithLabelValues(s.Kind).Observe(s.Result.EmptiedIn.Seconds())
		}
		m.stops.WithLabelValues(s.Signal, s.Kind, result).Inc()
	}
	if held := strings.TrimSpace(p.Held); held != m.lastHeld {
		if held != "" {
			m.held.WithLabelValues(held).Inc()
		}
		m.lastHeld = held
	}
}

// Met follows which thresholds are met.
func (m *Metrics) Met(ts []policy.Threshold, pr policy.Pressure) {
	for _, t := range ts {
		m.met.WithLabelValues(t.Signal.String(), t.Kind.String()).Set(bool01(isMet(pr, t)))
	}
}

// Inventory follows the runtime and its pods.
func (m *Metrics) Inventory(inv Inventory) {
	m.runtimeUp.Set(bool01(inv.Err == nil))
	m.pods.Set(float64(len(inv.Pods)))
}

// Orders follows what operators have asked for.
func (m *Metrics) Orders(o Orders) {
	m.paused.Set(bool01(o.Pause != nil))
	m.drained.Set(bool01(o.Drain != nil))
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

func bool01(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
