package scenario

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// operators returns the scenarios about operators' use of the installed service: hooks, a pause, a
// drain.
func operators() []Scenario {
	return []Scenario{
		{
			Name: "hook", What: "a hook runs in the unit's sandbox, expendable, and delays no stop",
			Profiles: []Profile{V2},
			Run:      hook,
		},
		{
			Name: "pause", What: "a paused node keeps its pods through a restart of the service",
			Profiles: []Profile{V2},
			Run:      pause,
		},
		{
			Name: "drain", What: "a drain stops what may be stopped, and nobody else",
			Profiles: []Profile{V2},
			Run:      drain,
		},
	}
}

// hookScript records the hook's environment and what it may not do.
const hookScript = `read -r event
{
	echo "$event"
	echo "oom_score_adj $(cat /proc/self/oom_score_adj)"
	grep VmLck /proc/self/status
	echo "nice $(cut -d' ' -f19 /proc/self/stat)"
	touch /etc/forbidden 2>/dev/null && echo "wrote to /etc"
	setpriv --reuid 1 true 2>/dev/null && echo "became another user"
	systemd-run --quiet --wait true && echo "handed on"
} >> /run/criguard/hook.out
`

func hook(n *Node) {
	const script = "/usr/local/bin/on-event"
	n.Write(script, "#!/bin/sh\n"+hookScript)
	n.Shell("chmod 755 " + script)
	n.Configure("[[hook]]\non = \"stop\"\ncommand = [\"" + script + "\"]\n" +
		"[[hook]]\non = [\"condition\", \"stop\"]\ncommand = [\"/bin/sh\", \"-c\", \"trap '' TERM; while :; do sleep 1; done\"]\n")
	leaky := n.Run(lab.PodSpec{Name: "leaky"}, "hog", "-mib", "4096", "-rate", "0")
	n.Stopped(leaky, "hard", policy.MemoryAvailable, policy.AllocatableMemoryAvailable)
	var found string
	n.Until("the hook to have written", func() bool {
		b, err := os.ReadFile("/run/criguard/hook.out")
		found = string(b)
		return err == nil && strings.Contains(found, "handed on")
	})
	for _, want := range []string{`"event":"stop"`, `"pod":"default/leaky"`, "oom_score_adj 500\n", "VmLck:\t       0 kB\n", "nice 10\n"} {
		if !strings.Contains(found, want) {
			n.Errorf("the hook found no %q in\n%s", want, found)
		}
	}
	for _, never := range []string{"wrote to /etc", "became another user"} {
		if strings.Contains(found, never) {
			n.Errorf("the hook %s", never)
		}
	}
	if own := n.Shell("cat /proc/" + n.pid() + "/oom_score_adj"); own != "-999" {
		n.Errorf("the service's oom_score_adj is %s, want -999", own)
	}
}

func pause(n *Node) {
	n.Run(lab.PodSpec{Name: "spared"}, "hog", "-mib", "128")
	n.Shell("criguard pause --for 1h --reason 'new disk'")
	// The threshold is met, and the pods' stops relieve it.
	n.Configure(fmt.Sprintf("[eviction.hard]\n\"memory.available\" = \"%d\"\n", n.Available(policy.MemoryAvailable)+32<<20))
	n.Until("the pressure to be held back", func() bool { return n.Status().LastPass != nil && n.Status().LastPass.Held == "paused" })
	if text := n.Shell("systemctl show -p StatusText --value criguard"); !strings.Contains(text, "PAUSED until") || !strings.Contains(text, "new disk") {
		n.Errorf("systemctl status says %q", text)
	}
	if len(n.stops()) > 0 {
		n.Errorf("stopped %+v while paused", n.stops())
	}
	n.Shell("criguard resume")
	n.Until("a stop", func() bool { return len(n.stops()) > 0 })
	n.Shell("criguard pause --for 1h")
	n.Until("end of all stops", func() bool { return len(n.Status().InFlight) == 0 })
	// Which pods were stopped does not matter here.
	for _, s := range n.stops() {
		for _, p := range n.pods {
			p.stopped = p.stopped || p.UID == s.UID
		}
	}
}

func drain(n *Node) {
	n.Run(lab.PodSpec{Name: "stubborn"}, "ignore-term")
	n.Configure("[[protect]]\nname = \"guaranteed\"\n")
	kept := n.Run(lab.PodSpec{Name: "kept", Namespace: "kube-system"}, "pause")
	n.settled()
	begin := time.Now()
	for _, p := range n.pods {
		p.stopped = p != kept && p.Name != "guaranteed"
	}
	n.Shell("criguard drain --grace 2s --yes --timeout 2m")
	n.Sayf("drained %d pods in %s", len(n.pods)-2, time.Since(begin).Round(time.Millisecond))
	n.Shell("criguard undrain")
}
