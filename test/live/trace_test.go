package live_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/simulate"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

// A trace recorded beside the service replays to the same stop, for a hard and for a soft threshold.
func TestRecordReplays(t *testing.T) {
	for name, conf := range map[string]func(limit int64) config{
		"hard": func(limit int64) config {
			return config{hard: thresholds{policy.AllocatableMemoryAvailable: bytes(limit)}}
		},
		"soft": func(limit int64) config { return soft("5s", limit) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, lab.Containerd1)
			large := n.pod(lab.PodSpec{Name: "large", MemoryRequest: 700 * mib, Containers: hog(600 * mib)})
			leaky := n.pod(lab.PodSpec{Name: "leaky", Containers: leak(512*mib, "400")})
			n.hogs(large)
			limit, never := n.available(policy.AllocatableMemoryAvailable)-256*mib, n.config()+".never"
			if err := os.Rename(n.config(), never); err != nil { // it has no threshold
				t.Fatal(err)
			}
			n.configure(conf(limit))
			trace := filepath.Join(n.dir, "trace.jsonl")
			finish := n.record(trace)
			s := n.startSampled(2)
			n.release(leaky)
			made := s.stopped("default/leaky")
			n.ended(leaky)
			finish()
			replayed := n.replay(trace)
			if len(replayed) != 1 || replayed[0].Pod != made.Pod || replayed[0].Signal != made.Signal || replayed[0].Kind != made.Kind {
				t.Errorf("replayed %+v, want the one stop that was made: %+v", replayed, made)
			}
			a := n.criguard(n.args("simulate", trace, "--compare", never)...)
			stop, totals := "stop default/leaky for allocatableMemory.available:"+name, regexp.MustCompile(`\n +1 stop +no stop *\n`)
			if a.Code != 0 || !strings.Contains(a.Out, n.config()) || !strings.Contains(a.Out, never) || !strings.Contains(a.Out, stop) || !totals.MatchString(a.Out) {
				t.Errorf("compared with thresholds that are off: exit code %d, %s%s, want %s, in the first column alone", a.Code, a.Out, a.Err, stop)
			}
			n.alive(large)
		})
	}
}

// replay returns the stops of a simulation with the node's configuration.
func (n *node) replay(trace string) (stops []simulate.Stop) {
	n.Helper()
	a := n.criguard(n.args("simulate", trace)...)
	if a.Code != 0 {
		n.Fatalf("simulate: exit code %d: %s", a.Code, a.Err)
	}
	n.Logf("%d lines\n%s", strings.Count(a.Out, "\n"), a.Err)
	for line := range strings.Lines(a.Out) {
		var p simulate.Pass
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			n.Fatal(err)
		}
		if p.Stop != nil {
			stops = append(stops, *p.Stop)
			if !strings.Contains(a.Err, p.Stop.Pod) {
				n.Errorf("the summary has no stop of %s:\n%s", p.Stop.Pod, a.Err)
			}
		}
	}
	if total := regexp.MustCompile(`(?m)^\d+ lines over \S+ from \S+ \S+: (.*)$`).FindStringSubmatch(a.Err); total == nil || len(stops) > 0 && total[1] != api.Count(len(stops), "stop") {
		n.Errorf("the summary of %d stops begins with %q:\n%s", len(stops), total, a.Err)
	}
	if lines := strings.Split(a.Out, "\n"); len(stops) == 0 {
		n.Logf("the last lines:\n%s", strings.Join(lines[max(len(lines)-9, 0):], "\n"))
	}
	return stops
}

// tracesShortage records a shortage of the pods' memory that lasts. The trace has lines much closer together than the
// interval of a second, each with what changed alone, and a simulation that protects every pod sums up what it held back.
func (n *node) tracesShortage() {
	n.Helper()
	trace, protect := filepath.Join(n.dir, "shortage.jsonl"), filepath.Join(n.dir, "protect.toml")
	finish := n.record(trace)
	n.until("the trace to be dense", func() bool { return n.closeLines(trace) >= 4 })
	finish()
	n.closeLines(trace)
	text, err := os.ReadFile(n.config())
	if err != nil {
		n.Fatal(err)
	}
	if err := os.WriteFile(protect, append(text, "[[protect]]\nnamespace = \"default\"\n"...), 0o600); err != nil {
		n.Fatal(err)
	}
	held := regexp.MustCompile(`\n\S+ \(\S+\) +\S+ \(\S+\) +allocatableMemory\.available:hard +protected *\n`)
	if a := n.criguard("simulate", trace, "--config", protect); a.Code != 0 || !strings.Contains(a.Err, ": no stop\n") || !held.MatchString(a.Err) {
		n.Errorf("simulate: exit code %d, want no stop, and what held it back:\n%s", a.Code, a.Err)
	}
}

// closeLines returns how many lines of a trace are within half a second of the line before, and checks that no line
// repeats what has not changed.
func (n *node) closeLines(trace string) (count int) {
	n.Helper()
	text, err := os.ReadFile(trace)
	if err != nil {
		n.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	var last api.Duration
	for i, line := range lines[:len(lines)-1] { // the rest is not written yet
		var l struct {
			At      api.Duration
			Layout  string
			Pods    []json.RawMessage
			Signals map[string]struct{ Capacity json.RawMessage }
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			n.Fatal(err)
		}
		if i > 0 && time.Duration(l.At-last) < time.Second/2 {
			count++
		}
		if i > 0 && (l.Layout != "" || l.Pods != nil || l.Signals[policy.AllocatableMemoryAvailable.String()].Capacity != nil) {
			n.Errorf("line %d of the trace repeats what has not changed: %s", i+1, line)
		}
		last = l.At
	}
	return count
}

// record starts recording the node; the returned function ends the recording.
func (n *node) record(trace string) (finish func()) {
	n.Helper()
	f, err := os.Create(trace)
	if err != nil {
		n.Fatal(err)
	}
	var errs strings.Builder
	cmd := exec.Command(harness.Criguard, n.args("record")...)
	cmd.Stdout, cmd.Stderr = f, &errs
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { _ = cmd.Process.Kill() })
	n.until("the first line of the trace", func() bool {
		info, err := f.Stat()
		return err == nil && info.Size() > 0
	})
	if p, err := unix.Getpriority(unix.PRIO_PROCESS, cmd.Process.Pid); err != nil || 20-p != -10 {
		n.Errorf("record runs with nice %d (%v), want that of the service's unit", 20-p, err)
	}
	return func() {
		n.Helper()
		if err := cmd.Process.Signal(unix.SIGINT); err != nil {
			n.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			n.Fatalf("record: %v: %s", err, errs.String())
		}
		if err := f.Close(); err != nil {
			n.Fatal(err)
		}
	}
}
