package live_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/history"
	"github.com/criguard/criguard/guard/hold"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
	"github.com/criguard/criguard/test/lab"
)

// At the first start, a threshold that is met already stops nothing for 30 s, and is then put in force. A restart with the
// same thresholds does not wait. With a higher one it does, with the previous one in force, until an operator reloads.
func TestFirstStartHoldsAMetThreshold(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	small := n.pod(lab.PodSpec{Name: "small", Containers: one("pause")})
	large := n.pod(lab.PodSpec{Name: "large", Containers: hog(256 * mib)})
	n.hogs(large)
	limit := n.available(policy.AllocatableMemoryAvailable) + 64*mib // 192 MiB are left above it without the pod
	n.configure(config{hard: thresholds{policy.AllocatableMemoryAvailable: bytes(limit)}, more: plenty})
	began := time.Now()
	s := &service{n, n.harness().StartHeld()}
	says := func(code int, args []string, want ...string) {
		t.Helper()
		a := n.criguard(args...)
		for _, w := range want {
			if a.Code != code || !strings.Contains(a.Out, w) {
				t.Errorf("%v: exit code %d, want %d and %q in\n%s%s", args, a.Code, code, w, a.Out, a.Err)
			}
		}
	}
	isHeld := func() bool {
		return slices.ContainsFunc(s.status().Alarms, func(a string) bool { return strings.Contains(a, " held for ") })
	}
	n.until("the pods to be listed", func() bool { return s.status().Pods == 2 })
	says(1, n.args("status"), "\nALARM ", "is met NOW", " held for ", "`criguard reload` does not wait")
	if got := hard(s.status(), policy.AllocatableMemoryAvailable); got != 0 {
		t.Errorf("the threshold is in force: %d", got)
	}
	if got := s.stops(); len(got) > 0 {
		t.Fatalf("innocent pod: stopped %+v", got)
	}
	n.alive(small, large)
	n.until("the threshold to be in force", func() bool { return hard(s.status(), policy.AllocatableMemoryAvailable) == limit })
	if took := time.Since(began); took < hold.Time || isHeld() {
		t.Errorf("in force after %s, want %s; alarms %q", took, hold.Time, s.status().Alarms)
	}
	s.stopped("default/large")
	n.ended(large)
	if got := s.events(systemd.EventAlarm); len(got) != 1 || !strings.Contains(got[0], `msg="hard threshold held`) {
		t.Errorf("told %q, want the hold", got)
	}
	s.End()

	again := n.pod(lab.PodSpec{Name: "again", Containers: hog(256 * mib)})
	n.hogs(again)
	s = &service{n, n.harness().StartHeld()}
	s.until("the stop after the restart", func() bool { return len(s.settled()) == 2 })
	if isHeld() {
		t.Errorf("held again: %q", s.status().Alarms)
	}
	if got := s.settled()[1].Pod; got != "default/again" {
		t.Errorf("innocent pod: stopped %s", got)
	}
	n.ended(again)
	n.alive(small)
	s.End()

	late := n.pod(lab.PodSpec{Name: "late", Containers: hog(128 * mib)})
	n.hogs(late)
	higher := n.available(policy.AllocatableMemoryAvailable) + 64*mib
	n.configure(config{hard: thresholds{policy.AllocatableMemoryAvailable: bytes(higher)}, more: plenty})
	s = &service{n, n.harness().StartHeld()}
	n.until("the pods to be listed", func() bool { return s.status().Pods == 2 })
	if got := hard(s.status(), policy.AllocatableMemoryAvailable); got != limit || !isHeld() {
		t.Errorf("%d is in force, want %d and the hold of %d; alarms %q", got, limit, higher, s.status().Alarms)
	}
	n.alive(small, late)
	says(0, n.args("reload"), "")
	s.until("the stop after the reload", func() bool { return len(s.settled()) == 3 })
	if got := s.settled()[2].Pod; got != "default/late" || hard(s.status(), policy.AllocatableMemoryAvailable) != higher {
		t.Errorf("innocent pod: stopped %s; or %d is not in force", got, higher)
	}
	n.ended(late)
	n.alive(small)
}

