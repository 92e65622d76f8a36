package metrics

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/hook"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// Metrics holds criguard's Prometheus metrics. Label values are bounded: signals, kinds, steps and results,
// never a pod or an image. docs/metrics.md documents each metric.
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
	budget, lastHour, breaker     *prometheus.GaugeVec
	runtimeUp, pods, protected    prometheus.Gauge
	paused, drained, observe      prometheus.Gauge
	inFleet                       prometheus.Gauge
	reloadOK, reloadTime          prometheus.Gauge
	hooks                         *prometheus.CounterVec
	hookTime                      *prometheus.HistogramVec

	alarms  [policy.PoolCount]prometheus.Gauge
	signals [policy.SignalCount]signalGauges
	wakes   map[string]prometheus.Counter
	limits  []thresholdGauges // of the thresholds in force
	listed  atomic.Int64      // time of the last listing, since boot
	counted time.Duration     // when the budget gauges were last updated
	holds   api.Holds         // that were counted
}

// signalGauges are the gauges of one signal. They are looked up only once, because every pass sets them.
type signalGauges struct{ available, capacity, observed prometheus.Gauge }

// thresholdGauges are the gauges of one threshold.
type thresholdGauges struct {
	policy.Threshold
	value, met prometheus.Gauge
}

// Values of the result label of a stop.
const (
	resultStopped      = "stopped"
	resultFailed       = "failed"
	resultNotContinued = "not_continued" // begun by an earlier run of the service
	resultObserved     = "observed"      // observe mode: logged, not performed
)

// wakeOther is the label value for a wake-up reason that is not in wakeNames.
const wakeOther = "other"

// wakeNames returns the wake-up reasons of passes.
func wakeNames() []string {
	return []string{
		"start", "timer", "reload", "command", "stop", "reclaim", "runtime", string(cgroup.WakeMemory), string(cgroup.WakeMemoryEvents),
		string(cgroup.WakeMemoryStall), string(cgroup.WakeIOStall), wakeOther,
	}
}

// New registers all metrics and initializes every bounded counter to zero. now returns the time since boot.
func New(version string, now func() time.Duration) *Metrics {
	m := &Metrics{own: prometheus.NewRegistry(), process: prometheus.NewRegistry()}
	m.process.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	r := registrar{m.own}
	r.gauges("build_info", "Always 1; the labels have the version.", "version", "go").WithLabelValues(version, runtime.Version()).Set(1)

	m.available = r.gauges("signal_available", "Available amount of a signal: bytes, inodes or tasks; parts per million for stalls.", "signal")
	m.capacity = r.gauges("signal_capacity", "Capacity of a signal, in the unit of criguard_signal_available.", "signal")
	m.observed = r.gauges("signal_observed", "1 while the signal can be read.", "signal")
	m.threshold = r.gauges("threshold", "A threshold on this node, in the unit of its signal.", "signal", "kind")
	m.met = r.gauges("threshold_met", "1 while the threshold is met.", "signal", "kind")
	m.condition = r.gauges("condition", "1 while the pressure condition holds, including its transition period.", "condition")

	m.passes = r.counters("passes_total", "Passes (rounds of observing and deciding), by what woke the loop.", "wake")
	m.passTime = r.histogram("pass_duration_seconds", "Duration of a pass.", 1e-5, 1e-4, 5e-4, 1e-3, 5e-3, 2e-2, 0.1, 1)

	m.stops = r.counters("stops_total", "Stops that ended, or would have begun (observe mode).", "signal", "kind", "result")
	m.inFlight = r.gauge("stops_in_flight", "Stops whose effect is not known yet.")
	m.emptied = r.histograms("stop_emptied_seconds", "Time from the order to stop until no process was left.", []string{"kind"}, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30)
	m.dead = r.histograms("stop_crossing_to_dead_seconds", "Time from the observation that met the threshold until no process was left, including grace periods.",
		[]string{"kind"}, 0.01, 0.02, 0.04, 0.1, 0.5, 1, 5, 30, 120, 600)
	m.held = r.counters("held_total", "Stops held back, each counted once.", "reason")
	m.budget = r.gauges("budget_left", "Stops that the budget allows at once.", "kind")
	m.lastHour = r.gauges("stops_last_hour", "Stops in the last 60 minutes that took budget.", "kind")
	m.breaker = r.gauges("breaker_open", "1 while no more pods are stopped for the pool, because stops do not relieve it.", "pool")

	alarm := r.gauges("alarm", "1 while the pool has an alarm: criguard cannot relieve it.", "pool")
	for p := range policy.PoolCount {
		m.alarms[p] = alarm.WithLabelValues(p.String())
	}

	m.removed = r.counters("reclaimed_total", "Items removed by reclaiming.", "step")
	m.freed = r.counters("reclaimed_bytes_total", "Bytes freed by reclaiming, as measured before and after each removal.", "step")
	m.errors = r.counters("reclaim_errors_total", "Removals that failed.", "step")

	m.runtimeUp = r.gauge("runtime_up", "1 while the container runtime answers.")
	m.pods = r.gauge("pods", "Running pods.")
	m.protected = r.gauge("protected_pods", "Running pods that are protected.")
	m.own.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "criguard_inventory_age_seconds", Help: "Time since the pods were last listed; time since boot if they never were.",
	}, func() float64 { return (now() - time.Duration(m.listed.Load())).Seconds() }))

	m.observe = r.gauge("observe_mode", "1 while the configuration sets observe mode: nothing is removed or stopped.")
	m.inFleet = r.gauge("fleet_enabled", "1 while the configuration makes the node one of a fleet.")
	m.paused = r.gauge("paused", "1 while an operator's pause lasts.")
	m.drained = r.gauge("drained", "1 from drain until undrain.")
	m.reloadOK = r.gauge("config_last_reload_successful", "1 if the configuration was accepted when it was last read.")
	m.reloadTime = r.gauge("config_last_reload_success_timestamp_seconds", "When a configuration was last accepted.")
	m.hooks = r.counters("hook_events_total", "Events of hooks, by result.", "event", "result")
	m.hookTime = r.histograms("hook_duration_seconds", "Duration of a hook.", []string{"event"}, 0.01, 0.1, 1, 10, 60)
	m.zero()
	return m
}

