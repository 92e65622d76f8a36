package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/guard/safetext"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// hostile is a text that clears the screen, sets the window title, reverses the text direction,
// hides characters and forges a line.
const hostile = "h\x1b[2J\x1b]0;t\x07\u009b31m\u202egnp\u2066x\u200e\u200f\u061c\u200b\ufeff\u2028\x7f\r\nFORGED\tz\U000e0041"

// fill sets every string in a value to the hostile text, and every other field that JSON may leave out.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostile)
	case reflect.Interface:
		if v.NumMethod() == 0 {
			v.Set(reflect.ValueOf(hostile))
		}
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(1)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Now().Add(-time.Minute)))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	}
}

func filled[T any]() T {
	var v T
	fill(reflect.ValueOf(&v).Elem())
	return v
}

// captured runs criguard as a shell would, and returns its exit code and its output.
func captured(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	files := []**os.File{&os.Stdout, &os.Stderr}
	var texts []string
	var kept []*os.File
	for _, f := range files {
		kept = append(kept, *f)
		to, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		*f = to
	}
	code = execute(args)
	for i, f := range files {
		text, err := os.ReadFile((*f).Name())
		if err != nil {
			t.Error(err)
		}
		_ = (*f).Close()
		*f, texts = kept[i], append(texts, string(text))
	}
	return code, texts[0], texts[1]
}

// wantHarmless fails if a terminal would act on the text instead of showing it.
func wantHarmless(t *testing.T, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("not UTF-8: %q", text)
	}
	for line := range strings.Lines(text) {
		for _, r := range strings.TrimSuffix(line, "\n") {
			if r != '\t' && safetext.Unsafe(r) {
				t.Errorf("%U in %q", r, line)
				break
			}
		}
	}
}

// wantNoForgedLine fails if untrusted text begins a line.
func wantNoForgedLine(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "FORGED") {
			t.Errorf("a forged line: %q", line)
		}
	}
}

// hostileService answers every request with the hostile text.
func hostileService(t *testing.T, dir string, code int) map[string]any {
	t.Helper()
	pass := filled[api.Pass]()
	pass.ID, pass.Stop.Signal, pass.HeldBy = 7, policy.MemoryAvailable.String(), policy.MemoryAvailable.String()+":hard"
	pass.Signals[0].Status, pass.Ranked[0].Position = "ok", 1
	status := filled[api.Status]()
	status.Live, status.Runtime.Up, status.LastPass, status.Signals[0].Status = true, true, &pass, "failed"
	answer := filled[api.CommandAnswer]()
	answer.Plan.Draining, answer.Plan.Left, answer.Pass, answer.Refused = true, 0, 7, ""
	pass.Settled[0].Pass = 7
	window := filled[api.Window]()
	window.Pass, window.Time = 7, pass.Time
	answers := map[string]any{
		"/v1/status": status, "/v1/rank": filled[api.Ranking](), "/v1/command": answer, "/v1/drain": answer.Plan,
		"/v1/history": api.HistoryList{APIVersion: api.APIVersion, Passes: []api.Pass{pass}},
		"/v1/images":  filled[reclaim.ImageList](), "/v1/samples": filled[api.SampleList](), "/v1/config": filled[api.Settings](),
		"/v1/windows": api.WindowList{Windows: []api.Window{window}},
	}
	l, err := net.Listen("unix", rundir.Dir(dir).Socket())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(code)
		if code != http.StatusOK {
			_ = json.NewEncoder(w).Encode(map[string]string{"error": hostile})
			return
		}
		if r.URL.Path == "/v1/metrics" {
			_, _ = w.Write([]byte("# HELP " + hostile + "\x9b\n"))
			return
		}
		_ = json.NewEncoder(w).Encode(answers[r.URL.Path])
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return answers
}

// No command passes control sequences from a pod's name, a reason, a label or an error on to the
// terminal.
func TestHostileService(t *testing.T) {
	dir := runDir(t)
	answers := hostileService(t, dir, http.StatusOK)
	for _, c := range []struct {
		args []string
		json string // the answer that is printed unchanged
	}{
		{args: []string{"status"}}, {args: []string{"status", "-o", "json"}, json: "/v1/status"},
		{args: []string{"rank"}}, {args: []string{"rank", "-o", "json"}, json: "/v1/rank"},
		{args: []string{"history"}}, {args: []string{"history", "-o", "json"}, json: "/v1/history"},
		{args: []string{"explain"}}, {args: []string{"explain", "7"}}, {args: []string{"explain", "-o", "json"}},
		{args: []string{"report"}}, {args: []string{"metrics"}},
		{args: []string{"drain", "-n"}}, {args: []string{"drain", "-n", "-o", "json"}, json: "/v1/command"}, {args: []string{"drain", "-y"}},
		{args: []string{"stop", "x", "-n"}}, {args: []string{"stop", "x", "-y"}}, {args: []string{"protect", "x"}},
		{args: []string{"unprotect", "x", "-o", "json"}, json: "/v1/command"}, {args: []string{"images"}},
		{args: []string{"undrain"}}, {args: []string{"pause"}}, {args: []string{"resume", "-o", "json"}, json: "/v1/command"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			code, out, errs := captured(t, append(c.args, "--run-dir", dir)...)
			if code > cli.ExitFinding || out == "" {
				t.Fatalf("exit code %d, stdout %q, stderr %q", code, out, errs)
			}
			wantHarmless(t, out)
			wantHarmless(t, errs)
			if c.args[0] != "report" && c.args[0] != "metrics" { // HTML has no lines to forge; metrics are lines
				wantNoForgedLine(t, out)
			}
			if c.json == "" {
				return
			}
			var got, want any
			text, err := json.Marshal(answers[c.json])
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(out), &got); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%v: the values differ\n%s\n%s", err, out, text)
			}
		})
	}
}

