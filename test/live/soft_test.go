package live_test

import (
	"slices"
	"testing"
	"time"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
	"github.com/criguard/criguard/test/lab"
)

// A soft threshold gives the pod exactly its grace period.
func TestSoftMemory(t *testing.T) {
	for _, c := range []struct {
		name      string
		termDelay string
		grace     time.Duration // the pod's own
		least     time.Duration // the stop takes
	}{
		{"ends in time", "500ms", 30 * time.Second, 500 * time.Millisecond},
		{"ignores SIGTERM", "1h", 2 * time.Second, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEach(t, func(n *node) {
				calm := n.pod(lab.PodSpec{Name: "calm", Containers: hog(64 * mib)})
				leaky := n.pod(lab.PodSpec{Name: "leaky", TerminationGrace: c.grace, Containers: leak(512*mib, "0", "-term-delay", c.termDelay)})
				n.hogs(calm)
				n.configure(soft("1s", n.available(policy.AllocatableMemoryAvailable)-256*mib))
				s := n.startWith(2)
				n.release(leaky)
				stop := s.stopped("default/leaky")
				if stop.Kind != policy.Soft.String() || time.Duration(stop.Grace) != c.grace || stop.Result.Method != "runtime" || !stop.Helped() {
					n.Errorf("stop %+v, result %+v, want a soft one with the pod's grace, by the runtime, that helped", stop, stop.Result)
				}
				if took := time.Duration(stop.Result.EmptiedIn); took < c.least {
					n.Errorf("over after %s, want %s at least", took, c.least)
				}
				n.graceKept(s)
				n.ended(leaky)
				n.alive(calm)
			})
		})
	}
}

// graceKept checks that the stop began when the threshold's grace period of one second was over,
// and not earlier.
func (n *node) graceKept(s *service) {
	n.Helper()
	p := s.stops()[0]
	for _, m := range p.Met {
		if time.Duration(m.For) < time.Second {
			n.Errorf("stopped %s after the threshold was met, want 1 s at least", m.For)
		}
	}
	if len(p.Met) != 1 {
		n.Errorf("met are %+v, want one threshold", p.Met)
	}
}

// A hard threshold that is met during a pod's grace period ends the grace period: the same pod is
// killed at once, and no other is stopped.
func TestHardEndsSoftGrace(t *testing.T) {
	onEach(t, func(n *node) {
		calm := n.pod(lab.PodSpec{Name: "calm", Containers: hog(64 * mib)})
		spec := lab.PodSpec{Name: "leaky", TerminationGrace: time.Hour, Containers: hog(256*mib, "-term-delay", "1h")}
		spec.Containers = append(spec.Containers, leak(512*mib, "0", "-term-delay", "1h")...)
		spec.Containers[1].Name = "worse"
		leaky := n.pod(spec)
		n.hogs(calm)
		n.hogs(leaky)
		now := n.available(policy.AllocatableMemoryAvailable)
		c := soft("200ms", now+32*mib)
		c.hard = thresholds{policy.AllocatableMemoryAvailable: bytes(now - 256*mib)}
		c.eviction = map[string]string{"max_pod_grace_period": "1h"}
		n.configure(c)
		s := n.startWith(2)
		n.until("the soft stop to begin", func() bool { return len(s.status().InFlight) == 1 })
		n.alive(leaky)
		n.release(leaky)
		stop := s.stopped("default/leaky")
		if stop.Kind != policy.Soft.String() || time.Duration(stop.Grace) != time.Hour || stop.Result.Method != "direct" {
			n.Errorf("stop %+v, result %+v, want the soft one, ended directly", stop, stop.Result)
		}
		var escalated []string
		for _, p := range s.history() {
			if p.Escalated != "" {
				escalated = append(escalated, p.Escalated)
			}
		}
		if !slices.Equal(escalated, []string{"default/leaky"}) {
			n.Errorf("the grace periods of %q were ended, want that of default/leaky, once", escalated)
		}
		if got := s.events(systemd.EventStopBegin); len(got) != 2 {
			n.Errorf("told of the stop and of its hastening: %q", got)
		}
		n.ended(leaky)
		n.alive(calm)
	})
}

// If the runtime is killed during a grace period, criguard ends the pod when the period is over, not
// earlier. The runtime's state is correct once it is back.
func TestRuntimeKilledDuringStop(t *testing.T) {
	const grace = 10 * time.Second // long enough for the runtime to be killed in it
	n := newNode(t, lab.Containerd1)
	calm := n.pod(lab.PodSpec{Name: "calm", Containers: hog(32 * mib)})
	stubborn := n.pod(lab.PodSpec{Name: "stubborn", TerminationGrace: grace, Containers: hog(128*mib, "-term-delay", "1h")})
	n.hogs(calm)
	n.hogs(stubborn)
	n.configure(soft("100ms", n.available(policy.AllocatableMemoryAvailable)+64*mib))
	s := n.startWith(2)
	n.until("the stop to begin", func() bool { return len(s.status().InFlight) == 1 })
	n.killRuntime()
	stop := s.stopped("default/stubborn")
	if r := stop.Result; stop.Kind != policy.Soft.String() || r.Method != "fallback" || time.Duration(r.EmptiedIn) < grace {
		t.Errorf("stop %+v, result %+v, want a soft one, ended after its grace period without the runtime", stop, r)
	}
	n.restartRuntime()
	n.ended(stubborn)
	n.alive(calm)
}
