package cri_test

import (
	"math"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
)

// Nonsense from a runtime costs only the items that contain it.

func TestEmptyAnswers(t *testing.T) {
	s, c := serve(t, critest.Containerd2)
	s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{}}})
	s.Inject(critest.Fault{Edit: func(resp any) {
		if m, ok := resp.(interface{ Reset() }); ok {
			m.Reset()
		}
	}})
	ctx := t.Context()
	if v, err := c.Version(ctx); err != nil || v.EventsShareable() {
		t.Errorf("version = %+v, %v", v, err)
	}
	if st, err := c.Status(ctx); err != nil || st.SandboxImage != "" {
		t.Errorf("status = %+v, %v", st, err)
	}
	if list, err := c.Sandboxes(ctx); err != nil || len(list) != 0 {
		t.Errorf("sandboxes = %v, %v", list, err)
	}
	if list, err := c.Containers(ctx); err != nil || len(list) != 0 {
		t.Errorf("containers = %v, %v", list, err)
	}
	if list, err := c.Images(ctx); err != nil || len(list) != 0 {
		t.Errorf("images = %v, %v", list, err)
	}
	if a, b, err := c.ImageFilesystems(ctx); err != nil || len(a)+len(b) != 0 {
		t.Errorf("filesystems = %v, %v, %v", a, b, err)
	}
}

func TestStatusWithoutStatus(t *testing.T) {
	s, c := serve(t, critest.Containerd2)
	pod := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{}}})
	s.Inject(critest.Fault{Edit: func(resp any) {
		switch r := resp.(type) {
		case *runtimeapi.PodSandboxStatusResponse:
			r.Status = nil
		case *runtimeapi.ContainerStatusResponse:
			r.Status = nil
		case *runtimeapi.ContainerStatsResponse:
			r.Stats = nil
		}
	}})
	// An empty message is not an answer: it would read as a ready sandbox or a created container.
	_, err := c.Sandbox(t.Context(), pod.ID)
	wantOnly(t, err, cri.ErrRefused)
	_, err = c.SandboxDetail(t.Context(), pod.ID)
	wantOnly(t, err, cri.ErrRefused)
	_, err = c.ContainerStatus(t.Context(), pod.Containers[0].ID)
	wantOnly(t, err, cri.ErrRefused)
	_, err = c.ContainerDetail(t.Context(), pod.Containers[0].ID)
	wantOnly(t, err, cri.ErrRefused)
	if u, err := c.WritableLayer(t.Context(), pod.Containers[0].ID); err != nil || u != (cri.FsUsage{}) {
		t.Errorf("layer = %+v, %v", u, err)
	}
}

// TestStatusOfAnother: an answer about another object must not pass for the requested one.
func TestStatusOfAnother(t *testing.T) {
	s, c := serve(t, critest.Containerd2)
	pod := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{}}})
	s.Inject(critest.Fault{Edit: func(resp any) {
		switch r := resp.(type) {
		case *runtimeapi.PodSandboxStatusResponse:
			r.Status.Id = "another"
		case *runtimeapi.ContainerStatusResponse:
			r.Status.Id = "another"
		}
	}})
	_, err := c.SandboxDetail(t.Context(), pod.ID)
	wantOnly(t, err, cri.ErrRefused)
	_, err = c.ContainerStatus(t.Context(), pod.Containers[0].ID)
	wantOnly(t, err, cri.ErrRefused)
}

func TestHostileListings(t *testing.T) {
	s, c := serve(t, critest.CRIO)
	pod := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{}}})
	s.Inject(critest.Fault{Edit: func(resp any) {
		switch r := resp.(type) {
		case *runtimeapi.ListPodSandboxResponse:
			r.Items = append([]*runtimeapi.PodSandbox{{}, {State: 77}}, r.Items...)
			r.Items = append(r.Items, &runtimeapi.PodSandbox{Id: "odd", State: 77, CreatedAt: math.MinInt64})
		case *runtimeapi.ListContainersResponse:
			r.Containers = append([]*runtimeapi.Container{{}}, r.Containers...)
			r.Containers = append(r.Containers, &runtimeapi.Container{Id: "odd", State: 77, CreatedAt: math.MinInt64})
		case *runtimeapi.ListImagesResponse:
			r.Images = append([]*runtimeapi.Image{{}}, &runtimeapi.Image{Id: "odd", Size: math.MaxUint64, RepoTags: []string{"", ":", "@", "<none>:<none>"}})
		}
	}})
	sandboxes, err := c.Sandboxes(t.Context())
	if err != nil || len(sandboxes) != 2 || sandboxes[0].ID != pod.ID {
		t.Fatalf("sandboxes = %+v, %v", sandboxes, err)
	}
	if odd := sandboxes[1]; odd.Ready || !odd.CreatedAt.IsZero() {
		t.Errorf("sandbox = %+v", odd)
	}
	containers, err := c.Containers(t.Context())
	if err != nil || len(containers) != 2 || containers[0].ID != pod.Containers[0].ID {
		t.Fatalf("containers = %+v, %v", containers, err)
	}
	if odd := containers[1]; odd.State != cri.Unknown || !odd.CreatedAt.IsZero() {
		t.Errorf("container = %+v", odd)
	}
	images, err := c.Images(t.Context())
	if err != nil || len(images) != 1 || images[0].Size != 0 {
		t.Fatalf("images = %+v, %v", images, err)
	}
	if used := cri.InUse(images, cri.ImageNeeds(containers, nil, []string{"@", ":", "pause"})); len(used) > 1 {
		t.Errorf("in use = %v", used)
	}
}

func TestHostileDetails(t *testing.T) {
	s, c := serve(t, critest.Containerd2)
	pod := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{}}})
	s.Inject(critest.Fault{Edit: func(resp any) {
		switch r := resp.(type) {
		case *runtimeapi.PodSandboxStatusResponse:
			r.Info = map[string]string{"info": `{"pid":1,"config":{"log_directory":"../etc","linux":{"cgroup_parent":"/kubepods/../../x","resources":{"memory_limit_in_bytes":-5}}}}`}
		case *runtimeapi.ContainerStatusResponse:
			r.Info = map[string]string{"info": `{"pid":99999999999,"runtimeSpec":{"linux":{"cgroupsPath":"a.slice:..:b"},"process":{"oomScoreAdj":4000}}}`}
			r.Status.LogPath = "relative.log"
			r.Status.Resources.Linux = &runtimeapi.LinuxContainerResources{
				MemoryLimitInBytes: math.MinInt64, CpuShares: -1, CpuQuota: -1, OomScoreAdj: math.MaxInt64,
			}
		}
	}})
	d, err := c.SandboxDetail(t.Context(), pod.ID)
	if err != nil {
		t.Fatal(err)
	}
	if d.CgroupParent != "" {
		t.Errorf("sandbox detail = %+v", d)
	}
	if d.Name != pod.Name {
		t.Errorf("name = %q", d.Name)
	}
	ctr, err := c.ContainerDetail(t.Context(), pod.Containers[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	r := ctr.Resources
	if ctr.PID != 0 || ctr.CgroupsPath != "" || ctr.LogPath != "" || r.MemoryLimit.Known || r.CPUShares.Known || r.CPUQuota.Known || r.OOMScoreAdj.Known {
		t.Errorf("container detail = %+v", ctr)
	}
}
