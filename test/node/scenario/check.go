package scenario

import "slices"

// tally is the state that a scenario must not change.
type tally struct {
	kernelKills int // OOM kills by the kernel since boot
	restarts    string
	pods        []string // what exists of pods: cgroups, shims, containers
}

func (n *Node) tally() tally {
	return tally{kernelKills: n.machine.KernelKills(), restarts: n.restarts(), pods: n.remains()}
}

// restarts returns how often systemd has restarted criguard.
func (n *Node) restarts() string { return n.Shell("systemctl show -p NRestarts criguard") }

// check runs at the end of every scenario. It checks that exactly the right pods are gone and that
// nothing else happened.
func (n *Node) check() {
	if kills := n.machine.KernelKills() - n.before.kernelKills; kills != n.kernelKills {
		n.Errorf("the kernel killed %d processes for want of memory, want %d", kills, n.kernelKills)
	}
	if now := n.restarts(); !n.ended && now != n.before.restarts {
		n.Errorf("criguard was restarted: %s before, %s now", n.before.restarts, now)
	}
	units := []string{"criguard", "containerd"}
	if n.api != nil {
		units = append(units, controlPlane...)
	}
	for _, unit := range units {
		if state := n.Shell("systemctl is-active " + unit + " || true"); state != "active" {
			n.Errorf("%s is %s", unit, state)
		}
	}
	n.wrongStops()
	for _, p := range n.pods {
		for i, c := range p.Containers {
			processes := n.machine.Processes(c.Cgroup)
			switch {
			case p.stopped && len(processes) > 0:
				n.Errorf("%s still has processes %v", p.ID(), processes)
			case !p.stopped && !p.removed && !slices.Contains(processes, p.pids[i]):
				n.Wrongf("%s does not run any more", p.ID())
			}
		}
	}
	n.Until("end of all stops", func() bool { return len(n.Status().InFlight) == 0 })
	if n.api != nil {
		n.checkCluster() // the kubelet removes pods, in its own time
		return
	}
	for _, p := range n.pods {
		if !p.standing && !p.removed {
			n.remove(p)
		}
	}
	left := n.remains()
	left = slices.DeleteFunc(left, func(s string) bool { return slices.Contains(n.before.pods, s) })
	if len(left) > 0 {
		n.Errorf("left over: %v", left)
	}
}

// wrongStops fails the scenario for each stop in the history that the scenario did not expect.
func (n *Node) wrongStops() {
	for _, s := range n.stops() {
		if i := slices.IndexFunc(n.pods, func(p *Pod) bool { return p.UID == s.UID }); i < 0 || !n.pods[i].stopped {
			n.Wrongf("%s was stopped, which nobody wanted: %s", s.Pod, s.Reason)
		}
	}
}

// remove removes a pod, like a kubelet after an eviction and deletion.
func (n *Node) remove(p *Pod) {
	p.removed = true
	if n.api != nil {
		n.deletePod(p)
		return
	}
	// A runtime that is recovering may need a retry.
	var err error
	if poll("", patience, func() bool { err = n.machine.RemovePod(n.context(), p.RunningPod); return err == nil }) != nil {
		n.Errorf("%v", err)
	}
}

// lives reports whether the pod's original processes are still running.
func (n *Node) lives(p *Pod) bool {
	for i, c := range p.Containers {
		if !slices.Contains(n.machine.Processes(c.Cgroup), p.pids[i]) {
			return false
		}
	}
	return true
}

// remains lists what exists of pods.
func (n *Node) remains() []string {
	found, err := n.machine.Remains()
	if err != nil {
		n.Fatalf("%v", err)
	}
	return found
}
