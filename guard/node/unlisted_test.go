package node

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/policy"
)

// A listed pod without running containers is not unlisted, even if its sandbox has a process. A pod with an
// unlisted running container is, and so is a pod that was not listed itself.
func TestUnlistedWithoutContainers(t *testing.T) {
	k := kernelOn(t, map[string]string{"cgroup.controllers": "memory pids\n"})
	populate := func(rel, populated string) {
		t.Helper()
		nodetest.Write(t, k.opt.Layout.Dir("memory", rel), map[string]string{"cgroup.events": "populated " + populated + "\nfrozen 0\n"})
	}
	populate("kubepods/besteffort/poduid-1", "1")
	populate("kubepods/besteffort/poduid-1/5and80c5", "1")
	populate("kubepods/besteffort/poduid-1/dead", "0")
	pods := []inventory.Pod{{Candidate: policy.Candidate{ID: "5and80c5", UID: "uid-1"}}}
	if _, found := k.Unlisted(pods, policy.MemoryAvailable); found {
		t.Error("a pod whose containers have ended counts as unlisted")
	}
	before := k.Now()
	if _, found := k.Unlisted(nil, policy.MemoryAvailable); !found {
		t.Error("a pod that was not listed is not noticed")
	}
	k.ConfirmUnlisted(before)
	listed := k.Now()
	if _, found := k.Unlisted(nil, policy.MemoryAvailable); !found {
		t.Error("one that came while the runtime was asked is taken for one that no listing had")
	}
	k.ConfirmUnlisted(listed)
	if largest, found := k.Unlisted(nil, policy.MemoryAvailable); found || largest == 0 {
		t.Errorf("one that no listing had: %d bytes, asked for again: %t", largest, found)
	}
	populate("kubepods/besteffort/poduid-2", "1")
	if _, found := k.Unlisted(nil, policy.MemoryAvailable); !found {
		t.Error("another one beside it is not noticed")
	}
	k.confirmed["/kubepods/besteffort/poduid-1"] = unlisted{since: k.Now() - confirmedFor}
	k.confirmed["/kubepods/besteffort/poduid-2"] = unlisted{since: k.Now()}
	if _, found := k.Unlisted(nil, policy.MemoryAvailable); !found {
		t.Error("after a while it is not asked for again")
	}
	own := inventory.Pod{Candidate: policy.Candidate{ID: "5and80c5", UID: "uid-1"}, Cgroup: "/kubepods/besteffort/poduid-1",
		Containers: []inventory.Container{{ID: "dead"}, {ID: "c1"}}}
	populate("kubepods/besteffort/poduid-1/crio-conmon-c1", "1")
	if k.UnlistedIn(own) != nil {
		t.Error("what runs a listed container is taken for one that was not listed")
	}
	populate("kubepods/besteffort/poduid-1/new", "1")
	if got := k.UnlistedIn(own); !slices.Equal(got, []string{"/kubepods/besteffort/poduid-1/new"}) {
		t.Errorf("the container in place of a listed one: %q", got)
	}
	if gone := (inventory.Pod{Cgroup: "/kubepods/besteffort/podother"}); k.UnlistedIn(gone) != nil || k.UnlistedIn(inventory.Pod{}) != nil {
		t.Error("a pod without a cgroup has a container")
	}
	if _, found := k.Unlisted(pods, policy.MemoryAvailable); !found {
		t.Error("a container that was not listed is not noticed")
	}
}

// A pod that no listing had is asked for again once a container has started in it: a runtime lists a sandbox, and then its
// containers, later than their processes run.
func TestUnlistedPodGetsAContainer(t *testing.T) {
	sandbox := inventory.Pod{Candidate: policy.Candidate{ID: "pause", UID: "n"}}
	for name, pods := range map[string][]inventory.Pod{"not listed yet": nil, "listed without it": {sandbox}} {
		k := kernelOn(t, map[string]string{
			"cgroup.controllers": "memory pids\n", "kubepods/podn/cgroup.events": "populated 1\n", "kubepods/podn/pause/cgroup.events": "populated 1\n",
		})
		for range 2 {
			k.Unlisted(nil, policy.MemoryAvailable)
			k.ConfirmUnlisted(k.Now())
		}
		if _, found := k.Unlisted(pods, policy.MemoryAvailable); found {
			t.Errorf("%s: a sandbox that no listing had is asked for again", name)
		}
		nodetest.Write(t, k.opt.Layout.Dir("memory", "kubepods/podn/c1"), map[string]string{"cgroup.events": "populated 1\n"})
		before := k.Now() - 1
		for range 2 {
			if _, found := k.Unlisted(pods, policy.MemoryAvailable); !found {
				t.Errorf("%s: its first container is not noticed", name)
			}
			k.ConfirmUnlisted(before)
		}
	}
}

