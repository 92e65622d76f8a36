package live_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
	"github.com/criguard/criguard/test/lab"
)

// criguard logs the loss of a killed runtime once and keeps watching memory. When the runtime is
// back, criguard logs that once and lists the pods.
func TestRuntimeKilled(t *testing.T) {
	const taken = 300 * mib
	n := newNode(t, lab.Containerd1)
	pod := n.pod(lab.PodSpec{Name: "taker", Containers: leak(taken, "0")})
	n.configure(config{eviction: map[string]string{"interval": "500ms"}})
	s := n.startWith(1)
	before := available(s.status(), policy.AllocatableMemoryAvailable)

	n.killRuntime()
	n.until("the loss to be noticed", func() bool { return !s.status().Runtime.Up })
	n.release(pod)
	n.until("status to show what was taken meanwhile", func() bool {
		return available(s.status(), policy.AllocatableMemoryAvailable) <= before-taken*9/10
	})
	// By then, several listings have failed, but only one is logged.
	lost := s.status()
	n.until("the service to go on", func() bool { return time.Duration(s.status().Uptime-lost.Uptime) > 3*time.Second })
	if st := s.status(); st.Runtime.Up || st.Runtime.Error == "" || st.Pods != 1 {
		t.Errorf("without the runtime: %+v, %d pods, want it down, with the reason and the pod it had", st.Runtime, st.Pods)
	}
	if got := s.events(systemd.EventRuntimeDown); len(got) != 1 {
		t.Errorf("told %d times that the runtime is down: %q", len(got), got)
	}

	outages := func() (ups []bool) {
		for _, p := range s.history() {
			if p.Runtime != nil {
				ups = append(ups, p.Runtime.Up)
			}
		}
		return ups
	}
	n.until("the outage to be in the history", func() bool { return slices.Equal(outages(), []bool{false}) })

	n.restartRuntime()
	n.pod(lab.PodSpec{Name: "next", Containers: one("pause")})
	n.until("the pods to be listed again", func() bool {
		st := s.status()
		return st.Runtime.Up && st.Runtime.Error == "" && st.Pods == 2
	})
	n.until("that to be told", func() bool { return len(s.events(systemd.EventRuntimeUp)) == 2 }) // the first was at the start
	n.until("the end of the outage to be in the history", func() bool { return slices.Equal(outages(), []bool{false, true}) })
	if got := s.events(systemd.EventRuntimeDown); len(got) != 1 {
		t.Errorf("told %d times that the runtime is down: %q", len(got), got)
	}
}

// If the runtime's socket is missing at startup, criguard watches the kernel's signals, and uses
// the runtime when it appears.
func TestRuntimeComesLate(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	n.pod(lab.PodSpec{Name: "early", Containers: one("pause")})
	n.endpoint = "unix://" + filepath.Join(n.dir, "late.sock")
	n.configure(config{})
	s := n.start()
	n.until("memory to be watched", func() bool { return available(s.status(), policy.AllocatableMemoryAvailable) > 0 })
	n.until("the lack to be told", func() bool { return len(s.events(systemd.EventRuntimeDown)) == 1 })
	if st := s.status(); st.Runtime.Up || st.Runtime.ListedAt != nil || st.Pods != 0 {
		t.Errorf("without a runtime: %+v, %d pods", st.Runtime, st.Pods)
	}
	if ready := s.events(systemd.EventStart); len(ready) != 1 {
		t.Errorf("told %d times that it guards", len(ready))
	}
	n.appear("late.sock")
	n.until("the pod to be listed", func() bool {
		st := s.status()
		return st.Runtime.Up && st.Pods == 1
	})
	n.until("that to be told", func() bool { return len(s.events(systemd.EventRuntimeUp)) == 1 })
	if got := s.events(systemd.EventRuntimeDown); len(got) != 1 {
		t.Errorf("told %d times that the runtime is down: %q", len(got), got)
	}
}

// available returns the amount of a signal in a status.
func available(st api.Status, s policy.Signal) int64 {
	for _, v := range st.Signals {
		if v.Signal == s {
			return v.Available
		}
	}
	return 0
}

// appear makes the runtime's socket reachable under another name.
func (n *node) appear(name string) {
	n.Helper()
	if err := os.Symlink(strings.TrimPrefix(n.lab.Endpoint(), "unix://"), filepath.Join(n.dir, name)); err != nil {
		n.Fatal(err)
	}
}
