package node

import (
	"fmt"
	"os"
	"path"
	"testing"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/policy"
)

// indexed is a node on real cgroups.
type indexed struct {
	*Node
	*nodetest.Tree
	t *testing.T
}

// newIndexed creates a pods cgroup of this test's own with one QoS class below it.
func newIndexed(t *testing.T) *indexed {
	t.Helper()
	tree := nodetest.NewTree(t)
	k := &indexed{kernelIn(t, tree.Layout, tree.Root), tree, t}
	var err error
	if k.waker, err = cgroup.NewWaker(tree.Layout); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.waker.Close)
	return k
}

// list does what each listing does.
func (k *indexed) list(pods ...inventory.Pod) {
	k.Track(pods)
	k.Sweep(pods)
}

func (k *indexed) finds(what string, want bool, pods ...inventory.Pod) {
	k.t.Helper()
	if _, found := k.Unlisted(pods, policy.MemoryAvailable); found != want {
		k.t.Errorf("%s: found %t, want %t", what, found, want)
	}
}

// The search for unlisted pods costs the same however many empty pod cgroups there are.
func TestUnlistedSearchIsIndependentOfEmptyCgroups(t *testing.T) {
	k := newIndexed(t)
	cost := func() float64 {
		k.list()
		k.list()
		return testing.AllocsPerRun(20, func() { k.Unlisted(nil, policy.MemoryAvailable) })
	}
	none := cost()
	for i := range 200 {
		k.Mkdir(fmt.Sprintf("%s/besteffort/pod%d", k.Root, i))
	}
	if many := cost(); many > none+2 {
		t.Errorf("%v allocations with 200 empty cgroups, %v with none", many, none)
	}
	k.Mkdir(k.Root + "/besteffort/podnew/c")
	k.Process(k.Root + "/besteffort/podnew/c")
	k.finds("a pod beside them", true)
}

// Everything that enters an empty cgroup is found before the next listing.
func TestUnlistedInACgroupThatWasEmpty(t *testing.T) {
	for name, come := range map[string]func(k *indexed, pod string){
		"a container": func(k *indexed, pod string) {
			k.Mkdir(pod + "/c")
			k.Process(pod + "/c")
		},
		"a process in a container that was left": func(k *indexed, pod string) { k.Process(pod + "/left") },
		"a process in the pod cgroup itself":     func(k *indexed, pod string) { k.Process(pod) },
		"a pod in place of it": func(k *indexed, pod string) {
			k.RemoveAll(pod)
			k.Mkdir(pod + "/c")
			k.Process(pod + "/c")
		},
		"a pod of a class that had none": func(k *indexed, _ string) {
			k.Mkdir(k.Root + "/burstable/podx/c")
			k.Process(k.Root + "/burstable/podx/c")
		},
		"a pod in a class that was made again": func(k *indexed, pod string) {
			k.RemoveAll(path.Dir(pod))
			k.Mkdir(pod + "/c")
			k.Process(pod + "/c")
		},
		"a pod in a pods cgroup that was made again": func(k *indexed, pod string) {
			k.RemoveAll(k.Root)
			k.Mkdir(pod + "/c")
			k.Process(pod + "/c")
		},
		"a pod after events were lost": func(k *indexed, _ string) {
			for i := range 5000 { // more changes than the waker remembers
				dir := fmt.Sprintf("%s/podlost%d", k.Root, i)
				k.Mkdir(dir)
				if i < 4999 {
					k.RemoveAll(dir)
				}
			}
			k.Process(k.Root + "/podlost4999")
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newIndexed(t)
			pod := k.Root + "/besteffort/podu"
			k.Mkdir(pod + "/left")
			for range 2 {
				k.list()
			}
			k.finds("an empty cgroup", false)
			if k.index.mu.Lock(); len(k.index.quiet) != 1 || len(k.index.open) != 0 || !k.index.complete {
				t.Errorf("empty: %v, others: %v, complete %t", k.index.quiet, k.index.open, k.index.complete)
			}
			k.index.mu.Unlock()
			come(k, pod)
			k.finds("right after it came", true)
			k.list()
			k.finds("after a listing without it", true)
		})
	}
}