// zero creates every series with known label values.
func (m *Metrics) zero() {
	for p := range policy.PoolCount {
		m.breaker.WithLabelValues(p.String())
	}
	for _, c := range policy.AllConditions() {
		m.condition.WithLabelValues(c.String())
	}
	m.wakes = map[string]prometheus.Counter{}
	for _, w := range wakeNames() {
		m.wakes[w] = m.passes.WithLabelValues(w)
	}
	for _, s := range append(reclaim.Steps(), reclaim.StepCgroups) {
		for _, v := range []*prometheus.CounterVec{m.removed, m.freed, m.errors} {
			v.WithLabelValues(string(s))
		}
	}
	for _, h := range heldReasons() {
		m.held.WithLabelValues(h)
	}
	for _, e := range []config.EventKind{config.EventCondition, config.EventStop, config.EventAlarm} {
		for _, r := range []string{hook.ResultOK, hook.ResultFailed, hook.ResultTimeout, hook.ResultDropped} {
			m.hooks.WithLabelValues(string(e), r)
		}
		m.hookTime.WithLabelValues(string(e))
	}
	for _, k := range []string{policy.Hard.String(), policy.Soft.String()} {
		m.dead.WithLabelValues(k)
	}
	for _, k := range []string{policy.Hard.String(), policy.Soft.String(), api.KindLimit, api.KindAdmission, api.KindDrain, api.KindCommand} {
		m.emptied.WithLabelValues(k)
	}
	m.zeroStops(api.SignalLimit, api.KindLimit)
	m.zeroStops(api.KindDrain, api.KindDrain)
	m.zeroStops(api.KindCommand, api.KindCommand)
	for _, c := range policy.AllConditions() {
		m.zeroStops(c.String(), api.KindAdmission)
	}
	m.Reloaded(nil)
}

// zeroStops creates the series of stops before the first stop. Prometheus sees no increase when a series
// appears with its first value, so the first failure would not raise an alert.
func (m *Metrics) zeroStops(signal, kind string) {
	for _, result := range []string{resultStopped, resultFailed} {
		m.stops.WithLabelValues(signal, kind, result)
	}
}

// heldReasons returns the reasons that may hold a stop back for longer than a job takes.
func heldReasons() []string {
	return []string{api.HeldBudget, api.HeldBackoff, api.HeldBreaker, api.HeldProtected, api.HeldOutside, api.HeldUnknown, api.HeldStallFloor, api.HeldObserve, api.HeldPaused, api.HeldUnlisted, api.HeldFleet}
}

// Handler serves all metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(prometheus.Gatherers{m.own, m.process}, promhttp.HandlerOpts{})
}

// OwnHandler serves only criguard's own metrics: node_exporter exports its own go_* and process_* metrics
// under the same names.
func (m *Metrics) OwnHandler() http.Handler {
	return promhttp.HandlerFor(m.own, promhttp.HandlerOpts{DisableCompression: true})
}

// Own returns criguard's own metrics.
func (m *Metrics) Own() prometheus.Gatherer { return m.own }

// WriteFile atomically writes criguard's own metrics to a file.
func (m *Metrics) WriteFile(path string) error {
	return prometheus.WriteToTextfile(path, m.own)
}

// FileEvery is how often the service writes the metrics to a file, if configured: as often as node_exporter is
// usually scraped.
const FileEvery = 15 * time.Second

// WriteFiles writes them now and on each tick, until ctx ends. failed takes the errors.
func (m *Metrics) WriteFiles(ctx context.Context, path string, tick <-chan time.Time, failed func(error)) {
	for {
		if err := m.WriteFile(path); err != nil {
			failed(fmt.Errorf("write %s: %w", path, err))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}

// known reports whether the gauges of exactly these thresholds exist.
func (m *Metrics) known(ts []policy.Threshold) bool {
	return slices.EqualFunc(ts, m.limits, func(t policy.Threshold, l thresholdGauges) bool { return t == l.Threshold })
}

func bool01(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// registrar creates and registers metrics.
type registrar struct{ in *prometheus.Registry }

const namespace = "criguard"

func register[C prometheus.Collector](r registrar, c C) C {
	r.in.MustRegister(c)
	return c
}

func (r registrar) gauge(name, help string) prometheus.Gauge {
	return register(r, prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}))
}

func (r registrar) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels))
}

func (r registrar) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return register(r, prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels))
}

func (r registrar) histogram(name, help string, buckets ...float64) prometheus.Histogram {
	return register(r, prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}))
}

func (r registrar) histograms(name, help string, labels []string, buckets ...float64) *prometheus.HistogramVec {
	return register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels))
}
