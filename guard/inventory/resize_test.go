package inventory

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/policy"
)

// factsWithLimits returns node facts in which the cgroups have the given memory limits.
func factsWithLimits(limits map[string]int64) *nodeFacts {
	return &nodeFacts{
		capacity: 16 << 30, resolve: cgroup.Layout{}.Resolve, memoryMin: noAmount, children: noChildren,
		memoryLimit: func(rel string) (int64, bool) { n, ok := limits[rel]; return n, ok },
	}
}

// An in-place resize changes a container's cgroup. The next listing has the new request, without another
// call to the runtime, which might hang.
func TestListerSeesResize(t *testing.T) {
	for _, qos := range []string{"Guaranteed", "Burstable"} {
		t.Run(qos, func(t *testing.T) {
			s := critest.New(t, critest.Containerd2)
			adj := map[string]int64{"Guaranteed": adjGuaranteed, "Burstable": 500}[qos]
			pod := s.AddPod(critest.PodSpec{QoS: qos, Containers: []critest.ContainerSpec{{MemoryLimit: 1 << 30, OOMScoreAdj: adj, CPUShares: 102}}})
			limits := map[string]int64{pod.Containers[0].Cgroup: 1 << 30}
			l := newTestLister(t, s, cgroup.Layout{})
			l.facts = *factsWithLimits(limits)
			request := func() int64 {
				t.Helper()
				inv := l.List(t.Context())
				if inv.Err != nil || len(inv.Pods) != 1 || inv.Pods[0].QoS.String() != qos {
					t.Fatalf("%+v", inv)
				}
				return inv.Pods[0].MemoryRequest
			}
			if got := request(); got != 1<<30 {
				t.Fatalf("before the resize the request is %d", got)
			}
			asked := len(s.Calls("ContainerStatus"))
			defer s.Inject(critest.Fault{Method: "ContainerStatus", Hang: true})()
			for _, limit := range []int64{3 << 30, 512 << 20} {
				limits[pod.Containers[0].Cgroup] = limit
				if got := request(); got != limit {
					t.Errorf("resized to %d, the request is %d", limit, got)
				}
			}
			if again := len(s.Calls("ContainerStatus")); again != asked {
				t.Errorf("the runtime was asked %d times more", again-asked)
			}
		})
	}
}

// The cgroup's limit is used if the cgroup belongs to the container alone and its limit differs from the
// runtime's by more than the kernel's rounding.
func TestDerivePodLimit(t *testing.T) {
	const uid, leaf = "11111111-2222-3333-4444-555555555555", "/kubepods/pod11111111-2222-3333-4444-555555555555/c1"
	page := int64(os.Getpagesize())
	for name, tt := range map[string]struct {
		path    string
		told    int64 // by the runtime; 0 = not reported
		limits  map[string]int64
		request int64
		source  string
	}{
		"the same":                       {leaf, 4 * page, map[string]int64{leaf: 4 * page}, 4 * page, "memory limit"},
		"rounded by the kernel":          {leaf, 4*page + 1, map[string]int64{leaf: 4 * page}, 4*page + 1, "memory limit"},
		"resized":                        {leaf, 4 * page, map[string]int64{leaf: 8 * page}, 8 * page, "memory limit"},
		"no limit in the kernel":         {leaf, 4 * page, nil, 4 * page, "memory limit"},
		"not reported by the runtime":    {leaf, 0, map[string]int64{leaf: 8 * page}, 8 * page, "memory limit"},
		"of the pod alone":               {leaf, 0, map[string]int64{filepath.Dir(leaf): 9 * page}, 9 * page, "pod memory limit"},
		"nowhere":                        {leaf, 0, nil, 0, "unknown"},
		"of a cgroup of many containers": {"/kubepods/pod" + uid + "/all", 4 * page, map[string]int64{"/kubepods/pod" + uid + "/all": 8 * page}, 4 * page, "memory limit"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Default()
			res := cri.Resources{OOMScoreAdj: number(adjGuaranteed)}
			if tt.told > 0 {
				res.MemoryLimit = number(tt.told)
			}
			ctrs := []cri.ContainerDetail{{CgroupsPath: tt.path, Resources: res, Container: cri.Container{ID: "c1", State: cri.Running}}}
			p := derivePod(&cfg, listed{Sandbox: cri.Sandbox{ID: "s", UID: uid, Ready: true}, containers: ctrs, classified: ctrs}, factsWithLimits(maps.Clone(tt.limits)))
			if p.QoS != policy.Guaranteed || p.MemoryRequest != tt.request || p.RequestSource != tt.source {
				t.Errorf("%s, request %d from %q, want %d from %q", p.QoS, p.MemoryRequest, p.RequestSource, tt.request, tt.source)
			}
		})
	}
}
