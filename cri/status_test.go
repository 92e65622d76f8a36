package cri_test

import (
	"testing"

	"github.com/criguard/criguard/cri/critest"
)

func TestStatus(t *testing.T) {
	for d, want := range map[critest.Dialect]string{critest.Containerd16: "registry.local/pause:1", critest.Containerd2: "", critest.CRIO: "registry.local/pause:1"} {
		t.Run(d.String(), func(t *testing.T) {
			_, c := serve(t, d)
			if got, err := c.Status(t.Context()); err != nil || got.SandboxImage != want {
				t.Errorf("status = %+v, %v", got, err)
			}
		})
	}
}
