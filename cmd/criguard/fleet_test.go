package main

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/cmd/criguard/internal/fleetcmd"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/agent"
	"github.com/criguard/criguard/guard/rundir"
)

const (
	fleetHint      = "a simulation uses only [rates] of fleet.toml, or their defaults without a file"
	fleetTraceHint = `a trace has one JSON value per line, such as {"at":"10s","members":{"z1":12},"wanting":{"z1":7}}; see ` + "`criguard fleet simulate --help`"
)

const fleetTrace = `{"at":"0s","members":{"z1":12},"wanting":{"z1":2},"requests":[{"node":"n1","zone":"z1","workload":"shop/web"},{"node":"n2","zone":"z1","workload":"shop/db"},{"node":"n3","zone":"z1","workload":"shop/web"}]}
{"at":"4s"}
{"at":"15m","wanting":{"z1":7},"requests":[{"node":"n4","zone":"z1","workload":"shop/api"}]}
`

const fleetSummary = "3 lines over 15m: 1 granted, 2 out of patience, 1 still waiting" +
	" AT NODE ZONE WORKLOAD RESULT AFTER 0s n1 z1 shop/web granted 0s 15m n2 z1 shop/db out of patience 15m 15m n3 z1 shop/web out of patience 15m"

// A simulation prints a line of JSON for each line of the trace, and a summary to standard error. With -o, it prints one
// of them.
func TestFleetSimulate(t *testing.T) {
	dir := writeFiles(t, map[string]string{"storm.jsonl": fleetTrace, "fleet.toml": "", "fast.toml": "[rates]\nrate = 0.25\n", "calm.jsonl": `{"at":"0s"}`})
	path := func(name string) string { return filepath.Join(dir, name) }
	run := func(args ...string) (out, errs string) {
		t.Helper()
		code, out, errs := captured(t, append([]string{"fleet", "simulate"}, args...)...)
		if code != cli.ExitOK {
			t.Errorf("%q: exit code %d", args, code)
		}
		return out, squeezed(errs)
	}
	both, errs := run(path("storm.jsonl"), "--config", path("fleet.toml"))
	lines := strings.Split(both, "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[1], `{"at":"4s","zones":{"z1":{"members":12,"wanting":2,"state":"normal","rate":0.1}},"fleet":"normal","granted":[],"patience":[],"held":[{"node":"n2","reason":"zone z1: next permit in 6s"}`) {
		t.Errorf("stdout %s", both)
	}
	if errs != fleetSummary {
		t.Errorf("stderr %s", errs)
	}
	if out, errs := run(path("storm.jsonl"), "-c", path("fleet.toml"), "-o", "json"); out != both || errs != "" {
		t.Errorf("-o json: %s, stderr %s", out, errs)
	}
	if out, errs := run(path("storm.jsonl"), "-c", path("fleet.toml"), "-o", "table"); squeezed(out) != fleetSummary || errs != "" {
		t.Errorf("-o table: %s, stderr %s", out, errs)
	}
	if out, _ := run(path("storm.jsonl"), "-c", path("fast.toml")); !strings.Contains(out, `{"at":"4s","zones":{"z1":{"members":12,"wanting":2,"state":"normal","rate":0.25}},"fleet":"normal","granted":["n2"]`) {
		t.Errorf("a higher rate: %s", out)
	}
	if out, _ := run(path("calm.jsonl"), "-c", path("fleet.toml"), "-o", "table"); out != "1 line over 0s: 0 granted, 0 out of patience, 0 still waiting\n" {
		t.Errorf("no request: %s", out)
	}
}

