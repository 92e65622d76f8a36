package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/history"
)

// Every command lists its exit codes in its help, also those below fleet.
func TestHelpListsExitCodes(t *testing.T) {
	known := maps.Clone(exitCodes)
	for _, cmd := range everyCommand(newRoot()) {
		name := strings.TrimPrefix(cmd.CommandPath(), "criguard ")
		if name == "help" {
			continue
		}
		_, out, _ := captured(t, append(strings.Fields(name), "--help")...)
		c := known[name]
		delete(known, name)
		for code, want := range map[int]bool{cli.ExitOK: true, cli.ExitFinding: c.finding != "", cli.ExitUsage: true, cli.ExitUnreachable: c.unreachable != ""} {
			if strings.Contains(out, fmt.Sprintf("\n  %d  ", code)) != want {
				t.Errorf("%s --help: exit code %d is listed: %t\n%s", name, code, !want, out)
			}
		}
	}
	if len(known) > 0 {
		t.Errorf("exit codes of no command: %v", known)
	}
}

// minimalArgs returns a command with the arguments that it requires.
func minimalArgs(name string) []string {
	args := strings.Fields(name)
	switch name {
	case "stop", "protect", "unprotect", "fleet forget":
		return append(args, "default/a")
	case "fleet pause":
		return append(args, "--for", "1h")
	default:
		return args
	}
}

// printsUnreachable reports whether a command prints its own answer if nothing answers it.
func printsUnreachable(name string) bool {
	return name == "status" || name == "fleet status" || name == "fleet check"
}

// fleetFlag returns the flag of a command below fleet that names the configuration of a fleet whose etcd does not answer.
func fleetFlag(t *testing.T, name string) string {
	t.Helper()
	if !strings.HasPrefix(name, "fleet ") {
		return ""
	}
	return " --config " + filepath.Join(writeFiles(t, map[string]string{"fleet.toml": fleetNowhere}), "fleet.toml")
}

// fleetNowhere is a fleet whose etcd does not answer.
const fleetNowhere = "fleet = 'f'\nendpoints = ['http://127.0.0.1:1']\ntls.insecure = true\n"

// Without a service and without a runtime, every command that needs one exits with 3, and says what to do.
func TestUnreachableExits(t *testing.T) {
	dir := runDir(t)
	config := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(config, []byte("[eviction.hard]\n'memory.available' = '99%'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range exitCodes {
		if name == "top" || c.unreachable == "" { // top needs a terminal first
			continue
		}
		args := append(minimalArgs(name), "--run-dir", dir)
		if flags := strings.Fields(fleetFlag(t, name)); flags != nil {
			args = append(args, flags...)
		} else {
			args = append(args, "--config", config, "--endpoint", filepath.Join(dir, "none.sock"))
		}
		code, out, errs := captured(t, args...)
		if code != cli.ExitUnreachable {
			t.Errorf("%s: exit code %d, %q, stderr %q", name, code, out, errs)
		}
		if name == "status" && !strings.Contains(out, "no runtime answers") || !printsUnreachable(name) && !strings.Contains(errs, "\nhint: ") {
			t.Errorf("%s: stdout %q, stderr %q", name, out, errs)
		}
	}
	srv := critest.New(t, critest.Containerd2)
	if code, out, errs := captured(t, "status", "--run-dir", dir, "--config", config, "--endpoint", srv.Endpoint()); code != cli.ExitFinding {
		t.Errorf("status under pressure, with a runtime: exit code %d, %q, stderr %q", code, out, errs)
	}
}

// A command that names a pod exits with 3 while the runtime does not answer the service, and its help says so.
func TestExitsWithoutPods(t *testing.T) {
	dir := runDir(t)
	hostileService(t, dir, http.StatusBadGateway)
	for _, name := range []string{"drain", "stop", "protect", "unprotect"} {
		code, _, errs := captured(t, append(minimalArgs(name), "--run-dir", dir)...)
		if _, help, _ := captured(t, name, "--help"); code != cli.ExitUnreachable || !strings.Contains(help, "\n  3  "+neither) {
			t.Errorf("%s: exit code %d, stderr %q, help\n%s", name, code, errs, help)
		}
	}
}

// A service that has lost its runtime makes status exit with 3, whatever else holds.
func TestStatusOfServiceWithoutRuntime(t *testing.T) {
	dir := runDir(t)
	answers := hostileService(t, dir, http.StatusOK)
	if code, _, _ := captured(t, "status", "--run-dir", dir); code != cli.ExitFinding {
		t.Errorf("with a runtime: exit code %d", code)
	}
	status := filled[api.Status]()
	status.Runtime.Up = false
	answers["/v1/status"] = status
	for _, args := range [][]string{{"status"}, {"status", "-o", "json"}} {
		if code, out, _ := captured(t, append(args, "--run-dir", dir)...); code != cli.ExitUnreachable || out == "" {
			t.Errorf("%v: exit code %d, stdout %q", args, code, out)
		}
	}
}

// A ranking of pods that the runtime no longer reports says how old it is.
func TestStaleRanking(t *testing.T) {
	dir := runDir(t)
	answers := hostileService(t, dir, http.StatusOK)
	ranking := filled[api.Ranking]()
	ranking.Stale, ranking.ListedAt = "no socket", new(api.Duration(90*time.Second))
	answers["/v1/rank"] = ranking
	if code, _, errs := captured(t, "rank", "--run-dir", dir); code != cli.ExitOK || !strings.Contains(errs, "the runtime does not answer, the pods are those of 1m30s ago: no socket") {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
	if _, out, errs := captured(t, "rank", "-o", "json", "--run-dir", dir); errs != "" || !strings.Contains(out, `"stale": "no socket"`) || !strings.Contains(out, `"listed_ago": "1m30s"`) {
		t.Errorf("stdout %q, stderr %q", out, errs)
	}
}

// Without a service, history and explain read the history file, skip lines of another shape and say so.
func TestHistoryWithoutService(t *testing.T) {
	dir := runDir(t)
	h := history.Open(dir, 10)
	for id := range uint64(3) {
		h.Add(api.Pass{ID: id + 1, Wake: "timer", Held: api.HeldBudget, HeldBy: "memory.available:hard"})
	}
	if err := h.Save(); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(dir, history.FileName), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"id":4,"time":"2026-01-02T03:04:05Z","at":1,"conditions":1}` + "\n"); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, says string }{
		{"history", "\n3 "}, {"history --number 2", "\n3 "}, {"explain 2", "Pass 2, "}, {"history -o json", `"id": 1`}, {"explain 2 -o json", `"id": 2`},
	} {
		code, out, errs := captured(t, append(strings.Fields(c.args), "--run-dir", dir)...)
		if code != cli.ExitOK || !strings.Contains(out, c.says) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", c.args, code, out, errs)
		}
		if note := "no service answers; read from " + dir; strings.Contains(c.args, "json") == strings.Contains(errs, note) {
			t.Errorf("%s: stderr %q", c.args, errs)
		}
		if c.args == "history" && !strings.Contains(errs, "damaged line: 1 skipped") {
			t.Errorf("%s: stderr %q", c.args, errs)
		}
	}
}
