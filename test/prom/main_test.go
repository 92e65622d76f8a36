package prom_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/criguard/criguard/test/lab"
)

// built are the programs that the tests run.
var built struct{ criguard, promtool string }

func TestMain(m *testing.M) {
	os.Exit(lab.Main(m, func(ctx context.Context, dir string) (err error) {
		built.criguard = filepath.Join(dir, "criguard")
		built.promtool, err = lab.Promtool(ctx, nil)
		return errors.Join(err, lab.BuildCriguard(ctx, built.criguard))
	}))
}

// promtool runs it and expects that it finds nothing wrong; text goes to its standard
// input.
func promtool(t *testing.T, text string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), built.promtool, args...)
	cmd.Dir, cmd.Stdin = "../../docs", strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// documented are the metrics of docs/metrics.md, which package guard holds to be all
// there are; histograms with what a query names.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
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

// unknown are the metrics of criguard's that a query names and that are none.
func unknown(names map[string]bool, query string) (bad []string) {
	for _, name := range regexp.MustCompile(`\bcriguard_[a-z_]+`).FindAllString(query, -1) {
		if !names[name] {
			bad = append(bad, name)
		}
	}
	return bad
}
