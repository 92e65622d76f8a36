package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/conditions"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/hook"
	"github.com/criguard/criguard/guard/metrics"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

const examples = "../docs/examples/"

// writeConditions writes conditions and the thresholds of some signals as met, and returns the file's
// content.
func writeConditions(t *testing.T, w *conditions.Writer, holds policy.Conditions, met ...policy.Signal) string {
	t.Helper()
	pr := policy.Pressure{Conditions: holds}
	for _, s := range met {
		pr.Met = append(pr.Met, policy.Met{Threshold: policy.Threshold{Signal: s, Kind: policy.Hard}})
	}
	if _, err := w.Write(pr, time.Unix(1, 0).UTC()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(w.Dir.Path(conditions.File))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The next write retries one that failed, even if nothing has changed.
func TestConditionsFileIsTriedAgain(t *testing.T) {
	w := &conditions.Writer{Dir: rundir.Dir(filepath.Join(t.TempDir(), "later"))}
	memory := policy.ConditionsOf(policy.MemoryPressure)
	if _, err := w.Write(policy.Pressure{Conditions: memory}, time.Unix(1, 0)); err == nil {
		t.Fatal("written into a directory that is not there")
	}
	if err := os.Mkdir(string(w.Dir), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := writeConditions(t, w, memory); !strings.Contains(got, `"conditions":["MemoryPressure"]`) {
		t.Errorf("got %s", got)
	}
}

// The file is written when something changes, and contains exactly what its documentation says.
func TestConditionsFile(t *testing.T) {
	w := &conditions.Writer{Dir: rundir.Dir(t.TempDir())}
	const none = `{"apiVersion":"criguard.io/v1","time":"1970-01-01T00:00:01Z","conditions":[],"met":[]}` + "\n"
	if got := writeConditions(t, w, 0); got != none {
		t.Errorf("at first %s", got)
	}
	if _, err := w.Write(policy.Pressure{}, time.Unix(9, 0)); err != nil {
		t.Fatal(err)
	}
	if got := writeConditions(t, w, 0); got != none {
		t.Errorf("written again without a change: %s", got)
	}
	memory := policy.ConditionsOf(policy.MemoryPressure)
	got := writeConditions(t, w, memory, policy.MemoryAvailable, policy.MeminfoAvailable)
	if want := `"met":["memory.available:hard","meminfo.available:hard"],"reasons":{"MemoryPressure":"memory.available:hard, meminfo.available:hard"}}`; !strings.Contains(got, want) {
		t.Errorf("got %s", got)
	}
	if got := writeConditions(t, w, memory); !strings.Contains(got, `"conditions":["MemoryPressure"]`) || strings.Contains(got, "reasons") {
		t.Errorf("in its transition period %s", got)
	}
	stall := policy.Met{Threshold: policy.Threshold{Signal: policy.MemoryStall}, WarnOnly: true}
	if _, err := w.Write(policy.Pressure{Conditions: memory, Met: []policy.Met{stall}}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(w.Dir.Path(conditions.File))
	if want := `"met":["memory.stall:hard"]}`; err != nil || !strings.Contains(string(b), want) {
		t.Errorf("with a stall that only warns %s, %v", b, err)
	}
	if got := writeConditions(t, w, memory, policy.MemoryStall); !strings.Contains(got, `"reasons":{"MemoryPressure":"memory.stall:hard"}`) {
		t.Errorf("with one that does not: %s", got)
	}
	st, err := os.Stat(w.Dir.Path(conditions.File))
	if err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if err := w.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(w.Dir.Path(conditions.File)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the end: %v", err)
	}
}

// The JSON examples in the documentation have no unknown fields.
func TestEventDocs(t *testing.T) {
	for file, into := range map[string]func() any{
		"../docs/conditions.md": func() any { return &api.Conditions{} },
		"../docs/hooks.md":      func() any { return &hook.Payload{} },
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		block := regexp.MustCompile("(?s)```json\n(.*?)```").FindSubmatch(text)
		if block == nil {
			t.Fatalf("%s has no example", file)
		}
		for line := range strings.Lines(string(block[1])) {
			dec := json.NewDecoder(strings.NewReader(line))
			dec.DisallowUnknownFields()
			if err := dec.Decode(into()); err != nil {
				t.Errorf("%s: %v in %s", file, err, line)
			}
		}
	}
}

// The plugin for node-problem-detector reports what the file says.
func TestConditionExample(t *testing.T) {
	w := &conditions.Writer{Dir: rundir.Dir(t.TempDir())}
	run := func(condition string) string {
		out, err := exec.CommandContext(t.Context(), examples+"criguard-condition", condition, w.Dir.Path(conditions.File)).CombinedOutput()
		code := 0
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d %s", code, strings.TrimSpace(string(out)))
	}
	see := func(condition, want string) {
		t.Helper()
		if got := run(condition); !strings.HasPrefix(got, want) || len(got) > 2+80 {
			t.Errorf("%s: %q, want %q in 80 bytes", condition, got, want)
		}
	}
	writeConditions(t, w, policy.ConditionsOf(policy.MemoryPressure), policy.MemoryAvailable, policy.NodeFSAvailable)
	see("MemoryPressure", "1 MemoryPressure: memory.available:hard")
	see("DiskPressure", "0 no DiskPressure")
	see("PIDPressure", "0 no PIDPressure")
	see("Pressure", "2 criguard knows no condition Pressure")
	writeConditions(t, w, policy.ConditionsOf(policy.DiskPressure))
	see("DiskPressure", "1 DiskPressure: its thresholds are clear again")
	if err := w.Remove(); err != nil {
		t.Fatal(err)
	}
	if got := run("MemoryPressure"); !strings.HasPrefix(got, "2 no criguard runs") {
		t.Errorf("without a file: %q", got)
	}
}

// The detector's configuration has a rule for each condition, and runs the plugin.
func TestConditionExampleConfig(t *testing.T) {
	var c struct {
		Plugin       string
		PluginConfig struct {
			MaxOutputLength int `json:"max_output_length"`
		}
		Source     string
		Conditions []struct{ Type, Reason, Message string }
		Rules      []struct {
			Type, Condition, Reason, Path, Timeout string
			Args                                   []string
		}
	}
	b, err := os.ReadFile(examples + "criguard-npd.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	if c.Plugin != "custom" || c.Source != "criguard" || len(c.Rules) != len(policy.AllConditions()) || len(c.Conditions) != len(c.Rules) || c.PluginConfig.MaxOutputLength != 80 {
		t.Fatalf("got %+v", c)
	}
	for i, cond := range policy.AllConditions() {
		r := c.Rules[i]
		if name := "Criguard" + cond.String(); c.Conditions[i].Type != name || r.Condition != name || len(r.Args) != 1 || r.Args[0] != cond.String() ||
			filepath.Base(r.Path) != "criguard-condition" || r.Type != "permanent" {
			t.Errorf("rule %+v, condition %+v", r, c.Conditions[i])
		}
	}
}

// The example hook keeps each event in a file, and at most a hundred of them.
func TestHookExample(t *testing.T) {
	script, err := filepath.Abs(examples + "spool-event")
	if err != nil {
		t.Fatal(err)
	}
	spool := filepath.Join(t.TempDir(), "events")
	m := metrics.New("test", cgroup.BootTime)
	h := hook.NewDispatcher(slog.New(slog.DiscardHandler), m.Hook)
	h.Start(t.Context(), []config.Hook{{On: []config.EventKind{config.EventAlarm, config.EventCondition}, Command: []string{script, spool}, Timeout: time.Minute}})
	h.Post(&api.Pass{ID: 1, Alarm: "stops do not help"}, config.ModeEnforce)
	h.Post(&api.Pass{ID: 2, Conditions: policy.ConditionsOf(policy.PIDPressure)}, config.ModeEnforce)
	h.Configure(nil)
	h.Wait()
	files, err := filepath.Glob(spool + "/*.json")
	if err != nil || len(files) != 2 || !strings.HasSuffix(files[0], "-alarm.json") || !strings.HasSuffix(files[1], "-condition.json") {
		t.Fatalf("%v, %v", files, err)
	}
	var e hook.Payload
	if b, err := os.ReadFile(files[1]); err != nil || json.Unmarshal(b, &e) != nil || e.Pass != 2 || e.Condition.Name != "PIDPressure" {
		t.Errorf("%+v, %v", e, err)
	}
	for i := range 99 {
		if err := os.WriteFile(fmt.Sprintf("%s/0-%02d.json", spool, i), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), script, spool)
	cmd.Env, cmd.Stdin = append(os.Environ(), "CRIGUARD_EVENT=stop"), strings.NewReader("{}\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if files, err = filepath.Glob(spool + "/*.json"); err != nil || len(files) != 100 || strings.Contains(files[0], "0-00") || !strings.HasSuffix(files[99], "-stop.json") {
		t.Errorf("%d files, %v", len(files), err)
	}
}

// The example hook keeps two events of the same second, also where date(1) knows no nanoseconds, as on many boards.
func TestHookExampleWithoutNanoseconds(t *testing.T) {
	bin, spool := t.TempDir(), filepath.Join(t.TempDir(), "events")
	if err := os.WriteFile(filepath.Join(bin, "date"), []byte("#!/bin/sh\necho 1700000000%N\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		cmd := exec.CommandContext(t.Context(), examples+"spool-event", spool)
		cmd.Env, cmd.Stdin = []string{"PATH=" + bin + ":/usr/bin:/bin", "CRIGUARD_EVENT=stop"}, strings.NewReader(fmt.Sprint(i))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if files, err := filepath.Glob(spool + "/*.json"); err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
}

// The example hook appends the reason to the newest log of each of the stopped pod's containers, and to no other
// file.
func TestLogStopExample(t *testing.T) {
	logs := t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	write := func(path string) string {
		path = filepath.Join(logs, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("old\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	main, side := write("shop_web_u-1/main/10.log"), write("shop_web_u-1/side/0.log")
	untouched := []string{write("shop_web_u-1/main/9.log"), write("shop_web_u-1/main/10.log.gz"), write("shop_db_u-2/main/0.log"), outside}
	if err := errors.Join(os.WriteFile(outside, []byte("old\n"), 0o600), os.Mkdir(filepath.Join(logs, "shop_web_u-1/linked"), 0o755),
		os.Symlink(outside, filepath.Join(logs, "shop_web_u-1/linked/0.log"))); err != nil {
		t.Fatal(err)
	}
	run := func(stop api.StopView) {
		t.Helper()
		p := &api.Pass{ID: 8, Settled: []api.StopView{stop}}
		cmd := exec.CommandContext(t.Context(), examples+"log-stop", logs)
		cmd.Stdin = strings.NewReader(string(hook.Payloads(p, 0, config.ModeEnforce)[0].Encode()))
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("%v: %s", err, out)
		}
	}
	stop := api.StopView{Pass: 7, Pod: "shop/web", UID: "u-1", Reason: `memory 86Mi < 100Mi; "drained" for \ & {x}`, Result: &api.StopResult{Emptied: true}}
	failed, hostile := stop, stop
	failed.Result, hostile.UID = &api.StopResult{}, "u-1/../../shop_db_u-2"
	run(failed)
	run(hostile)
	if got := read(main); got != "old\n" {
		t.Errorf("without a stop: %q", got)
	}
	run(stop)
	want := regexp.MustCompile(`^old\n\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ stderr F ` +
		regexp.QuoteMeta(`criguard stopped this pod: memory 86Mi < 100Mi; "drained" for \ & {x} (criguard explain 7)`) + `\n$`)
	for _, file := range []string{main, side} {
		if got := read(file); !want.MatchString(got) {
			t.Errorf("%s: %q", file, got)
		}
	}
	for _, file := range untouched {
		if got := read(file); got != "old\n" {
			t.Errorf("%s: %q", file, got)
		}
	}
}
