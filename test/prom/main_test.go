package prom_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

// built are the programs that the tests run.
var built struct{ promtool string }

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, func(ctx context.Context, _ string) (err error) {
		built.promtool, err = lab.Promtool(ctx, nil)
		return err
	}))
}

// promtool runs promtool with text on its standard input, and fails the test if it reports a
// problem.
func promtool(t *testing.T, text string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), built.promtool, args...)
	cmd.Dir, cmd.Stdin = "../../docs", strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// documented returns the metrics in docs/metrics.md and docs/fleet.md, with the series of histograms. Tests in packages
// guard/eviction and guard/fleet/agent ensure that the documents are complete.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	var text []byte
	for _, name := range []string{"metrics.md", "fleet.md"} {
		part, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, part...)
	}
	names := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(criguard_[a-z_]+)` \\| ([a-z]+) ").FindAllStringSubmatch(string(text), -1) {
		if m[2] != "histogram" {
			names[m[1]] = true
			continue
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			names[m[1]+suffix] = true
		}
	}
	if len(names) < 30 {
		t.Fatalf("only %d metrics", len(names))
	}
	return names
}

// unknown returns the criguard metrics in a query that do not exist.
func unknown(names map[string]bool, query string) (bad []string) {
	for _, name := range regexp.MustCompile(`\bcriguard_[a-z_]+`).FindAllString(query, -1) {
		if !names[name] {
			bad = append(bad, name)
		}
	}
	return bad
}
