package guard

import (
	"slices"
	"strings"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/policy"
)

// podsCgroup is the cgroup of all pods; "" = not known.
func (k *nodeKernel) podsCgroup() string {
	if rel := k.pods.Load(); rel != nil {
		return *rel
	}
	return ""
}

// ofPodsCgroup tells whether a signal is about the pods cgroup alone, not about the node.
func (k *nodeKernel) ofPodsCgroup(s policy.Signal) bool {
	return s == policy.AllocatableMemoryAvailable || s == policy.PIDAvailable && k.podsPIDs
}

// outside tells whether a sandbox has cgroups, and none of them in the pods cgroup, as
// one that crictl made beside a kubelet's: its stop gives nothing back there. k.mu is held.
func (k *nodeKernel) outside(sandbox string) bool {
	pods, rels := k.podsCgroup(), k.known[sandbox]
	return pods != "" && len(rels) > 0 && !slices.ContainsFunc(rels, func(rel string) bool {
		return strings.HasPrefix(rel+"/", strings.TrimSuffix(pods, "/")+"/")
	})
}

// followPods learns the pods cgroup from the pods in it, where there was none when the
// guard started, as after a boot: a kubelet makes it when it starts. One that was
// removed and made anew is watched anew. The lister's goroutine alone calls it.
func (k *nodeKernel) followPods(pods []Pod) {
	rel := k.podsCgroup()
	if rel == "" {
		for i := range pods {
			if rel = cgroup.PodsCgroupOf(pods[i].Cgroup); rel != "" {
				k.pods.Store(&rel)
				break
			}
		}
	}
	if rel == "" {
		return
	}
	if inode, err := k.layout.Inode(rel); err == nil && inode != k.podsInode {
		k.podsInode = inode
		k.watchPodsCgroup(rel)
	}
}

// watchPodsCgroup makes the pods cgroup wake the loop and the lister.
func (k *nodeKernel) watchPodsCgroup(rel string) {
	if k.waker == nil {
		return
	}
	if k.layout.Version == cgroup.V2 && k.waker.AddMemoryEvents(rel) == nil {
		k.addWake("memory.events")
	}
	if k.watchPods() {
		k.addWake("pod cgroups")
	}
}

// watchPods watches the directories that pod cgroups are made in; those of the
// classes may come later.
func (k *nodeKernel) watchPods() bool {
	rel := k.podsCgroup()
	if rel == "" || k.waker == nil {
		return false
	}
	watched := false
	for _, parent := range qosParents(rel) {
		watched = k.waker.AddDir(parent) == nil || watched
	}
	return watched
}

func (k *nodeKernel) addWake(what string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Contains(k.wakes, what) {
		k.wakes = append(k.wakes, what)
	}
}

// Wakes lists what wakes the loop.
func (k *nodeKernel) Wakes() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append(slices.Clone(k.wakes), "timer")
}
