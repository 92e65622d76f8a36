package live_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The example configuration is valid.
func TestCheckExample(t *testing.T) {
	n := &node{T: t}
	if a := n.criguard("check", "--offline", "../../config.example.toml"); a.Code != 0 || a.Err != "" || !strings.Contains(a.Out, "[eviction.hard]") {
		t.Errorf("exit code %d, stderr %q, stdout %q", a.Code, a.Err, a.Out)
	}
	if a := n.criguard("check", "--quiet", "--offline", "../../config.example.toml"); a.Code != 0 || a.Err+a.Out != "" {
		t.Errorf("quiet: exit code %d, stderr %q, stdout %q", a.Code, a.Err, a.Out)
	}
}

// One run reports every mistake with its key, its value and the rule.
func TestCheckMistakes(t *testing.T) {
	n := &node{T: t, dir: t.TempDir()}
	text := `mode = "enforced"
[eviction]
interval = "10 s"
[eviction.hard]
"memory.available" = "120%"
`
	if err := os.WriteFile(n.config(), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	mistakes := []struct{ key, value, rule string }{
		{"mode", `"enforced"`, "must"},
		{"eviction.interval", `"10 s"`, "must"},
		{`eviction.hard."memory.available"`, `"120%"`, "must"},
	}
	for _, cmd := range [][]string{{"check", n.config()}, {"check", "--config", n.config()}, {"run", "--config", n.config(), "--run-dir", filepath.Join(n.dir, "run")}} {
		a := n.criguard(cmd...)
		if a.Code != 2 || a.Out != "" || !strings.Contains(a.Err, "hint: ") {
			t.Errorf("criguard %s: exit code %d, stdout %q, want 2, nothing, and a hint", cmd[0], a.Code, a.Out)
		}
		for _, m := range mistakes {
			found := false
			for line := range strings.Lines(a.Err) {
				found = found || strings.Contains(line, m.key) && strings.Contains(line, m.value) && strings.Contains(line, m.rule)
			}
			if !found {
				t.Errorf("criguard %s: no line tells %s, %s and %q:\n%s", cmd[0], m.key, m.value, m.rule, a.Err)
			}
		}
	}
}
