package live_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
	"github.com/criguard/criguard/test/lab"
)

const (
	// headroom is how far above its threshold memory is before a leak: of the node's memory,
	// other programs and the page cache may take some.
	headroom = 400 * mib
	// deadWithin is generous: on a quiet machine it takes 20 ms, most of it to give the
	// memory back.
	deadWithin = time.Second
)

// badHooks are programs that hang and take SIGTERM for nothing, that flood, and that
// are not there. The first two write down when they were started.
func badHooks(dir, timeout string) string {
	all := fmt.Sprintf("[[hook]]\non = [\"condition\", \"stop\", \"alarm\"]\ntimeout = %q\ncommand = ", timeout)
	started := func(name string) string { return "date +%s%N >> " + filepath.Join(dir, name) }
	return all + fmt.Sprintf("[\"/bin/sh\", \"-c\", %q]\n", started("hang")+"; trap '' TERM; while :; do sleep 1; done") +
		all + fmt.Sprintf("[\"/bin/sh\", \"-c\", %q]\n", started("flood")+"; trap '' PIPE; while :; do yes; done") +
		all + "[\"/no/such/hook\"]\n"
}

// A stop takes as long while hooks hang and flood as it does without any; and so
// does the service's end.
func TestHooksDelayNoStop(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	took := map[bool][]time.Duration{}
	for i := range 6 {
		hooked := i%2 == 1
		t.Run(fmt.Sprintf("%d hooked=%t", i, hooked), func(t *testing.T) {
			n := &node{T: t, lab: n.lab, client: n.client, endpoint: n.endpoint, dir: t.TempDir()}
			leaky := n.pod(lab.PodSpec{Name: "leaky", Containers: leak(1024*mib, "800")})
			// A condition that begins at once and asks for no stop for an hour.
			c := config{soft: thresholds{policy.NodeFSAvailable: "99.9%"}, grace: thresholds{policy.NodeFSAvailable: "1h"}}
			n.configure(c)
			limit := n.available(policy.MemoryAvailable) - headroom
			c.hard = thresholds{policy.MemoryAvailable: bytes(limit)}
			if hooked {
				c.more = badHooks(n.dir, "1m")
			}
			n.configure(c)
			s := n.startWith(1)
			if hooked {
				n.until("the hooks to run", func() bool { return len(starts(n, "hang")) == 1 && len(starts(n, "flood")) == 1 })
			}
			took[hooked] = append(took[hooked], n.leakUntilDead(leaky, limit))
			s.stopped("default/leaky")
			n.ended(leaky)
		})
	}
	without, with := middle(took[false]), middle(took[true])
	t.Logf("crossing to dead: %v without hooks, %v while they hang and flood", took[false], took[true])
	if with > 2*without+100*time.Millisecond {
		t.Errorf("dead %s after the crossing while hooks hang and flood, and %s without", with, without)
	}
}

// leakUntilDead lets a pod leak and returns how long after memory.available fell
// below limit its processes were dead.
func (n *node) leakUntilDead(p *lab.RunningPod, limit int64) time.Duration {
	n.Helper()
	layout, err := cgroup.Detect("/sys/fs/cgroup", "/proc")
	if err != nil {
		n.Fatal(err)
	}
	kernel, err := cgroup.OpenNode(layout, "")
	if err != nil {
		n.Fatal(err)
	}
	defer kernel.Close()
	var fds []unix.PollFd
	for _, pid := range n.pids(p.Containers[0].Cgroup) {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			n.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	if len(fds) == 0 {
		n.Fatalf("pod %s does not run", p.Name)
	}
	below := func() bool {
		info, err := kernel.MemInfo()
		if err != nil {
			n.Fatal(err)
		}
		m, err := kernel.Memory(info, 0)
		if err != nil {
			n.Fatal(err)
		}
		return info.Total-m.WorkingSet() < limit
	}
	if below() {
		n.Fatal("memory.available fell below the threshold before the leak: something else on this machine took the headroom")
	}
	n.release(p)
	var crossed time.Time
	for deadline := time.Now().Add(patience); len(fds) > 0; {
		if time.Now().After(deadline) {
			n.Fatalf("pod %s is not dead after %s", p.Name, patience)
		}
		if crossed.IsZero() && below() {
			crossed = time.Now()
		}
		// A pidfd is readable once the process has ended (pidfd_open(2)).
		switch ended, err := unix.Poll(fds[:1], 1); {
		case err != nil && err != unix.EINTR:
			n.Fatal(err)
		case ended > 0:
			fds = fds[1:]
		}
	}
	if crossed.IsZero() {
		crossed = time.Now() // it was dead before this process had looked
	}
	return time.Since(crossed)
}

func middle(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(d))[len(d)/2]
}

// No hook is started before the node is relieved; then each is, once for each event,
// and its failure is told and counted.
func TestHooksWaitForRelief(t *testing.T) {
	n := newNode(t, lab.Containerd2)
	leaky := n.pod(lab.PodSpec{Name: "leaky", Containers: leak(1024*mib, "800")})
	limit := n.available(policy.MemoryAvailable) - headroom
	n.configure(config{hard: thresholds{policy.MemoryAvailable: bytes(limit)}, more: badHooks(n.dir, "2s")})
	s := n.startWith(1)
	n.leakUntilDead(leaky, limit)
	dead := time.Now()
	s.stopped("default/leaky")
	for _, name := range []string{"hang", "flood"} {
		// The condition's event, and the stop's after it.
		n.until("hook "+name+" to have been started twice", func() bool { return len(starts(n, name)) == 2 })
		if first := starts(n, name)[0]; first.Before(dead) {
			n.Errorf("hook %s was started %s before the pod was dead", name, dead.Sub(first))
		}
	}
	n.until("every failure to be told", func() bool { return len(s.events(systemd.EventHook)) >= 7 })
	out := n.criguard(n.args("metrics")...).out
	for _, w := range []string{`event="condition",result="timeout"} 2`, `event="stop",result="timeout"} 2`, `event="stop",result="failed"} 1`} {
		if !strings.Contains(out, "criguard_hook_events_total{"+w+"\n") {
			t.Errorf("the metrics have no %s:\n%s", w, out)
		}
	}
}

// starts are the times that a hook has written down.
func starts(n *node, name string) (times []time.Time) {
	n.Helper()
	b, err := os.ReadFile(filepath.Join(n.dir, name))
	if err != nil && !os.IsNotExist(err) {
		n.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err != nil {
			n.Fatal(err)
		}
		times = append(times, time.Unix(0, ns))
	}
	return times
}
