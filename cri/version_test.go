package cri_test

import (
	"testing"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
)

func TestVersion(t *testing.T) {
	for _, tc := range []struct {
		name, version string
		major, minor  int
		ok, shareable bool
	}{
		{"containerd", "1.6.20~ds1", 1, 6, true, false},
		{"containerd", "v1.7.27-k3s1", 1, 7, true, false},
		{"containerd", "2.4.2+unknown", 2, 4, true, true},
		{"containerd", "v2.0.0-rc.1", 2, 0, true, true},
		{"containerd", "3.0", 3, 0, true, true},
		{"containerd", "", 0, 0, false, false},
		{"containerd", "devel", 0, 0, false, false},
		{"containerd", "2", 0, 0, false, false},
		{"containerd", "2.", 0, 0, false, false},
		{"containerd", "-2.1", 0, 0, false, false},
		{"containerd", "99999999999999999999.1", 0, 0, false, false},
		{"containerd", "2.99999999999999999999", 0, 0, false, false},
		{"cri-o", "1.25.3", 1, 25, true, false},
		{"cri-o", "1.26.0", 1, 26, true, false},
		{"cri-o", "1.27.1-dev", 1, 27, true, false},
		{"cri-o", "1.28.0", 1, 28, true, true},
		{"CRI-O", "2.0.0", 2, 0, true, true},
		{"docker", "28.0.1", 28, 0, true, false},
	} {
		t.Run(tc.name+" "+tc.version, func(t *testing.T) {
			v := cri.Version{RuntimeName: tc.name, RuntimeVersion: tc.version}
			major, minor, ok := v.Release()
			if major != tc.major || minor != tc.minor || ok != tc.ok {
				t.Errorf("Release() = %d, %d, %t", major, minor, ok)
			}
			if v.EventsShareable() != tc.shareable {
				t.Errorf("EventsShareable() = %t", v.EventsShareable())
			}
		})
	}
}

func TestVersionOfDialects(t *testing.T) {
	each(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
		v, err := c.Version(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if v.IsCRIO() == v.IsContainerd() {
			t.Errorf("%s is CRI-O: %t, containerd: %t", v, v.IsCRIO(), v.IsContainerd())
		}
		if v.IsCRIO() && v.String() != "cri-o 1.37.0" {
			t.Errorf("String() = %q", v)
		}
	})
}
