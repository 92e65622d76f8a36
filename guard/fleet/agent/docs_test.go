package agent

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// docs/fleet.md lists every metric of the agent, with its type, its labels and their values, and no other metric.
func TestMetricsDocs(t *testing.T) {
	text, err := os.ReadFile("../../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	documented, rows := map[string]string{}, map[string]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if name := strings.Trim(strings.TrimSpace(cells[0]), "`"); strings.HasPrefix(name, "criguard_fleet_") && len(cells) == 4 {
			documented[name] = strings.TrimSpace(strings.TrimSpace(cells[1]) + " " + strings.ReplaceAll(strings.TrimSpace(cells[2]), "`", ""))
			rows[name] = line
		}
	}
	a := idle()
	a.collect()
	families, err := a.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		want := strings.TrimSpace(strings.ToLower(f.GetType().String()) + " " + strings.Join(labels, ", "))
		if got := documented[f.GetName()]; got != want {
			t.Errorf("%s is documented as %q, and is %q", f.GetName(), got, want)
		}
		delete(documented, f.GetName())
		if f.GetHelp() == "" {
			t.Errorf("%s has no help", f.GetName())
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if slices.Contains([]string{"state", "result", "reason"}, l.GetName()) && !strings.Contains(rows[f.GetName()], "`"+l.GetValue()+"`") {
					t.Errorf("%s: %s=%s is not documented", f.GetName(), l.GetName(), l.GetValue())
				}
			}
		}
	}
	for name := range documented {
		t.Errorf("%s is documented, and is no metric", name)
	}
}
