package scenario

import (
	"fmt"
	"strings"
	"time"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// service returns the scenarios about faults of criguard itself.
func service() []Scenario {
	return []Scenario{
		{
			Name: "killed-mid-stop", What: "criguard is killed -9 in the middle of a stop: systemd starts it again, the stop is made, the budget is not refilled",
			Profiles: []Profile{V2},
			Run:      killedMidStop,
		},
		{
			Name: "watchdog", What: "criguard is frozen: systemd notices, ends it and starts it again, and it guards",
			Profiles: []Profile{V2}, Limit: 5 * time.Minute,
			Run: func(n *Node) {
				n.ended = true
				pid := n.pid()
				n.Shell("systemctl kill -s STOP --kill-who=main criguard")
				n.Within("another criguard", 2*time.Minute, func() bool { now := n.pid(); return now != pid && now != "0" })
				n.settled()
				leak(n, lab.PodSpec{Name: "leaky"}, "200")
			},
		},
		{
			Name: "reload", What: "a bad configuration is refused and a good one taken: a leak is stopped at the new threshold",
			Profiles: []Profile{V2},
			Run:      reload,
		},
		{
			Name: "clock", What: "the clock is set back ten years and a pod leaks: it is stopped, the budget and the pauses are as ever",
			Profiles: []Profile{V2, V1},
			Run: func(n *Node) {
				n.Shell("date -s '10 years ago'")
				leak(n, lab.PodSpec{Name: "leaky"}, "200")
			},
		},
	}
}

// pid returns criguard's process ID, or "0" if it is not running.
func (n *Node) pid() string { return n.Shell("systemctl show -p MainPID --value criguard") }

func killedMidStop(n *Node) {
	n.ended = true
	limit := n.Available(policy.MemoryAvailable) - 150<<20
	n.Configure(fmt.Sprintf("[eviction]\nmax_pod_grace_period = \"20s\"\n[eviction.soft]\n\"memory.available\" = \"%d\"\n"+
		"[eviction.soft_grace_period]\n\"memory.available\" = \"1s\"\n", limit))
	p := n.Run(lab.PodSpec{Name: "leaky"}, "hog", "-mib", "250", "-term-delay", "1h")
	n.Until("a stop to begin", func() bool { return len(n.Status().InFlight) > 0 })
	p.stopped = true
	before := n.Status().Budget
	n.Shell("systemctl kill -s KILL --kill-who=main criguard")
	n.Within("the pod to be gone", 90*time.Second, func() bool { return len(n.machine.Processes(p.Containers[0].Cgroup)) == 0 })
	n.Until("criguard to answer", func() bool { _, err := n.guard.Status(n.context()); return err == nil })
	if after := n.Status().Budget; after.Soft.LastHour < before.Soft.LastHour {
		n.Errorf("the budget was refilled: %+v before, %+v after", before, after)
	}
	n.Sayf("stopped %s all the same; the budget is kept", p.ID())
}

func reload(n *Node) {
	pid := n.pid()
	n.disarm("leaky")
	p := n.RunPod(primed("leaky", "hog", "-mib", "4096", "-rate", "40"))
	n.Write(configFile, "[eviction.hard]\n\"memory.available\" = \"lots\"\n")
	n.Shell("systemctl reload criguard")
	n.Until("the refusal", func() bool { return strings.Contains(n.Status().ConfigNote, "memory.available") })
	limit := n.Available(policy.MemoryAvailable)&^(1<<20-1) - 50<<20
	threshold := fmt.Sprintf("%dMi", limit>>20)
	n.Write(configFile, "[eviction.hard]\n\"memory.available\" = \""+threshold+"\"\n")
	n.Shell("systemctl reload criguard")
	n.Until("the new threshold", func() bool { return n.inForce(threshold) })
	n.arm(p.Name) // not before: a reload that meets a hard threshold at once is held
	stop := n.Stopped(p, "hard", policy.MemoryAvailable)
	if stop.Available > limit || stop.Available < limit-100<<20 {
		n.Errorf("stopped at %d bytes available, the new threshold is %d", stop.Available, limit)
	}
	if now := n.pid(); now != pid {
		n.Errorf("criguard was restarted by a reload")
	}
}
