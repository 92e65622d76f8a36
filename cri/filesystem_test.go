package cri_test

import (
	"math"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
)

func TestImageFilesystems(t *testing.T) {
	each(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
		s.SetImageFilesystem("/somewhere/images")
		images, containers, err := c.ImageFilesystems(t.Context())
		if err != nil || len(images) == 0 {
			t.Fatalf("%v, %v", images, err)
		}
		if fs := images[0]; fs.Mountpoint != "/somewhere/images" || !fs.Known || !fs.InodesKnown || fs.At.IsZero() {
			t.Errorf("image filesystem = %+v", fs)
		}
		v, err := c.Version(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if (len(containers) > 0) != v.IsCRIO() {
			t.Errorf("container filesystems = %+v", containers)
		}
	})
}

func TestWritableLayer(t *testing.T) {
	each(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
		pod := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{
			{WritableBytes: 4096, WritableInodes: 7}, {WritableBytes: 4096, WritableInodes: 7, Unsampled: true}, {},
		}})
		layer := func(i int) cri.FsUsage {
			t.Helper()
			u, err := c.WritableLayer(t.Context(), pod.Containers[i].ID)
			if err != nil {
				t.Fatal(err)
			}
			return u
		}
		if u := layer(0); !u.Known || !u.InodesKnown || u.UsedBytes != 4096 || u.InodesUsed != 7 || time.Since(u.At) > time.Minute {
			t.Errorf("layer = %+v", u)
		}
		v, err := c.Version(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if u := layer(1); v.IsContainerd() && (u.Known || u.InodesKnown || !u.At.IsZero()) {
			t.Errorf("a layer not sampled yet = %+v", u)
		}
		if u := layer(2); !u.Known || u.UsedBytes != 0 {
			t.Errorf("an empty layer = %+v", u)
		}
	})
}

// Only containerd is asked for the layers of exited containers: cri-dockerd measures no containers any more but those of the last list.
func TestExitedLayer(t *testing.T) {
	each(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
		pod := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{WritableBytes: 4096}}})
		if err := c.StopContainer(t.Context(), pod.Containers[0].ID, 0); err != nil {
			t.Fatal(err)
		}
		v, err := c.Version(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		u, err := c.ExitedLayer(t.Context(), pod.Containers[0].ID)
		if asked := len(s.Calls("ListContainerStats")) > 0; err != nil || asked != v.IsContainerd() || u.Known != asked {
			t.Errorf("%s: asked %t, %+v, %v", v, asked, u, err)
		}
	})
}

func TestFilesystemsHostile(t *testing.T) {
	s, c := serve(t, critest.Containerd2)
	pod := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{}}})
	huge, some := &runtimeapi.UInt64Value{Value: math.MaxUint64}, &runtimeapi.UInt64Value{Value: 5}
	for name, tc := range map[string]struct {
		layer *runtimeapi.FilesystemUsage
		want  cri.FsUsage
	}{
		"nothing":         {nil, cri.FsUsage{}},
		"no numbers":      {&runtimeapi.FilesystemUsage{Timestamp: 1}, cri.FsUsage{At: time.Unix(0, 1)}},
		"no inodes":       {&runtimeapi.FilesystemUsage{Timestamp: 1, UsedBytes: some}, cri.FsUsage{At: time.Unix(0, 1), UsedBytes: 5, Known: true}},
		"no bytes":        {&runtimeapi.FilesystemUsage{Timestamp: 1, InodesUsed: some}, cri.FsUsage{At: time.Unix(0, 1), InodesUsed: 5, InodesKnown: true}},
		"out of range":    {&runtimeapi.FilesystemUsage{Timestamp: 1, UsedBytes: huge, InodesUsed: huge}, cri.FsUsage{At: time.Unix(0, 1)}},
		"before time":     {&runtimeapi.FilesystemUsage{Timestamp: -1, UsedBytes: some}, cri.FsUsage{}},
		"relative path":   {&runtimeapi.FilesystemUsage{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "../x"}}, cri.FsUsage{}},
		"path to nowhere": {&runtimeapi.FilesystemUsage{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/" + strings.Repeat("x", 5000)}}, cri.FsUsage{}},
	} {
		t.Run(name, func(t *testing.T) {
			defer s.Inject(critest.Fault{Method: "ContainerStats", Edit: func(resp any) {
				resp.(*runtimeapi.ContainerStatsResponse).Stats.WritableLayer = tc.layer
			}})()
			got, err := c.WritableLayer(t.Context(), pod.Containers[0].ID)
			if err != nil {
				t.Fatal(err)
			}
			if !got.At.Equal(tc.want.At) {
				t.Errorf("at %s, want %s", got.At, tc.want.At)
			}
			got.At, tc.want.At = time.Time{}, time.Time{}
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}
