package live_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
	"github.com/criguard/criguard/test/lab"
)

// A service that is told to end while a pod takes its grace period ends in time, and
// says what became of the stop (service.end sees to the exit code).
func TestEndDuringStop(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	stubborn := n.pod(lab.PodSpec{Name: "stubborn", Containers: hog(128*mib, "-term-delay", "1h")})
	n.hogs(stubborn)
	n.configure(soft("100ms", podsMemory-64*mib))
	s := n.startWith(1)
	n.until("the stop to begin", func() bool { return len(s.status().InFlight) == 1 })
	if took := s.end(); took > endWithin {
		t.Errorf("the service took %s to end, want %s at most", took, endWithin)
	}
	if got := s.events(systemd.EventStopFailed); len(got) != 1 || !strings.Contains(got[0], "default/stubborn") {
		t.Errorf("told of the stop that was given up: %q", got)
	}
	if got := s.events(systemd.EventShutdown); len(got) != 1 {
		t.Errorf("told %d times that it ends", len(got))
	}
	n.alive(stubborn)
}

// A second service refuses to start beside the first, which it names.
func TestSecondInstance(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	n.configure(config{})
	s := n.start()
	a := n.criguard(n.args("run")...)
	if want := fmt.Sprintf("(pid %d)", s.cmd.Process.Pid); a.code != 2 || !strings.Contains(a.err, want) || !strings.Contains(a.err, "\nhint: ") {
		t.Errorf("the second one: exit code %d, stderr %q, want 2, %s and a hint", a.code, a.err, want)
	}
	if st := ask[guard.Status](n, "status"); !st.Live || st.PID != s.cmd.Process.Pid {
		t.Errorf("the first one does not answer any more: %+v", st)
	}
}

// A history that cannot be written stays in memory: the service says so at its start,
// guards on, and ends well.
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
			if strings.Contains(line, "history stays in memory") && strings.Contains(line, "/proc/criguard") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	if len(told()) != 1 {
		t.Errorf("at its start:\n%s", s.logged())
	}
	if a := n.criguard(n.args("pause", "--for", "1m")...); a.code != 0 || len(s.history()) != 1 {
		t.Errorf("pause: %+v, history %+v", a, s.history())
	}
	s.end()
	if len(told()) != 1 {
		t.Errorf("told more than once:\n%s", s.logged())
	}
}

// soft is a configuration with one soft threshold, on the pods' memory.
func soft(grace string, limit int64) config {
	return config{
		soft:  thresholds{policy.AllocatableMemoryAvailable: bytes(limit)},
		grace: thresholds{policy.AllocatableMemoryAvailable: grace},
	}
}
