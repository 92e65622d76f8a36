package live_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
	"github.com/criguard/criguard/test/lab"
)

// always is a threshold that no stop relieves.
func always() config { return config{hard: thresholds{policy.MeminfoAvailable: "99.9%"}} }

// A paused guard sees pressure and stops nobody, over a restart too; resumed, it does.
func TestPause(t *testing.T) {
	onEach(t, func(n *node) {
		p := n.pod(lab.PodSpec{Name: "spared", Containers: one("pause")})
		s := n.startWith(1)
		if a := n.criguard(n.args("pause", "--for", "5m", "--reason", "new disk")...); a.code != 0 || !strings.Contains(a.out, "paused for 5m") {
			t.Fatalf("pause: exit code %d, %s%s", a.code, a.out, a.err)
		}
		n.configure(always())
		s.reload()
		held := func(s *service) func() bool {
			return func() bool {
				return slices.ContainsFunc(s.history(), func(p guard.Pass) bool { return p.Held == guard.HeldPaused })
			}
		}
		n.until("the pressure to be held back", held(s))
		s.end()
		s = n.startWith(1)
		if st := s.status(); st.Orders.Pause == nil || st.Orders.Pause.Reason != "new disk" || st.PausedFor <= 0 || st.PausedFor > 5*time.Minute {
			t.Errorf("after a restart: %+v", st.Orders)
		}
		if out := n.criguard(n.args("status")...).out; !strings.Contains(out, "PAUSED") || !strings.Contains(out, "new disk") {
			t.Errorf("status does not tell:\n%s", out)
		}
		n.until("the pressure to be held back again", held(s))
		n.alive(p)
		if len(s.stops()) > 0 {
			t.Errorf("stopped %+v while paused", s.stops())
		}
		if a := n.criguard(n.args("drain", "--yes")...); a.code != 2 || !strings.Contains(a.err, "paused") {
			t.Errorf("drain while paused: exit code %d, %s", a.code, a.err)
		}
		if a := n.criguard(n.args("resume")...); a.code != 0 {
			t.Fatalf("resume: %s", a.err)
		}
		s.stopped("default/spared")
		n.ended(p)
		if got := len(s.events(systemd.EventCommand)); got != 2 { // still in force, and resumed
			t.Errorf("%d lines about commands:\n%s", got, s.logged())
		}
	})
}

// A drain stops what may be stopped, keeps what is protected, and stops what comes,
// until undrain.
func TestDrain(t *testing.T) {
	onEach(t, func(n *node) {
		low := n.pod(lab.PodSpec{Name: "low", Containers: one("pause")})
		high := n.pod(lab.PodSpec{Name: "high", Containers: one("ignore-term"), TerminationGrace: time.Hour})
		kept := n.pod(lab.PodSpec{Name: "kept", Namespace: "kube-system", Containers: one("pause")})
		static := n.pod(lab.PodSpec{Name: "static", Annotations: map[string]string{"kubernetes.io/config.source": "file"}, Containers: one("pause")})
		n.configure(config{more: "[[priority]]\nname = \"low\"\nvalue = -10\n[backoff]\nfirst = \"0s\"\n"})
		s := n.startWith(4)

		a := n.criguard(n.args("drain", "--dry-run", "-o", "json")...)
		var dry guard.CommandAnswer
		if err := json.Unmarshal([]byte(a.out), &dry); err != nil || a.code != 0 || dry.Plan.Left != 2 || dry.Plan.Pods[0].Pod != "default/low" || dry.Plan.Draining {
			t.Fatalf("dry run: %v, exit code %d: %s%s", err, a.code, a.out, a.err)
		}
		n.alive(low, high, kept, static)

		begin := time.Now()
		if a := n.criguard(n.args("drain", "--grace", "2s", "--reason", "new kernel")...); a.code != 0 || !strings.Contains(a.out, "stays: static pod") {
			t.Fatalf("drain: exit code %d: %s%s", a.code, a.out, a.err)
		}
		t.Logf("drained in %s", time.Since(begin).Round(time.Millisecond))
		n.ended(low)
		n.ended(high)
		n.alive(kept, static)
		if stops := s.stops(); len(stops) != 2 || stops[0].Stop.Pod != "default/low" || stops[0].Stop.Kind != "drain" || stops[1].Stop.Grace != 2*time.Second {
			t.Errorf("stops %+v", stops)
		}

		s.end()
		s = n.start()
		late := n.pod(lab.PodSpec{Name: "late", Containers: one("pause")})
		n.ended(late)
		if a := n.criguard(n.args("undrain")...); a.code != 0 || !strings.Contains(a.out, "undrained") {
			t.Fatalf("undrain: exit code %d: %s%s", a.code, a.out, a.err)
		}
		later := n.pod(lab.PodSpec{Name: "later", Containers: one("pause")})
		n.until("the new pod to be listed", func() bool { return s.status().Pods == 3 })
		n.until("a pass after that", func() bool { return passes(n) > 0 })
		n.alive(later, kept, static)
		if a := n.criguard("drain", "--run-dir", t.TempDir()); a.code != 3 || !strings.Contains(a.err, "hint: ") {
			t.Errorf("drain without a service: exit code %d: %s", a.code, a.err)
		}
	})
}

// passes waits for two further passes of the service.
func passes(n *node) int {
	n.Helper()
	count := func() int {
		total := 0
		for line := range strings.Lines(n.criguard(n.args("metrics")...).out) {
			if rest, ok := strings.CutPrefix(line, "criguard_pass_duration_seconds_count "); ok {
				if err := json.Unmarshal([]byte(rest), &total); err != nil {
					n.Fatal(err)
				}
			}
		}
		return total
	}
	first := count()
	n.until("two passes", func() bool { return count() >= first+2 })
	return count() - first
}

// In observe mode nothing is drained, and that is said.
func TestDrainObserves(t *testing.T) {
	n := newNode(t, lab.Containerd2)
	p := n.pod(lab.PodSpec{Name: "watched", Containers: one("pause")})
	n.configure(config{mode: "observe"})
	n.startWith(1)
	if a := n.criguard(n.args("drain", "--yes")...); a.code != 2 || !strings.Contains(a.err, "observe") {
		t.Errorf("exit code %d: %s", a.code, a.err)
	}
	n.alive(p)
}
