package live_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
	"github.com/criguard/criguard/test/lab"
)

// A service that receives SIGTERM during a pod's grace period does not wait for its end. It leaves the stop to
// the next service, which does not begin another.
func TestEndDuringStop(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	stubborn := n.pod(lab.PodSpec{Name: "stubborn", TerminationGrace: time.Hour, Containers: hog(128*mib, "-term-delay", "1h")})
	n.hogs(stubborn)
	c := soft("100ms", podsMemory-64*mib)
	c.eviction = map[string]string{"max_pod_grace_period": "1h"}
	n.configure(c)
	s := n.startWith(1)
	n.until("the stop to begin", func() bool { return len(s.status().InFlight) == 1 })
	if took := s.End(); took >= deadWithin {
		t.Errorf("the service took %s to end", took)
	}
	if got := s.events(systemd.EventShutdown); len(got) != 1 || !strings.Contains(got[0], "in_flight=1") {
		t.Errorf("told that it ends: %q", got)
	}
	n.alive(stubborn)
	s = n.startWith(1)
	n.until("the stop to be taken over", func() bool { return len(s.status().InFlight) == 1 })
	if got := len(s.stops()); got != 1 {
		t.Errorf("%d stops, want one", got)
	}
	n.alive(stubborn)
}

// A second service refuses to start and names the first one.
func TestSecondInstance(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	n.configure(config{})
	s := n.start()
	a := n.criguard(n.args("run")...)
	if want := fmt.Sprintf("(pid %d)", s.Cmd.Process.Pid); a.Code != 2 || !strings.Contains(a.Err, want) || !strings.Contains(a.Err, "\nhint: ") {
		t.Errorf("the second one: exit code %d, stderr %q, want 2, %s and a hint", a.Code, a.Err, want)
	}
	if st := ask[api.Status](n, "status"); !st.Live || st.PID != s.Cmd.Process.Pid {
		t.Errorf("the first one does not answer any more: %+v", st)
	}
}

// If the history cannot be written, it stays in memory: the service logs that at its start, keeps
// guarding, and ends cleanly.
func TestEndWithoutHistory(t *testing.T) {
	n := newNode(t, lab.Containerd2)
	text, err := os.ReadFile(n.config())
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := strings.Replace(string(text), fmt.Sprintf("[history]\ndir = %q", n.dir), "[history]\ndir = \"/proc/criguard\"", 1)
	if err := os.WriteFile(n.config(), []byte(elsewhere), 0o600); err != nil {
		t.Fatal(err)
	}
	s := n.start()
	told := func() (lines []string) {
		for _, line := range s.events(systemd.EventDegraded) {
			if strings.Contains(line, "history not saved, kept in memory") && strings.Contains(line, "/proc/criguard") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	if len(told()) != 1 {
		t.Errorf("at its start:\n%s", s.Logged())
	}
	if a := n.criguard(n.args("pause", "--for", "1m")...); a.Code != 0 || len(s.history()) != 1 {
		t.Errorf("pause: %+v, history %+v", a, s.history())
	}
	s.End()
	if len(told()) != 1 {
		t.Errorf("told more than once:\n%s", s.Logged())
	}
}

// soft returns a configuration with one soft threshold, on the pods' memory.
func soft(grace string, limit int64) config {
	return config{
		soft:  thresholds{policy.AllocatableMemoryAvailable: bytes(limit)},
		grace: thresholds{policy.AllocatableMemoryAvailable: grace},
	}
}