func TestFleetSimulateRefuses(t *testing.T) {
	dir := writeFiles(t, map[string]string{"bad.jsonl": "{\"at\":\"0s\"}\n?\n", "good.jsonl": fleetTrace, "empty": "\n", "fleet.toml": "", "bad.toml": "[rates]\nrate = 1\npatiense = '1m'\n"})
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, tt := range []struct{ trace, config, says, hint string }{
		{"bad.jsonl", "fleet.toml", "bad.jsonl: trace line 2: ", fleetTraceHint},
		{"empty", "fleet.toml", "no line in it", fleetTraceHint},
		{"none", "fleet.toml", "no such file", fleetTraceHint},
		{"good.jsonl", "none.toml", "cannot be read", fleetHint},
	} {
		if ce := refused(t, "fleet", "simulate", path(tt.trace), "--config", path(tt.config)); !strings.Contains(ce.Error(), tt.says) || ce.Hint != tt.hint {
			t.Errorf("%s: %v, hint %s", tt.trace, ce, ce.Hint)
		}
	}
	code, _, errs := captured(t, "fleet", "simulate", path("good.jsonl"), "-c", path("bad.toml"))
	if code != cli.ExitUsage || !strings.Contains(errs, "bad.toml:2: rates.rate = 1: ") || !strings.Contains(errs, "bad.toml:3: rates.patiense: unknown key (hint: did you mean [rates] patience?)") {
		t.Errorf("all mistakes: exit code %d, %s", code, errs)
	}
	if code, out, errs := captured(t, "fleet", "simulate", path("bad.jsonl"), "-c", path("fleet.toml"), "-o", "json"); code != cli.ExitUsage || errs != "" || !strings.Contains(out, `"apiVersion":"criguard.io/v1"`) {
		t.Errorf("a failure with -o json: exit code %d, %s, %s", code, out, errs)
	}
	if code, _, errs := captured(t, "fleet", "simulate", path("good.jsonl"), "-o", "xml"); code != cli.ExitUsage || !strings.Contains(errs, `--output "xml": want table or json`) {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// Commands below fleet have the same help and errors as the others.
func TestFleetUsage(t *testing.T) {
	for args, says := range map[string]string{
		"fleet simulat":       `unknown command "simulat": did you mean "simulate"?`,
		"fleet simulate":      "an argument is missing: want `criguard fleet simulate TRACE",
		"fleet simulate -x y": "unknown shorthand flag",
	} {
		ce := refused(t, strings.Fields(args)...)
		if !strings.Contains(ce.Error(), says) || !strings.HasPrefix(ce.Hint, "`criguard fleet ") {
			t.Errorf("%s: %v, hint %s", args, ce, ce.Hint)
		}
	}
	if _, out, _ := captured(t, "fleet", "simulate", "--help"); !strings.Contains(out, "\n  2  wrong usage") || !strings.Contains(out, "fleet.toml") {
		t.Errorf("help: %s", out)
	}
	if code, out, _ := captured(t, "fleet"); code != cli.ExitOK || !strings.Contains(out, "criguard fleet [command]") {
		t.Errorf("fleet: exit code %d, %s", code, out)
	}
	for line, want := range map[string]string{"fleet simulate ": ":0", "fleet simulate --config ": ":0", "fleet simulate -o ": "table json :4"} {
		if got := offered(t, strings.Split(line, " ")...); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// serveAgent serves an agent that does not run on a node's socket.
func serveAgent(t *testing.T, dir rundir.Dir) {
	t.Helper()
	a := agent.New(agent.Options{
		Fleet: "f", Node: "n1", Rates: fleet.DefaultRates(), Rand: rand.New(rand.NewPCG(1, 2)), Now: func() time.Duration { return time.Hour },
	})
	l, err := net.Listen("unix", dir.FleetSocket())
	if err != nil {
		t.Fatal(err)
	}
	server := agent.NewServer(a)
	var group sync.WaitGroup
	group.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(func() { _ = server.Close(); group.Wait() })
}

// Without etcd, status shows the node by its agent. The service's metrics are followed by the agent's.
func TestFleetStatusByTheAgent(t *testing.T) {
	dir := runDir(t)
	flags := strings.Fields("--run-dir " + dir + fleetFlag(t, "fleet status"))
	code, out, errs := captured(t, append([]string{"fleet", "status"}, flags...)...)
	if code != cli.ExitUnreachable || errs != "" || !strings.Contains(squeezed(out), "agent the fleet's agent does not run: ") {
		t.Errorf("without an agent: exit code %d, %s, %s", code, out, errs)
	}
	hostileService(t, dir, http.StatusOK)
	_, before, _ := captured(t, "metrics", "--run-dir", dir)
	serveAgent(t, rundir.Dir(dir))
	for _, name := range []string{"status", "check"} {
		code, out, errs := captured(t, append([]string{"fleet", name, "-o", "json"}, flags...)...)
		if code != cli.ExitUnreachable || errs != "" {
			t.Errorf("%s: exit code %d, %s", name, code, errs)
		}
		for _, wrong := range readJSONDoc(t).Command("fleet "+name, false, []byte(out)) {
			t.Error(wrong)
		}
		if name == "status" {
			var st fleetcmd.Status
			if err := json.Unmarshal([]byte(out), &st); err != nil || st.Node.Agent == nil || st.Node.Agent.Node != "n1" || !strings.Contains(st.Error, "not reachable") {
				t.Errorf("%v, %s", err, out)
			}
		} else if !strings.Contains(out, `"error": "unreachable"`) {
			t.Errorf("check: %s", out)
		}
	}
	code, out, _ = captured(t, "metrics", "--run-dir", dir)
	if code != cli.ExitOK || !strings.HasPrefix(out, before) || !strings.Contains(out, "\ncriguard_fleet_connected 0\n") {
		t.Errorf("metrics: exit code %d, %s", code, out)
	}
}

// What is wrong with the node's own files is not repeated for each member of etcd.
func TestFleetCheckNamesAMissingFileOnce(t *testing.T) {
	dir := writeFiles(t, map[string]string{"fleet.toml": "fleet = 'f'\nendpoints = ['https://127.0.0.1:1', 'https://127.0.0.1:2']\n[tls]\nca = '/none/ca'\ncert = '/none/c'\nkey = '/none/k'\n"})
	code, out, errs := captured(t, "fleet", "check", "-c", filepath.Join(dir, "fleet.toml"))
	if code != cli.ExitUnreachable || strings.Count(out, "https://127.0.0.1:") != 2 || strings.Count(out, "ERROR") != 1 {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
}

func TestFleetCommandsRefuse(t *testing.T) {
	dir := writeFiles(t, map[string]string{"fleet.toml": fleetNowhere, "bad.toml": "flet = 1\nzone = 7\n"})
	good, bad := filepath.Join(dir, "fleet.toml"), filepath.Join(dir, "bad.toml")
	for _, tt := range []struct{ args, says string }{
		{"pause", "--for is missing: want 2s to 168h"},
		{"pause --for 0s", "--for 0s: want 2s to 168h"},
		{"pause --for 8d", "want 2s to 168h"},
		{"status --cert /c --key /k -c " + good, "--cert and --key have no effect: "},
		{"status --cert /c", "--cert and --key belong together"},
		{"forget", "an argument is missing"},
		{"agent -c " + good, "criguard: systemd passed no socket\nhint: "},
		{"status -r https://10.0.0.1:2379", "the endpoints of etcd are in fleet.toml"},
		{"check --config-dir /etc", "fleet.toml has no drop-ins"},
	} {
		code, _, errs := captured(t, append([]string{"fleet"}, strings.Fields(tt.args)...)...)
		if code != cli.ExitUsage || !strings.Contains(errs, tt.says) {
			t.Errorf("%s: exit code %d, %s", tt.args, code, errs)
		}
	}
	for _, name := range []string{"agent", "status", "check", "pause --for 1h", "resume", "forget n1"} {
		code, _, errs := captured(t, append(append([]string{"fleet"}, strings.Fields(name)...), "-c", bad)...)
		if code != cli.ExitUsage || !strings.Contains(errs, "bad.toml:1: flet: unknown key") || !strings.Contains(errs, "bad.toml:2: zone = 7: ") || !strings.Contains(errs, "hint: ") {
			t.Errorf("%s: exit code %d, %s", name, code, errs)
		}
	}
}

// An offline check is about the file alone: no etcd has to answer.
func TestFleetCheckOffline(t *testing.T) {
	dir := writeFiles(t, map[string]string{"fleet.toml": fleetNowhere + "node = 'n1'\n", "bad.toml": fleetNowhere + "colour = 1\n"})
	good := []string{"fleet", "check", "--offline", "-c", filepath.Join(dir, "fleet.toml")}
	if code, out, errs := captured(t, good...); code != cli.ExitOK || !strings.Contains(out, "ok: fleet.toml has no mistakes") || errs != "" {
		t.Errorf("exit code %d, %s, %s", code, out, errs)
	}
	if code, out, _ := captured(t, append(good, "-o", "json")...); code != cli.ExitOK || !strings.Contains(out, `"node": "n1`) {
		t.Errorf("-o json: exit code %d, %s", code, out)
	}
	if code, _, errs := captured(t, "fleet", "check", "--offline", "-c", filepath.Join(dir, "bad.toml")); code != cli.ExitUsage || !strings.Contains(errs, "colour: unknown key") {
		t.Errorf("a mistake: exit code %d, %s", code, errs)
	}
}
