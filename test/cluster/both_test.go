package cluster_test

import (
	"fmt"
	"testing"

	"github.com/criguard/criguard/test/cluster"
)

// With the thresholds of the kubelet and of criguard close to each other, a single pod is stopped for a
// leak: the kubelet evicts none besides.
func TestBothGuards(t *testing.T) {
	n := newNode(t)
	n.create(cluster.Workload("innocent", cluster.Resources{}, "hog", "-mib", "300"), leak("leaky", "Always"))
	summary, err := n.cluster.Summary(t.Context())
	n.check(err)
	n.check(n.cluster.Reconfigure(t.Context(), cluster.Options{
		EvictionHard: map[string]string{"memory.available": fmt.Sprint(summary.Node.Memory.AvailableBytes - headroom - 64*mib)},
	}))
	n.startGuard(2, "")
	for range 3 {
		n.leakUntilStopped("leaky")
		n.until("the pod to run again", func() bool { return n.pod("leaky").Runs() })
	}
	for name, p := range n.pods() {
		if p.Status.Reason != "" {
			t.Errorf("%s: %s", name, p.Status.Reason)
		}
	}
	n.untouched("leaky")
}

// 110 pods, the kubelet's default limit, and one that leaks: it is stopped, and no other.
func TestFullNode(t *testing.T) {
	n := newNode(t)
	pods := []cluster.Pod{leak("leaky", "Always")}
	for i := range 110 {
		// As the replicas of one owner are named.
		pods = append(pods, cluster.Workload(fmt.Sprintf("web-6d4cf56db6-%05d", i), cluster.Resources{}, "pause"))
	}
	n.create(pods...)
	n.startGuard(len(pods), "")
	n.leakUntilStopped("leaky")
	n.until("the pod to run again", func() bool { return n.pod("leaky").Runs() && n.pod("leaky").Restarts() > 0 })
	n.untouched("leaky")
}

// A leak in one replica of an owner costs that replica and not the others.
func TestReplica(t *testing.T) {
	n := newNode(t)
	n.create(leak("web-6d4cf56db6-aaaaa", "Always"), leak("web-6d4cf56db6-bbbbb", "Always"), leak("web-6d4cf56db6-ccccc", "Always"))
	n.startGuard(3, "")
	n.leakUntilStopped("web-6d4cf56db6-bbbbb")
	n.untouched("web-6d4cf56db6-bbbbb")
}
