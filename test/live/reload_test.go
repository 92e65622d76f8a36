package live_test

import (
	"os"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
	"github.com/criguard/criguard/test/lab"
)

// A bad configuration is refused and the old one stays, which status and the log
// tell; a good one is in force.
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
	s.reload()
	n.until("the refusal", func() bool { return s.status().ConfigNote != "" })
	if note := s.status().ConfigNote; !strings.Contains(note, "eviction.interval") || !strings.Contains(note, "never") {
		t.Errorf("status tells %q, want key and value", note)
	}
	if got := s.events(systemd.EventConfigRefused); len(got) != 1 || !strings.Contains(got[0], "eviction.interval") {
		t.Errorf("told %q, want the refusal once, with its reason", got)
	}
	if a := n.criguard("status", "--run-dir", n.dir); a.code != 0 || !strings.Contains(a.out, "refused") {
		t.Errorf("status: exit code %d, want 0 and the refusal:\n%s", a.code, a.out)
	}
	if got := hard(s.status(), policy.AllocatableMemoryAvailable); got != now-512*mib {
		t.Errorf("the threshold is %d, want the old one", got)
	}
	n.alive(pod)

	n.configure(config{hard: thresholds{policy.AllocatableMemoryAvailable: bytes(now + 32*mib)}})
	s.reload()
	n.until("the new threshold", func() bool { return hard(s.status(), policy.AllocatableMemoryAvailable) == now+32*mib })
	if note := s.status().ConfigNote; note != "" {
		t.Errorf("status still tells %q", note)
	}
	if got := s.events(systemd.EventConfigReload); len(got) != 1 || !strings.Contains(got[0], "eviction.hard") {
		t.Errorf("told %q, want the reload once, with what changed", got)
	}
	s.stopped("default/large") // the new threshold is met
}

// hard is the hard threshold of a signal in bytes, 0 without one.
func hard(st guard.Status, s policy.Signal) int64 {
	for _, v := range st.Signals {
		for _, t := range v.Thresholds {
			if v.Signal == s && t.Kind == policy.Hard.String() {
				return t.Amount
			}
		}
	}
	return 0
}