// The slice of a QoS class is not taken for a pod's, whatever the kubelet's cgroup root is called.
func TestUnlistedBelowACgroupRoot(t *testing.T) {
	k := kernelOn(t, map[string]string{"cgroup.controllers": "memory pids\n"})
	const root = "/my.slice/my-pods.slice/my-pods-kubepods.slice"
	const burstable = root + "/my-pods-kubepods-burstable.slice"
	const own = burstable + "/my-pods-kubepods-burstable-poduid_1.slice"
	for _, rel := range []string{root, burstable, own, own + "/cri-containerd-c1.scope"} {
		nodetest.Write(t, k.opt.Layout.Dir("memory", rel), map[string]string{"cgroup.events": "populated 1\nfrozen 0\n"})
	}
	k.pods.Store(new(root))
	pods := []inventory.Pod{{Candidate: policy.Candidate{ID: "s1", UID: "uid-1"}, Cgroup: own, Containers: []inventory.Container{{ID: "c1"}}}}
	if _, found := k.Unlisted(pods, policy.MemoryAvailable); found {
		t.Errorf("unlisted: %v", k.found)
	}
	if _, found := k.Unlisted(nil, policy.MemoryAvailable); !found || len(k.found) != 1 || k.found[0].rel != own {
		t.Errorf("with no pod listed: %v", k.found)
	}
}

// An unlisted pod cgroup that cannot be read may use any amount. One that was removed uses nothing.
func TestUnlistedUnreadable(t *testing.T) {
	k := kernelOn(t, map[string]string{
		"cgroup.controllers": "memory pids\n",
		// A directory in place of the file is unreadable even to root.
		"kubepods/podu/cgroup.events/x":    "",
		"kubepods/podu/memory.current/x":   "",
		"kubepods/podu/memory.stat":        "inactive_file 0\n",
		"kubepods/podgone/memory.current":  "100\n",
		"kubepods/podgone/memory.stat":     "inactive_file 0\n",
		"kubepods/podempty/cgroup.events":  "populated 0\n",
		"kubepods/podempty/memory.current": "100\n",
	})
	if largest, found := k.Unlisted(nil, policy.MemoryAvailable); largest != math.MaxInt64 || !found {
		t.Errorf("an unreadable one: %d, %t", largest, found)
	}
	if err := os.RemoveAll(k.opt.Layout.Dir("memory", "kubepods/podu")); err != nil {
		t.Fatal(err)
	}
	if largest, found := k.Unlisted(nil, policy.MemoryAvailable); largest != 0 || found {
		t.Errorf("a removed and an empty one: %d, %t", largest, found)
	}
}

