package node

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/inventory"
)

// PodsCgroup returns the cgroup of all pods, "" if it is unknown.
func (n *Node) PodsCgroup() string {
	if rel := n.pods.Load(); rel != nil {
		return *rel
	}
	return ""
}

// outside reports whether a sandbox has a cgroup outside the pods cgroup, such as one that crictl created next to a kubelet's
// pods, or the virtual machine of a pod. Stopping it frees next to nothing in the pods cgroup. n.mu is held.
func (n *Node) outside(sandbox string) bool {
	pods, rels := n.PodsCgroup(), n.known[sandbox]
	return pods != "" && slices.ContainsFunc(rels, func(rel string) bool {
		below, ok := strings.CutPrefix(rel, strings.TrimSuffix(pods, "/"))
		return !ok || below != "" && below[0] != '/'
	})
}

// followPods learns the pods cgroup from the listed pods, unless it is configured: after a boot the kubelet creates it when it
// starts, and one that gets another cgroup driver leaves the old one behind. If the cgroup was removed and created again,
// followPods watches the new one. It retries a watch that failed, for lack of descriptors for example. Only the lister's goroutine
// calls it.
func (n *Node) followPods(pods []inventory.Pod) {
	rel := n.PodsCgroup()
	if n.opt.PodsCgroup == "" {
		if of := podsCgroupOf(pods, rel); of != rel {
			rel = of
			n.pods.Store(&rel)
		}
	}
	if rel == "" || n.waker == nil {
		return
	}
	inode, err := n.opt.Layout.Inode(rel)
	if err != nil || inode == n.podsInode {
		return
	}
	if n.opt.Layout.Version == cgroup.V2 {
		if err = n.waker.AddMemoryEvents(rel); err == nil {
			n.addWake("memory.events")
		}
	}
	if !n.watchPods() {
		return
	}
	n.addWake("pod cgroups")
	if err == nil || errors.Is(err, cgroup.ErrUnsupported) {
		n.podsInode = inode
	}
}

// podsCgroupOf returns the pods cgroup that the listed pods are in: the present one as long as one of them is in it or none is
// in another one.
func podsCgroupOf(pods []inventory.Pod, present string) string {
	other := ""
	for i := range pods {
		switch of := cgroup.PodsCgroupOf(pods[i].Cgroup); of {
		case "":
		case present:
			return present
		default:
			other = cmp.Or(other, of)
		}
	}
	return cmp.Or(other, present)
}

// watchPods watches the directories in which pod cgroups are created. Those of the QoS classes may appear
// later.
func (n *Node) watchPods() bool {
	rel := n.PodsCgroup()
	if rel == "" {
		return false
	}
	watched := false
	for _, parent := range qosParents(rel) {
		watched = n.waker.AddDir(parent) == nil || watched
	}
	return watched
}

func (n *Node) addWake(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Contains(n.wakes, what) {
		n.wakes = append(n.wakes, what)
	}
}

// Wakes lists what wakes the loop.
func (n *Node) Wakes() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append(slices.Clone(n.wakes), "timer")
}
