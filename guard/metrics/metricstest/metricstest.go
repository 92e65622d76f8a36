// Package metricstest reads metrics in tests.
package metricstest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/metrics"
)

// Lines returns the samples in Prometheus' text format, by name and labels, without the prefix criguard_.
func Lines(t testing.TB, m *metrics.Metrics) map[string]string {
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

// Want compares samples; "" = the sample must not exist.
func Want(t testing.TB, m *metrics.Metrics, want map[string]string) {
	t.Helper()
	got := Lines(t, m)
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
}
