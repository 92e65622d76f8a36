package cluster_test

import (
	"testing"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/test/cluster"
	"github.com/criguard/criguard/test/harness"
)

// The class, the memory request and the priority that criguard derives are those in the API. A static pod is no candidate.
// A critical pod would not be one either if the lab's runtime could lower oom_score_adj (see
// test/lab/config.go), from which criguard derives its priority.
func TestDerived(t *testing.T) {
	n := newNode(t)
	memory := func(amount string) map[string]string { return map[string]string{"memory": amount} }
	critical := cluster.Workload("critical", cluster.Resources{Requests: memory("40Mi")}, "pause")
	critical.Spec.PriorityClassName = "system-node-critical"
	two := cluster.Workload("two-containers", cluster.Resources{Requests: memory("70Mi"), Limits: memory("100Mi")}, "pause")
	two.Spec.Containers = append(two.Spec.Containers, cluster.Container{Name: "more", Args: []string{"pause"}, Resources: cluster.Resources{Requests: memory("30Mi")}})
	sidecar := cluster.Workload("sidecar", cluster.Resources{Requests: memory("60Mi")}, "pause")
	sidecar.Spec.InitContainers = []cluster.Container{
		{Name: "proxy", RestartPolicy: "Always", Args: []string{"pause"}, Resources: cluster.Resources{Requests: memory("20Mi")}},
		{Name: "setup", Args: []string{"exit"}, Resources: cluster.Resources{Requests: memory("30Mi")}},
	}
	n.check(n.cluster.CreateStaticPod(cluster.Workload("static", cluster.Resources{Requests: memory("50Mi")}, "pause")))
	n.create(
		cluster.Workload("guaranteed", cluster.Resources{Limits: map[string]string{"memory": "90Mi", "cpu": "100m"}}, "pause"),
		cluster.Workload("burstable", cluster.Resources{Requests: memory("123Mi")}, "pause"),
		cluster.Workload("cpu-only", cluster.Resources{Requests: map[string]string{"cpu": "50m"}}, "pause"),
		cluster.Workload("limit-only", cluster.Resources{Limits: memory("64Mi")}, "pause"),
		cluster.Workload("besteffort", cluster.Resources{}, "pause"),
		critical, two, sidecar,
	)
	mirror := "static-" + cluster.Node
	n.until("the static pod to run", func() bool { return n.pod(mirror).Runs() })

	ranked := map[string]api.RankedView{}
	for _, p := range harness.Ask[api.Ranking](n.guard, "rank").Pods {
		ranked[p.Pod] = p
	}
	pods := n.pods()
	if len(ranked) != len(pods) {
		t.Errorf("criguard ranks %d pods of %d", len(ranked), len(pods))
	}
	for name, p := range pods {
		got, ok := ranked["default/"+name]
		if !ok {
			t.Errorf("%s is not ranked", name)
			continue
		}
		want, err := p.MemoryRequest()
		n.check(err)
		if got.Request != want || got.QoS != p.Status.QOSClass {
			t.Errorf("%s: criguard derived request %d (%s), %s; the API has %d, %s", name, got.Request, got.RequestSource, got.QoS, want, p.Status.QOSClass)
		}
		if got.Priority != p.Spec.Priority && name != "critical" {
			t.Errorf("%s: criguard derived priority %d (%s); the API has %d", name, got.Priority, got.PrioritySource, p.Spec.Priority)
		}
		excluded := map[string]string{mirror: "static pod"}[name]
		if got.Excluded != excluded {
			t.Errorf("%s: excluded because of %q, want %q", name, got.Excluded, excluded)
		}
	}
	n.untouched()
}
