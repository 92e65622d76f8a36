package config

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/config/schema"
)

func readExample(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../config.example.toml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestConfigExampleIsTheDefaults(t *testing.T) {
	if cfg := goodConfig(t, readExample(t)); !reflect.DeepEqual(withoutFile(cfg), Default()) {
		t.Errorf("the example differs in %v", cfg.Diff(Default()))
	}
}

// The example lists every key with its default, and a comment above explains it.
func TestConfigExampleHasEveryKey(t *testing.T) {
	text := readExample(t)
	origins := goodConfig(t, text).origins
	written := strings.Split(text, "\n")
	for _, p := range places() {
		path := schema.JoinKey(p.table, p.key)
		at, ok := origins.At(path)
		switch {
		case strings.HasPrefix(p.text, "[["), p.table == "budget.hard", p.table == "budget.soft":
			continue // examples and inline tables
		case !ok:
			t.Errorf("%s is missing", path)
			continue
		case strings.HasPrefix(p.text, "[") && strings.HasSuffix(p.text, "]"):
			continue // a comment above or inside a table explains its contents
		}
		if !strings.HasPrefix(written[at.Line-2], "# ") {
			t.Errorf("%s is not explained", path)
		}
	}
}

// The commented-out examples are valid, and take effect when they are uncommented.
func TestConfigExampleExamples(t *testing.T) {
	text := regexp.MustCompile(`(?m)^#(\S)`).ReplaceAllString(readExample(t), "$1")
	cfg := goodConfig(t, text)
	if len(cfg.Priorities) != 1 || len(cfg.Protects) != 1 || len(cfg.Limits) != 1 || len(cfg.Hooks) != 1 {
		t.Errorf("rules: %+v", cfg)
	}
	want := []string{
		`eviction.minimum_reclaim."imagefs.available"`, `eviction.soft."memory.available"`,
		`eviction.soft_grace_period."memory.available"`, "hook", "limit", "priority", "protect",
	}
	if got := cfg.Diff(Default()); !reflect.DeepEqual(got, want) {
		t.Errorf("the examples change %q", got)
	}
	if notes := cfg.Notes(); len(notes) != 0 {
		t.Errorf("notes %q", notes)
	}
}

func TestConfigExampleIsReadable(t *testing.T) {
	for i, line := range strings.Split(readExample(t), "\n") {
		if n := len([]rune(line)); n > 95 {
			t.Errorf("line %d has %d letters", i+1, n)
		}
		if strings.TrimRight(line, " \t") != line {
			t.Errorf("line %d ends in blanks", i+1)
		}
	}
}
