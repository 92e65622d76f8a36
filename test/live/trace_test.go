package live_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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
			n.configure(conf(n.available(policy.AllocatableMemoryAvailable) - 256*mib))
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
		}
	}
	if lines := strings.Split(a.Out, "\n"); len(stops) == 0 {
		n.Logf("the last lines:\n%s", strings.Join(lines[max(len(lines)-9, 0):], "\n"))
	}
	return stops
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
