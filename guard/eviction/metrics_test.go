package eviction

import (
	"testing"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/metrics"
	"github.com/criguard/criguard/guard/metrics/metricstest"
	"github.com/criguard/criguard/policy"
)

// Each signal and threshold has gauges while it exists. A signal that cannot be read keeps its last value,
// and its signal_observed gauge is 0.
func TestMetricsObserve(t *testing.T) {
	m := metrics.New("test", cgroup.BootTime)
	g, n := newManager(t, softAndHard)
	n.set(policy.MemoryAvailable, testGiB/2)
	p := n.at(g, 0)
	m.Observe(&p, g.Snapshot())
	metricstest.Want(t, m, map[string]string{
		`signal_available{signal="memory.available"}`:          "5.36870912e+08",
		`signal_observed{signal="memory.available"}`:           "1",
		`signal_observed{signal="swap.available"}`:             "",
		`threshold_met{kind="hard",signal="memory.available"}`: "1",
		`threshold_met{kind="soft",signal="memory.available"}`: "1",
		`threshold{kind="hard",signal="memory.available"}`:     "1.073741824e+09",
		`stops_in_flight`:            "1",
		`observe_mode`:               "0",
		`fleet_enabled`:              "0",
		`passes_total{wake="other"}`: "1",
		`stops_total{kind="hard",result="failed",signal="memory.available"}`:   "0",
		`stops_total{kind="limit",result="failed",signal="ephemeral-storage"}`: "0",
		`stops_total{kind="admission",result="failed",signal="DiskPressure"}`:  "0",
		`stops_total{kind="drain",result="failed",signal="drain"}`:             "0",
	})
	g.obs[policy.MemoryAvailable].Status = policy.Failed
	m.Observe(&p, g.Snapshot())
	metricstest.Want(t, m, map[string]string{
		`signal_available{signal="memory.available"}`: "5.36870912e+08",
		`signal_observed{signal="memory.available"}`:  "0",
	})
	p.Wake = "timer"
	m.Observe(&p, g.Snapshot())
	metricstest.Want(t, m, map[string]string{`passes_total{wake="timer"}`: "1"})
	cfg := g.cfg
	cfg.Mode = config.ModeObserve
	cfg.Fleet.Enabled = true
	cfg.Eviction.Thresholds = cfg.Eviction.Thresholds[:1]
	g.SetConfig(cfg)
	p = n.at(g, 0)
	m.Observe(&p, g.Snapshot())
	metricstest.Want(t, m, map[string]string{
		`passes_total{wake="other"}`: "3",
		`observe_mode`:               "1",
		`fleet_enabled`:              "1",
		`threshold_met{kind="soft",signal="memory.available"}`: "", // removed together with the threshold
	})
}
