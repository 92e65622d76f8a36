package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/node/nodetest"
)

// criguard's default for memory stays in force on k3s, unless the conversion is to be exact.
func TestCheckFromKubelet(t *testing.T) {
	const k3s = "../../guard/config/kubelet/testdata/k3s.yaml"
	for want, args := range map[string][]string{
		`"memory.available" = "100Mi" # criguard's default`: {"check", "--from-kubelet", k3s},
		`"memory.available" = "0%" # off`:                   {"check", "--from-kubelet", k3s, "--exact"},
	} {
		if code, out, errs := captured(t, args...); code != cli.ExitOK || !strings.Contains(out, want) {
			t.Errorf("%v: exit code %d, %s, no %q in\n%s", args, code, errs, want, out)
		}
	}
	if code, out, errs := captured(t, "check", "--from-kubelet", k3s, "-o", "json"); code != cli.ExitUsage || !strings.Contains(out, `"--output does not belong to --from-kubelet`) || errs != "" {
		t.Errorf("-o json: exit code %d, %s, %s", code, out, errs)
	}
	if code, _, errs := captured(t, "check", "--exact"); code != cli.ExitUsage || !strings.Contains(errs, "belongs to --from-kubelet") {
		t.Errorf("--exact alone: exit code %d, %s", code, errs)
	}
}

// A check without a runtime still finds that the node meets a hard threshold, except offline. In observe mode
// it adds that criguard would only log it.
func TestCheckLooksAtTheNode(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	text := nodetest.Config(t, "runtime.endpoint = '/none'", nodetest.AnyDisk) // 1.5 MiB are available
	for _, c := range []struct {
		mode string
		args []string
		code int
	}{{"enforce", nil, cli.ExitFinding}, {"enforce", []string{"--offline"}, cli.ExitOK}, {"observe", nil, cli.ExitFinding}} {
		if err := os.WriteFile(file, []byte("mode = '"+c.mode+"'\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, errs := captured(t, append([]string{"check", file, "-o", "json"}, c.args...)...)
		var report checkReport
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatal(err)
		}
		found := len(report.MetNow) == 1 && strings.Contains(errs, "hard memory.available is met NOW, 1.5Mi < 100Mi: a reload would stop pods")
		logged := strings.Contains(errs, `mode is "observe": this is only logged`)
		if code != c.code || found != (c.code == cli.ExitFinding) || logged != (c.mode == "observe") || len(report.Keys) == 0 {
			t.Errorf("%s %v: exit code %d, %+v, %s", c.mode, c.args, code, report.MetNow, errs)
		}
	}
}

// With --quiet, JSON is printed only if there is a finding, which it has.
func TestQuietCheckAsJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	text := nodetest.Config(t, "runtime.endpoint = '/none'", nodetest.AnyDisk) // 1.5 MiB are available
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := captured(t, "check", file, "-q", "-o", "json")
	var report checkReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != cli.ExitFinding || len(report.MetNow) != 1 {
		t.Errorf("exit code %d, %v, %s%s", code, err, out, errs)
	}
	if code, out, errs := captured(t, "check", file, "-q", "-o", "json", "--offline"); code != cli.ExitOK || out+errs != "" {
		t.Errorf("without a finding: exit code %d, %s%s", code, out, errs)
	}
}

// A check notes settings that do not fit the node, which is no finding.
func TestCheckNotesWhatDoesNotFit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	text := nodetest.Config(t, "eviction.hard.'memory.available' = '1Mi'\neviction.minimum_reclaim.'memory.available' = '30Gi'", nodetest.AnyDisk)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := "memory.available:hard: its minimum reclaim of 30Gi can never be met and is ignored"
	if code, _, errs := captured(t, "check", file); code != cli.ExitOK || !strings.Contains(errs, "note: "+want) {
		t.Errorf("exit code %d, %s", code, errs)
	}
	if _, out, errs := captured(t, "check", file, "-o", "json"); !strings.Contains(out, want) || errs != "" {
		t.Errorf("json: %s, %s", out, errs)
	}
	if _, _, errs := captured(t, "check", file, "--offline"); errs != "" {
		t.Errorf("offline: %s", errs)
	}
}

// The notes of a check follow the configuration, where a terminal shows them, and --quiet has none.
func TestCheckEndsWithItsNotes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	text := nodetest.Config(t, "eviction.hard.'memory.available' = '1Mi'\nruntime.endpoint = '/none'", nodetest.AnyDisk)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var both strings.Builder
	root := newRoot()
	root.SetArgs([]string{"check", file})
	root.SetOut(&both)
	root.SetErr(&both)
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	toml, notes, found := strings.Cut(both.String(), "note: ")
	if !found || !strings.Contains(toml, "[eviction.hard]") || strings.Contains(notes, "[eviction.hard]") || !strings.Contains(notes, "\nnote: without an answer of the runtime, ") {
		t.Errorf("%s", both.String())
	}
	for _, args := range [][]string{{"-q"}, {"-q", "-o", "json"}} {
		if code, out, errs := captured(t, append([]string{"check", file}, args...)...); code != cli.ExitOK || out != "" || errs != "" {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, out, errs)
		}
	}
}

// A refused reload lists the mistakes as a check does, one per line.
func TestRefusedReload(t *testing.T) {
	dir := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(api.Error{Error: "refused: c.toml:1: x: unknown key\nc.toml:2: y: unknown key"})
	})
	want := "criguard: invalid configuration, the old one stays in force:\n  c.toml:1: x: unknown key\n  c.toml:2: y: unknown key\nhint: correct this, try it with `criguard check`, and reload again\n"
	if code, _, errs := captured(t, "reload", "--run-dir", dir); code != cli.ExitUsage || errs != want {
		t.Errorf("exit code %d, got\n%s\nwant\n%s", code, errs, want)
	}
}

// The hint at a mistake does not name a command that lists the same mistakes again.
func TestMistakesOfAConfiguration(t *testing.T) {
	dir := writeFiles(t, map[string]string{"c.toml": "x = 1\ny = 2\n"})
	for _, args := range [][]string{{"rank", "--config", dir + "/c.toml", "--run-dir", dir}, {"check", dir + "/c.toml"}} {
		code, _, errs := captured(t, args...)
		if lines := strings.Split(errs, "\n"); code != cli.ExitUsage || len(lines) != 4 || !strings.HasPrefix(lines[2], "hint: `man criguard.toml` explains every key") {
			t.Errorf("%s: exit code %d, %s", args[0], code, errs)
		}
	}
}

// A reload needs the service.
func TestReloadWithoutService(t *testing.T) {
	if code, _, errs := captured(t, "reload", "--run-dir", t.TempDir()); code != cli.ExitUnreachable || !strings.Contains(errs, "hint: ") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}
