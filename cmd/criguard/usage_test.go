package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
)

// refused runs a command that must not do anything, and returns what it says.
func refused(t *testing.T, args ...string) *codeError {
	t.Helper()
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(io.Discard)
	err := root.ExecuteContext(t.Context())
	var ce *codeError
	if !errors.As(err, &ce) || ce.code != exitUsage || strings.Contains(err.Error(), "\n") {
		t.Fatalf("criguard %q: %v, want wrong usage in one line", args, err)
	}
	return ce
}

// Whatever is wrong about a command line: it says what, and where to read what there is.
func TestMisused(t *testing.T) {
	for _, c := range []struct{ args, says, hint string }{
		{"statsu", `unknown command "statsu": did you mean status?`, "`criguard --help`"},
		{"nothing-like-it", `unknown command "nothing-like-it"`, "`criguard --help`"},
		{"help statsu", "did you mean status?", "`criguard --help`"},
		{"--no-such", "unknown flag: --no-such", "`criguard --help`"},
		{"status --no-such", "unknown flag: --no-such", "`criguard status --help`"},
		{"status extra", `arguments ["extra"]: want ` + "`criguard status [flags]`", "`criguard status --help`"},
		{"simulate", "arguments []: want `criguard simulate TRACE", "`criguard simulate --help`"},
		{"explain 1 2", "want `criguard explain [PASS|last]", "`criguard explain --help`"},
		{"explain -5", "unknown shorthand flag", "`criguard explain --help`"},
		{"pause --for 5", "missing unit", "`criguard pause --help`"},
		{"completion tcsh", "want `criguard completion SHELL", "`criguard completion --help`"},
		{"completion powershell", "want `criguard completion SHELL", "`criguard completion --help`"},
	} {
		if ce := refused(t, strings.Fields(c.args)...); !strings.Contains(ce.Error(), c.says) || !strings.HasPrefix(ce.hint, c.hint) {
			t.Errorf("criguard %s: %q, hint %q; want %q, %q", c.args, ce, ce.hint, c.says, c.hint)
		}
	}
	for _, c := range []struct{ args, says string }{
		{"record --for -1s", "--for -1s: must not be negative"}, {"record --interval 1ms", "want 10ms or more"},
		{"images --endpoint tcp://x", `--endpoint "tcp://x": want unix:///path or /path`},
		{"drain --timeout -1s", "--timeout -1s: must not be negative"}, {"history -n -3", "must not be negative"},
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(c.args))
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("criguard %s: %v, want %q", c.args, err, c.says)
		}
	}
}

// A trace that is none is told by its name, with what makes one.
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
	write("config.toml", "")
	for path, says := range map[string]string{
		filepath.Join(dir, "none"):           "no such file",
		dir:                                  "is a directory",
		write("empty", "\n\n"):               "no line in it",
		write("bad", "{\"at\":\"0s\"}\n?\n"): "trace line 2: ",
		write("long", strings.Repeat(" ", 17<<20)): "trace line 1: longer than 16 MiB",
	} {
		if ce := refused(t, "simulate", "--config", config, path); !strings.Contains(ce.Error(), path) || !strings.Contains(ce.Error(), says) || ce.hint != traceHint {
			t.Errorf("%q, hint %q; want %q of %s", ce, ce.hint, says, path)
		}
	}
}

// A share of what is not known is shown as the share that it is.
func TestStatusOfAbsentSignals(t *testing.T) {
	var out strings.Builder
	printSignals(&out, []guard.SignalStatus{{
		SignalView: guard.SignalView{Signal: policy.ImageFSAvailable, Status: "absent"}, Thresholds: []guard.ThresholdStatus{{Kind: "hard", Value: "15%"}},
	}})
	if _, row, _ := strings.Cut(out.String(), "\n"); strings.Join(strings.Fields(row), " ") != "imagefs.available - - 15% - absent" {
		t.Errorf("%s", out.String())
	}
}

// A ranking for swap says when it is by memory.
func TestRankingByMemory(t *testing.T) {
	for _, byMemory := range []bool{false, true} {
		var out strings.Builder
		printRanking(&out, guard.Ranking{Signal: policy.SwapAvailable, Capacity: 1, Pods: []guard.RankedView{{Pod: "d/a", ByMemory: byMemory}}})
		if strings.Contains(out.String(), "\nRanked "+guard.ByMemory) != byMemory {
			t.Errorf("%t: %s", byMemory, out.String())
		}
	}
}

// A ranking for what a node does not have says so.
func TestRankingOfAbsentSignal(t *testing.T) {
	for capacity, want := range map[int64]string{0: "swap.available: not there on this node; ranked by", 1 << 30: "swap.available: 0 of 1Gi available; ranked by"} {
		var out strings.Builder
		printRanking(&out, guard.Ranking{Signal: policy.SwapAvailable, Capacity: capacity})
		if !strings.HasPrefix(out.String(), want) {
			t.Errorf("%q, want %q", out.String(), want)
		}
	}
}