// The same holds for a service's errors, for the user's arguments, and for files.
func TestHostileErrors(t *testing.T) {
	dir := runDir(t)
	hostileService(t, dir, http.StatusConflict)
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	quoted, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	key := file("key.toml", string(quoted)+" = 1\n[images]\nhigh = "+string(quoted)+"\n")
	raw := file("raw.toml", hostile)
	trace := file("trace.jsonl", `{"at":"0s","pods":[{"name":`+string(quoted)+`},{"name":`+string(quoted)+"}]}\n")
	kubelet := file("kubelet.yaml", "kind: KubeletConfiguration\n"+string(quoted)+": 1\nevictionHard:\n  "+string(quoted)+": x\n")
	for _, args := range [][]string{
		{"status", "--run-dir", dir}, {"pause", "--run-dir", dir}, {"history", "--run-dir", dir}, {"metrics", "--run-dir", dir},
		{hostile}, {"status", "--" + hostile}, {"status", "-o", hostile}, {"explain", hostile}, {"rank", "-s", hostile}, {"history", hostile},
		{"history", "--since", hostile}, {"prune", "--until", hostile}, {"prune", "--until", "nodefs.available=" + hostile}, {"simulate", hostile},
		{"check", key}, {"check", raw}, {"check", hostile}, {"check", "--from-kubelet", kubelet}, {"check", "--config-dir", hostile},
		{"simulate", trace}, {"simulate", raw}, {"status", "--endpoint", hostile, "--run-dir", hostile}, {"status", "--run-dir", hostile, "--config", key},
		{"help", hostile}, {"completion", hostile},
	} {
		t.Run(strings.Join(args[:min(2, len(args))], " "), func(t *testing.T) {
			code, out, errs := captured(t, args...)
			if code == cli.ExitOK || errs == "" {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errs)
			}
			wantHarmless(t, out)
			wantHarmless(t, errs)
			wantNoForgedLine(t, out+"\n"+errs)
		})
	}
}

// The same holds for data from the runtime when criguard inspects the node directly.
func TestHostileRuntime(t *testing.T) {
	dir := runDir(t)
	srv := critest.New(t, critest.Containerd2)
	srv.AddPod(critest.PodSpec{
		Name: hostile, Namespace: hostile, UID: hostile, Labels: map[string]string{hostile: hostile}, Annotations: map[string]string{hostile: hostile},
		Containers: []critest.ContainerSpec{{Name: hostile, Image: hostile}, {Name: hostile, State: cri.Exited, Image: hostile}},
	})
	srv.AddImage(critest.ImageSpec{Tags: []string{hostile + ":1"}, Size: 1 << 20})
	config := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(config, []byte("[containers]\nmin_age = '0s'\n[images]\nunused_grace = '0s'\nmin_age = '0s'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"status"}, {"status", "-o", "json"}, {"rank"}, {"rank", "-o", "json"}, {"images"}, {"images", "-o", "json"},
		{"prune", "-n", "-v"}, {"prune", "-n", "-v", "-o", "json"}, {"record", "--for", "20ms"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			code, out, errs := captured(t, append(args, "--run-dir", dir, "--config", config, "--endpoint", srv.Endpoint())...)
			if code > cli.ExitFinding || out == "" {
				t.Fatalf("exit code %d, stdout %q, stderr %q", code, out, errs)
			}
			wantHarmless(t, out)
			wantHarmless(t, errs)
			wantNoForgedLine(t, out+"\n"+errs)
		})
	}
	srv.Inject(critest.Fault{Err: hostileError{}})
	for _, args := range [][]string{{"status"}, {"rank"}, {"images"}, {"prune", "-n"}, {"record", "--for", "20ms"}} {
		t.Run(strings.Join(args, " ")+" with an error", func(t *testing.T) {
			_, out, errs := captured(t, append(args, "--run-dir", dir, "--config", config, "--endpoint", srv.Endpoint())...)
			wantHarmless(t, out)
			wantHarmless(t, errs)
			wantNoForgedLine(t, out+"\n"+errs)
			if !strings.Contains(out+errs, "FORGED") {
				t.Errorf("the error is missing: stdout %q, stderr %q", out, errs)
			}
		})
	}
}

// hostileError is an error text from the runtime that quotes a container's name.
type hostileError struct{}

func (hostileError) Error() string { return hostile }
