package prom_test

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// The alerting rules are valid, pass their unit tests and use existing metrics, and each has a test
// in which it fires.
func TestAlerts(t *testing.T) {
	promtool(t, "", "check", "rules", "--lint=all", "--lint-fatal", "criguard-alerts.yml")
	promtool(t, "", "test", "rules", "criguard-alerts.test.yml")
	rules, err := os.ReadFile("../../docs/criguard-alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("../../docs/criguard-alerts.test.yml")
	if err != nil {
		t.Fatal(err)
	}
	if bad := unknown(documented(t), string(rules)); len(bad) > 0 {
		t.Errorf("the rules name metrics that are none: %v", bad)
	}
	names := regexp.MustCompile(`(?m)^ *- alert: (\w+)$`).FindAllStringSubmatch(string(rules), -1)
	var fires []string
	for _, m := range regexp.MustCompile(`alertname: (\w+)\n *exp_alerts:\n`).FindAllStringSubmatch(string(tests), -1) {
		fires = append(fires, m[1])
	}
	if len(names) < 15 {
		t.Fatalf("only %d rules", len(names))
	}
	for _, m := range names {
		if !slices.Contains(fires, m[1]) {
			t.Errorf("no test has %s fire", m[1])
		}
	}
}
