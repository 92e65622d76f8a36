package policy

import (
	"math"
	"testing"
)

func TestVectorsQOOMScoreAdj(t *testing.T) {
	const capacity = 4_000_000_000
	for _, v := range []struct {
		id                string
		qos               QoS
		request, capacity int64
		critical          bool
		want              int64
	}{
		{"Q-none", Burstable, 0, capacity, false, 999},
		{"Q-0.1%", Burstable, 4_000_000, capacity, false, 999},
		{"Q-10%", Burstable, 400_000_000, capacity, false, 900},
		{"Q-50%", Burstable, 2_000_000_000, capacity, false, 500},
		{"Q-99.6%", Burstable, 3_984_000_000, capacity, false, 4},
		{"Q-99.7%", Burstable, 3_988_000_000, capacity, false, 3},
		{"Q-all", Burstable, capacity, capacity, false, 3},
		{"Q-more-than-all", Burstable, math.MaxInt64, capacity, false, 3},
		{"Q-guaranteed", Guaranteed, 400_000_000, capacity, false, -997},
		{"Q-besteffort", BestEffort, 0, capacity, false, 1000},
		{"Q-node-critical", Burstable, 0, capacity, true, -997},
		{"Q-cpu-limit-only", Burstable, 0, capacity, false, 999},
		{"Q-memory-limit-cpu-request", Burstable, 0, 8_000_000_000, false, 999},
		{"Q-no-capacity", Burstable, 5, 0, false, 3},
	} {
		t.Run(v.id, func(t *testing.T) {
			if got := OOMScoreAdj(v.qos, v.request, v.capacity, v.critical); got != v.want {
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
		if got, ok := RequestFromOOMScoreAdj(v.adj, v.capacity); got != v.want || ok != v.ok {
			t.Errorf("adj %d of %d: %d, %v; want %d, %v", v.adj, v.capacity, got, ok, v.want, v.ok)
		}
	}
	r := source(12)
	for range 10_000 {
		capacity := 1 + r.Int64N(1<<50)
		request := r.Int64N(capacity)
		adj := OOMScoreAdj(Burstable, request, capacity, false)
		got, ok := RequestFromOOMScoreAdj(adj, capacity)
		if !ok || got > request {
			t.Fatalf("%d of %d gives %d and back %d, %v", request, capacity, adj, got, ok)
		}
		if off := request - got; adj > adjBurstableMin && adj < adjBurstableMax && off > capacity/1000 {
			t.Fatalf("%d of %d is off by %d", request, capacity, off)
		}
		if adj > adjBurstableMin && adj < adjBurstableMax && OOMScoreAdj(Burstable, got, capacity, false) != adj {
			t.Fatalf("%d of %d is not the least for %d", got, capacity, adj)
		}
	}
}

func TestVectorsQShares(t *testing.T) {
	for milli, want := range map[int64]int64{-5: 2, 0: 2, 1: 2, 100: 102, 1000: 1024, 256000: 262144, math.MaxInt64: 262144} {
		if got := CPUShares(milli); got != want {
			t.Errorf("%dm is %d shares, want %d", milli, got, want)
		}
	}
	for shares, want := range map[int64]int64{-1: 1, 0: 1, 2: 1, 102: 4, 1024: 39, 2048: 79, 262144: 10000, math.MaxInt64: 10000} {
		if got := CPUWeight(shares); got != want {
			t.Errorf("%d shares weigh %d, want %d", shares, got, want)
		}
	}
	for shares, want := range map[int64]int64{0: 0, 2: 0, 102: 100, 1024: 1000, 2048: 2000, 262144: 256000, math.MaxInt64: 256000} {
		if got := CPUMilli(shares); got != want {
			t.Errorf("%d shares are %dm, want %dm", shares, got, want)
		}
	}
	for milli := int64(3); milli <= 256_000; milli++ {
		if got := CPUMilli(CPUShares(milli)); got != milli {
			t.Fatalf("%dm and back is %dm", milli, got)
		}
	}
}

func TestVectorsQClass(t *testing.T) {
	type c = ContainerResources
	for _, v := range []struct {
		id         string
		containers []c
		want       QoS
	}{
		{"Q-nothing", []c{{}, {}}, BestEffort},
		{"Q-no-containers", nil, BestEffort},
		{"Q-only-cpu-request", []c{{CPURequest: 100}}, Burstable},
		{"Q-all-equal", []c{{100, 100, mi, mi}, {200, 200, gi, gi}}, Guaranteed},
		{"Q-one-without-limits", []c{{100, 100, mi, mi}, {}}, Burstable},
		{"Q-limits-above", []c{{100, 200, mi, mi}}, Burstable},
		{"Q-only-memory", []c{{MemoryRequest: mi, MemoryLimit: mi}}, Burstable},
		{"Q-limits-without-requests", []c{{CPULimit: 100, MemoryLimit: mi}}, Burstable},
		{"Q-sums-equal", []c{{100, 200, mi, mi}, {200, 100, mi, mi}}, Guaranteed},
		{"Q-negative", []c{{-1, -1, -1, -1}}, BestEffort},
	} {
		t.Run(v.id, func(t *testing.T) {
			if got := QoSFromResources(v.containers); got != v.want {
				t.Errorf("got %s, want %s", got, v.want)
			}
		})
	}
}

func TestQoSFromCgroupParent(t *testing.T) {
	for path, want := range map[string]QoS{
		"/kubepods/burstable/pod1b2c-3d":                                          Burstable,
		"/kubepods/besteffort/pod1b2c-3d/0a1b":                                    BestEffort,
		"/kubepods/pod1b2c-burstable":                                             Guaranteed,
		"kubepods-burstable-pod1b2c_3d.slice":                                     Burstable,
		"kubepods-besteffort-pod1b2c_3d.slice:cri-containerd:0a1b":                BestEffort,
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b.slice": Burstable,
		"/kubepods.slice/kubepods-pod1b2c_3d.slice/crio-0a1b.scope":               Guaranteed,
		"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod1.slice": BestEffort,
		"/system.slice/kubepods/burstable/pod1": Burstable,
		"/kubepods":                             QoSUnknown,
		"/kubepods.slice":                       QoSUnknown,
		"/kubepods/other/burstable":             QoSUnknown,
		"/kubepods/burstable-pod1":              Burstable,
		"/a-kubepods/b/burstable":               QoSUnknown,
		"kubepods-other-burstable.slice":        QoSUnknown,
		"":                                      QoSUnknown,
		"/":                                     QoSUnknown,
		"/burstable/pod1":                       QoSUnknown,
		"/podman/kube":                          QoSUnknown,
		"/default/mykubepods/burstable/pod1":    QoSUnknown,
		"k8s.io/pod1":                           QoSUnknown,
	} {
		if got := QoSFromCgroupParent(path); got != want {
			t.Errorf("%q is %s, want %s", path, got, want)
		}
	}
}
