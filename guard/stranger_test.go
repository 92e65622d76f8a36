package guard

import (
	"os"
	"path/filepath"
	"slices"
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
	k := &nodeKernel{layout: layout, tracker: cgroup.NewTracker(layout)}
	kubepods := "/kubepods"
	k.pods.Store(&kubepods)
	pods := []Pod{{Candidate: policy.Candidate{ID: "5and80c5", UID: "uid-1"}}}
	if _, found := k.strangers(pods, policy.MemoryAvailable); found {
		t.Error("a pod whose containers have ended is taken for a stranger")
	}
	if _, found := k.strangers(nil, policy.MemoryAvailable); !found {
		t.Error("a pod that was not listed is not noticed")
	}
	k.Outlived()
	if _, found := k.strangers(nil, policy.MemoryAvailable); !found {
		t.Error("one that came while the runtime was asked is taken for one that no listing had")
	}
	k.Outlived()
	if largest, found := k.strangers(nil, policy.MemoryAvailable); found || largest == 0 {
		t.Errorf("one that no listing had: %d bytes, asked for again: %t", largest, found)
	}
	populate("kubepods/besteffort/poduid-2", "1")
	if _, found := k.strangers(nil, policy.MemoryAvailable); !found {
		t.Error("another one beside it is not noticed")
	}
	k.outlived["/kubepods/besteffort/poduid-1"] -= outlivedFor
	k.outlived["/kubepods/besteffort/poduid-2"] = k.Now()
	if _, found := k.strangers(nil, policy.MemoryAvailable); !found {
		t.Error("after a while it is not asked for again")
	}
	own := Pod{Candidate: policy.Candidate{ID: "5and80c5", UID: "uid-1"}, Cgroup: "/kubepods/besteffort/poduid-1",
		Containers: []PodContainer{{ID: "dead"}, {ID: "c1"}}}
	populate("kubepods/besteffort/poduid-1/crio-conmon-c1", "1")
	if k.HasUnlisted(own) {
		t.Error("what runs a listed container is taken for one that was not listed")
	}
	populate("kubepods/besteffort/poduid-1/new", "1")
	if !k.HasUnlisted(own) {
		t.Error("a container in place of a listed one is not noticed")
	}
	if gone := (Pod{Cgroup: "/kubepods/besteffort/podother"}); k.HasUnlisted(gone) || k.HasUnlisted(Pod{}) {
		t.Error("a pod without a cgroup has a container")
	}
	if _, found := k.strangers(pods, policy.MemoryAvailable); !found {
		t.Error("a container that was not listed is not noticed")
	}
}

// A kubelet that starts after the guard makes the pods cgroup, and one may be removed and
// made anew.
func TestPodsCgroupComesLate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cgroup")
	parent := filepath.Join(dir, "kubepods.slice")
	start := func() {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(parent, "kubepods-besteffort.slice", "kubepods-besteffort-podu.slice"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"cgroup.controllers": "memory\n", "cgroup.events": "populated 1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	layout, err := cgroup.Detect(cgroup.Root(dir), "/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	k := &nodeKernel{layout: layout, tracker: cgroup.NewTracker(layout)}
	if k.waker, err = cgroup.NewWaker(layout); err != nil {
		t.Fatal(err)
	}
	defer k.waker.Close()
	pods := []Pod{{Cgroup: "/machine.slice/other"}, {Cgroup: "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu.slice"}}
	k.Track(pods[:1])
	if rel := k.podsCgroup(); rel != "" || slices.Contains(k.Wakes(), "pod cgroups") {
		t.Fatalf("without a pod in one: %q, wakes %q", rel, k.Wakes())
	}
	start()
	for range 2 {
		k.Track(pods)
		if rel := k.podsCgroup(); rel != "/kubepods.slice" || !slices.Equal(k.Wakes(), []string{"pod cgroups", "timer"}) {
			t.Fatalf("found %q, wakes %q", rel, k.Wakes())
		}
		if err := os.Mkdir(filepath.Join(parent, "kubepods-podv.slice"), 0o755); err != nil {
			t.Fatal(err)
		}
		if w := <-k.waker.Wakes(); w != cgroup.WakePods {
			t.Fatalf("woken by %s", w)
		}
		if err := os.RemoveAll(parent); err != nil {
			t.Fatal(err)
		}
		k.Track(pods)
		start()
	}
}
