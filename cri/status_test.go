package cri_test

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
)

func TestStatus(t *testing.T) {
	want := map[critest.Dialect]cri.Status{
		critest.Containerd16: {
			SandboxImage: "registry.local/pause:1", ContainerdRoot: "/var/lib/containerd",
			RootDir: "/var/lib/containerd/io.containerd.grpc.v1.cri", StateDir: "/run/containerd/io.containerd.grpc.v1.cri",
		},
		critest.Containerd2: {
			ContainerdRoot: "/var/lib/containerd",
			RootDir:        "/var/lib/containerd/io.containerd.grpc.v1.cri", StateDir: "/run/containerd/io.containerd.grpc.v1.cri",
		},
		critest.CRIO: {SandboxImage: "registry.local/pause:1"},
	}
	for _, d := range critest.Dialects() {
		t.Run(d.String(), func(t *testing.T) {
			_, c := serve(t, d)
			got, err := c.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got.SandboxImage != want[d].SandboxImage || got.ContainerdRoot != want[d].ContainerdRoot ||
				got.RootDir != want[d].RootDir || got.StateDir != want[d].StateDir {
				t.Errorf("status = %+v", got)
			}
			if ready, ok := got.Condition("RuntimeReady"); !ok || !ready.OK {
				t.Errorf("RuntimeReady = %+v, %t", ready, ok)
			}
			if network, ok := got.Condition("NetworkReady"); !ok || network.OK || network.Reason == "" {
				t.Errorf("NetworkReady = %+v, %t", network, ok)
			}
			if _, ok := got.Condition("None"); ok {
				t.Error("a condition nobody told")
			}
		})
	}
}

func TestCgroupDriver(t *testing.T) {
	for _, tc := range []struct {
		dialect critest.Dialect
		opts    []critest.Option
		want    string
	}{
		{critest.Containerd2, nil, "cgroupfs"},
		{critest.Containerd2, []critest.Option{critest.WithSystemdCgroups()}, "systemd"},
		{critest.CRIO, []critest.Option{critest.WithSystemdCgroups()}, "systemd"},
	} {
		_, c := serve(t, tc.dialect, tc.opts...)
		if got, err := c.CgroupDriver(t.Context()); err != nil || got != tc.want {
			t.Errorf("%s: %q, %v, want %q", tc.dialect, got, err, tc.want)
		}
	}
	t.Run("not told", func(t *testing.T) {
		_, c := serve(t, critest.Containerd16)
		_, err := c.CgroupDriver(t.Context())
		wantOnly(t, err, cri.ErrUnsupported)
	})
	for name, linux := range map[string]*runtimeapi.LinuxRuntimeConfiguration{"no Linux": nil, "unheard-of": {CgroupDriver: 42}} {
		t.Run(name, func(t *testing.T) {
			s, c := serve(t, critest.Containerd2)
			s.Inject(critest.Fault{Method: "RuntimeConfig", Edit: func(resp any) { resp.(*runtimeapi.RuntimeConfigResponse).Linux = linux }})
			_, err := c.CgroupDriver(t.Context())
			wantOnly(t, err, cri.ErrUnsupported)
		})
	}
}
