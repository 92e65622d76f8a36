package live_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
	"github.com/criguard/criguard/test/lab"
)

// badHooks configures hooks that hang and ignore SIGTERM, that flood their output, and that do not
// exist. On start, the first two record the number of the pod's processes.
func (n *node) badHooks(timeout string, p *lab.RunningPod) string {
	all := fmt.Sprintf("[[hook]]\non = [\"condition\", \"stop\", \"alarm\"]\ntimeout = %q\ncommand = ", timeout)
	processes := filepath.Join(n.lab.MemoryCgroupDir(p.Containers[0].Cgroup), "cgroup.procs")
	start := func(name string) string {
		return fmt.Sprintf("cat %s 2>/dev/null | wc -l >> %s", processes, filepath.Join(n.dir, name))
	}
	return all + fmt.Sprintf("[\"/bin/sh\", \"-c\", %q]\n", start("hang")+"; trap '' TERM; while :; do sleep 1; done") +
		all + fmt.Sprintf("[\"/bin/sh\", \"-c\", %q]\n", start("flood")+"; trap '' PIPE; while :; do yes; done") +
		all + "[\"/no/such/hook\"]\n"
}

// Hooks that hang or flood delay neither a stop nor the end of the service.
func TestHooksDelayNoStop(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	leaky := n.pod(lab.PodSpec{Name: "leaky", Containers: leak(1024*mib, "800")})
	limit := n.available(policy.AllocatableMemoryAvailable) - headroom
	n.configure(config{
		// This condition begins at once, and its grace period of an hour prevents a stop.
		soft: thresholds{policy.NodeFSAvailable: "99.9%"}, grace: thresholds{policy.NodeFSAvailable: "1h"},
		hard: thresholds{policy.AllocatableMemoryAvailable: bytes(limit)},
		more: n.badHooks(hanging, leaky),
	})
	s := n.startWith(1)
	n.until("the hooks to run", func() bool { return len(starts(n, "hang")) == 1 && len(starts(n, "flood")) == 1 })
	n.leakUntilDead(leaky, limit)
	s.stopped("default/leaky")
	n.ended(leaky)
}

// No hook starts before the pressure is relieved. Then each hook runs once for each event, and its
// failure is logged and counted.
func TestHooksWaitForRelief(t *testing.T) {
	n := newNode(t, lab.Containerd2)
	leaky := n.pod(lab.PodSpec{Name: "leaky", Containers: leak(1024*mib, "800")})
	limit := n.available(policy.AllocatableMemoryAvailable) - headroom
	n.configure(config{hard: thresholds{policy.AllocatableMemoryAvailable: bytes(limit)}, more: n.badHooks("2s", leaky)})
	s := n.startWith(1)
	n.leakUntilDead(leaky, limit)
	s.stopped("default/leaky")
	for _, name := range []string{"hang", "flood"} {
		// One start for the condition and one for the stop.
		n.until("hook "+name+" to have been started twice", func() bool { return len(starts(n, name)) == 2 })
		if first := starts(n, name)[0]; first != "0" {
			n.Errorf("hook %s was started while %s processes of the pod ran", name, first)
		}
	}
	n.until("every failure to be told", func() bool { return len(s.events(systemd.EventHook)) >= 7 })
	out := n.criguard(n.args("metrics")...).Out
	for _, w := range []string{`event="condition",result="timeout"} 2`, `event="stop",result="timeout"} 2`, `event="stop",result="failed"} 1`} {
		if !strings.Contains(out, "criguard_hook_events_total{"+w+"\n") {
			t.Errorf("the metrics have no %s:\n%s", w, out)
		}
	}
}

// starts returns the number of the pod's processes at each start of a hook.
func starts(n *node, name string) []string {
	n.Helper()
	b, err := os.ReadFile(filepath.Join(n.dir, name))
	if err != nil && !os.IsNotExist(err) {
		n.Fatal(err)
	}
	return strings.Fields(string(b))
}
