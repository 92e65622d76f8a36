package live_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

// A paused guard sees pressure but stops no pod, even after a restart. After resume, it does.
func TestPause(t *testing.T) {
	onEach(t, func(n *node) {
		p := n.pod(lab.PodSpec{Name: "spared", Containers: hog(32 * mib)})
		n.hogs(p)
		s := n.startWith(1)
		if a := n.criguard(n.args("pause", "--for", "5m", "--reason", "new disk")...); a.Code != 0 || !strings.Contains(a.Out, "paused for 5m") {
			t.Fatalf("pause: exit code %d, %s%s", a.Code, a.Out, a.Err)
		}
		n.configure(config{hard: thresholds{
			policy.AllocatableMemoryAvailable: bytes(n.available(policy.AllocatableMemoryAvailable) + 8*mib), // met, and the pod's stop relieves it
		}})
		s.reload()
		held := func(s *service) func() bool {
			return func() bool {
				return slices.ContainsFunc(s.history(), func(p api.Pass) bool { return p.Held == api.HeldPaused })
			}
		}
		n.until("the pressure to be held back", held(s))
		s.End()
		s = n.startWith(1)
		if st := s.status(); st.Orders.Pause == nil || st.Orders.Pause.Reason != "new disk" || st.PausedFor <= 0 || time.Duration(st.PausedFor) > 5*time.Minute {
			t.Errorf("after a restart: %+v", st.Orders)
		}
		if out := n.criguard(n.args("status")...).Out; !strings.Contains(out, "PAUSED") || !strings.Contains(out, "new disk") {
			t.Errorf("status does not tell:\n%s", out)
		}
		n.until("the pressure to be held back again", held(s))
		n.alive(p)
		if len(s.stops()) > 0 {
			t.Errorf("stopped %+v while paused", s.stops())
		}
		if a := n.criguard(n.args("drain", "--yes")...); a.Code != 2 || !strings.Contains(a.Err, "paused") {
			t.Errorf("drain while paused: exit code %d, %s", a.Code, a.Err)
		}
		if a := n.criguard(n.args("resume")...); a.Code != 0 {
			t.Fatalf("resume: %s", a.Err)
		}
		s.stopped("default/spared")
		n.ended(p)
		if got := len(s.events(systemd.EventCommand)); got != 2 { // the pause still in force, and the resume
			t.Errorf("%d lines about commands:\n%s", got, s.Logged())
		}
	})
}

// A drain stops all eligible pods, keeps protected ones, and stops new pods until undrain.
func TestDrain(t *testing.T) {
	onEach(t, func(n *node) {
		low := n.pod(lab.PodSpec{Name: "low", Containers: one("pause")})
		high := n.pod(lab.PodSpec{Name: "high", Containers: one("ignore-term"), TerminationGrace: time.Hour})
		kept := n.pod(lab.PodSpec{Name: "kept", Namespace: "kube-system", Containers: one("pause")})
		static := n.pod(lab.PodSpec{Name: "static", Annotations: map[string]string{"kubernetes.io/config.source": "file"}, Containers: one("pause")})
		n.configure(config{more: "[[priority]]\nname = \"low\"\nvalue = -10\n[backoff]\nfirst = \"0s\"\n"})
		s := n.startWith(4)

		a := n.criguard(n.args("drain", "--dry-run", "-o", "json")...)
		var dry api.CommandAnswer
		if err := json.Unmarshal([]byte(a.Out), &dry); err != nil || a.Code != 0 || dry.Plan.Left != 2 || dry.Plan.Pods[0].Pod != "default/low" || dry.Plan.Draining {
			t.Fatalf("dry run: %v, exit code %d: %s%s", err, a.Code, a.Out, a.Err)
		}
		n.alive(low, high, kept, static)

		begin := time.Now()
		if a := n.criguard(n.args("drain", "--grace", "2s", "--reason", "new kernel")...); a.Code != 0 || !strings.Contains(a.Out, "stays: static pod") {
			t.Fatalf("drain: exit code %d: %s%s", a.Code, a.Out, a.Err)
		}
		t.Logf("drained in %s", time.Since(begin).Round(time.Millisecond))
		n.ended(low)
		n.ended(high)
		n.alive(kept, static)
		if stops := s.stops(); len(stops) != 2 || stops[0].Stop.Pod != "default/low" || stops[0].Stop.Kind != "drain" || time.Duration(stops[1].Stop.Grace) != 2*time.Second {
			t.Errorf("stops %+v", stops)
		}

		s.End()
		s = n.start()
		late := n.pod(lab.PodSpec{Name: "late", Containers: one("pause")})
		n.ended(late)
		if a := n.criguard(n.args("undrain")...); a.Code != 0 || !strings.Contains(a.Out, "undrained") {
			t.Fatalf("undrain: exit code %d: %s%s", a.Code, a.Out, a.Err)
		}
		later := n.pod(lab.PodSpec{Name: "later", Containers: one("pause")})
		n.until("the new pod to be listed", func() bool { return s.status().Pods == 3 })
		n.until("a pass after that", func() bool { return passes(n) > 0 })
		n.alive(later, kept, static)
		if a := n.criguard("drain", "--run-dir", t.TempDir()); a.Code != 3 || !strings.Contains(a.Err, "hint: ") {
			t.Errorf("drain without a service: exit code %d: %s", a.Code, a.Err)
		}
	})
}

