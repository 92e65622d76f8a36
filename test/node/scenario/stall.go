package scenario

import (
	"path/filepath"
	"time"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// stalls returns the scenarios about stall time, which by itself is no reason to stop a pod.
func stalls() []Scenario {
	return []Scenario{
		{
			Name: "memory-stall", What: "a pod stalls on its own memory limit while the node has memory: it is said, nobody is stopped",
			Profiles: []Profile{V2},
			Run: func(n *Node) {
				n.Configure("[eviction.hard]\n\"memory.stall\" = \"70%\"\n")
				p := n.Run(lab.PodSpec{Name: "squeezed"}, "hog", "-mib", "400", "-rate", "40", "-after", "1s")
				n.Write(filepath.Join(n.lab.MemoryCgroupDir(p.Containers[0].Cgroup), "memory.high"), "64M")
				n.stalled(policy.MemoryStall)
			},
		},
		{
			Name: "io-stall", What: "a disk is slow while the node has memory: it is said, nobody is stopped",
			Profiles: []Profile{V2},
			Run: func(n *Node) {
				n.Configure("[eviction.hard]\n\"io.stall\" = \"70%\"\n")
				n.Shell("systemd-run -q -u slow -p IOReadBandwidthMax='/dev/vda 300K' dd if=/dev/vda of=/dev/null iflag=direct bs=256k")
				n.stalled(policy.IOStall)
				n.Shell("systemctl stop slow")
			},
		},
	}
}

// stalled waits until criguard sees a stall, and checks that it stops no pod for it.
func (n *Node) stalled(signal policy.Signal) {
	n.Until(signal.String()+" to be seen", func() bool { return n.share(signal) < 70 })
	n.NobodyStopped(5 * time.Second)
	n.Sayf("%s at %d%%, nobody stopped", signal, n.share(signal))
}
