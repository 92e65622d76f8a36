package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/test/node/scenario"
)

// measured are the trials of a comparison: the guards of Rivals in their order, each with three tries at each rate.
func measured() (trials []*trial) {
	for _, s := range scenario.Rivals() {
		t := &trial{scenario: s, profile: s.Profiles[0], said: []string{"v1", "try 1"}}
		if s.Name == "no-hog" {
			t.tries = []scenario.Try{{Gap: 110 * time.Millisecond}, {Gap: 130 * time.Millisecond}, {Gap: 120 * time.Millisecond}}
			trials = append(trials, t)
			continue
		}
		for i, rate := range []int{200, 800} {
			k := time.Duration(i + 1)
			t.tries = append(t.tries,
				scenario.Try{Rate: rate, Reached: rate - 9, Relief: 30 * k * time.Millisecond, Overshoot: int64(i+1) << 20, Gap: 120 * time.Millisecond},
				scenario.Try{Rate: rate, Reached: rate - 1, Relief: 20 * k * time.Millisecond, Overshoot: int64(i+5) << 20, Gap: 150 * time.Millisecond, KernelKills: 1},
				scenario.Try{Rate: rate, Reached: rate, Relief: 70 * k * time.Millisecond, Overshoot: int64(i) << 20, Gap: 110 * time.Millisecond, Wrong: []string{"a", "b"}})
		}
		trials = append(trials, t)
	}
	return trials
}

// The document has a row for each guard and rate, with the median and the worst of the tries at that rate.
func TestComparison(t *testing.T) {
	rows := strings.Split(comparison(measured()), "\n")
	for _, want := range []string{
		"| criguard | v1 | 200 | 199 | 3 | 1 | 2 | 30ms / 70ms | 1 / 5 | 120ms / 150ms |",
		"| criguard | v1 | 800 | 799 | 3 | 1 | 2 | 60ms / 140ms | 2 / 6 | 120ms / 150ms |",
		"| kubelet | v1 | 800 | 799 | 3 | 1 | 2 | 60ms / 140ms | 2 / 6 | 120ms / 150ms |",
		"| no-hog | v1 |  |  | 3 | 0 | 0 |  |  | 120ms / 130ms |",
	} {
		if !slices.Contains(rows, want) {
			t.Errorf("no row\n%s\nin\n%s", want, strings.Join(rows, "\n"))
		}
	}
	for _, row := range rows[:len(rows)-1] {
		if strings.Count(row, "|") != strings.Count(rows[0], "|") {
			t.Errorf("the row has other columns than %s: %s", rows[0], row)
		}
	}
	if want := 2 + 2*(len(scenario.Rivals())-1) + 1; len(rows) != want+1 {
		t.Errorf("%d lines, want %d", len(rows)-1, want)
	}
}

// The first screen of README.md has a row for each guard and for none, over all rates, and leaves out the details.
func TestSummary(t *testing.T) {
	rows := strings.Split(summary(measured()), "\n")
	for i, name := range []string{"criguard", "earlyoom", "systemd-oomd", "kubelet", "none"} {
		want := "| " + name + " | 60ms / 140ms | 2 / 6 | 4 | 2 |"
		if i+2 >= len(rows) || rows[i+2] != want {
			t.Errorf("no row %s in\n%s", want, strings.Join(rows, "\n"))
		}
	}
	if len(rows) != 8 || strings.Count(rows[0], "|") != strings.Count(rows[2], "|") {
		t.Errorf("want a head and five rows:\n%s", strings.Join(rows, "\n"))
	}
}

// A guard under which memory never became short has no relief and no overshoot, and one without tries has no row.
func TestNothingMeasured(t *testing.T) {
	s := scenario.Rivals()[0]
	if got := comparison([]*trial{{scenario: s}}); strings.Count(got, "\n") != 2 {
		t.Errorf("a row without tries:\n%s", got)
	}
	if got := summary([]*trial{{scenario: s, tries: []scenario.Try{{Rate: 200}}}}); !strings.Contains(got, "| criguard |  |  | 0 | 0 |") {
		t.Errorf("summary of a try without effect:\n%s", got)
	}
}

// The table replaces what is between the marks, which both documents have.
func TestWriteMeasured(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte("before\n"+begins+"old\n"+ends+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeMeasured(path, "new\n"); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(path); string(text) != "before\n"+begins+"new\n"+ends+"after\n" {
		t.Errorf("wrote %q", text)
	}
	if err := os.WriteFile(path, []byte("no marks"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeMeasured(path, "new\n"); err == nil {
		t.Error("no error without marks")
	}
	for _, document := range []string{"../../README.md", "../../docs/comparison-node.md"} {
		if text, err := os.ReadFile(document); err != nil || !strings.Contains(string(text), begins) || !strings.Contains(string(text), ends) {
			t.Errorf("%s has no marks: %v", document, err)
		}
	}
}
