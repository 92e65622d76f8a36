package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// refused runs a command that must be rejected as wrong usage, and returns the error.
func refused(t *testing.T, args ...string) *cli.Error {
	t.Helper()
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(io.Discard)
	err := root.ExecuteContext(t.Context())
	var ce *cli.Error
	if !errors.As(err, &ce) || ce.Code != cli.ExitUsage || strings.Contains(err.Error(), "\n") {
		t.Fatalf("criguard %q: %v, want wrong usage in one line", args, err)
	}
	return ce
}

// Every wrong command line gets an error that names the mistake, and a hint where to read more.
func TestMisused(t *testing.T) {
	for _, c := range []struct{ args, says, hint string }{
		{"statsu", `unknown command "statsu": did you mean "status"?`, "`criguard --help`"},
		{"stat", `unknown command "stat": did you mean "status"?`, "`criguard --help`"}, // not stop
		{"sotp", `unknown command "sotp": did you mean "stop"?`, "`criguard --help`"},
		{"fleet stats", `unknown command "stats": did you mean "status"?`, "`criguard fleet --help`"},
		{"nothing-like-it", `unknown command "nothing-like-it"`, "`criguard --help`"},
		{"help statsu", `did you mean "status"?`, "`criguard --help`"},
		{"--no-such", "unknown flag: --no-such", "`criguard --help`"},
		{"status --wacth", `unknown flag: --wacth: did you mean "--watch"?`, "`criguard status --help`"},
		{"prune --dryrun", `unknown flag: --dryrun: did you mean "--dry-run"?`, "`criguard prune --help`"},
		{"fleet status --rundir x", `unknown flag: --rundir: did you mean "--run-dir"?`, "`criguard fleet status --help`"},
		{"hisotry --stops", `unknown command "hisotry": did you mean "history"?`, "`criguard --help`"},
		{"fleet statsu -o json", `unknown command "statsu": did you mean "status"?`, "`criguard fleet --help`"},
		{"status --no-such", "unknown flag: --no-such", "`criguard status --help`"},
		{"status extra", `unexpected arguments ["extra"]: want ` + "`criguard status [flags]`", "`criguard status --help`"},
		{"simulate", "an argument is missing: want `criguard simulate TRACE", "`criguard simulate --help`"},
		{"explain 1 2", "want `criguard explain [PASS|NAMESPACE/NAME|last]", "`criguard explain --help`"},
		{"explain -5", "unknown shorthand flag", "`criguard explain --help`"},
		{"pause --for 5", `--for "5": want a duration, as 30s or 1h30m`, "`criguard pause --help`"},
		{"fleet pause --for 1x", `--for "1x": want a duration, as 30s or 1h30m`, "`criguard fleet pause --help`"},
		{"top -i 5", `--interval "5": want a duration`, "`criguard top --help`"},
		{"history --number ten", `--number "ten": want a whole number`, "`criguard history --help`"},
		{"status --watch=on", `--watch "on": want true or false, or no value, which means true`, "`criguard status --help`"},
		{"completion tcsh", "want `criguard completion SHELL", "`criguard completion --help`"},
		{"completion powershell", "want `criguard completion SHELL", "`criguard completion --help`"},
	} {
		if ce := refused(t, strings.Fields(c.args)...); !strings.Contains(ce.Error(), c.says) || !strings.HasPrefix(ce.Hint, c.hint) {
			t.Errorf("criguard %s: %q, hint %q; want %q, %q", c.args, ce, ce.Hint, c.says, c.hint)
		}
	}
	for _, args := range [][]string{{"check", "--from-kubelet", ""}, {"check", "--config="}, {"prune", "-r", ""}, {"status", "--run-dir", ""}, {"fleet", "status", "--key", ""}} {
		if ce := refused(t, args...); !strings.Contains(ce.Error(), " is empty: set it") {
			t.Errorf("criguard %q: %v", args, ce)
		}
	}
	if ce := refused(t, "check", ""); !strings.Contains(ce.Error(), "FILE is empty") {
		t.Errorf("criguard check '': %v", ce)
	}
	if ce := refused(t, "check", "a.toml", "--config", "b.toml"); !strings.Contains(ce.Error(), "two files") {
		t.Errorf("criguard check of two files: %v", ce)
	}
	if ce := refused(t, "explain", ""); !strings.Contains(ce.Error(), "the argument is empty") {
		t.Errorf("criguard explain '': %v", ce)
	}
	for _, c := range []struct{ args, says string }{
		{"record --for -1s", "--for -1s: must not be negative"}, {"record --interval 1ms", "want 10ms or more"},
		{"images --endpoint tcp://x", `--endpoint "tcp://x": want unix:///path or /path`},
		{"drain --timeout -1s", "--timeout -1s: must not be negative"}, {"history --number -3", "must not be negative"},
		{"rank -s memory", `--signal "memory": unknown signal: did you mean "memory.available" or "memory.stall"?`},
		{"history -s nodefs.avail", `unknown signal: did you mean "nodefs.available"?`}, {"prune --until imagefs=1%", "did you mean"},
		{"prune --until imagefs.available=0", "want more than 0"}, {"prune --until 20%", `--until "20%": want a signal and a quantity, such as`},
		{"rank -s x", "--signal: "}, {"history --pod a//b", "want namespace/name or a name"},
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(c.args))
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("criguard %s: %v, want %q", c.args, err, c.says)
		}
	}
}

