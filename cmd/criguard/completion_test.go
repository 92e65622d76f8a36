package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// offered returns what the shell offers at the end of a command line, and cobra's directive after a colon.
func offered(t *testing.T, line ...string) string {
	t.Helper()
	code, out, _ := captured(t, append([]string{"__complete"}, line...)...)
	if code != cli.ExitOK {
		t.Errorf("%q: exit code %d", line, code)
	}
	return strings.TrimSuffix(strings.ReplaceAll(out, "\n", " "), " ")
}

// The shell offers what fits: formats, signals, passes, no files where a command takes none.
func TestCompletion(t *testing.T) {
	dir := runDir(t)
	s := &stand{asked: map[string]int{}, answers: map[string]any{
		"/v1/history": api.HistoryList{Passes: []api.Pass{
			{ID: 7, Stop: &api.StopView{Pod: "default/a", Kind: "hard"}}, {ID: 9, Alarm: "outside\npods"},
		}},
		"/v1/rank": api.Ranking{Signal: policy.MemoryAvailable, Pods: []api.RankedView{{Pod: "shop/b"}, {Pod: "shop/a\n:0"}}},
	}}
	defer s.serve(t, dir)()
	if got := offered(t, "explain", "--run-dir", dir, ""); !strings.HasPrefix(got, "9\t") || !strings.Contains(got, " 7\tstop default/a (hard, grace 0s) last :36") {
		t.Errorf("explain: %q", got)
	}
	for line, want := range map[string]string{
		"explain --run-dir " + dir + " 7 ": ":36", "explain --run-dir /nonexistent ": "last :36",
		"status -o ": "table wide json :4", "fleet simulate -o ": "table json :4", "status ": ":36", "record --for ": ":4", "check ": ":0", "simulate ": ":0",
		"simulate --compare ": ":0", "--config ": ":0",
	} {
		if got := offered(t, strings.Split(line, " ")...); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	if got := offered(t, "rank", "-s", "memory.st"); !strings.Contains(got, "memory.stall") {
		t.Errorf("rank -s: %q", got)
	}

	// A command that takes pods.
	o := &options{runDir: dir}
	root, cmd := &cobra.Command{Use: "x"}, &cobra.Command{Use: "stop POD", Run: func(*cobra.Command, []string) {}}
	cmd.Flags().String("pod", "", "pod")
	root.AddCommand(cmd)
	complete(root, o)
	for _, args := range [][]string{{"stop", ""}, {"stop", "--pod", ""}} {
		var out strings.Builder
		root.SetOut(&out)
		root.SetArgs(append([]string{"__complete"}, args...))
		if err := root.ExecuteContext(t.Context()); err != nil || !strings.HasPrefix(out.String(), "shop/b\nshop/a") || strings.Contains(out.String(), "\n:0") {
			t.Errorf("%q: %q, %v", args, out.String(), err)
		}
	}
}
