package live_test

import (
	"testing"
	"time"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
	"github.com/criguard/criguard/test/lab"
)

// A soft threshold gives the pod its grace period, and no more.
func TestSoftMemory(t *testing.T) {
	for _, c := range []struct {
		name         string
		termDelay    string
		grace        time.Duration // the pod's own
		least, limit time.Duration // when it is to be over
	}{
		{"ends in time", "500ms", 10 * time.Second, 500 * time.Millisecond, 5 * time.Second},
		{"ignores SIGTERM", "1h", 2 * time.Second, 2 * time.Second, 6 * time.Second},
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
				if stop.Kind != policy.Soft.String() || stop.Grace != c.grace || stop.Result.Method != "runtime" || !stop.Result.Moved {
					n.Errorf("stop %+v, result %+v, want a soft one with the pod's grace, by the runtime, that helped", stop, stop.Result)
				}
				if took := stop.Result.EmptiedIn; took < c.least || took > c.limit {
					n.Errorf("over after %s, want %s to %s", took, c.least, c.limit)
				}
				n.graceKept(s)
				n.ended(leaky)
				n.alive(calm)
			})
		})
	}
}

// graceKept makes sure that the stop began when the threshold's own grace period
// of a second was over, and not before.
func (n *node) graceKept(s *service) {
	n.Helper()
	p := s.stops()[0]
	for _, m := range p.Met {
		if m.For < time.Second || m.For > 3*time.Second {
			n.Errorf("stopped %s after the threshold was met, want 1 s", m.For)
		}
	}
	if len(p.Met) != 1 {
		n.Errorf("met are %+v, want one threshold", p.Met)
	}
}

// A hard threshold that is met while a pod takes its grace period ends that: the
// same pod is killed at once, and no other is stopped.
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
		if stop.Kind != policy.Soft.String() || stop.Grace != time.Hour || stop.Result.Method != "direct" {
			n.Errorf("stop %+v, result %+v, want the soft one, ended directly", stop, stop.Result)
		}
		var escalated, settled time.Duration
		for _, p := range s.history() {
			if p.Escalated != "" {
				if escalated != 0 || p.Escalated != "default/leaky" {
					n.Errorf("pass %d ended the grace period of %s", p.ID, p.Escalated)
				}
				escalated = p.At
			}
			if len(p.Settled) > 0 {
				settled = p.At
			}
		}
		if took := settled - escalated; escalated == 0 || took > deadWithin {
			n.Errorf("escalated at %s, settled %s later, want %s at most", escalated, took, deadWithin)
		}
		if got := s.events(systemd.EventStopBegin); len(got) != 2 {
			n.Errorf("told of the stop and of its hastening: %q", got)
		}
		n.ended(leaky)
		n.alive(calm)
	})
}
