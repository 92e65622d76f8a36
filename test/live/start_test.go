package live_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

// At the first start, a threshold that is met already stops nothing until it is put in force. A restart with the same
// thresholds does not wait.
func TestFirstStartHoldsAMetThreshold(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	small := n.pod(lab.PodSpec{Name: "small", Containers: one("pause")})
	large := n.pod(lab.PodSpec{Name: "large", Containers: hog(128 * mib)})
	n.hogs(large)
	limit := n.available(policy.AllocatableMemoryAvailable) + 64*mib
	n.configure(config{hard: thresholds{policy.AllocatableMemoryAvailable: bytes(limit)}, more: plenty})
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
	n.until("the pods to be listed", func() bool { return s.status().Pods == 2 })
	says(1, n.args("status"), "\nALARM ", "is met NOW", " held for ", "`criguard reload` does not wait")
	if got := hard(s.status(), policy.AllocatableMemoryAvailable); got != 0 {
		t.Errorf("the threshold is in force: %d", got)
	}
	if got := s.stops(); len(got) > 0 {
		t.Fatalf("innocent pod: stopped %+v", got)
	}
	n.alive(small, large)
	says(0, n.args("reload"), "")
	s.stopped("default/large")
	n.ended(large)
	s.End()

	again := n.pod(lab.PodSpec{Name: "again", Containers: hog(128 * mib)})
	n.hogs(again)
	s = &service{n, n.harness().StartHeld()}
	s.until("the stop after the restart", func() bool { return len(s.settled()) == 2 })
	if alarms := s.status().Alarms; slices.ContainsFunc(alarms, func(a string) bool { return strings.Contains(a, " held for ") }) {
		t.Errorf("held again: %q", alarms)
	}
	if got := s.settled()[1].Pod; got != "default/again" {
		t.Errorf("innocent pod: stopped %s", got)
	}
	n.alive(small)
}

// History and explanations outlive the service, and a follower sees a stop as it happens.
func TestHistoryIsFollowedAndKept(t *testing.T) {
	n := newNode(t, lab.Containerd2)
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
	for i, name := range []string{"first", "second"} {
		n.release(pods[name])
		n.until("the stop of "+name, func() bool { return len(s.settled()) == i+1 })
		n.until("the follower to see it", func() bool { return strings.Contains(follower(), "stopped default/"+name) })
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
		}
		look(0, "stopped default/first", "", "history", "--since", began)
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
	path := filepath.Join(n.dir, "followed")
	out, err := os.Create(path)
	if err != nil {
		n.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command(harness.Criguard, n.args(append([]string{"history", "-f"}, args...)...)...)
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil {
			n.Errorf("history -f: %v", err)
		}
	})
	return func() string {
		text, err := os.ReadFile(path)
		if err != nil {
			n.Fatal(err)
		}
		return string(text)
	}
}
