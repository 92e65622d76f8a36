package guard

import (
	"net/http"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// Metrics counts what the guard sees and does, for Prometheus. Labels are
// bounded: signals, kinds, steps and results, never a pod or an image.
// docs/metrics.md has each of them.
type Metrics struct {
	own     *prometheus.Registry // criguard_*
	process *prometheus.Registry // go_*, process_*

	available, capacity, observed *prometheus.GaugeVec
	threshold, met                *prometheus.GaugeVec
	condition                     *prometheus.GaugeVec
	passes                        *prometheus.CounterVec
	passTime                      prometheus.Histogram
	stops                         *prometheus.CounterVec
	emptied, dead                 *prometheus.HistogramVec
	inFlight                      prometheus.Gauge
	removed, freed, errors        *prometheus.CounterVec
	held                          *prometheus.CounterVec
	budget, breaker               *prometheus.GaugeVec
	lastHour                      prometheus.Gauge
	runtimeUp, pods, protected    prometheus.Gauge
	paused, drained, observe      prometheus.Gauge
	reloadOK, reloadTime          prometheus.Gauge
	hooks                         *prometheus.CounterVec
	hookTime                      *prometheus.HistogramVec

	signals [policy.SignalCount]signalGauges
	wakes   map[string]prometheus.Counter
	limits  []thresholdGauges // of the thresholds in force
	listed  atomic.Int64      // when the pods were listed last, since boot
	counted time.Duration     // when the budget was looked at last
	hold    hold
}

// signalGauges are one signal's, found once: every pass sets them.
type signalGauges struct{ available, capacity, observed prometheus.Gauge }

// thresholdGauges are one threshold's.
type thresholdGauges struct {
	policy.Threshold
	value, met prometheus.Gauge
}

// Results of a stop, as a label.
const (
	resultStopped  = "stopped"
	resultFailed   = "failed"
	resultObserved = "observed" // observe mode: said, not done
)

// wakeOther is the label of a wake that is none of wakeNames.
const wakeOther = "other"

// wakeNames are why passes are made.
func wakeNames() []string {
	return []string{
		"start", "timer", "reload", "command", "stop", "reclaim", string(cgroup.WakeMemory), string(cgroup.WakeMemoryEvents),
		string(cgroup.WakeMemoryStall), string(cgroup.WakeIOStall), wakeOther,
	}
}

// NewMetrics registers everything, with every bounded counter at zero.
func NewMetrics(version string) *Metrics {
	m := &Metrics{own: prometheus.NewRegistry(), process: prometheus.NewRegistry()}
	m.process.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	r := meterMaker{m.own}
	r.gauges("build_info", "The version that runs.", "version", "go").WithLabelValues(version, runtime.Version()).Set(1)

	m.available = r.gauges("signal_available", "What a signal has left: bytes, inodes or tasks; parts per million for stalls.", "signal")
	m.capacity = r.gauges("signal_capacity", "What a signal has in all, in the unit of criguard_signal_available.", "signal")
	m.observed = r.gauges("signal_observed", "1 while the signal can be read.", "signal")
	m.threshold = r.gauges("threshold", "A threshold on this node, in the unit of its signal.", "signal", "kind")
	m.met = r.gauges("threshold_met", "1 while the threshold is met.", "signal", "kind")
	m.condition = r.gauges("condition", "1 while the pressure condition holds, its transition period included.", "condition")

	m.passes = r.counters("passes_total", "Rounds of observing and deciding, by what woke the loop.", "wake")
	m.passTime = r.histogram("pass_duration_seconds", "How long a pass took.", 1e-5, 1e-4, 5e-4, 1e-3, 5e-3, 2e-2, 0.1, 1)

	m.stops = r.counters("stops_total", "Stops that have ended, or would have begun (observe mode).", "signal", "kind", "result")
	m.inFlight = r.gauge("stops_in_flight", "Stops whose effect is not known yet.")
	m.emptied = r.histograms("stop_emptied_seconds", "From the order to stop until no process was left.", []string{"kind"}, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30)
	m.dead = r.histograms("stop_crossing_to_dead_seconds", "From the look that found the threshold met until no process was left, grace periods included.",
		[]string{"kind"}, 0.01, 0.02, 0.04, 0.1, 0.5, 1, 5, 30, 120, 600)
	m.held = r.counters("held_total", "Stops held back, each once.", "reason")
	m.budget = r.gauges("budget_left", "Stops that the budget allows at once.", "kind")
	m.lastHour = r.gauge("stops_last_hour", "Stops of the last 60 minutes that count towards the budget.")
	m.breaker = r.gauges("breaker_open", "1 while nothing is stopped for the signal any more, as stops did not move it.", "signal")

	m.removed = r.counters("reclaimed_total", "Things removed by reclaiming.", "step")
	m.freed = r.counters("reclaimed_bytes_total", "Bytes freed by reclaiming, as measured after it.", "step")
	m.errors = r.counters("reclaim_errors_total", "Removals that did not work.", "step")

	m.runtimeUp = r.gauge("runtime_up", "1 while the container runtime answers.")
	m.pods = r.gauge("pods", "Sandboxes that run.")
	m.protected = r.gauge("protected_pods", "Sandboxes that run and are never stopped.")
	m.own.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "criguard_inventory_age_seconds", Help: "How long ago the pods were listed; since the boot where they never were.",
	}, func() float64 { return (cgroup.BootTime() - time.Duration(m.listed.Load())).Seconds() }))

	m.observe = r.gauge("observe_mode", "1 while nothing is removed or stopped by configuration.")
	m.paused = r.gauge("paused", "1 while an operator's pause lasts.")
	m.drained = r.gauge("drained", "1 from drain until undrain.")
	m.reloadOK = r.gauge("config_last_reload_successful", "1 when the configuration was taken the last time that it was read.")
	m.reloadTime = r.gauge("config_last_reload_success_timestamp_seconds", "When a configuration was taken last.")
	m.hooks = r.counters("hook_events_total", "Events of hooks: what became of each.", "event", "result")
	m.hookTime = r.histograms("hook_duration_seconds", "How long a hook ran.", []string{"event"}, 0.01, 0.1, 1, 10, 60)
	m.zero()
	return m
}