// After events were lost, no cgroup counts as empty until it has been checked again.
func TestEmptyCgroupsAreUnknownAfterALoss(t *testing.T) {
	k := newIndexed(t)
	const pods = recheckQuiet + 8
	pod := func(i int) string { return fmt.Sprintf("%s/besteffort/podu%d", k.Root, i) }
	for i := range pods {
		k.Mkdir(pod(i))
	}
	k.list()
	if n := len(k.index.quiet); n != pods {
		t.Fatalf("%d empty cgroups, want %d", n, pods)
	}
	for i := range 5000 { // more changes than the waker remembers
		dir := fmt.Sprintf("%s/podlost%d", k.Root, i)
		k.Mkdir(dir)
		k.RemoveAll(dir)
	}
	for i := range pods {
		k.Process(pod(i))
	}
	k.finds("right after the loss", true)
	for range 2 {
		k.list()
		if len(k.index.quiet) != 0 || len(k.index.open) != pods || !k.index.complete {
			t.Errorf("%d count as empty, %d others, complete %t", len(k.index.quiet), len(k.index.open), k.index.complete)
		}
	}
}

// A pod that ends is no longer listed. After the next listing its cgroup is known to be empty.
func TestCgroupOfAPodThatEnds(t *testing.T) {
	k := newIndexed(t)
	pod := k.Root + "/besteffort/podu"
	k.Mkdir(pod + "/c")
	end := k.Process(pod + "/c")
	listed := inventory.Pod{Candidate: policy.Candidate{ID: "s", UID: "u"}, Cgroup: pod, Containers: []inventory.Container{{ID: "c", Cgroup: pod + "/c"}}}
	k.list(listed)
	k.finds("a listed pod", false, listed)
	k.finds("one that the runtime has forgotten", true)
	k.list()
	k.finds("one that the runtime forgot before the listing", true)
	end()
	k.list()
	k.finds("one that has ended", false)
	if _, ok := k.index.quiet[pod]; !ok || len(k.index.open) != 0 {
		t.Errorf("empty: %v, others: %v", k.index.quiet, k.index.open)
	}
	k.RemoveAll(pod)
	k.finds("one that is gone", false)
	if len(k.index.quiet)+len(k.index.open) != 0 {
		t.Errorf("left of it: %v, %v", k.index.quiet, k.index.open)
	}
}

// A pod cgroup that is used again after it was chosen is kept.
func TestPodCgroupThatIsUsedAgainStays(t *testing.T) {
	k := newIndexed(t)
	pod := k.Root + "/podagain"
	k.Mkdir(pod)
	k.list()
	old := k.QuietFor(0)
	if len(old) != 1 {
		t.Fatalf("empty: %v", old)
	}
	k.Mkdir(pod + "/c") // a container that is about to start
	if err := k.RemoveQuiet(pod, old[pod]); err == nil {
		t.Error("removed")
	}
	if _, err := os.Stat(k.Dir(pod + "/c")); err != nil {
		t.Error(err)
	}
}

// A cgroup that the kernel refuses to remove is not empty, even if it was seen as empty.
func TestBusyCgroupIsNotEmpty(t *testing.T) {
	k := newIndexed(t)
	pod := k.Root + "/besteffort/podu"
	k.Mkdir(pod)
	k.list()
	since, ok := k.index.quiet[pod]
	if !ok {
		t.Fatal("it does not count as empty")
	}
	k.Process(pod)
	k.waker.Changes(func(string, bool) {}) // the event is lost
	if err := k.RemoveQuiet(pod, since); err == nil {
		t.Error("removed with a process in it")
	}
	k.finds("what kept it", true)
}

// No cgroup is removed as empty while events may be missing.
func TestNoQuietCgroupsAfterALoss(t *testing.T) {
	k := newIndexed(t)
	k.Mkdir(k.Root + "/podold")
	k.list()
	k.index.lose()
	if old := k.QuietFor(0); len(old) != 0 {
		t.Errorf("empty: %v", old)
	}
}
