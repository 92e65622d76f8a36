package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
)

// leakTrace is a node of 4 GiB on which shop/batch grows.
const leakTrace = `{"at":"0s","signals":{"memory.available":{"available":"2Gi","capacity":"4Gi"}},"pods":[{"name":"shop/db","memory_usage":"900Mi","protected":true},{"name":"shop/batch","memory_usage":"600Mi"}]}
{"at":"10s","signals":{"memory.available":{"available":"900Mi"}},"pods":[{"name":"shop/db"},{"name":"shop/batch","memory_usage":"2Gi"}]}
{"at":"20s","signals":{"memory.available":{"available":"80Mi"}}}
{"at":"1m0s","signals":{"memory.available":{"available":"80Mi"}}}
`

// writeFiles writes files and returns their directory.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Output of other commands is named for what it is, and the hint says where a trace comes from.
func TestSimulateRefusesOutput(t *testing.T) {
	now := time.Now()
	service := servePasses(t, func() []api.Pass { return somePasses(now) })
	_, list, _ := captured(t, "history", "-o", "json", "--run-dir", service)
	_, explained, _ := captured(t, "explain", "-o", "json", "--run-dir", service)
	line, err := json.Marshal(somePasses(now)[0])
	if err != nil {
		t.Fatal(err)
	}
	dir := writeFiles(t, map[string]string{
		"list": list, "follow": string(line) + "\n" + string(line) + "\n", "explain": explained, "indented": "\n{\n  \"at\": \"0s\"\n}\n",
		"node": leakTrace, "fleet": fleetTrace, "mistake": strings.Replace(leakTrace, `"4Gi"`, `"4Gigs"`, 1), "broken": leakTrace[:50], "text": "no\ntrace\n",
	})
	for name, want := range map[string]string{
		"list": "this is a history, as `criguard history -o json` prints it, not the trace of a %s", "follow": "this is a history, ",
		"explain": "this is the output of a command with -o json, ", "indented": "trace line 2: this is a JSON value on several lines, not the trace of a %s, which has one",
		"node": "this is the trace of a node, for `criguard simulate`, not the trace of a fleet", "fleet": "this is the trace of a fleet, for `criguard fleet simulate`, not the trace of a node",
		"mistake": "4Gigs", "broken": "unexpected EOF", "text": "invalid character",
	} {
		for command, of := range map[string]string{"simulate": "node", "fleet simulate": "fleet"} {
			want := strings.ReplaceAll(want, "%s", of)
			if name == of || command == "fleet simulate" && (name == "mistake" || name == "broken") {
				continue
			}
			ce := refused(t, append(strings.Fields(command), filepath.Join(dir, name))...)
			if !strings.Contains(ce.Error(), want) || !strings.Contains(ce.Hint, "a trace") {
				t.Errorf("%s %s: %v, hint %s", command, name, ce, ce.Hint)
			}
		}
	}
}

// squeezed returns a text with its runs of blanks and line ends as single blanks.
func squeezed(text string) string { return strings.Join(strings.Fields(text), " ") }

// A simulation prints a line of JSON for each line of the trace, and then a summary to standard error.
func TestSimulateSummary(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"leak.jsonl": leakTrace, "calm.jsonl": strings.SplitAfter(leakTrace, "\n")[0], "config.toml": "[eviction.soft]\n\"memory.available\" = \"1Gi\"\n[eviction.soft_grace_period]\n\"memory.available\" = \"1m\"\n",
	})
	config := filepath.Join(dir, "config.toml")
	code, out, errs := captured(t, "simulate", "--config", config, filepath.Join(dir, "leak.jsonl"))
	if lines := strings.Split(out, "\n"); code != cli.ExitOK || len(lines) != 5 || !strings.HasPrefix(lines[0], `{"at":"0s"`) {
		t.Errorf("exit code %d, stdout %s", code, out)
	}
	for _, want := range []string{
		"4 lines over 1m: 1 stop AT STOPPED FOR WHY 20s shop/batch memory.available:hard memory.available 80Mi < 100Mi; ",
		"FROM TO HELD BACK BY 10s 10s memory.available:soft grace 1m 1m memory.available:hard protected",
	} {
		if !strings.Contains(squeezed(errs), want) {
			t.Errorf("the summary lacks %q:\n%s", want, errs)
		}
	}
	if _, _, errs = captured(t, "simulate", "--config", config, filepath.Join(dir, "calm.jsonl")); errs != "1 line over 0s: no stop\n" {
		t.Errorf("the summary of a calm node: %q", errs)
	}
	began := time.Date(2026, time.May, 4, 16, 10, 3, 0, time.Local)
	dated := strings.Replace(leakTrace, `{"at":"0s",`, `{"at":"0s","began":"`+began.Format(time.RFC3339)+`",`, 1)
	_, _, errs = captured(t, "simulate", "--config", config, filepath.Join(writeFiles(t, map[string]string{"dated.jsonl": dated}), "dated.jsonl"))
	for _, want := range []string{"4 lines over 1m from 2026-05-04 16:10:03: 1 stop", "20s (16:10:23) shop/batch", "10s (16:10:13) 10s (16:10:13) memory.available:soft"} {
		if !strings.Contains(squeezed(errs), want) {
			t.Errorf("the summary of a dated trace lacks %q:\n%s", want, errs)
		}
	}
}

