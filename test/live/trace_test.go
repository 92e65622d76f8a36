package live_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// A trace that was recorded during a real stop replays to the same stop.
func TestRecordReplays(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	large := n.pod(lab.PodSpec{Name: "large", MemoryRequest: 700 * mib, Containers: hog(600 * mib)})
	leaky := n.pod(lab.PodSpec{Name: "leaky", Containers: leak(512*mib, "0")})
	n.hogs(large)
	limit := n.available(policy.AllocatableMemoryAvailable) - 256*mib
	n.configure(soft("1s", limit))
	trace := filepath.Join(n.dir, "trace.jsonl")
	finish := n.record(trace)
	s := n.startWith(2)
	n.release(leaky)
	made := s.stopped("default/leaky")
	finish()
	// The recording saw the crossing up to two of its intervals later than the service
	// did, and the pod is gone when the grace period is over.
	n.configure(soft("800ms", limit))
	a := n.criguard(n.args("simulate", trace)...)
	if a.code != 0 {
		t.Fatalf("simulate: exit code %d: %s", a.code, a.err)
	}
	var replayed []guard.SimulatedStop
	for line := range strings.Lines(a.out) {
		var p guard.SimulatedPass
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err)
		}
		if p.Stop != nil {
			replayed = append(replayed, *p.Stop)
		}
	}
	if len(replayed) != 1 || replayed[0].Pod != made.Pod || replayed[0].Signal != made.Signal || replayed[0].Kind != made.Kind {
		t.Errorf("replayed %+v, want the one stop that was made: %+v", replayed, made)
	}
}

// record begins to record the node; the function that it returns ends that.
func (n *node) record(trace string) (finish func()) {
	n.Helper()
	f, err := os.Create(trace)
	if err != nil {
		n.Fatal(err)
	}
	var errs strings.Builder
	cmd := exec.Command(built.criguard, n.args("record", "--interval", "50ms")...)
	cmd.Stdout, cmd.Stderr = f, &errs
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { _ = cmd.Process.Kill() })
	n.until("the first line of the trace", func() bool {
		info, err := f.Stat()
		return err == nil && info.Size() > 0
	})
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