// History and explanations outlive the service, and a follower sees a stop as it happens. Passes of earlier days have
// their date. The log of the stops is calm.
func TestHistoryIsFollowedAndKept(t *testing.T) {
	n := newNode(t, lab.Containerd2)
	old := time.Now().Add(-50 * time.Hour)
	n.leaveStop(old, "default/old", policy.MemoryAvailable)
	pods := map[string]*lab.RunningPod{}
	for _, name := range []string{"first", "second"} {
		pods[name] = n.pod(lab.PodSpec{Name: name, Containers: leak(headroom+500*mib, "800")})
	}
	n.configure(config{
		hard: thresholds{policy.AllocatableMemoryAvailable: bytes(n.available(policy.AllocatableMemoryAvailable) - headroom)}, more: plenty,
	})
	s := n.startWith(len(pods))
	began := time.Now().Add(-time.Minute).Format("15:04")
	follower := n.follow("--stops")
	ofSecond := n.follow("--pod", "second", "--signal", policy.AllocatableMemoryAvailable.String())
	for i, name := range []string{"first", "second"} {
		n.release(pods[name])
		n.until("the stop of "+name, func() bool { return len(s.settled()) == i+1 })
		n.until("the follower to see it", func() bool { return strings.Contains(follower(), "stopped default/"+name) })
		reason := s.settled()[i].Reason
		if m := amountsOf.FindStringSubmatch(reason); m == nil || m[1] == m[2] {
			t.Errorf("the stop of %s: no two different amounts in %q", name, reason)
		}
	}
	n.until("the follower of one pod to see it", func() bool { return strings.Contains(ofSecond(), "stopped default/second") })
	if out := ofSecond(); strings.Contains(out, "stop default/first") || strings.Contains(out, "stopped default/first") {
		t.Errorf("it sees another pod:\n%s", out)
	}
	look := func(code int, want, not string, args ...string) {
		t.Helper()
		if a := n.criguard(n.args(args...)...); a.Code != code || !strings.Contains(a.Out, want) || not != "" && strings.Contains(a.Out, not) {
			t.Errorf("%v: exit code %d, want %d, %q and no %q in\n%s%s", args, a.Code, code, want, not, a.Out, a.Err)
		}
	}
	for _, live := range []bool{true, false} {
		if !live {
			s.End()
			s.calm()
		}
		look(0, "stopped default/first", "default/old", "history", "--since", began)
		look(0, "stopped default/first", "default/old", "history", "--since", "1d")
		look(0, "1     "+old.Format("2006-01-02 15:04:05"), "", "history", "--stops")
		look(0, "stop default/old", "default/first", "history", "--since", "3d", "--signal", policy.MemoryAvailable.String())
		look(0, "Pass 1, "+old.Format("2006-01-02 15:04:05"), "default/first", "explain", "default/old")
		look(0, "stopped default/second", "default/first", "history", "--pod", "second", "--stops")
		look(0, "\nstop default/second (hard, grace 0s)\n", "", "explain")
		look(0, "\nstop default/first (hard, grace 0s)\n", "", "explain", "default/first")
		look(0, "No pass matches.", "", "history", "--signal", policy.PIDAvailable.String())
	}
	look(2, "", "", "history", "--since", "yesterday")
	look(2, "", "", "history", "--signal", "memory")
	if a := n.criguard(n.args("protect", "default/first", "--for", "1h")...); a.Code != 3 || !strings.Contains(a.Err, "hint: ") {
		t.Errorf("protect without the service: exit code %d, %s", a.Code, a.Err)
	}
}

// amountsOf finds in the reason of a stop what was available and the threshold.
var amountsOf = regexp.MustCompile(`available (\S+) < ([^\s;]+)`)

// leaveStop writes a history with a stop that a service of an earlier day has begun.
func (n *node) leaveStop(when time.Time, pod string, signal policy.Signal) {
	n.Helper()
	h := history.Open(n.dir, 10)
	h.Add(api.Pass{ID: 1, Time: when, Wake: "timer", Stop: &api.StopView{Pod: pod, Signal: signal.String(), Kind: "hard", Reason: "ranks first"}})
	if err := errors.Join(h.Save(), h.Close()); err != nil {
		n.Fatal(err)
	}
}

// calm checks the log of a service all of whose stops went well: no error, nothing that is only not known yet, and amounts
// with their units.
func (s *service) calm() {
	s.Helper()
	for line := range strings.Lines(s.Logged()) {
		bare := bareAmount.FindString(line)
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "confirmed=false") || bare != "" {
			s.Errorf("the log of good stops is not calm (%q): %s", bare, line)
		}
	}
}

// bareAmount finds amounts of a log line without a unit.
var bareAmount = regexp.MustCompile(` (available|freed)=-?[0-9.]+\s`)

// check looks at the node's disks as well: a threshold that is met by now is a finding, whatever the resource.
func TestCheckSeesAMetDiskThreshold(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	n.pod(lab.PodSpec{Name: "shop", Containers: one("pause")})
	capacity := int64(0)
	for _, v := range ask[api.Status](n, "status").Signals {
		if v.Signal == policy.NodeFSAvailable {
			capacity = v.Capacity
		}
	}
	n.configure(config{hard: thresholds{policy.NodeFSAvailable: bytes(capacity - mib)}})
	if a := n.criguard("check", "--config", n.config(), "--quiet"); a.Code != 1 || !strings.Contains(a.Err, "hard nodefs.available is met NOW") {
		t.Errorf("exit code %d, %s", a.Code, a.Err)
	}
	if a := n.criguard("check", "--config", n.config(), "--quiet", "--offline"); a.Code != 0 || a.Err != "" {
		t.Errorf("offline: exit code %d, %s", a.Code, a.Err)
	}
}

// follow runs `criguard history -f` and returns a function that returns its output so far. It ends cleanly on SIGINT, with
// the test.
func (n *node) follow(args ...string) (output func() string) {
	n.Helper()
	output, interrupt := n.endless(append([]string{"history", "-f"}, args...)...)
	n.Cleanup(func() {
		if code := interrupt(); code != 0 {
			n.Errorf("history -f: exit code %d\n%s", code, output())
		}
	})
	return output
}
