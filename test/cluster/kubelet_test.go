package cluster_test

import (
	"maps"
	"testing"

	"github.com/criguard/criguard/test/cluster"
)

// A stop does not need the kubelet: it works while the kubelet is frozen or down. The kubelet then
// restarts the stopped pod, and no other.
func TestKubeletAway(t *testing.T) {
	n := newNode(t)
	n.create(cluster.Workload("innocent", cluster.Resources{}, "hog", "-mib", "100"), leak("frozen", "Always"), leak("down", "Always"))
	n.startGuard(3, "")
	for _, c := range []struct {
		name     string
		away, ok func() error
	}{
		{"frozen", n.cluster.PauseKubelet, n.cluster.ResumeKubelet},
		{"down", n.cluster.StopKubelet, func() error { return n.cluster.StartKubelet(t.Context()) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := n.on(t)
			before := n.containers()
			n.check(c.away())
			n.leakUntilStopped(c.name)
			if got := n.pod(c.name); !got.Runs() {
				t.Errorf("the kubelet reports %+v", got.Status)
			}
			n.listed(2) // the sandbox is stopped
			n.check(c.ok())
			defer func() {
				if t.Failed() {
					for name, p := range n.pods() {
						t.Logf("%s: %+v", name, p.Status)
					}
				}
			}()
			n.until("the pod to run again", func() bool { return n.pod(c.name).Runs() && n.pod(c.name).Restarts() == 1 })
			after := n.containers()
			delete(before, c.name)
			delete(after, c.name)
			if !maps.Equal(before, after) {
				t.Errorf("other pods' containers were %v and are %v", before, after)
			}
			n.listed(3)
		})
	}
	n.untouched("frozen", "down")
}

// containers returns the IDs of the pods' containers, by pod.
func (n *node) containers() map[string]string {
	n.Helper()
	ids := map[string]string{}
	for name, p := range n.pods() {
		for _, c := range p.Status.ContainerStatuses {
			ids[name] += c.ContainerID
		}
	}
	return ids
}
