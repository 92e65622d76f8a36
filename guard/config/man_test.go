package config

import (
	"os"
	"strings"
	"testing"

	"github.com/criguard/criguard/policy"
)

// criguard.toml(5) names every key, table and signal.
func TestConfigManPageHasEveryKey(t *testing.T) {
	text, err := os.ReadFile("../../systemd/criguard.toml.5")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(string(text), `\-`, "-")
	keys := Keys()
	if len(keys) < 60 {
		t.Fatalf("only %d keys", len(keys))
	}
	for _, path := range keys {
		table, key := "", path
		if i := strings.LastIndex(path, "."); i >= 0 {
			table, key = path[:i], path[i+1:]
		}
		if strings.HasPrefix(table, "budget.") {
			table, key = "budget", table[len("budget."):] // {burst = …, every = …}
		}
		if list, ok := strings.CutSuffix(table, "[]"); ok {
			table = "[" + list + "]"
		}
		if table != "" && !strings.Contains(page, "["+table+"]") && !strings.Contains(page, "["+strings.ToUpper(table)+"]") {
			t.Errorf("[%s] is missing", table)
		}
		if !strings.Contains(page, `\fB`+key+`\fR`) && !strings.Contains(page, "["+table+"."+key+"]") && !strings.Contains(page, key+" = ") {
			t.Errorf("%s is missing", path)
		}
	}
	for _, s := range policy.Signals() {
		if !strings.Contains(page, `\fB`+s.String()+`\fR`) {
			t.Errorf("%s is missing", s)
		}
	}
}
