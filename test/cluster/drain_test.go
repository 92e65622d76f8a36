package cluster_test

import (
	"testing"

	"github.com/criguard/criguard/test/cluster"
)

// A drain beside a kubelet stops every pod that may be stopped, as often as the kubelet restarts it.
// Static pods stay. After undrain, all pods run again.
func TestDrain(t *testing.T) {
	n := newNode(t)
	job := cluster.Workload("never", cluster.Resources{}, "pause")
	job.Spec.RestartPolicy = "Never"
	n.check(n.cluster.CreateStaticPod(cluster.Workload("static", cluster.Resources{}, "pause")))
	n.create(job, cluster.Workload("one", cluster.Resources{}, "pause"), cluster.Workload("two", cluster.Resources{}, "pause"))
	static := "static-" + cluster.Node
	n.until("the static pod to run", func() bool { return n.pod(static).Runs() })
	n.startGuard(4, "")

	drain := n.guard.Run(n.guard.Args("drain", "--yes", "--grace", "1s", "--timeout", "20s")...)
	t.Logf("drain: exit code %d: %s%s", drain.Code, drain.Out, drain.Err)
	stopped := map[string]int{}
	for _, s := range n.stops() {
		stopped[s.Pod]++
	}
	t.Logf("stops by pod: %v", stopped)
	for _, name := range []string{"default/one", "default/two", "default/never"} {
		if stopped[name] == 0 {
			t.Errorf("%s was not stopped", name)
		}
	}
	if len(stopped) != 3 {
		t.Errorf("stopped %v, want three pods", stopped)
	}
	if a := n.guard.Run(n.guard.Args("undrain")...); a.Code != 0 {
		t.Fatalf("undrain: exit code %d: %s%s", a.Code, a.Out, a.Err)
	}
	n.until("the pods to run again", func() bool {
		pods := n.pods()
		return pods["one"].Runs() && n.outlivesStops(pods["one"]) && pods["two"].Runs() && n.outlivesStops(pods["two"]) && pods["never"].Status.Phase != "Running"
	})
	n.untouched("one", "two", "never")
	n.listed(3)
}
