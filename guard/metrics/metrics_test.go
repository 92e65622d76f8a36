package metrics_test

import (
	"errors"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/hook"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/metrics"
	"github.com/criguard/criguard/guard/metrics/metricstest"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// The actions of a pass are counted once.
func TestMetricsRecord(t *testing.T) {
	m := metrics.New("test", cgroup.BootTime)
	stop := api.StopView{Signal: "memory.available", Kind: "hard"}
	stopped, failed, observed, ended, dropped := stop, stop, stop, stop, stop
	ended.Result = &api.StopResult{Emptied: true} // while no service ran
	dropped.Result = &api.StopResult{NotContinued: true}
	stopped.Result = &api.StopResult{Emptied: true, EmptiedIn: api.Duration(20 * time.Millisecond), DeadIn: api.Duration(30 * time.Millisecond)}
	failed.Result = &api.StopResult{}
	observed.DryRun = true
	reports := []reclaim.Report{
		{Step: reclaim.StepImages, Removed: []reclaim.Item{{}, {}}, Freed: 1000, Errors: []reclaim.Failure{{}}},
		{Step: reclaim.StepLogs, Removed: []reclaim.Item{{}}}, // not measured
	}
	dry := []reclaim.Report{{Step: reclaim.StepImages, DryRun: true, Removed: []reclaim.Item{{}}, Freed: 7}}
	for _, p := range []api.Pass{
		{Conditions: policy.ConditionsOf(policy.DiskPressure), Settled: []api.StopView{stopped, failed, ended, dropped}},
		{Stop: &stop}, // it has not ended
		{Stop: &observed, Reclaimed: []api.ReclaimView{{Reports: reports}, {Reports: dry}}},
	} {
		m.Record(&p)
	}
	m.ReclaimErrors(reports)
	metricstest.Want(t, m, map[string]string{
		`stops_total{kind="hard",result="stopped",signal="memory.available"}`:       "2",
		`stops_total{kind="hard",result="not_continued",signal="memory.available"}`: "1",
		`stops_total{kind="hard",result="failed",signal="memory.available"}`:        "1",
		`stops_total{kind="hard",result="observed",signal="memory.available"}`:      "1",
		`stop_emptied_seconds_count{kind="hard"}`:                                   "1",
		`stop_emptied_seconds_sum{kind="hard"}`:                                     "0.02",
		`stop_crossing_to_dead_seconds_sum{kind="hard"}`:                            "0.03",
		`reclaimed_total{step="images"}`:                                            "2",
		`reclaimed_bytes_total{step="images"}`:                                      "1000",
		`reclaimed_bytes_total{step="logs"}`:                                        "0",
		`reclaim_errors_total{step="images"}`:                                       "1",
		`condition{condition="DiskPressure"}`:                                       "0",
	})
}

// What holds a stop back is counted once for as long as it lasts, for each pool, whichever comes first in a pass.
func TestMetricsOfHolds(t *testing.T) {
	m := metrics.New("test", cgroup.BootTime)
	const memory, disk = "memory.available:soft", "nodefs.available:hard"
	state := api.State{Observations: &policy.Observations{}, Budget: func() policy.BudgetView { return policy.BudgetView{} }}
	for _, holds := range [][]api.Hold{
		{{Threshold: memory, Reason: api.HeldBudget}},
		{{Threshold: memory, Reason: api.HeldBudget}},
		{{Threshold: memory, Reason: api.HeldReclaiming}},
		{{Threshold: memory, Reason: api.HeldBudget}},
		{{Threshold: memory, Reason: api.HeldGrace}, {Threshold: disk, Reason: api.HeldBudget}},
		{{Threshold: disk, Reason: api.HeldBudget}},
		{{Threshold: memory, Reason: api.HeldBreaker}, {Threshold: disk, Reason: api.HeldBudget}},
		nil, // a stop
		{{Threshold: memory, Reason: api.HeldInFlight}},
		{{Threshold: memory, Reason: api.HeldBudget}},
	} {
		p := api.Pass{Wake: "timer"}
		for _, h := range holds {
			p.Hold(h.Threshold, policy.Held{By: h.Reason})
		}
		if holds == nil {
			p.Hold(memory, policy.Held{By: api.HeldProtected})
			p.Unhold()
			p.Stop = &api.StopView{}
		}
		m.Observe(&p, state)
	}
	metricstest.Want(t, m, map[string]string{
		`held_total{reason="budget"}`: "3", `held_total{reason="breaker"}`: "1", `held_total{reason="protected"}`: "0",
		`held_total{reason="reclaiming"}`: "", `held_total{reason="grace"}`: "",
	})
}

// The state of the service is reflected in its gauges.
func TestMetricsOfTheService(t *testing.T) {
	m := metrics.New("1.2.3", cgroup.BootTime)
	m.Inventory(inventory.Inventory{Pods: []inventory.Pod{{}, {}}, Err: errors.New("down")})
	m.Orders(api.Orders{Pause: &api.Pause{}})
	taken := metricstest.Lines(t, m)["config_last_reload_success_timestamp_seconds"]
	m.Reloaded(errors.New("bad"))
	m.Hook("stop", hook.ResultDropped, time.Hour)
	m.Hook("stop", hook.ResultOK, time.Second)
	metricstest.Want(t, m, map[string]string{
		`runtime_up`: "0", `pods`: "2", `protected_pods`: "0", `paused`: "1", `drained`: "0",
		`config_last_reload_successful`:                                  "0",
		`config_last_reload_success_timestamp_seconds`:                   taken,
		`hook_events_total{event="stop",result="` + hook.ResultOK + `"}`: "1",
		`hook_duration_seconds_sum{event="stop"}`:                        "1",
	})
	m.Inventory(inventory.Inventory{Pods: []inventory.Pod{{Candidate: policy.Candidate{Protection: "static pod"}}}})
	m.Orders(api.Orders{Drain: &api.Drain{}})
	m.Reloaded(nil)
	metricstest.Want(t, m, map[string]string{
		`runtime_up`: "1", `pods`: "1", `protected_pods`: "1", `paused`: "0", `drained`: "1", `config_last_reload_successful`: "1",
	})
	if taken == "" || taken == "0" {
		t.Errorf("a configuration was taken at %q", taken)
	}
}
