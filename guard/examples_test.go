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

	"github.com/criguard/criguard/policy"
)

const examples = "../docs/examples/"

// writeConditions publishes what the thresholds of some signals, met or not, come to.
func writeConditions(t *testing.T, w *conditionsWriter, holds policy.Conditions, met ...policy.Signal) string {
	t.Helper()
	pr := policy.Pressure{Conditions: holds}
	for _, s := range met {
		pr.Met = append(pr.Met, policy.Met{Threshold: policy.Threshold{Signal: s, Kind: policy.Hard}})
	}
	if err := w.write(pr, time.Unix(1, 0).UTC()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(w.dir.path(conditionsFile))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What could not be written is written as soon as that works, though nothing has changed.
func TestConditionsFileIsTriedAgain(t *testing.T) {
	w := &conditionsWriter{dir: RunDir(filepath.Join(t.TempDir(), "later"))}
	memory := policy.ConditionsOf(policy.MemoryPressure)
	if err := w.write(policy.Pressure{Conditions: memory}, time.Unix(1, 0)); err == nil {
		t.Fatal("written into a directory that is not there")
	}
	if err := os.Mkdir(string(w.dir), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := writeConditions(t, w, memory); !strings.Contains(got, `"MemoryPressure":true`) {
		t.Errorf("got %s", got)
	}
}

// The file is written when something changes, and says no more and no less than its
// documentation.
func TestConditionsFile(t *testing.T) {
	w := &conditionsWriter{dir: RunDir(t.TempDir())}
	const none = `{"apiVersion":"criguard.io/v1","time":"1970-01-01T00:00:01Z","conditions":{"DiskPressure":false,"MemoryPressure":false,"PIDPressure":false},"met":[]}` + "\n"
	if got := writeConditions(t, w, 0); got != none {
		t.Errorf("at first %s", got)
	}
	if err := w.write(policy.Pressure{}, time.Unix(9, 0)); err != nil {
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
	if got := writeConditions(t, w, memory); !strings.Contains(got, `"MemoryPressure":true`) || strings.Contains(got, "reasons") {
		t.Errorf("in its transition period %s", got)
	}
	stall := policy.Met{Threshold: policy.Threshold{Signal: policy.MemoryStall}, WarnOnly: true}
	if err := w.write(policy.Pressure{Conditions: memory, Met: []policy.Met{stall}}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(w.dir.path(conditionsFile))
	if want := `"met":["memory.stall:hard"]}`; err != nil || !strings.Contains(string(b), want) {
		t.Errorf("with a stall that only warns %s, %v", b, err)
	}
	if got := writeConditions(t, w, memory, policy.MemoryStall); !strings.Contains(got, `"reasons":{"MemoryPressure":"memory.stall:hard"}`) {
		t.Errorf("with one that does not: %s", got)
	}
	st, err := os.Stat(w.dir.path(conditionsFile))
	if err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if err := w.remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(w.dir.path(conditionsFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the end: %v", err)
	}
}

// The documentation's own examples of JSON are read without a field too many.
func TestEventDocs(t *testing.T) {
	for file, into := range map[string]func() any{
		"../docs/conditions.md": func() any { return &Conditions{} },
		"../docs/hooks.md":      func() any { return &HookEvent{} },
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

// The plugin for node-problem-detector says what the file says.
func TestConditionExample(t *testing.T) {
	w := &conditionsWriter{dir: RunDir(t.TempDir())}
	run := func(condition string) string {
		out, err := exec.CommandContext(t.Context(), examples+"criguard-condition", condition, w.dir.path(conditionsFile)).CombinedOutput()
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
	if err := w.remove(); err != nil {
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

// The example of a hook keeps each event in a file, and no more than a hundred.
func TestHookExample(t *testing.T) {
	script, err := filepath.Abs(examples + "spool-event")
	if err != nil {
		t.Fatal(err)
	}
	spool := filepath.Join(t.TempDir(), "events")
	m := NewMetrics("test")
	h := newHooks(slog.New(slog.DiscardHandler), m)
	h.start(t.Context(), []HookConfig{{On: []EventKind{EventAlarm, EventCondition}, Command: []string{script, spool}, Timeout: time.Minute}})
	h.post(&Pass{ID: 1, Alarm: "stops do not help"}, ModeEnforce)
	h.post(&Pass{ID: 2, Conditions: policy.ConditionsOf(policy.PIDPressure)}, ModeEnforce)
	h.configure(nil)
	h.wait()
	files, err := filepath.Glob(spool + "/*.json")
	if err != nil || len(files) != 2 || !strings.HasSuffix(files[0], "-alarm.json") || !strings.HasSuffix(files[1], "-condition.json") {
		t.Fatalf("%v, %v", files, err)
	}
	var e HookEvent
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
