package cluster_test

import (
	"testing"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/cluster"
)

// The signals are those of the kubelet, at rest and under load. The kubelet caches its statistics for up to
// 10 s, so both are read until they are close. The kubelet's memory.available leaves out the memory that the
// kernel itself uses; criguard counts it as used.
func TestSignals(t *testing.T) {
	n := newNode(t)
	n.create(cluster.Workload("quiet", cluster.Resources{}, "pause"))
	n.startGuard(1, "")
	n.compareSignals("at rest")
	n.create(
		cluster.Workload("memory", cluster.Resources{}, "hog", "-mib", "500"),
		cluster.Workload("disk", cluster.Resources{}, "fill", "-path", "/ctl/fill", "-mib", "300"),
		cluster.Workload("inodes", cluster.Resources{}, "inodes", "-dir", "/ctl", "-count", "20000"),
		cluster.Workload("tasks", cluster.Resources{}, "fork", "-count", "200"),
	)
	n.compareSignals("under load")
	n.untouched()
}

// compareSignals waits until criguard and the kubelet agree, and logs what both say.
func (n *node) compareSignals(when string) {
	n.Helper()
	type pair struct{ criguard, kubelet, most int64 }
	var pairs map[policy.Signal]pair
	defer func() {
		n.Logf("%s:", when)
		for _, s := range policy.Signals() {
			if p, ok := pairs[s]; ok {
				n.Logf("  %-24s criguard %15d  kubelet %15d  difference %d", s, p.criguard, p.kubelet, p.criguard-p.kubelet)
			}
		}
	}()
	n.until("criguard and the kubelet to agree "+when, func() bool {
		k, err := n.cluster.Summary(n.Context())
		n.check(err)
		kernel, err := cluster.KernelMemory()
		n.check(err)
		own := map[policy.Signal]api.SignalStatus{}
		status, err := n.guard.Client().Status(n.Context())
		n.check(err)
		for _, s := range status.Signals {
			own[s.Signal] = s
		}
		at := func(s policy.Signal, kubelet, most int64) pair { return pair{own[s].Available, kubelet, most} }
		node := k.Node
		pairs = map[policy.Signal]pair{
			policy.MemoryAvailable:      at(policy.MemoryAvailable, node.Memory.AvailableBytes-kernel, 256*mib),
			policy.PIDAvailable:         at(policy.PIDAvailable, node.Rlimit.MaxPID-node.Rlimit.CurProc, 100),
			policy.NodeFSAvailable:      at(policy.NodeFSAvailable, node.FS.AvailableBytes, 64*mib),
			policy.NodeFSInodesFree:     at(policy.NodeFSInodesFree, node.FS.InodesFree, 1000),
			policy.ImageFSAvailable:     at(policy.ImageFSAvailable, node.Runtime.ImageFS.AvailableBytes, 64*mib),
			policy.ContainerFSAvailable: at(policy.ContainerFSAvailable, node.Runtime.ContainerFS.AvailableBytes, 64*mib),
		}
		for _, p := range pairs {
			if difference := p.criguard - p.kubelet; max(difference, -difference) > p.most {
				return false
			}
		}
		return true
	})
}
