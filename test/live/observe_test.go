package live_test

import (
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
	"github.com/criguard/criguard/test/lab"
)

// Observe mode logs once which pod it would stop, and stops nothing.
func TestObserve(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	large := n.pod(lab.PodSpec{Name: "large", Containers: hog(128 * mib)})
	small := n.pod(lab.PodSpec{Name: "small", Containers: hog(32 * mib)})
	n.hogs(large)
	n.hogs(small)
	n.configure(config{
		mode: "observe",
		hard: thresholds{policy.AllocatableMemoryAvailable: bytes(n.available(policy.AllocatableMemoryAvailable) + 64*mib)},
	})
	s := n.startWith(2)
	n.until("the word", func() bool { return len(s.events(systemd.EventStopBegin)) > 0 })
	said := s.status()
	n.until("the service to go on", func() bool { return time.Duration(s.status().Uptime)-time.Duration(said.Uptime) > 2*time.Second })
	if got := s.events(systemd.EventStopBegin); len(got) != 1 || !strings.Contains(got[0], "would stop pod") || !strings.Contains(got[0], "default/large") {
		t.Errorf("told %q, want once that default/large would be stopped", got)
	}
	if stops := s.stops(); len(stops) != 1 || !stops[0].Stop.DryRun || stops[0].Stop.Pod != "default/large" {
		t.Errorf("stops %+v, want one that was not made, of default/large", stops)
	}
	if st := s.status(); st.Mode != "observe" || len(st.InFlight) > 0 || len(s.settled()) > 0 {
		t.Errorf("mode %q, in flight %q, settled %+v", st.Mode, st.InFlight, s.settled())
	}
	n.alive(large, small)
	s.End()
	n.alive(large, small)
}
