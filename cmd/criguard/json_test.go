package main

import (
	"cmp"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/history"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/test/jsondoc"
)

// jsonCommands returns the commands that have -o json.
func jsonCommands() (names []string) {
	for _, cmd := range everyCommand(newRoot()) {
		if f := cmd.Flags().Lookup("output"); f != nil && f.DefValue == "table" {
			names = append(names, strings.TrimPrefix(cmd.CommandPath(), "criguard "))
		}
	}
	slices.Sort(names)
	return names
}

func readJSONDoc(t *testing.T) *jsondoc.Doc {
	t.Helper()
	doc, err := jsondoc.Read(jsonDoc)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// Every command with -o json prints what docs/json.md says: no other field and no other type.
func TestEveryJSONOutputIsDocumented(t *testing.T) {
	doc := readJSONDoc(t)
	if got := doc.Commands(); !slices.Equal(got, jsonCommands()) {
		t.Errorf("docs/json.md has %v, want %v", got, jsonCommands())
	}
	served, alone := runDir(t), runDir(t)
	hostileService(t, served, http.StatusOK)
	srv := critest.New(t, critest.Containerd2)
	srv.AddPod(critest.PodSpec{Name: "a", Namespace: "d", UID: "u", Containers: []critest.ContainerSpec{{Name: "m", Image: "i"}, {Name: "x", State: cri.Exited, Image: "i"}}})
	srv.AddImage(critest.ImageSpec{Tags: []string{"x:1"}, Digests: []string{"x@sha256:" + strings.Repeat("0", 64)}, Size: 1 << 20})
	config := filepath.Join(alone, "config.toml")
	if err := os.WriteFile(config, []byte(nodetest.AnyDisk+"[containers]\nmin_age = '0s'\n[images]\nkeep = ['k']\nunused_grace = '0s'\nmin_age = '0s'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := history.Open(alone, 10)
	h.Add(filled[api.Pass]())
	if err := h.Save(); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	var walked []string
	for _, line := range []string{
		"status", "rank", "history", "explain", "reload", "pause", "resume", "drain -y", "undrain", "stop -y d/a", "protect d/a --for 1h", "unprotect d/a", // by the service
		"version", "check " + config, "check --config " + config,
		"status alone", "rank alone", "images alone", "prune -n -v alone", "history alone", "explain alone",
	} {
		args := strings.Fields(line)
		if last := len(args) - 1; args[last] == "alone" {
			args = append(args[:last], "--run-dir", alone, "--config", config, "--endpoint", srv.Endpoint())
		} else if args[0] != "version" && args[0] != "check" {
			args = append(args, "--run-dir", served)
		}
		code, out, errs := captured(t, append(args, "-o", "json")...)
		if code > cli.ExitFinding || errs != "" {
			t.Errorf("%s: exit code %d, stderr %q, stdout %s", line, code, errs, out)
		}
		for _, wrong := range doc.Command(args[0], false, []byte(out)) {
			t.Error(wrong)
		}
		walked = append(walked, args[0])
	}
	slices.Sort(walked)
	// test/fleet compares those of the fleet, which need an etcd.
	want := slices.DeleteFunc(jsonCommands(), func(name string) bool { return strings.HasPrefix(name, "fleet ") })
	if walked = slices.Compact(walked); !slices.Equal(walked, want) {
		t.Errorf("compared %v, want %v", walked, want)
	}
}

// Every type in docs/json.md is encoded as documented, with every field.
func TestEveryJSONTypeIsDocumented(t *testing.T) {
	doc, seen := readJSONDoc(t), map[string]bool{}
	for _, p := range printed {
		v := reflect.New(p.value)
		fill(v.Elem())
		text, err := json.Marshal(v.Interface())
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range doc.Value(strings.ReplaceAll(p.where, "`", ""), text, seen) {
			t.Error(wrong)
		}
	}
	for _, f := range doc.Fields() {
		if !seen[f] {
			t.Errorf("no value has %s", f)
		}
	}
}

// A failure of any command with -o json is JSON on standard output, with nothing on standard error.
func TestEveryJSONErrorIsDocumented(t *testing.T) {
	doc, dir := readJSONDoc(t), runDir(t)
	bad := filepath.Join(dir, "bad.toml")
	if err := os.WriteFile(bad, []byte("mode = '<none>'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range jsonCommands() {
		lines := map[string]int{name + " --bogus -o json": cli.ExitUsage, name + " --output=json --bogus": cli.ExitUsage}
		if c := exitCodes[name]; c.unreachable != "" && !printsUnreachable(name) {
			flags := cmp.Or(fleetFlag(t, name), " --endpoint /nowhere.sock")
			lines[strings.Join(minimalArgs(name), " ")+" -o json --run-dir "+dir+flags] = cli.ExitUnreachable
		}
		if name == "check" {
			lines["check -o json "+bad] = cli.ExitUsage
		}
		for line, want := range lines {
			code, out, errs := captured(t, strings.Fields(line)...)
			if code != want || errs != "" {
				t.Errorf("%s: exit code %d, stderr %q", line, code, errs)
			}
			for _, wrong := range doc.Command(name, true, []byte(out)) {
				t.Errorf("%s: %s", line, wrong)
			}
			var e api.Error
			if err := json.Unmarshal([]byte(out), &e); err != nil || e.APIVersion != api.APIVersion || e.Error == "" || e.Hint == "" {
				t.Errorf("%s: %+v, %v", line, e, err)
			}
			if strings.Contains(out, `\u003c`) || strings.Contains(line, bad) && !strings.Contains(out, "<none>") {
				t.Errorf("%s: %s", line, out)
			}
		}
	}
}

// A command without JSON refuses -o json in JSON, for a script that parses the answer of every command.
func TestJSONIsRefusedInJSON(t *testing.T) {
	for _, cmd := range newRoot().Commands() {
		if cmd.Name() == "help" || slices.Contains(jsonCommands(), cmd.Name()) {
			continue
		}
		code, out, errs := captured(t, cmd.Name(), "-o", "json")
		var e api.Error
		if err := json.Unmarshal([]byte(out), &e); err != nil || code != cli.ExitUsage || errs != "" || !strings.Contains(e.Error, "-o") {
			t.Errorf("%s: exit code %d, %q, %v, stderr %q", cmd.Name(), code, out, err, errs)
		}
	}
}