// A protected pod is neither ranked nor stopped, even after a restart. An operator's stop names the operator
// and takes no budget.
func TestStopAndProtect(t *testing.T) {
	n := newNode(t, lab.Containerd2)
	p := n.pod(lab.PodSpec{Name: "amok", Containers: one("ignore-term"), TerminationGrace: time.Hour})
	n.configure(config{})
	s := n.startWith(1)
	run := func(code int, text string, args ...string) {
		t.Helper()
		if a := n.criguard(n.args(args...)...); a.Code != code || !strings.Contains(a.Out+a.Err, text) {
			t.Fatalf("%v: exit code %d, want %d and %q:\n%s%s", args, a.Code, code, text, a.Out, a.Err)
		}
	}
	run(0, "protected default/amok for 1h", "protect", "default/amok", "--for", "1h", "--reason", "batch")
	run(0, "PROTECTED   default/amok for another ", "status")
	run(0, "protected by root until ", "rank")
	run(2, "must not be stopped: protected by root", "stop", "default/amok", "--yes")
	s.End()
	s = n.startWith(1)
	run(0, "protected by root until ", "rank")
	run(2, "must not be stopped: protected by root", "stop", "default/amok", "--dry-run")
	n.alive(p)
	run(0, "unprotected default/amok", "unprotect", "default/amok")
	run(2, "no running pod", "stop", "default/other")
	run(0, "would stop default/amok", "stop", "default/amok", "-n")
	n.alive(p)
	// On a terminal, a drain and a stop show what they would stop before they ask.
	for _, args := range [][]string{{"drain"}, {"stop", "default/amok"}} {
		a := harness.OnTerminal(t, "n\n", n.args(args...)...)
		plan, asked := strings.Index(a.Out, "default/amok  0 "), strings.Index(a.Out, "[y/N]")
		if a.Code != 1 || plan < 0 || asked < plan || !strings.Contains(a.Out, "nothing was stopped") {
			t.Errorf("%v, not confirmed: exit code %d:\n%s", args, a.Code, a.Out)
		}
	}
	n.alive(p)
	run(0, "stopped default/amok", "stop", "--grace", "2s", "--reason", "runs amok", "default/amok")
	n.ended(p)
	run(0, "stop default/amok by root", "history")
	stops := s.stops()
	if len(stops) != 1 || stops[0].Stop.Kind != api.KindCommand || stops[0].Stop.Reason != "stopped by root: runs amok" || stops[0].Command.By.UID != 0 {
		t.Errorf("stops %+v", stops)
	}
	if b := s.status().Budget; b.Soft.LastHour+b.Hard.LastHour != 0 {
		t.Errorf("it took budget: %+v", b)
	}
	if got := len(s.events(systemd.EventStopDone)); got != 1 {
		t.Errorf("%d stops in the journal:\n%s", got, s.Logged())
	}
}

// passes waits for two more passes of the service.
func passes(n *node) int {
	n.Helper()
	count := func() int {
		total := 0
		for line := range strings.Lines(n.criguard(n.args("metrics")...).Out) {
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
