package agent

import (
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/etcd"
	"github.com/criguard/criguard/policy"
)

// metrics are the agent's Prometheus metrics. Label values are bounded; docs/fleet.md documents each metric.
type metrics struct {
	registry *prometheus.Registry

	info, state, held         *prometheus.GaugeVec
	connected, alone, paused  prometheus.Gauge
	full, taken               prometheus.Gauge
	members, wanting, aborted prometheus.Gauge
	permits                   *prometheus.CounterVec
	extended                  prometheus.Counter
	trip                      prometheus.Histogram
}

// Values of the result label of a permit.
const resultFailed = "failed"

func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "criguard", Subsystem: "fleet", Name: name, Help: help}, labels)
		m.registry.MustRegister(g)
		return g
	}
	gauge := func(name, help string) prometheus.Gauge { return gauges(name, help).WithLabelValues() }
	m.info = gauges("info", "Always 1; the labels say what the node reports to its fleet.", "fleet", "zone", "digest", "version")
	m.connected = gauge("connected", "1 if the last contact with the fleet succeeded.")
	m.alone = gauge("alone", "1 while no contact with the fleet succeeds.")
	m.paused = gauge("paused", "1 while an operator has suspended the fleet's soft stops.")
	m.aborted = gauge("pause_lost", "1 if a pause is gone before its time, and no operator resumed.")
	m.full = gauge("full", "1 while the fleet is full and permits no soft stop.")
	m.taken = gauge("name_taken", "1 if another agent reports under this node's name: machines were cloned.")
	m.members = gauge("zone_members", "Members of the node's zone, at the last report.")
	m.wanting = gauge("zone_wanting", "Members of the node's zone that want a soft stop, at the last report.")
	m.state = gauges("zone_state", "1 for the state of the node's zone, at the last report.", "state")
	m.held = gauges("held", "1 while the fleet holds a soft stop of the pool.", "pool")
	m.permits = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "criguard", Subsystem: "fleet", Name: "permits_total",
		Help: "Requests for a permit, by result, and by source, reason of the denial or cause of the failure.",
	}, []string{"result", "reason"})
	m.extended = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "criguard", Subsystem: "fleet", Name: "slots_extended_total",
		Help: "Denials by a slot that lasts longer than its time, because etcd changed its leader.",
	})
	m.trip = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "criguard", Subsystem: "fleet", Name: "round_trip_seconds",
		Help: "Duration of a read in etcd.", Buckets: []float64{0.001, 0.005, 0.02, 0.1, 0.5, 1, 5},
	})
	m.registry.MustRegister(m.permits, m.extended, m.trip)
	m.zero()
	return m
}

// zero creates every series with known label values.
func (m *metrics) zero() {
	for result, reasons := range map[string][]string{
		Granted: {Fleet, Trickle, Local}, Denied: etcd.Denials(), resultFailed: etcd.Reasons(),
	} {
		for _, reason := range reasons {
			m.permits.WithLabelValues(result, reason)
		}
	}
	for p := range policy.PoolCount {
		m.held.WithLabelValues(p.String())
	}
}

// asked counts the answer to a request in etcd.
func (m *metrics) asked(denied *etcd.DeniedError, err error) {
	switch {
	case err == nil:
		m.given(Fleet)
	case denied != nil:
		m.permits.WithLabelValues(Denied, denied.Code).Inc()
		if denied.Extended {
			m.extended.Inc()
		}
	default:
		m.permits.WithLabelValues(resultFailed, etcd.Reason(err)).Inc()
	}
}

// given counts a permit or a token.
func (m *metrics) given(source string) { m.permits.WithLabelValues(Granted, source).Inc() }

// roundTrip records a read in etcd.
func (m *metrics) roundTrip(took time.Duration, err error) {
	if err == nil {
		m.trip.Observe(took.Seconds())
	}
}

// serveMetrics serves the metrics of the moment.
func (a *Agent) serveMetrics(w http.ResponseWriter, r *http.Request) {
	a.collect()
	promhttp.HandlerFor(a.metrics.registry, promhttp.HandlerOpts{DisableCompression: true}).ServeHTTP(w, r)
}

// collect sets the gauges.
func (a *Agent) collect() {
	a.mu.Lock()
	defer a.mu.Unlock()
	m, now := a.metrics, a.opt.Now()
	m.info.Reset()
	m.info.WithLabelValues(a.opt.Fleet, a.opt.Zone, a.state.Digest, a.state.Version).Set(1)
	_, alone := a.waiter.Alone(now)
	m.connected.Set(bool01(a.reached && a.err == nil))
	m.alone.Set(bool01(alone))
	m.paused.Set(bool01(now < a.paused))
	m.aborted.Set(bool01(a.lost))
	m.full.Set(bool01(a.full))
	m.taken.Set(bool01(a.seen.NameTaken))
	m.members.Set(float64(a.seen.Zone.Members))
	m.wanting.Set(float64(a.seen.Zone.Wanting))
	for _, s := range []fleet.State{fleet.Normal, fleet.Partial, fleet.Full} {
		m.state.WithLabelValues(s.String()).Set(bool01(a.reached && s == a.seen.State && (s == fleet.Normal || len(a.state.Wants) > 0)))
	}
	for p := range policy.PoolCount {
		holds := slices.Contains(a.state.Wants, p) && !a.requests[p].granted(now) && a.waiter.Turn(p, now).Verdict <= fleet.Ask
		m.held.WithLabelValues(p.String()).Set(bool01(holds))
	}
}

func bool01(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