// The error for an invalid trace names the file and the command that records one.
func TestSimulateRefuses(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "config.toml")
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("config.toml", "# the defaults\n")
	for path, says := range map[string]string{
		filepath.Join(dir, "none"):           "no such file",
		dir:                                  "is a directory",
		write("empty", "\n\n"):               "no line in it",
		write("bad", "{\"at\":\"0s\"}\n?\n"): "trace line 2: ",
		write("long", strings.Repeat(" ", 17<<20)): "trace line 1: longer than 16 MiB",
	} {
		if ce := refused(t, "simulate", "--config", config, path); !strings.Contains(ce.Error(), path) || !strings.Contains(ce.Error(), says) || ce.Hint != traceHint {
			t.Errorf("%q, hint %q; want %q of %s", ce, ce.Hint, says, path)
		}
	}
}

// A percentage of an unknown capacity is shown as the percentage.
func TestStatusOfAbsentSignals(t *testing.T) {
	var out strings.Builder
	printSignals(&out, []api.SignalStatus{{
		SignalView: api.SignalView{Signal: policy.ImageFSAvailable, Status: "absent"}, Thresholds: []api.ThresholdStatus{{Kind: "hard", Value: "15%"}},
	}})
	if _, row, _ := strings.Cut(out.String(), "\n"); strings.Join(strings.Fields(row), " ") != "imagefs.available - - 15% - absent" {
		t.Errorf("%s", out.String())
	}
}

// A ranking says what holds the stop back.
func TestRankingOfAHeldStop(t *testing.T) {
	var out strings.Builder
	printRanking(&out, api.Ranking{Signal: policy.MemoryAvailable, Capacity: 1, Held: &api.Hold{Reason: api.HeldFleet, Detail: "alone"}})
	if !strings.HasSuffix(out.String(), "\nHeld back: fleet: alone.\n") {
		t.Errorf("got\n%s", out.String())
	}
}

// A ranking for an absent signal says that it is absent.
func TestRankingOfAbsentSignal(t *testing.T) {
	for capacity, want := range map[int64]string{0: "swap.available: not there on this node; ranked by", 1 << 30: "swap.available: 0 of 1Gi available; ranked by"} {
		var out strings.Builder
		printRanking(&out, api.Ranking{Signal: policy.SwapAvailable, Capacity: capacity})
		if !strings.HasPrefix(out.String(), want) {
			t.Errorf("%q, want %q", out.String(), want)
		}
	}
	var out strings.Builder
	printRanking(&out, api.Ranking{Signal: policy.MemoryStall, Unmeasured: "not measured yet", Pods: []api.RankedView{
		{Pod: "d/less", Known: true, Usage: 1 << 30, Request: 3 << 30}, {Pod: "d/more", Known: true, Usage: 3 << 30, Request: 1 << 30, Over: true},
		{Pod: "d/guaranteed", Known: true, Usage: 3 << 30, Request: 1 << 30},
	}})
	for _, want := range []string{"memory.stall: not measured yet; ranked by", " 1Gi 3Gi -2Gi ", " 3Gi 1Gi 2Gi ", " 3Gi 1Gi 0 "} {
		if !strings.Contains(squeezed(out.String()), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

// Pods request memory and disk space, but no PIDs or inodes. The source of a memory request belongs to no other ranking.
func TestRankingWithoutRequests(t *testing.T) {
	pod := api.RankedView{Position: 1, Pod: "d/a", QoS: "Burstable", Known: true, Usage: 13, Frees: 13, Over: true, RequestSource: "oom_score_adj"}
	for signal, want := range map[policy.Signal]string{
		policy.PIDAvailable: "0 13 - - 13", policy.NodeFSInodesFree: "0 13 - - 13",
		policy.NodeFSAvailable: "0 13 0 13 13", policy.MemoryAvailable: "0 13 0 13 13 request too small for oom_score_adj to show",
		policy.SwapAvailable: "0 13 0 13 13 request too small for oom_score_adj to show",
	} {
		var out strings.Builder
		printRanking(&out, api.Ranking{Signal: signal, Capacity: 1, Pods: []api.RankedView{pod}})
		if got := strings.TrimSpace(squeezed(out.String())); !strings.HasSuffix(got, "Burstable "+want) {
			t.Errorf("%s: %q, want %q", signal, got, want)
		}
	}
}

// Every column of a table has a name.
func TestEveryColumnHasAName(t *testing.T) {
	removed := []reclaim.Report{{Removed: []reclaim.Item{{Kind: reclaim.KindImage, Name: "a", Why: "not in use"}}}}
	for name, show := range map[string]func(io.Writer){
		"explain":         func(w io.Writer) { printReclaimed(w, &api.Pass{Reclaimed: []api.ReclaimView{{Reports: removed}}}) },
		"prune --verbose": func(w io.Writer) { printReports(w, removed, false, true) },
	} {
		var out strings.Builder
		show(&out)
		if !strings.Contains(squeezed(out.String()), "RESULT WHY") {
			t.Errorf("%s:\n%s", name, out.String())
		}
	}
}

// A ranking says where a request comes from, and that oom_score_adj cannot show a small one.
func TestRankingNotesRequests(t *testing.T) {
	for want, pod := range map[string]api.RankedView{
		"request from oom_score_adj":                  {RequestSource: "oom_score_adj", Request: 1 << 20},
		"request too small for oom_score_adj to show": {RequestSource: "oom_score_adj"},
		"protected": {RequestSource: "oom_score_adj", Excluded: "protected"},
		"0 0":       {RequestSource: "BestEffort", Position: 1, Known: true},
	} {
		var out strings.Builder
		printRanking(&out, api.Ranking{Signal: policy.MemoryAvailable, Capacity: 1, Pods: []api.RankedView{pod}})
		if got := strings.TrimSpace(squeezed(out.String())); !strings.HasSuffix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
