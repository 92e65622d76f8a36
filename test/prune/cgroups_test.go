package prune_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

// Without a kubelet, the service removes the cgroups that pods leave behind once they are min_age old, and no other.
func TestEmptyPodCgroupsGo(t *testing.T) {
	n := newNode(t, lab.Containerd2)
	text, err := os.ReadFile(n.Config())
	if err != nil {
		t.Fatal(err)
	}
	n.Configure(string(text) + "[containers]\nmin_age = \"0s\"\n")
	run := func(name string) *lab.RunningPod {
		return harness.RunPod(t, n.lab, lab.PodSpec{
			Name: name, Annotations: map[string]string{"kubernetes.io/config.source": ""}, // as if no kubelet had created it
			Containers: []lab.ContainerSpec{{Name: "main", Args: []string{"pause"}}},
		})
	}
	present := func(p *lab.RunningPod) bool {
		_, err := os.Stat(n.lab.MemoryCgroupDir(p.CgroupParent))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return err == nil
	}
	gone, stays := run("gone"), run("stays")
	n.Start()
	client := n.Client()
	n.Within(harness.Patience, "the runtime to answer", func() bool {
		st, err := client.Status(context.Background())
		return err == nil && st.Runtime.Up
	})
	if err := errors.Join(n.client.StopSandbox(t.Context(), gone.SandboxID), n.client.RemoveSandbox(t.Context(), gone.SandboxID)); err != nil {
		t.Fatal(err)
	}
	if !present(gone) {
		t.Fatal("the runtime removes the pod's cgroup itself, so this test shows nothing")
	}
	n.Within(harness.Patience, "the cgroup of a removed pod to go", func() bool { return !present(gone) })
	if !present(stays) {
		t.Error("the cgroup of a running pod is gone")
	}
}
