package main

import (
	"path/filepath"
	"strings"
	"testing"
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
		if code != exitOK {
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
		if ce := refused(t, "fleet", "simulate", path(tt.trace), "--config", path(tt.config)); !strings.Contains(ce.Error(), tt.says) || ce.hint != tt.hint {
			t.Errorf("%s: %v, hint %s", tt.trace, ce, ce.hint)
		}
	}
	code, _, errs := captured(t, "fleet", "simulate", path("good.jsonl"), "-c", path("bad.toml"))
	if code != exitUsage || !strings.Contains(errs, "bad.toml:2: rates.rate = 1: ") || !strings.Contains(errs, "bad.toml:3: rates.patiense: unknown key (hint: did you mean [rates] patience?)") {
		t.Errorf("all mistakes: exit code %d, %s", code, errs)
	}
	if code, out, errs := captured(t, "fleet", "simulate", path("bad.jsonl"), "-c", path("fleet.toml"), "-o", "json"); code != exitUsage || errs != "" || !strings.Contains(out, `"apiVersion":"criguard.io/v1"`) {
		t.Errorf("a failure with -o json: exit code %d, %s, %s", code, out, errs)
	}
	if code, _, errs := captured(t, "fleet", "simulate", path("good.jsonl"), "-o", "xml"); code != exitUsage || !strings.Contains(errs, `--output "xml": want table or json`) {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// Commands below fleet have the same help and errors as the others.
func TestFleetUsage(t *testing.T) {
	for args, says := range map[string]string{
		"fleet simulat":       `unknown command "simulat": did you mean simulate?`,
		"fleet simulate":      "an argument is missing: want `criguard fleet simulate TRACE",
		"fleet simulate -x y": "unknown shorthand flag",
	} {
		ce := refused(t, strings.Fields(args)...)
		if !strings.Contains(ce.Error(), says) || !strings.HasPrefix(ce.hint, "`criguard fleet ") {
			t.Errorf("%s: %v, hint %s", args, ce, ce.hint)
		}
	}
	if _, out, _ := captured(t, "fleet", "simulate", "--help"); !strings.Contains(out, "\n  2  wrong usage") || !strings.Contains(out, "fleet.toml") {
		t.Errorf("help: %s", out)
	}
	if code, out, _ := captured(t, "fleet"); code != exitOK || !strings.Contains(out, "criguard fleet [command]") {
		t.Errorf("fleet: exit code %d, %s", code, out)
	}
	for line, want := range map[string]string{"fleet simulate ": ":0", "fleet simulate --config ": ":0", "fleet simulate -o ": "table json :4"} {
		if got := offered(t, strings.Split(line, " ")...); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
