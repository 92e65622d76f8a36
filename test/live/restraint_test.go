package live_test

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
	"github.com/criguard/criguard/test/lab"
)

// plenty is a budget that holds nothing back.
const plenty = "[budget]\nhard = {burst = 100, every = \"1s\"}\nsoft = {burst = 100, every = \"1s\"}\nper_hour = 0\n"

// A pod that is made again while the pressure goes on is stopped again, further
// and further apart.
func TestHoldDown(t *testing.T) {
	const first = 500 * time.Millisecond
	n := newNode(t, lab.Containerd1)
	// It may not be stopped, so that the threshold stays met.
	keeper := n.pod(lab.PodSpec{Name: "keeper", Namespace: "vault", Containers: hog(64 * mib)})
	n.hogs(keeper)
	n.configure(config{
		hard: thresholds{policy.AllocatableMemoryAvailable: bytes(n.available(policy.AllocatableMemoryAvailable) + mib)},
		more: plenty + "[backoff]\nfirst = \"500ms\"\n[[protect]]\nnamespace = \"vault\"\n",
	})
	s := n.startWith(1)
	var created []time.Duration
	for attempt := range uint32(4) {
		spec := lab.PodSpec{Name: "again", UID: "11111111-2222-4333-8444-555555555555", Attempt: attempt, Containers: hog(32 * mib)}
		spec.Containers[0].Attempt = attempt
		again, err := n.lab.RunPod(t.Context(), spec)
		created = append(created, bootTime())
		n.until(fmt.Sprintf("stop %d", attempt+1), func() bool { return len(s.settled()) == int(attempt)+1 })
		if err != nil { // a stop may come before the container has been started; the pod is removed then
			t.Log(err)
			continue
		}
		n.ended(again)
		if err := n.lab.RemovePod(t.Context(), again); err != nil {
			t.Error(err)
		}
	}
	stops := s.stops()
	for i, p := range stops {
		if p.Stop.Pod != "default/again" || len(stops) != len(created) {
			t.Fatalf("stops %+v, want %d, all of default/again", stops, len(created))
		}
		if i == 0 {
			continue
		}
		gap, want := p.At-stops[i-1].At, first<<(i-1)
		t.Logf("stop %d came %s after the one before", i+1, gap)
		if late := p.At - max(created[i], stops[i-1].At+want); gap < want || late > 3*time.Second {
			t.Errorf("stop %d came %s after the one before and %s later than it might, want %s or more, and no later", i+1, gap, late, want)
		}
	}
	n.alive(keeper)
}

// A pod that was stopped, and is back in its back-off, hides no leak beside it.
func TestReturnedPodHidesNoLeak(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	leaky := n.pod(lab.PodSpec{Name: "leaky", Containers: leak(2048*mib, "200")})
	free := n.available(policy.AllocatableMemoryAvailable)
	const limit = 1024 * mib
	n.configure(config{
		hard: thresholds{policy.AllocatableMemoryAvailable: bytes(limit)},
		more: plenty + "[backoff]\nfirst = \"5m\"\n",
	})
	s := n.startWith(1)
	again := func(attempt uint32, size int64) *lab.RunningPod {
		spec := lab.PodSpec{Name: "again", UID: "11111111-2222-4333-8444-555555555555", Attempt: attempt, Containers: hog(size)}
		spec.Containers[0].Attempt = attempt
		return n.pod(spec)
	}
	first := again(0, free-limit/2)
	s.stopped("default/again")
	n.ended(first)
	second := again(1, free-limit+100*mib)
	n.hogs(second)
	n.until("its stop to be held back", func() bool {
		last := s.status().LastPass
		return last != nil && last.Held == guard.HeldBackoff
	})
	n.release(leaky)
	n.until("another stop", func() bool { return len(s.settled()) > 1 })
	if stops := s.stops(); len(stops) != 2 || stops[1].Stop.Pod != "default/leaky" {
		t.Errorf("stops %+v, want the second to be of default/leaky", stops)
	}
	n.ended(leaky)
	n.alive(second)
}

// A pod that leaks within its request ranks last. Where the stop of the first gives back little,
// it is the next one: it is seen to take what is left, and there is no time for the others.
func TestLeakWithinRequest(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	small := n.pod(lab.PodSpec{Name: "small", Containers: hog(4 * mib)})
	first := n.pod(lab.PodSpec{Name: "first", Containers: hog(8 * mib)})
	n.hogs(small)
	n.hogs(first)
	free := n.available(policy.AllocatableMemoryAvailable)
	const limit = 1024 * mib
	leaky := n.pod(lab.PodSpec{Name: "leaky", MemoryRequest: free, Containers: leak(free-200*mib, "500")})
	n.configure(config{
		hard: thresholds{policy.AllocatableMemoryAvailable: bytes(limit)},
		more: plenty,
	})
	s := n.startWith(3)
	n.release(leaky)
	n.until("two stops", func() bool { return len(s.settled()) > 1 })
	n.ended(leaky)
	n.ended(first)
	n.alive(small)
	stops := s.stops()
	if len(stops) != 2 || stops[0].Stop.Pod != "default/first" || stops[1].Stop.Pod != "default/leaky" {
		t.Fatalf("stops %+v, want default/first and default/leaky", stops)
	}
	if after := stops[1].At - stops[0].At; after >= 5*time.Second {
		t.Errorf("the second came after %s, when the first one's effect was no longer waited for", after)
	}
}

// bootTime is the time since boot, as passes have it.
func bootTime() time.Duration { return cgroup.BootTime() }

// What no stop relieves costs three pods and no more, whatever the budget.
func TestBreaker(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	var pods []*lab.RunningPod
	for i := range 6 {
		pods = append(pods, n.pod(lab.PodSpec{Name: fmt.Sprintf("innocent-%d", i), Containers: one("pause")}))
	}
	limit := n.available(policy.MemoryAvailable) - headroom
	n.configure(config{hard: thresholds{policy.MemoryAvailable: bytes(limit)}, more: plenty})
	s := n.startWith(len(pods))
	n.outsider(headroom + 500*mib)
	n.until("the alarm", func() bool { return len(s.status().Alarms) > 0 })
	n.until("the last stop to settle", func() bool { return len(s.status().InFlight) == 0 })
	alarm := s.status()
	n.until("the service to go on", func() bool { return s.status().Uptime-alarm.Uptime > 2*time.Second })
	if got := len(s.stops()); got != 3 {
		t.Errorf("%d pods were stopped, want 3", got)
	}
	st := s.status()
	if !slices.Contains(st.Budget.Breakers, policy.MemoryAvailable) || len(st.Alarms) != 1 || !strings.Contains(st.Alarms[0], policy.MemoryAvailable.String()) {
		t.Errorf("breakers %v, alarms %q, want those of memory.available", st.Budget.Breakers, st.Alarms)
	}
	if st.LastPass == nil || st.LastPass.Held != guard.HeldBreaker {
		t.Errorf("last pass %+v, want it held by the breaker", st.LastPass)
	}
	if a := n.criguard(n.args("status")...); a.code != 1 || !strings.Contains(a.out, "\nALARM ") {
		t.Errorf("exit code %d, want 1 and the alarm:\n%s", a.code, a.out)
	}
	if got := s.events(systemd.EventAlarm); len(got) != 1 {
		t.Errorf("told %d times: %q", len(got), got)
	}
}

// outsider takes memory outside of every pod until the end of the test.
func (n *node) outsider(size int64) {
	n.Helper()
	cmd := exec.CommandContext(context.Background(), built.workload, "hog", "-mib", fmt.Sprint(size/mib))
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}
