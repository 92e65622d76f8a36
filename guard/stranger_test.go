package guard

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/policy"
)

// A pod of which no container runs is no stranger, though its sandbox has a process; one
// of which a container runs that was not listed is, and so is a pod that was not listed.
func TestStrangersWithoutContainers(t *testing.T) {
	root := filepath.Join(t.TempDir(), "cgroup")
	populate := func(rel, populated string) {
		t.Helper()
		dir := filepath.Join(root, rel)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"cgroup.controllers": "memory pids\n", "cgroup.events": "populated " + populated + "\nfrozen 0\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	populate("", "1")
	populate("kubepods", "1")
	populate("kubepods/besteffort", "1")
	populate("kubepods/besteffort/poduid-1", "1")
	populate("kubepods/besteffort/poduid-1/5and80c5", "1")
	populate("kubepods/besteffort/poduid-1/dead", "0")
	layout, err := cgroup.Detect(cgroup.Root(root), "/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	k := &nodeKernel{layout: layout, tracker: cgroup.NewTracker(layout), pods: "/kubepods"}
	pods := []Pod{{Candidate: policy.Candidate{ID: "5and80c5", UID: "uid-1"}}}
	if _, found := k.strangers(pods, policy.ResourceMemory); found {
		t.Error("a pod whose containers have ended is taken for a stranger")
	}
	if _, found := k.strangers(nil, policy.ResourceMemory); !found {
		t.Error("a pod that was not listed is not noticed")
	}
	populate("kubepods/besteffort/poduid-1/new", "1")
	if _, found := k.strangers(pods, policy.ResourceMemory); !found {
		t.Error("a container that was not listed is not noticed")
	}
}
