package cluster_test

import (
	"strings"
	"testing"

	"github.com/criguard/criguard/test/cluster"
)

// A leaking pod is stopped, and no other. The kubelet restarts it or not, as its restartPolicy says,
// and its logs remain.
func TestLeak(t *testing.T) {
	n := newNode(t)
	n.create(
		cluster.Workload("besteffort", cluster.Resources{}, "hog", "-mib", "100"),
		cluster.Workload("burstable", cluster.Resources{Requests: map[string]string{"memory": "300Mi"}}, "hog", "-mib", "400"),
		cluster.Workload("guaranteed", cluster.Resources{Limits: map[string]string{"memory": "300Mi", "cpu": "100m"}}, "hog", "-mib", "200"),
		leak("always", "Always"), leak("onfailure", "OnFailure"), leak("never", "Never"),
	)
	n.startGuard(6, "")
	for _, name := range []string{"always", "onfailure", "never"} {
		t.Run(name, func(t *testing.T) {
			n := n.on(t)
			pod := n.leakUntilStopped(name)
			status := func() cluster.ContainerStatus { return n.pod(name).Status.ContainerStatuses[0] }
			if name == "never" {
				n.until("the pod to have failed", func() bool { return n.pod(name).Status.Phase == "Failed" })
				if got := status(); !got.State.Killed() || got.RestartCount != 0 {
					t.Errorf("pod has %+v", got)
				}
				if out := n.logs(name); !strings.Contains(out, "hog: begins") {
					t.Errorf("logs %q", out)
				}
				n.listed(5)
				return
			}
			n.again(pod)
			if got := status(); !got.LastState.Killed() {
				t.Errorf("pod has %+v", got)
			}
			if out := n.logs(name, "-p"); !strings.Contains(out, "hog: begins") {
				t.Errorf("logs of the stopped container: %q", out)
			}
			n.listed(6)
		})
	}
	n.untouched("always", "onfailure", "never")
	if stops := n.stops(); len(stops) != 3 {
		t.Errorf("stopped %+v, want three pods", stops)
	}
	n.removed()
}
