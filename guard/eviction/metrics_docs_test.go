package eviction

import (
	"os"
	"strings"
	"testing"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/metrics"
	"github.com/criguard/criguard/policy"
)

// filledMetrics returns metrics in which every family has a value.
func filledMetrics(t *testing.T) *metrics.Metrics {
	t.Helper()
	m := metrics.New("test", cgroup.BootTime)
	g, n := newManager(t, softAndHard)
	n.set(policy.MemoryAvailable, testGiB/2)
	p := n.at(g, 0)
	n.end(n.stops[0])
	m.Observe(&p, g.Snapshot())
	p = n.at(g, 0)
	m.Observe(&p, g.Snapshot())
	m.Record(&p)
	return m
}

// docs/metrics.md lists every metric of criguard's own, with its type and labels, and no other metric.
func TestMetricsDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if name := strings.Trim(strings.TrimSpace(cells[0]), "`"); strings.HasPrefix(name, "criguard_") && len(cells) == 4 {
			documented[name] = strings.TrimSpace(cells[1]) + " " + strings.ReplaceAll(strings.TrimSpace(cells[2]), "`", "")
		}
	}
	families, err := filledMetrics(t).Own().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		if got, want := documented[f.GetName()], strings.ToLower(f.GetType().String())+" "+strings.Join(labels, ", "); strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("%s is documented as %q, and is %q", f.GetName(), got, want)
		}
		delete(documented, f.GetName())
		if f.GetHelp() == "" {
			t.Errorf("%s has no help", f.GetName())
		}
	}
	for name := range documented {
		t.Errorf("%s is documented, and is no metric", name)
	}
}

// The number of label values is bounded, whatever runs on the node.
func TestMetricsLabelsAreBounded(t *testing.T) {
	m := filledMetrics(t)
	series := func() (n int) {
		families, err := m.Own().Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			n += len(f.GetMetric())
		}
		return n
	}
	before := series()
	g, n := newManager(t, softAndHard)
	for i := range 100 {
		p := n.at(g, 0)
		p.Wake, p.Held = strings.Repeat("w", i), strings.Repeat("h", i)
		m.Observe(&p, g.Snapshot())
		m.Record(&p)
		m.Inventory(inventory.Inventory{Pods: n.pods})
	}
	if after := series(); after != before {
		t.Errorf("%d series have become %d", before, after)
	}
}

// The gauges follow the Manager: thresholds that are met and then clear, stops in flight and the budget.
func TestMetricsFollow(t *testing.T) {
	m := metrics.New("test", cgroup.BootTime)
	g, n := newManager(t, softAndHard)
	step := func(p api.Pass) {
		m.Observe(&p, g.Snapshot())
		if p.Notable() {
			m.Record(&p)
		}
	}
	step(n.at(g, 0))
	if got := counterOf(t, m, "criguard_threshold", "hard", "memory.available"); got != testGiB {
		t.Errorf("threshold %v", got)
	}
	n.leak("big", testGiB/2)
	step(n.at(g, 1e9))
	if got := counterOf(t, m, "criguard_threshold_met", "hard", "memory.available"); got != 1 {
		t.Errorf("the threshold is met: %v", got)
	}
	if got := counterOf(t, m, "criguard_stops_in_flight"); got != 1 {
		t.Errorf("%v stops in flight", got)
	}
	if got := counterOf(t, m, "criguard_budget_left", "hard"); got != 2 {
		t.Errorf("%v of 3 hard stops left", got)
	}
	n.end(n.stops[0])
	n.set(policy.MemoryAvailable, 8*testGiB)
	step(n.at(g, 2e9))
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"criguard_threshold_met", []string{"hard", "memory.available"}, 0},
		{"criguard_condition", []string{"MemoryPressure"}, 1},
		{"criguard_stops_in_flight", nil, 0},
		{"criguard_stops_total", []string{"hard", "stopped", "memory.available"}, 1},
		{"criguard_stops_total", []string{"hard", "failed", "memory.available"}, 0},
		{"criguard_signal_available", []string{"memory.available"}, 8 * testGiB},
		{"criguard_signal_observed", []string{"memory.available"}, 1},
		{"criguard_passes_total", []string{"other"}, 3},
	} {
		if got := counterOf(t, m, c.name, c.labels...); got != c.want {
			t.Errorf("%s %v: %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}
