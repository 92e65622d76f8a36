package live_test

import (
	"os"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
	"github.com/criguard/criguard/test/lab"
)

// An invalid configuration is rejected and the old one stays in force, as status and the log
// report. A valid one takes effect.
func TestReload(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	pod := n.pod(lab.PodSpec{Name: "large", Containers: hog(128 * mib)})
	n.hogs(pod)
	now := n.available(policy.AllocatableMemoryAvailable)
	old := config{hard: thresholds{policy.AllocatableMemoryAvailable: bytes(now - 512*mib)}}
	n.configure(old)
	s := n.startWith(1)

	if err := os.WriteFile(n.config(), []byte("mode = \"enforce\"\n[eviction]\ninterval = \"never\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.hangup()
	n.until("the refusal", func() bool { return s.status().ConfigNote != "" })
	if note := s.status().ConfigNote; !strings.Contains(note, "eviction.interval") || !strings.Contains(note, "never") {
		t.Errorf("status tells %q, want key and value", note)
	}
	if got := s.events(systemd.EventConfigRefused); len(got) != 1 || !strings.Contains(got[0], "eviction.interval") {
		t.Errorf("told %q, want the refusal once, with its reason", got)
	}
	if a := n.criguard("status", "--run-dir", n.dir); a.Code != 0 || !strings.Contains(a.Out, "rejected") {
		t.Errorf("status: exit code %d, want 0 and the rejection:\n%s", a.Code, a.Out)
	}
	if err := os.WriteFile(n.config(), []byte("mode = \"enforced\"\n[eviction]\ninterval = \"never\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := n.criguard("reload", "--run-dir", n.dir)
	if lines := strings.Split(a.Err, "\n"); a.Code != 2 || len(lines) < 4 || !strings.Contains(lines[0], "the old one stays in force") ||
		!strings.Contains(lines[1], "enforced") || !strings.Contains(lines[2], "never") || !strings.Contains(a.Err, "criguard check") {
		t.Errorf("a refused reload: exit code %d, %s, want 2, a line for each mistake, and what to do", a.Code, a.Err)
	}
	if got := hard(s.status(), policy.AllocatableMemoryAvailable); got != now-512*mib {
		t.Errorf("the threshold is %d, want the old one", got)
	}
	n.alive(pod)

	n.configure(config{hard: thresholds{policy.AllocatableMemoryAvailable: bytes(now + 32*mib)}})
	const sentence = "is met NOW"
	if a := n.criguard("check", "--config", n.config(), "--quiet"); a.Code != 1 || !strings.Contains(a.Err, sentence) || !strings.Contains(a.Err, "would stop default/large first") {
		t.Errorf("check: exit code %d, %s, want 1 and the pod", a.Code, a.Err)
	}
	if a := n.criguard("check", "--config", n.config(), "--quiet", "--offline"); a.Code != 0 || a.Err != "" {
		t.Errorf("check --offline: exit code %d, %s", a.Code, a.Err)
	}
	if a := n.criguard("reload", "--run-dir", n.dir); a.Code != 1 || !strings.Contains(a.Out, "would stop default/large first") || !strings.Contains(a.Out, "held for 30s") {
		t.Errorf("reload: exit code %d, %s%s, want 1 and the hold", a.Code, a.Out, a.Err)
	}
	if a := n.criguard("status", "--run-dir", n.dir); a.Code != 1 || !strings.Contains(a.Out, sentence) {
		t.Errorf("status: exit code %d, want 1 and the hold:\n%s", a.Code, a.Out)
	}
	if got := hard(s.status(), policy.AllocatableMemoryAvailable); got != now-512*mib {
		t.Errorf("the threshold is %d, want the old one", got)
	}
	n.alive(pod)
	if a := n.criguard("reload", "--run-dir", n.dir); a.Code != 0 || !strings.Contains(a.Out, "eviction.hard") { // a second one does not wait
		t.Errorf("second reload: exit code %d, %s%s", a.Code, a.Out, a.Err)
	}
	n.until("the new threshold", func() bool { return hard(s.status(), policy.AllocatableMemoryAvailable) == now+32*mib })
	if note := s.status().ConfigNote; note != "" {
		t.Errorf("status still tells %q", note)
	}
	if got := s.events(systemd.EventConfigReload); len(got) != 1 || !strings.Contains(got[0], "eviction.hard") {
		t.Errorf("told %q, want the reload once, with what changed", got)
	}
	s.stopped("default/large") // the new threshold is met
}

// hard returns the hard threshold of a signal in bytes, or 0 without one.
func hard(st api.Status, s policy.Signal) int64 {
	for _, v := range st.Signals {
		for _, t := range v.Thresholds {
			if v.Signal == s && t.Kind == policy.Hard.String() {
				return t.Amount
			}
		}
	}
	return 0
}
