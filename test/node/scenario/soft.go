package scenario

import (
	"fmt"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// soft returns the scenarios about soft thresholds.
func soft() []Scenario {
	return []Scenario{
		{
			Name: "soft-polite", What: "a soft threshold is met, and the pod ends on SIGTERM within its grace period",
			Profiles: []Profile{V2, V1New},
			Run: func(n *Node) {
				stop := softly(n, "hog", "-mib", "250")
				if stop.Result != nil && stop.Result.Method != "runtime" {
					n.Errorf("stopped by %s, want the runtime", stop.Result.Method)
				}
			},
		},
		{
			Name: "soft-stubborn", What: "a soft threshold is met, and the pod ignores SIGTERM: it is killed when the grace period is over",
			Profiles: []Profile{V2, V1New},
			Run: func(n *Node) {
				stop := softly(n, "hog", "-mib", "250", "-term-delay", "1h")
				if stop.Result != nil && time.Duration(stop.Result.EmptiedIn) < softGrace {
					n.Errorf("killed after %s, before its grace period of %s", stop.Result.EmptiedIn, softGrace)
				}
			},
		},
	}
}

const softGrace = 5 * time.Second

// softly starts a pod that meets a soft threshold, and returns its stop.
func softly(n *Node, args ...string) api.StopView {
	limit := n.Available(policy.MemoryAvailable) - 150<<20
	n.Configure(fmt.Sprintf("[eviction]\nmax_pod_grace_period = \"5s\"\n[eviction.soft]\n\"memory.available\" = \"%d\"\n"+
		"[eviction.soft_grace_period]\n\"memory.available\" = \"2s\"\n", limit))
	p := n.Run(lab.PodSpec{Name: "leaky"}, args...)
	return n.Stopped(p, "soft", policy.MemoryAvailable)
}
