package live_test

import (
	"context"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
	"github.com/criguard/criguard/test/lab"
)

// After a stop, the commands, the log and the runtime answer what an operator asks: why the pod died, when the
// next stop is allowed, and when the condition clears.
func TestAnswers(t *testing.T) {
	n := newNode(t, lab.Containerd2)
	large := n.pod(lab.PodSpec{Name: "large", Containers: hog(256 * mib)})
	small := n.pod(lab.PodSpec{Name: "small", Containers: hog(128 * mib)})
	n.hogs(large)
	n.hogs(small)
	n.configure(config{
		hard: thresholds{
			policy.AllocatableMemoryAvailable: bytes(n.available(policy.AllocatableMemoryAvailable) + 300*mib),
			policy.NodeFSAvailable:            bytes(mib),
		},
		more: "[budget]\nhard = {burst = 1, every = \"1h\"}\n[rank]\nmemory = [\"priority\", \"usage\"]\n",
	})
	s := n.startWith(2)
	s.until("the stop to settle", func() bool { return len(s.settled()) == 1 })
	n.ended(large)
	says := func(want string, args ...string) {
		n.Helper()
		if a := n.criguard(n.args(args...)...); a.Code > 1 || !strings.Contains(a.Out, want) {
			n.Errorf("%v: exit code %d, no %q in\n%s%s", args, a.Code, want, a.Out, a.Err)
		}
	}
	n.until("the next stop to be held back", func() bool { return s.status().Held == api.HeldBudget })
	says(": budget, next stop allowed in ", "status")
	says("\nstop default/large (hard, grace 0s)\n", "explain")
	says("\nstop default/large (hard, grace 0s)\n", "explain", "default/large")
	says("held back: budget, next stop allowed in ", "explain", "last")
	says("stopped default/large", "history", "--stops", "--pod", "default/large", "--signal", "allocatableMemory.available", "--since", "1d")
	says("No pass matches.", "history", "--pod", "default/small")
	if a := n.criguard(n.args("explain", "-o", "json")...); !strings.Contains(a.Out, " < ") || strings.Contains(a.Out, `\u003c`) {
		t.Errorf("explain -o json: %s%s", a.Out, a.Err)
	}
	if a := n.criguard(n.args("status", "--quiet")...); a.Code != 1 || a.Out+a.Err != "" {
		t.Errorf("status --quiet: exit code %d, %q", a.Code, a.Out+a.Err)
	}
	watched, interrupt := n.endless("status", "--watch")
	n.until("the watch to show the status twice", func() bool { return strings.Count(watched(), ": budget, next stop allowed in ") > 1 })
	n.tracesShortage()
	if err := n.lab.StopPod(context.Background(), small); err != nil {
		t.Fatal(err)
	}
	n.until("the condition to clear", func() bool { return len(s.status().ClearsIn) > 0 })
	says("\nconditions  MemoryPressure (clears in ", "status")
	n.until("the watch to show it", func() bool { return strings.Contains(watched(), "\nconditions  MemoryPressure (clears in ") })
	if code := interrupt(); code != 1 {
		t.Errorf("status --watch: exit code %d, want that of the last status, 1", code)
	}

	if got := s.events(systemd.EventStart); len(got) != 1 || !strings.Contains(got[0], `thresholds="nodefs.available hard 1Mi`) {
		t.Errorf("the start line does not have the threshold in force: %q", got)
	}
	done := s.events(systemd.EventStopDone)
	if len(done) != 1 || strings.Contains(done[0], "confirmed=false") || !strings.Contains(done[0], "i freed=2") {
		t.Errorf("the stop's log line: %q", done)
	}
	// docs/stopped-pods.md says so.
	if code, reason, err := n.lab.WaitReason(context.Background(), large.Containers[0].ID); code != 137 || reason != "Error" || err != nil {
		t.Errorf("the runtime says exit code %d, reason %q, %v", code, reason, err)
	}
}
