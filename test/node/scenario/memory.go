package scenario

import (
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// memory is about pods that leak.
func memory() []Scenario {
	return []Scenario{
		{
			Name: "leak-fast", What: "a BestEffort pod takes memory as fast as it can: it is stopped, nobody else",
			Profiles: []Profile{V2, V1, V2Small, V1Small, V2New, V1New},
			Run:      func(n *Node) { leak(n, "0") },
		},
		{
			Name: "leak-slow", What: "a BestEffort pod leaks 50 MiB a second: it is stopped, nobody else",
			Profiles: []Profile{V2, V1, V2Small, V1Small},
			Run:      func(n *Node) { leak(n, "50") },
		},
	}
}

// leak lets one pod take more than there is, at so many MiB a second.
func leak(n *Node, rate string) {
	leaky := n.Run(lab.PodSpec{Name: "leaky"}, "hog", "-mib", "4096", "-rate", rate)
	n.Stopped(leaky, policy.MemoryAvailable, "hard")
	if !n.Condition("MemoryPressure") {
		n.Errorf("no MemoryPressure after a stop for memory")
	}
	n.Until("memory to be back", func() bool { return n.Available(policy.MemoryAvailable) > 200<<20 })
}