// --compare prints what two configurations do, in the order of time, and no JSON.
func TestSimulateCompare(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"leak.jsonl": leakTrace, "a.toml": "# the defaults\n", "b.toml": "[eviction.hard]\n\"memory.available\" = \"1Gi\"\n", "bad.toml": "x = 1\n", "c.toml": "[budget]\nper_hour = 9\n",
	})
	path := func(name string) string { return filepath.Join(dir, name) }
	code, out, errs := captured(t, "simulate", "--config", path("a.toml"), "--compare", path("b.toml"), path("leak.jsonl"))
	want := squeezed("4 lines over 1m AT " + path("a.toml") + " " + path("b.toml") + `
		10s  -                                           stop shop/batch for memory.available:hard
		20s  stop shop/batch for memory.available:hard   -
		     1 stop                                      1 stop
		memory.available:hard held back by protected     1m to 1m   -
		memory.available:hard held back by outside pods  -              20s to 1m`)
	if code != cli.ExitOK || errs != "" || squeezed(out) != want {
		t.Errorf("exit code %d, stderr %q, got\n%s\nwant\n%s", code, errs, out, want)
	}
	// The drop-ins apply to both, and the header names the file that the other stands in for.
	drop := writeFiles(t, map[string]string{"limit.toml": "[eviction.hard]\n\"memory.available\" = \"3Gi\"\n"})
	code, out, errs = captured(t, "simulate", "--config", path("a.toml"), "--config-dir", drop, "--compare", path("c.toml"), path("leak.jsonl"))
	if code != cli.ExitOK || errs != "" || !strings.Contains(squeezed(out), "AT "+path("a.toml")+" "+path("c.toml")+" no stop no stop memory.available:hard held back by protected 0s to 10s 0s to 10s") {
		t.Errorf("with a drop-in: exit code %d, stderr %q, got\n%s", code, errs, out)
	}
	// The file counts more than they do, and a note says which values would be without effect in the configuration file.
	code, out, errs = captured(t, "simulate", "--config", path("a.toml"), "--config-dir", drop, "--compare", path("b.toml"), path("leak.jsonl"))
	want = "note: in place of the configuration file, " + path("b.toml") + ` would not change eviction.hard."memory.available", which ` + filepath.Join(drop, "limit.toml") + ":2 sets\n"
	if code != cli.ExitOK || errs != want || !strings.Contains(squeezed(out), "no stop 1 stop") {
		t.Errorf("with a drop-in that sets the same key: exit code %d, stderr %q, want %q, got\n%s", code, errs, want, out)
	}
	if code, _, errs := captured(t, "simulate", "--config", path("a.toml"), "--compare", path("bad.toml"), path("leak.jsonl")); code != cli.ExitUsage || !strings.Contains(errs, "bad.toml") {
		t.Errorf("a bad configuration: exit code %d, %s", code, errs)
	}
}

// A trace that was cut off, as when the node lost power, is simulated up to there.
func TestSimulateCutTrace(t *testing.T) {
	dir := writeFiles(t, map[string]string{"cut.jsonl": leakTrace[:len(leakTrace)-9], "first.jsonl": leakTrace[:50], "other.toml": "# the defaults\n"})
	cut := filepath.Join(dir, "cut.jsonl")
	code, out, errs := captured(t, "simulate", "--config", os.DevNull, cut)
	if code != cli.ExitUsage || strings.Count(out, "\n") != 3 || !strings.HasPrefix(errs, "3 lines over 20s: 1 stop\n") || !strings.Contains(errs, "trace line 4: unexpected EOF") {
		t.Errorf("exit code %d, stdout %s, stderr %s", code, out, errs)
	}
	code, out, errs = captured(t, "simulate", "--config", os.DevNull, "--compare", filepath.Join(dir, "other.toml"), cut)
	if code != cli.ExitUsage || !strings.HasPrefix(out, "3 lines over 20s\n") || !strings.Contains(errs, "trace line 4: unexpected EOF") {
		t.Errorf("compared: exit code %d, stdout %s, stderr %s", code, out, errs)
	}
	if _, out, errs = captured(t, "simulate", "--config", os.DevNull, filepath.Join(dir, "first.jsonl")); out != "" || strings.Contains(errs, "0 lines") {
		t.Errorf("a cut first line: stdout %s, stderr %s", out, errs)
	}
}

// A simulation of a file alone names the drop-ins of the node that it leaves out.
func TestSimulateLeavesOut(t *testing.T) {
	for _, c := range []struct{ files, want string }{
		{"", ""}, {config.DefaultPath, ""}, {config.DefaultPath + " /etc/x/a.toml /run/x/b.toml", "(--config-dir adds a directory of them): /etc/x/a.toml, /run/x/b.toml"},
	} {
		if got := leftOut(&config.Config{Files: strings.Fields(c.files)}); !strings.HasSuffix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%q: %q", c.files, got)
		}
	}
}
