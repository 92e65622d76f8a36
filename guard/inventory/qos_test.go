package inventory

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/criguard/criguard/policy"
)

// adjBurstableMin is the least that the kubelet sets for a Burstable pod.
const adjBurstableMin = 3

// oomScoreAdj returns the value that the kubelet sets for a container. It depends on the pod's class,
// the container's memory request and the node's MemTotal in bytes, and on whether the pod's priority is
// system-node-critical.
func oomScoreAdj(qos policy.QoS, request, capacity int64, nodeCritical bool) int64 {
	switch {
	case nodeCritical || qos == policy.Guaranteed:
		return adjGuaranteed
	case qos == policy.BestEffort:
		return adjBestEffort
	case capacity <= 0 || request >= capacity:
		return adjBurstableMin
	}
	thousandths := 1000 * max(request, 0) / capacity
	return min(max(1000-thousandths, adjBurstableMin), adjBurstableMax)
}

func TestVectorsQOOMScoreAdj(t *testing.T) {
	const capacity = 4_000_000_000
	for _, v := range []struct {
		id                string
		qos               policy.QoS
		request, capacity int64
		critical          bool
		want              int64
	}{
		{"Q-none", policy.Burstable, 0, capacity, false, 999},
		{"Q-0.1%", policy.Burstable, 4_000_000, capacity, false, 999},
		{"Q-10%", policy.Burstable, 400_000_000, capacity, false, 900},
		{"Q-50%", policy.Burstable, 2_000_000_000, capacity, false, 500},
		{"Q-99.6%", policy.Burstable, 3_984_000_000, capacity, false, 4},
		{"Q-99.7%", policy.Burstable, 3_988_000_000, capacity, false, 3},
		{"Q-all", policy.Burstable, capacity, capacity, false, 3},
		{"Q-more-than-all", policy.Burstable, math.MaxInt64, capacity, false, 3},
		{"Q-guaranteed", policy.Guaranteed, 400_000_000, capacity, false, -997},
		{"Q-besteffort", policy.BestEffort, 0, capacity, false, 1000},
		{"Q-node-critical", policy.Burstable, 0, capacity, true, -997},
		{"Q-cpu-limit-only", policy.Burstable, 0, capacity, false, 999},
		{"Q-memory-limit-cpu-request", policy.Burstable, 0, 8_000_000_000, false, 999},
		{"Q-no-capacity", policy.Burstable, 5, 0, false, 3},
	} {
		t.Run(v.id, func(t *testing.T) {
			if got := oomScoreAdj(v.qos, v.request, v.capacity, v.critical); got != v.want {
				t.Errorf("got %d, want %d", got, v.want)
			}
		})
	}
}

func TestRequestFromOOMScoreAdj(t *testing.T) {
	for _, v := range []struct {
		adj, capacity, want int64
		ok                  bool
	}{
		{1000, 4e9, 0, true}, {999, 4e9, 0, true}, {998, 4e9, 8e6, true}, {900, 4e9, 4e8, true}, {500, 4e9, 2e9, true},
		{3, 4e9, 3_988_000_000, true}, {2, 4e9, 3_992_000_000, true}, {500, math.MaxInt64, math.MaxInt64/2 + 1, true},
		{1, 4e9, 0, false}, {0, 4e9, 0, false}, {-997, 4e9, 0, false}, {-998, 4e9, 0, false}, {-999, 4e9, 0, false},
		{1001, 4e9, 0, false}, {500, 0, 0, false}, {500, -1, 0, false},
	} {
		if got, ok := requestFromOOMScoreAdj(v.adj, v.capacity); got != v.want || ok != v.ok {
			t.Errorf("adj %d of %d: %d, %v; want %d, %v", v.adj, v.capacity, got, ok, v.want, v.ok)
		}
	}
	r := rand.New(rand.NewPCG(12, 0))
	for range 10_000 {
		capacity := 1 + r.Int64N(1<<50)
		request := r.Int64N(capacity)
		adj := oomScoreAdj(policy.Burstable, request, capacity, false)
		got, ok := requestFromOOMScoreAdj(adj, capacity)
		if !ok || got > request {
			t.Fatalf("%d of %d gives %d and back %d, %v", request, capacity, adj, got, ok)
		}
		if off := request - got; adj > adjBurstableMin && adj < adjBurstableMax && off > capacity/1000 {
			t.Fatalf("%d of %d is off by %d", request, capacity, off)
		}
		if adj > adjBurstableMin && adj < adjBurstableMax && oomScoreAdj(policy.Burstable, got, capacity, false) != adj {
			t.Fatalf("%d of %d is not the least for %d", got, capacity, adj)
		}
	}
}

func TestQoSFromCgroup(t *testing.T) {
	for path, want := range map[string]policy.QoS{
		"/kubepods/burstable/pod1b2c-3d":                                          policy.Burstable,
		"/kubepods/besteffort/pod1b2c-3d/0a1b":                                    policy.BestEffort,
		"/kubepods/pod1b2c-burstable":                                             policy.Guaranteed,
		"kubepods-burstable-pod1b2c_3d.slice":                                     policy.Burstable,
		"kubepods-besteffort-pod1b2c_3d.slice:cri-containerd:0a1b":                policy.BestEffort,
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b.slice": policy.Burstable,
		"/kubepods.slice/kubepods-pod1b2c_3d.slice/crio-0a1b.scope":               policy.Guaranteed,

		"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod1.slice": policy.BestEffort,

		"/pods.slice/pods-kubepods.slice/pods-kubepods-besteffort.slice/pods-kubepods-besteffort-pod1.slice": policy.BestEffort,
		"/pods.slice/pods-kubepods.slice/pods-kubepods-pod1.slice":                                           policy.Guaranteed,

		"/system.slice/kubepods/burstable/pod1": policy.Burstable,
		"/kubepods":                             policy.QoSUnknown,
		"/kubepods.slice":                       policy.QoSUnknown,
		"/kubepods/other/burstable":             policy.QoSUnknown,
		"/kubepods/burstable-pod1":              policy.Burstable,
		"/a-kubepods/b/burstable":               policy.QoSUnknown,
		"kubepods-other-burstable.slice":        policy.QoSUnknown,
		"":                                      policy.QoSUnknown,
		"/":                                     policy.QoSUnknown,
		"/burstable/pod1":                       policy.QoSUnknown,
		"/podman/kube":                          policy.QoSUnknown,
		"/default/mykubepods/burstable/pod1":    policy.QoSUnknown,
		"k8s.io/pod1":                           policy.QoSUnknown,
	} {
		if got := qosFromCgroup(path); got != want {
			t.Errorf("%q is %s, want %s", path, got, want)
		}
	}
}
