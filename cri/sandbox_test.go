package cri_test

import (
	"context"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
)

func TestSandboxes(t *testing.T) {
	each(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
		created := time.Now().Add(-time.Hour).Truncate(time.Microsecond)
		web := s.AddPod(critest.PodSpec{
			Name: "web", Namespace: "shop", UID: "u1", Attempt: 3, CreatedAt: created,
			Labels: map[string]string{"app": "web"}, Static: true,
		})
		s.AddPod(critest.PodSpec{Name: "done", NotReady: true})
		list, err := c.Sandboxes(t.Context())
		if err != nil || len(list) != 2 {
			t.Fatalf("%d sandboxes, %v", len(list), err)
		}
		one, err := c.Sandbox(t.Context(), web.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range []cri.Sandbox{list[0], one} {
			if got.ID != web.ID || got.Name != "web" || got.Namespace != "shop" || got.UID != "u1" || got.Attempt != 3 ||
				!got.Ready || !got.CreatedAt.Equal(created) ||
				got.Labels["app"] != "web" || got.Annotations["kubernetes.io/config.source"] != "file" {
				t.Errorf("sandbox = %+v", got)
			}
		}
		if list[1].Ready {
			t.Error("a sandbox that is down is ready")
		}
	})
}

func TestSandboxDetail(t *testing.T) {
	each(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
		pod := s.AddPod(critest.PodSpec{QoS: "Burstable", Containers: []critest.ContainerSpec{{MemoryLimit: 1 << 20, CPUShares: 100}}})
		d, err := c.SandboxDetail(t.Context(), pod.ID)
		if err != nil {
			t.Fatal(err)
		}
		if d.CgroupParent != pod.CgroupParent || d.CgroupParent != "/kubepods/burstable/pod"+pod.UID {
			t.Errorf("cgroup parent = %q, want %q", d.CgroupParent, pod.CgroupParent)
		}
		if d.Image != "registry.local/pause:1" {
			t.Errorf("image = %q", d.Image)
		}
	})
}

// TestIdentityFromLabels: a sandbox without metadata still belongs to a pod.
func TestIdentityFromLabels(t *testing.T) {
	s, c := serve(t, critest.Containerd2)
	pod := s.AddPod(critest.PodSpec{Name: "web", Namespace: "shop"})
	s.Inject(critest.Fault{Method: "ListPodSandbox", Edit: func(resp any) {
		resp.(*runtimeapi.ListPodSandboxResponse).Items[0].Metadata = nil
	}})
	list, err := c.Sandboxes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := list[0]; got.Name != "web" || got.Namespace != "shop" || got.UID != pod.UID {
		t.Errorf("sandbox = %+v", got)
	}
}

// TestFrozenShim: a frozen shim blocks only the verbose status of its own sandbox, and only on
// containerd.
func TestFrozenShim(t *testing.T) {
	each(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
		frozen, other := s.AddPod(critest.PodSpec{}), s.AddPod(critest.PodSpec{})
		defer s.FreezeShim(frozen.ID)()
		v, err := c.Version(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		limit := patience
		if v.IsContainerd() {
			limit = time.Second
		}
		soon, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		if _, err = c.SandboxDetail(soon, frozen.ID); v.IsContainerd() {
			wantOnly(t, err, cri.ErrTimeout)
		} else if err != nil {
			t.Error(err)
		}
		if _, err = c.SandboxDetail(t.Context(), other.ID); err != nil {
			t.Error(err)
		}
		if _, err = c.Sandbox(t.Context(), frozen.ID); err != nil {
			t.Error(err)
		}
	})
}

func BenchmarkSandboxes1000(b *testing.B) {
	s := critest.New(b, critest.Containerd2)
	for range 1000 {
		s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{}}})
	}
	c := dial(b, s.Endpoint(), patience)
	b.ReportAllocs()
	for b.Loop() {
		if list, err := c.Sandboxes(b.Context()); err != nil || len(list) != 1000 {
			b.Fatal(len(list), err)
		}
	}
}
