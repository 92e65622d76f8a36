package scenario

import (
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// tasks returns the scenarios about processes and threads.
func tasks() []Scenario {
	return []Scenario{
		{
			Name: "fork-bomb", What: "a pod starts processes until there are no PIDs: it is stopped, nobody else",
			Profiles: []Profile{V2, V1, V2New},
			Run: func(n *Node) {
				n.Shell("sysctl -q -w kernel.pid_max=1200")
				if n.Profile.Systemd {
					// By default systemd limits a container to 15 % of the PIDs, which would
					// prevent the shortage.
					n.Write("/etc/systemd/system.conf.d/tasks.conf", "[Manager]\nDefaultTasksMax=infinity\n")
					n.Shell("systemctl daemon-reload")
				}
				n.Configure("[eviction.hard]\n\"pid.available\" = \"30%\"\n")
				p := n.Run(lab.PodSpec{Name: "bomb"}, "fork", "-count", "100000")
				n.Stopped(p, "hard", policy.PIDAvailable)
				n.Until("PIDs to be back", func() bool { return n.share(policy.PIDAvailable) > 40 })
			},
		},
	}
}
