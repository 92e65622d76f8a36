package scenario

import (
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// runtimes returns the scenarios about a container runtime that is unavailable when it is needed.
func runtimes() []Scenario {
	return []Scenario{
		{
			Name: "runtime-killed", What: "containerd is killed while a pod leaks: it is stopped, and the runtime is found again",
			Profiles: []Profile{V2, V1New},
			Run: func(n *Node) {
				p, let := n.primed()
				n.settled()
				n.Shell("systemctl kill -s KILL --kill-who=main containerd")
				let()
				n.relieved(p)
				n.settledRuntime()
			},
		},
		{
			Name: "runtime-hangs", What: "containerd is frozen while a pod leaks: it is stopped without it",
			Profiles: []Profile{V2, V1},
			Run: func(n *Node) {
				p, let := n.primed()
				n.settled()
				n.Shell("systemctl kill -s STOP --kill-who=main containerd")
				let()
				n.relieved(p)
				n.Shell("systemctl kill -s CONT --kill-who=main containerd")
				n.settledRuntime()
			},
		},
		{
			Name: "runtime-restarts", What: "containerd is restarted and a pod leaks right after: it is stopped, nobody else",
			Profiles: []Profile{V2},
			Run: func(n *Node) {
				n.Shell("systemctl restart containerd")
				n.Until("the runtime to serve", func() bool { return n.machine.Serves(n.context()) })
				leak(n, lab.PodSpec{Name: "leaky"}, "200")
			},
		},
		{
			Name: "runtime-missing", What: "criguard starts without a runtime: it is ready at once, watches memory, and finds the runtime when it comes",
			Profiles: []Profile{V2},
			Run: func(n *Node) {
				n.Shell("systemctl stop containerd && systemctl restart criguard")
				if s := n.Status(); s.Runtime.Up || n.Available(policy.MemoryAvailable) == 0 {
					n.Errorf("without a runtime: %+v", s.Runtime)
				}
				n.Shell("systemctl start containerd")
				n.settledRuntime()
				n.settled()
				leak(n, lab.PodSpec{Name: "leaky"}, "200")
			},
		},
	}
}

// settledRuntime waits until the runtime is active and criguard has reconnected. Until criguard has
// called it again, its status is the one from before.
func (n *Node) settledRuntime() {
	n.Until("containerd to be active", func() bool { return n.Shell("systemctl is-active containerd || true") == "active" })
	n.Until("the runtime to be found", func() bool { s, err := n.guard.Status(n.context()); return err == nil && s.Runtime.Up })
}
