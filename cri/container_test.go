package cri_test

import (
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
)

func TestContainers(t *testing.T) {
	each(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
		pod := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{
			{Name: "app", Attempt: 2, Image: "registry.local/web:1", Grace: 5 * time.Second, Labels: map[string]string{"x": "y"}},
			{Name: "init", State: cri.Exited},
			{Name: "new", State: cri.Created},
		}})
		list, err := c.Containers(t.Context())
		if err != nil || len(list) != 3 {
			t.Fatalf("%d containers, %v", len(list), err)
		}
		app := list[0]
		if app.ID != pod.Containers[0].ID || app.SandboxID != pod.ID || app.Name != "app" || app.Attempt != 2 || app.State != cri.Running ||
			app.Image != "registry.local/web:1" || app.ImageRef == "" || app.Labels["x"] != "y" || app.CreatedAt.IsZero() {
			t.Errorf("container = %+v", app)
		}
		if grace, ok := app.GracePeriod(); grace != 5*time.Second || !ok {
			t.Errorf("grace period = %s, %t", grace, ok)
		}
		for i, want := range []cri.State{cri.Running, cri.Exited, cri.Created} {
			got, err := c.ContainerStatus(t.Context(), pod.Containers[i].ID)
			if err != nil || got.State != want || list[i].State != want {
				t.Errorf("state = %s, listed %s, want %s (%v)", got.State, list[i].State, want, err)
			}
		}
	})
}

func TestContainerDetail(t *testing.T) {
	each(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
		pod := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{
			MemoryLimit: 64 << 20, CPUShares: 512, OOMScoreAdj: 980,
			Mounts: []cri.Mount{{ContainerPath: "/etc/hosts", HostPath: "/k/pods/u/etc-hosts"}, {ContainerPath: "/data", Image: "data:1", ReadOnly: true}},
		}}})
		d, err := c.ContainerDetail(t.Context(), pod.Containers[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		if d.ID != pod.Containers[0].ID || d.SandboxID != pod.ID || d.PID == 0 || d.LogPath != pod.Containers[0].LogPath ||
			d.CgroupsPath != pod.Containers[0].Cgroup || d.StartedAt.IsZero() {
			t.Errorf("detail = %+v", d)
		}
		want := cri.Resources{
			MemoryLimit: cri.Number{Value: 64 << 20, Known: true}, CPUShares: cri.Number{Value: 512, Known: true},
			OOMScoreAdj: cri.Number{Value: 980, Known: true},
		}
		if d.Resources != want {
			t.Errorf("resources = %+v", d.Resources)
		}
		if len(d.Mounts) != 2 || d.Mounts[0].HostPath != "/k/pods/u/etc-hosts" || d.Mounts[1].Image != "data:1" || !d.Mounts[1].ReadOnly {
			t.Errorf("mounts = %+v", d.Mounts)
		}
	})
}

// TestResourcesWithoutStatus: if a runtime reports no resources in the status, the OCI spec has them.
func TestResourcesWithoutStatus(t *testing.T) {
	s, c := serve(t, critest.Containerd16)
	pod := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{MemoryLimit: 1 << 20}}})
	s.Inject(critest.Fault{Method: "ContainerStatus", Edit: func(resp any) {
		resp.(*runtimeapi.ContainerStatusResponse).Status.Resources = nil
	}})
	d, err := c.ContainerDetail(t.Context(), pod.Containers[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if d.Resources.MemoryLimit.Value != 1<<20 || d.Resources.OOMScoreAdj.Value != 1000 || d.Resources.CPUShares.Value != 2 {
		t.Errorf("resources = %+v", d.Resources)
	}
}

func TestSystemdPaths(t *testing.T) {
	for d, prefix := range map[critest.Dialect]string{critest.Containerd2: "cri-containerd", critest.CRIO: "crio"} {
		s, c := serve(t, d, critest.WithSystemdCgroups())
		pod := s.AddPod(critest.PodSpec{UID: "a-b", Containers: []critest.ContainerSpec{{}}})
		ctr := pod.Containers[0]
		detail, err := c.ContainerDetail(t.Context(), ctr.ID)
		if err != nil {
			t.Fatal(err)
		}
		if want := "kubepods-besteffort-poda_b.slice:" + prefix + ":" + ctr.ID; detail.CgroupsPath != want {
			t.Errorf("%s: cgroups path = %q, want %q", d, detail.CgroupsPath, want)
		}
		if want := "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice/" + prefix + "-" + ctr.ID + ".scope"; ctr.Cgroup != want {
			t.Errorf("%s: cgroup = %q, want %q", d, ctr.Cgroup, want)
		}
	}
}

func TestGracePeriod(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30": 30 * time.Second, "0": 0, "9223372036": 9223372036 * time.Second,
		"": -1, "-1": -1, "9223372037": -1, "99999999999999999999": -1, "30s": -1, "1.5": -1, " 3": -1,
	} {
		c := cri.Container{Annotations: map[string]string{"io.kubernetes.pod.terminationGracePeriod": text}}
		got, ok := c.GracePeriod()
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q = %s, %t", text, got, ok)
		}
	}
	if _, ok := (cri.Container{}).GracePeriod(); ok {
		t.Error("a container without annotations has a grace period")
	}
}

// The cgroup of a container's monitor ends in the container's ID, too.
func TestIsContainerCgroup(t *testing.T) {
	const id = "a1"
	for rel, want := range map[string]struct{ container, monitor bool }{
		"/p/a1": {true, false}, "/p/crio-a1": {true, false}, "/p/crio-a1.scope": {true, false}, "/p/cri-containerd-a1.scope": {true, false},
		"/p/crio-conmon-a1.scope": {false, true}, "/p/crio-conmon-a1": {false, true}, "/p/conmon-a1": {false, true},
		"/p/podb.slice:cri-containerd:a1": {true, false}, "/p/ba1": {false, false}, "/p/kata_a1": {false, false}, "/a1/p": {false, false}, "/p/crio-conmon-ba1": {false, false},
	} {
		if c, m := cri.IsContainerCgroup(rel, id), cri.IsMonitorCgroup(rel, id); c != want.container || m != want.monitor {
			t.Errorf("%s: container's %t, monitor's %t", rel, c, m)
		}
	}
	if cri.IsContainerCgroup("/p/", "") || cri.IsMonitorCgroup("/p/crio-conmon-", "") {
		t.Error("no ID names a cgroup")
	}
}

func TestStateString(t *testing.T) {
	for s, want := range map[cri.State]string{cri.Created: "created", cri.Running: "running", cri.Exited: "exited", cri.Unknown: "unknown", 99: "unknown"} {
		if s.String() != want {
			t.Errorf("%d = %q, want %q", s, s, want)
		}
	}
}

func BenchmarkContainerDetail(b *testing.B) {
	s := critest.New(b, critest.Containerd2)
	pod := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{MemoryLimit: 1 << 20}}})
	c := dial(b, s.Endpoint(), patience)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.ContainerDetail(b.Context(), pod.Containers[0].ID); err != nil {
			b.Fatal(err)
		}
	}
}