// zero makes every label that may come known from the start.
func (m *Metrics) zero() {
	for s := range policy.SignalCount {
		m.breaker.WithLabelValues(s.String())
	}
	for _, c := range policy.AllConditions() {
		m.condition.WithLabelValues(c.String())
	}
	m.wakes = map[string]prometheus.Counter{}
	for _, w := range wakeNames() {
		m.wakes[w] = m.passes.WithLabelValues(w)
	}
	for _, s := range reclaim.Steps() {
		for _, v := range []*prometheus.CounterVec{m.removed, m.freed, m.errors} {
			v.WithLabelValues(string(s))
		}
	}
	for _, h := range heldReasons() {
		m.held.WithLabelValues(h)
	}
	for _, e := range []EventKind{EventCondition, EventStop, EventAlarm} {
		for _, r := range []string{hookOK, hookFailed, hookTimeout, hookDropped} {
			m.hooks.WithLabelValues(string(e), r)
		}
		m.hookTime.WithLabelValues(string(e))
	}
	for _, k := range []string{policy.Hard.String(), policy.Soft.String()} {
		m.dead.WithLabelValues(k)
	}
	for _, k := range []string{policy.Hard.String(), policy.Soft.String(), kindLimit, kindAdmission, kindDrain} {
		m.emptied.WithLabelValues(k)
	}
	m.zeroStops(signalLimit, kindLimit)
	m.zeroStops(kindDrain, kindDrain)
	for _, c := range policy.AllConditions() {
		m.zeroStops(c.String(), kindAdmission)
	}
	m.reload(nil)
}

// zeroStops has the series of stops there before the first one: an increase from nothing is
// none to Prometheus, and the first failure would raise no alert.
func (m *Metrics) zeroStops(signal, kind string) {
	for _, result := range []string{resultStopped, resultFailed} {
		m.stops.WithLabelValues(signal, kind, result)
	}
}

// heldReasons are what may hold a stop back for longer than a job takes.
func heldReasons() []string {
	return []string{HeldBudget, HeldBackoff, HeldBreaker, HeldProtected, HeldNoCandidate, HeldStallFloor, HeldObserve, HeldPaused, HeldUnlisted, HeldUncounted}
}

// Handler serves all metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(prometheus.Gatherers{m.own, m.process}, promhttp.HandlerOpts{})
}

// OwnHandler serves those that are criguard's alone: node_exporter has others of the
// same names as a process.
func (m *Metrics) OwnHandler() http.Handler {
	return promhttp.HandlerFor(m.own, promhttp.HandlerOpts{DisableCompression: true})
}

// WriteFile writes criguard's own metrics to a file, which readers see whole.
func (m *Metrics) WriteFile(path string) error {
	return prometheus.WriteToTextfile(path, m.own)
}

// known reports whether the thresholds are those whose gauges there are.
func (m *Metrics) known(ts []policy.Threshold) bool {
	return slices.EqualFunc(ts, m.limits, func(t policy.Threshold, l thresholdGauges) bool { return t == l.Threshold })
}

func bool01(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// meterMaker makes metrics and registers them.
type meterMaker struct{ in *prometheus.Registry }

const namespace = "criguard"

func register[C prometheus.Collector](r meterMaker, c C) C {
	r.in.MustRegister(c)
	return c
}

func (r meterMaker) gauge(name, help string) prometheus.Gauge {
	return register(r, prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}))
}

func (r meterMaker) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels))
}

func (r meterMaker) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return register(r, prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels))
}

func (r meterMaker) histogram(name, help string, buckets ...float64) prometheus.Histogram {
	return register(r, prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}))
}

func (r meterMaker) histograms(name, help string, labels []string, buckets ...float64) *prometheus.HistogramVec {
	return register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels))
}
