package guard

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// metricLines gives the samples of Prometheus' text format by name and labels.
func metricLines(t *testing.T, m *Metrics) map[string]string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "criguard.prom")
	if err := m.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if i := strings.LastIndex(line, " "); i > 0 && line[0] != '#' {
			lines[strings.TrimPrefix(line[:i], "criguard_")] = strings.TrimSpace(line[i+1:])
		}
	}
	return lines
}

// wantMetrics compares samples; "" = there is none.
func wantMetrics(t *testing.T, m *Metrics, want map[string]string) {
	t.Helper()
	got := metricLines(t, m)
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
}

// Each signal and threshold has gauges while it is there; one that cannot be read
// keeps its last value and says so.
func TestMetricsObserve(t *testing.T) {
	m := NewMetrics("test")
	g, n := newPassGuard(t, softAndHard)
	n.set(policy.MemoryAvailable, testGiB/2)
	p := n.at(g, 0)
	m.Observe(&p, g)
	wantMetrics(t, m, map[string]string{
		`signal_available{signal="memory.available"}`:          "5.36870912e+08",
		`signal_observed{signal="memory.available"}`:           "1",
		`signal_observed{signal="swap.available"}`:             "",
		`threshold_met{kind="hard",signal="memory.available"}`: "1",
		`threshold_met{kind="soft",signal="memory.available"}`: "1",
		`threshold{kind="hard",signal="memory.available"}`:     "1.073741824e+09",
		`stops_in_flight`:            "1",
		`observe_mode`:               "0",
		`passes_total{wake="other"}`: "1",
		`stops_total{kind="hard",result="failed",signal="memory.available"}`:   "0",
		`stops_total{kind="limit",result="failed",signal="ephemeral-storage"}`: "0",
		`stops_total{kind="admission",result="failed",signal="DiskPressure"}`:  "0",
		`stops_total{kind="drain",result="failed",signal="drain"}`:             "0",
	})
	g.obs[policy.MemoryAvailable].Status = policy.Failed
	m.observeSignals(&g.obs)
	wantMetrics(t, m, map[string]string{
		`signal_available{signal="memory.available"}`: "5.36870912e+08",
		`signal_observed{signal="memory.available"}`:  "0",
	})
	p.Wake = "timer"
	m.Observe(&p, g)
	wantMetrics(t, m, map[string]string{`passes_total{wake="timer"}`: "1"})
	cfg := g.cfg
	cfg.Mode = ModeObserve
	cfg.Eviction.Thresholds = cfg.Eviction.Thresholds[:1]
	g.SetConfig(cfg)
	p = n.at(g, 0)
	m.Observe(&p, g)
	wantMetrics(t, m, map[string]string{
		`passes_total{wake="other"}`: "2",
		`observe_mode`:               "1",
		`threshold_met{kind="soft",signal="memory.available"}`: "", // it went with the configuration
	})
}

// What passes did is counted once, and a hold once for as long as it lasts.
func TestMetricsRecord(t *testing.T) {
	m := NewMetrics("test")
	stop := StopView{Signal: "memory.available", Kind: "hard"}
	stopped, failed, observed := stop, stop, stop
	stopped.Result = &StopResult{Emptied: true, EmptiedIn: 20 * time.Millisecond, DeadIn: 30 * time.Millisecond}
	failed.Result = &StopResult{}
	observed.DryRun = true
	reports := []reclaim.Report{
		{Step: reclaim.StepImages, Removed: []reclaim.Item{{}, {}}, Freed: 1000, Errors: []reclaim.Failure{{}}},
		{Step: reclaim.StepLogs, Removed: []reclaim.Item{{}}, Freed: -5}, // more was written meanwhile
	}
	dry := []reclaim.Report{{Step: reclaim.StepImages, DryRun: true, Removed: []reclaim.Item{{}}, Freed: 7}}
	for _, p := range []Pass{
		{Conditions: policy.ConditionsOf(policy.DiskPressure), Settled: []StopView{stopped, failed}},
		{Stop: &stop}, // it has not ended
		{Stop: &observed, Reclaimed: []ReclaimView{{Reports: reports}, {Reports: dry}}},
		{Held: HeldBudget}, {Held: HeldBudget}, {Held: HeldReclaiming}, {Held: HeldBudget},
		{Held: HeldBreaker}, {Held: HeldBudget}, {Stop: &stop}, {Held: HeldInFlight}, {Held: HeldBudget},
	} {
		m.Record(&p)
	}
	wantMetrics(t, m, map[string]string{
		`stops_total{kind="hard",result="stopped",signal="memory.available"}`:  "1",
		`stops_total{kind="hard",result="failed",signal="memory.available"}`:   "1",
		`stops_total{kind="hard",result="observed",signal="memory.available"}`: "1",
		`stop_emptied_seconds_count{kind="hard"}`:                              "1",
		`stop_emptied_seconds_sum{kind="hard"}`:                                "0.02",
		`stop_crossing_to_dead_seconds_sum{kind="hard"}`:                       "0.03",
		`reclaimed_total{step="images"}`:                                       "2",
		`reclaimed_bytes_total{step="images"}`:                                 "1000",
		`reclaimed_bytes_total{step="logs"}`:                                   "0",
		`reclaim_errors_total{step="images"}`:                                  "1",
		`held_total{reason="budget"}`:                                          "3",
		`held_total{reason="breaker"}`:                                         "1",
		`held_total{reason="reclaiming"}`:                                      "",
		`condition{condition="DiskPressure"}`:                                  "0",
	})
}

// What the service is told of reaches its gauges.
func TestMetricsOfTheService(t *testing.T) {
	m := NewMetrics("1.2.3")
	m.Inventory(Inventory{Pods: []Pod{{}, {}}, Err: errors.New("down")})
	m.Orders(Orders{Pause: &Pause{}})
	taken := metricLines(t, m)["config_last_reload_success_timestamp_seconds"]
	m.reload(errors.New("bad"))
	m.Hook("stop", hookDropped, time.Hour)
	m.Hook("stop", hookOK, time.Second)
	wantMetrics(t, m, map[string]string{
		`runtime_up`: "0", `pods`: "2", `protected_pods`: "0", `paused`: "1", `drained`: "0",
		`config_last_reload_successful`:                           "0",
		`config_last_reload_success_timestamp_seconds`:            taken,
		`hook_events_total{event="stop",result="` + hookOK + `"}`: "1",
		`hook_duration_seconds_sum{event="stop"}`:                 "1",
	})
	m.Inventory(Inventory{Pods: []Pod{{Candidate: policy.Candidate{Protection: "static pod"}}}})
	m.Orders(Orders{Drain: &Drain{}})
	m.reload(nil)
	wantMetrics(t, m, map[string]string{
		`runtime_up`: "1", `pods`: "1", `protected_pods`: "1", `paused`: "0", `drained`: "1", `config_last_reload_successful`: "1",
	})
	if taken == "" || taken == "0" {
		t.Errorf("a configuration was taken at %q", taken)
	}
}
