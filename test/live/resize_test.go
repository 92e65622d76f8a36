package live_test

import (
	"testing"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// The next listing shows an in-place resize of a running container: a Guaranteed pod's request is
// its new limit, and the container is the same.
func TestResize(t *testing.T) {
	onEach(t, func(n *node) {
		pod := n.pod(lab.PodSpec{Name: "resized", QoS: lab.Guaranteed, MemoryRequest: 64 * mib, MemoryLimit: 64 * mib, Containers: hog(16 * mib)})
		n.hogs(pod)
		n.configure(config{eviction: map[string]string{"interval": "1s"}})
		n.startWith(1)
		ranked := func() api.RankedView {
			n.Helper()
			r := ask[api.Ranking](n, "rank", "--signal", policy.MemoryAvailable.String())
			if !r.Live || len(r.Pods) != 1 {
				n.Fatalf("ranked %+v, want one pod, by the service", r)
			}
			return r.Pods[0]
		}
		if got := ranked(); got.Request != 64*mib || got.RequestSource != "memory limit" || got.QoS != "Guaranteed" || got.Over {
			n.Fatalf("before the resize: %+v", got)
		}
		for _, limit := range []int64{192 * mib, 96 * mib} {
			if err := n.lab.ResizeMemory(n.Context(), pod.Containers[0].ID, limit); err != nil {
				n.Fatal(err)
			}
			n.until("the new request", func() bool { return ranked().Request == limit })
		}
		n.alive(pod)
	})
}
