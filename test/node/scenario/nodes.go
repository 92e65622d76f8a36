package scenario

import (
	"fmt"
	"time"

	"github.com/criguard/criguard/test/lab"
)

// Large is a node with room for as many pods as a kubelet allows.
var Large = Profile{Name: "v2-large", Cgroup: 2, Containerd: 1, MemoryMiB: 4096}

// nodes is about the node as a whole.
func nodes() []Scenario {
	return []Scenario{
		{
			Name: "reboot", What: "the node reboots: criguard is back by itself, with an empty history and a full budget, and guards",
			Profiles: []Profile{V2}, Limit: 5 * time.Minute,
			Run: func(n *Node) {
				if !n.Rebooted {
					n.Reboot()
				}
				n.settledRuntime()
				if stops := n.stops(); len(stops) > 0 {
					n.Errorf("the history has stops of before the reboot: %v", stops)
				}
				leak(n, lab.PodSpec{Name: "leaky"}, "200")
			},
		},
		{
			Name: "pods-110", What: "one of 110 pods leaks: it is stopped, nobody else",
			Profiles: []Profile{Large}, Limit: 15 * time.Minute,
			Run: func(n *Node) {
				const all = 110
				for i := len(n.pods); i < all-1; i++ {
					n.Run(lab.PodSpec{Name: fmt.Sprintf("pod-%d", i), MemoryRequest: 8 << 20}, "pause").standing = true
				}
				n.before.pods = n.remains()
				leak(n, lab.PodSpec{Name: "leaky"}, "0")
			},
		},
	}
}
