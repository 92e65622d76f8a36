package live_test

import (
	"bufio"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
	"github.com/criguard/criguard/test/lab"
)

// plenty is a budget that never holds a stop back.
const plenty = "[budget]\nhard = {burst = 100, every = \"1s\"}\nsoft = {burst = 100, every = \"1s\"}\nper_hour = 0\n"

// A pod that comes back and leaks again is stopped every time, at once, and costs no budget: the budget
// allows one stop.
func TestCameBack(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	keeper := n.pod(lab.PodSpec{Name: "keeper", Containers: hog(64 * mib)})
	n.hogs(keeper)
	n.configure(config{
		hard: thresholds{policy.AllocatableMemoryAvailable: bytes(n.available(policy.AllocatableMemoryAvailable) - headroom)},
		// A stop delayed until the next listing would come much too late.
		eviction: map[string]string{"interval": "1m"},
		more:     "[budget]\nhard = {burst = 1, every = \"1h\"}\n[rank]\nmemory = [\"over_request\", \"priority\", \"usage\"]\n",
	})
	s := n.startWith(1)
	for attempt := range uint32(4) {
		spec := lab.PodSpec{Name: "again", UID: "11111111-2222-4333-8444-555555555555", Attempt: attempt, Containers: leak(headroom+200*mib, "400")}
		spec.Containers[0].Attempt = attempt
		again := n.pod(spec)
		n.release(again)
		n.until(fmt.Sprintf("stop %d", attempt+1), func() bool { return len(s.settled()) == int(attempt)+1 })
		n.ended(again)
		stops := s.stops()
		if last := stops[attempt].Stop; last.Pod != "default/again" {
			t.Fatalf("stop %d is of %s, want default/again", attempt+1, last.Pod)
		}
		if hard := s.status().Budget.Hard; hard.Left != 0 || hard.LastHour != 1 {
			t.Errorf("after stop %d the budget is %+v, want one stop taken", attempt+1, hard)
		}
	}
	n.alive(keeper)
}

// innocents runs pods of that size, which have nothing to do with the pressure.
func (n *node) innocents(count int, size int64) (pods []*lab.RunningPod) {
	n.Helper()
	for i := range count {
		pods = append(pods, n.pod(lab.PodSpec{Name: fmt.Sprintf("innocent-%d", i), Containers: hog(size)}))
	}
	for _, p := range pods {
		n.hogs(p)
	}
	return pods
}

// startSampled starts the service with that many pods and returns when it can tell how fast they grow.
func (n *node) startSampled(pods int) *service {
	n.Helper()
	s := n.startWith(pods)
	n.until("two samples", func() bool { return time.Duration(s.status().Uptime) > 3*time.Second })
	return s
}

// A hog outside every pod costs no pod when stopping pods could not bring relief, although the machine does
// other work.
func TestOutsideHog(t *testing.T) {
	const nodeHeadroom, nodeLeak = 1024 * mib, 3072 * mib // more than other work on the machine takes or frees
	n := newNode(t, lab.Containerd1)
	pods := n.innocents(6, 10*mib)
	limit := n.gauge(policy.MemoryAvailable)() - nodeHeadroom
	n.configure(config{hard: thresholds{policy.MemoryAvailable: bytes(limit)}, more: plenty})
	s := n.startSampled(len(pods))
	n.hogOutside(nodeLeak, 500)
	s.until("the alarm", func() bool { return len(s.status().Alarms) > 0 })
	s.until("the pool to be held back", func() bool { p := s.status().LastPass; return p != nil && p.Held == api.HeldOutside })
	given := s.status().Uptime
	s.until("the service to go on", func() bool { return time.Duration(s.status().Uptime-given) > 2*time.Second })
	if stops := s.stops(); len(stops) > 0 {
		t.Errorf("stopped %+v", stops)
	}
	if st := s.status(); len(st.Alarms) != 1 || !strings.HasPrefix(st.Alarms[0], "memory: ") || !strings.Contains(st.Alarms[0], "outside pods") || len(st.Budget.Breakers) > 0 {
		t.Errorf("alarms %q, want that it is outside pods; breakers %v", st.Alarms, st.Budget.Breakers)
	}
	if a := s.criguard(s.args("status")...); a.Code != 1 || !strings.Contains(a.Out, "\nALARM ") {
		t.Errorf("exit code %d, want 1 and the alarm:\n%s", a.Code, a.Out)
	}
	if got := s.events(systemd.EventAlarm); len(got) != 1 {
		t.Errorf("the alarm was logged %d times: %q", len(got), got)
	}
	n.alive(pods...)
}

// hogOutside runs a process outside every pod that takes memory at a rate in MiB per second, and keeps it until the
// end of the test. It returns when the process has all of it.
func (n *node) hogOutside(size int64, rate int) {
	n.Helper()
	cmd := exec.Command(built.workload, "hog", "-mib", strconv.FormatInt(size/mib, 10), "-rate", strconv.Itoa(rate))
	out, err := cmd.StdoutPipe()
	if err != nil {
		n.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(out); ; {
		if !lines.Scan() {
			n.Fatalf("the hog ended: %v", lines.Err())
		}
		if strings.HasSuffix(lines.Text(), " hog: done") {
			return
		}
	}
}