// A kubelet that starts after criguard creates the pods cgroup. It may also be removed and created again.
func TestPodsCgroupComesLate(t *testing.T) {
	dir := nodetest.Files(t, map[string]string{"cgroup.controllers": "memory\n", "cgroup.events": "populated 1\n"})
	parent := filepath.Join(dir, "kubepods.slice")
	start := func() {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(parent, "kubepods-besteffort.slice", "kubepods-besteffort-podu.slice"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	layout, err := cgroup.Detect(cgroup.Root(dir), "/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	k := kernelIn(t, layout, "")
	if k.waker, err = cgroup.NewWaker(layout); err != nil {
		t.Fatal(err)
	}
	defer k.waker.Close()
	pods := []inventory.Pod{{Cgroup: "/machine.slice/other"}, {Cgroup: "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu.slice"}}
	k.Track(pods[:1])
	if rel := k.PodsCgroup(); rel != "" || slices.Contains(k.Wakes(), "pod cgroups") {
		t.Fatalf("without a pod in one: %q, wakes %q", rel, k.Wakes())
	}
	start()
	for range 2 {
		k.Track(pods)
		if rel := k.PodsCgroup(); rel != "/kubepods.slice" || !slices.Equal(k.Wakes(), []string{"pod cgroups", "timer"}) {
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

// exhausted is a waker that cannot watch some things, because the node has no descriptors left for example.
type exhausted struct {
	Waker
	events, dirs error
	added        int
}

func (w *exhausted) AddMemoryEvents(string) error    { w.added++; return w.events }
func (w *exhausted) AddDir(string) error             { return w.dirs }
func (w *exhausted) Changes(func(string, bool)) bool { return false }

// A watch of the pods cgroup that failed is tried again, and not again once it succeeds or if the kernel lacks it.
func TestPodsCgroupIsWatchedLate(t *testing.T) {
	k := kernelOn(t, map[string]string{"cgroup.controllers": "memory\n", "kubepods/cgroup.events": "populated 1\n"})
	unsupported := fmt.Errorf("watch: %w", cgroup.ErrUnsupported)
	w := &exhausted{}
	k.waker = w
	for _, step := range []struct {
		events, dirs error
		added        int
		wakes        string
	}{
		{unix.EMFILE, unix.EMFILE, 1, "timer"},
		{unix.EMFILE, nil, 2, "pod cgroups timer"},
		{nil, unix.EMFILE, 3, "pod cgroups memory.events timer"},
		{unsupported, nil, 4, "pod cgroups memory.events timer"},
		{unix.EMFILE, unix.EMFILE, 4, "pod cgroups memory.events timer"},
	} {
		w.events, w.dirs = step.events, step.dirs
		k.Track(nil)
		if got := strings.Join(k.Wakes(), " "); got != step.wakes || w.added != step.added {
			t.Errorf("%v, %v: wakes %q after %d attempts, want %q after %d", step.events, step.dirs, got, w.added, step.wakes, step.added)
		}
	}
}

// A kubelet that gets another cgroup driver leaves its old pods cgroup behind, empty, and criguard may have found only that one.
// It follows the listed pods once none is left in the old one. A configured pods cgroup stays.
func TestPodsCgroupAfterAChangeOfDriver(t *testing.T) {
	const before, after = "/kubepods/besteffort/poda", "/kubepods.slice/kubepods-podb.slice"
	pod := func(cgroups ...string) (pods []inventory.Pod) {
		for _, rel := range cgroups {
			pods = append(pods, inventory.Pod{Candidate: policy.Candidate{ID: rel}, Cgroup: rel, Containers: make([]inventory.Container, 1)})
		}
		return pods
	}
	files := map[string]string{"cgroup.controllers": "memory pids\n"}
	for _, rel := range []string{before, after} {
		files[rel+"/memory.current"], files[rel+"/memory.stat"] = "100\n", "inactive_file 0\n"
	}
	for configured, want := range map[string]string{"": "/kubepods.slice", "/kubepods": "/kubepods"} {
		k := kernelOn(t, files)
		k.opt.PodsCgroup = configured
		for _, listed := range [][]inventory.Pod{nil, pod("/machine.slice/other"), pod(before), pod(after, before)} {
			if k.Track(listed); k.PodsCgroup() != "/kubepods" {
				t.Errorf("configured %q: %q with a pod left there, or without any", configured, k.PodsCgroup())
			}
		}
		moved := pod("/machine.slice/other", after)
		if k.Track(moved); k.PodsCgroup() != want {
			t.Errorf("configured %q: %q, want %q", configured, k.PodsCgroup(), want)
		}
		cs := inventory.Candidates(moved)
		if k.Measure(cs); cs[1].Apart != (configured != "") {
			t.Errorf("configured %q: the pod is apart: %t", configured, cs[1].Apart)
		}
	}
}

// The cgroup of two listed sandboxes is unlisted only if it contains a container of neither.
func TestUnlistedInASharedPodCgroup(t *testing.T) {
	files := map[string]string{"cgroup.controllers": "memory pids\n"}
	for _, rel := range []string{"kubepods", "kubepods/podu", "kubepods/podu/c1", "kubepods/podu/crio-c2.scope"} {
		files[rel+"/cgroup.events"] = "populated 1\n"
	}
	k := kernelOn(t, files)
	pods := []inventory.Pod{
		{Candidate: policy.Candidate{ID: "s1", UID: "u"}, Containers: []inventory.Container{{ID: "c1", Cgroup: "/kubepods/podu/c1"}}},
		{Candidate: policy.Candidate{ID: "s2", UID: "u"}, Containers: []inventory.Container{{ID: "c2", Cgroup: "/kubepods/podu/crio-c2.scope"}}},
	}
	if _, found := k.Unlisted(pods, policy.MemoryAvailable); found {
		t.Error("the cgroup of listed sandboxes counts as an unlisted pod")
	}
	if _, found := k.Unlisted(pods[:1], policy.MemoryAvailable); !found {
		t.Error("a container of a sandbox that is not listed goes unnoticed")
	}
}

// A cgroup belongs to a container if its name ends in the container's whole ID; a name that merely contains
// the ID does not count. In a pod that was listed without containers, as between two attempts, each one counts as unlisted.
func TestUnlistedByWholeIDs(t *testing.T) {
	files := map[string]string{"cgroup.controllers": "memory pids\n"}
	for _, rel := range []string{"poda/c1", "poda/crio-conmon-c1.scope", "poda/kata_s1", "podb/c1", "podb/c12"} {
		files["kubepods/"+rel+"/cgroup.events"] = "populated 1\n"
	}
	k := kernelOn(t, files)
	pod := inventory.Pod{Candidate: policy.Candidate{ID: "s1"}, Containers: []inventory.Container{{ID: "c1"}}, Cgroup: "/kubepods/poda"}
	if k.UnlistedIn(pod) != nil {
		t.Error("what runs a listed container is taken for one that was not listed")
	}
	if pod.Cgroup = "/kubepods/podb"; len(k.UnlistedIn(pod)) != 1 {
		t.Error("a container whose ID begins with a listed one's goes unnoticed")
	}
	if pod = (inventory.Pod{Candidate: pod.Candidate, IdleCgroup: "/kubepods/poda"}); len(k.UnlistedIn(pod)) == 0 {
		t.Error("a container that started in a pod without any goes unnoticed")
	}
}
