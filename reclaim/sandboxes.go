package reclaim

import (
	"cmp"
	"slices"
	"strings"

	"github.com/criguard/criguard/cri"
)

// selectSandboxes selects sandboxes that are not ready and have no container, like the kubelet's
// garbage collector. The newest sandbox of a pod stays (an older one is eligible, whatever the state of
// the newest), unless the policy selects finished pods and the pod has no container left.
func selectSandboxes(inv inventory, p ContainerPolicy, seen *sightings, now Moment) selection {
	owned := make(map[string]bool, len(inv.Containers)) // sandboxes with a container
	peopled := make(map[string]bool, len(inv.Containers))
	for i, pod := range inv.podOf() {
		owned[inv.Containers[i].SandboxID] = true
		peopled[pod] = true
	}
	newest := make(map[string]cri.Sandbox, len(inv.Sandboxes))
	for _, b := range inv.Sandboxes {
		if top, ok := newest[podKey(b)]; !ok || newerSandbox(b, top) < 0 {
			newest[podKey(b)] = b
		}
	}
	var sel selection
	for _, b := range inv.Sandboxes {
		if b.Ready {
			continue
		}
		pod := podKey(b)
		it := Item{
			Kind: KindSandbox, ID: b.ID, Name: b.Namespace + "/" + b.Name,
			Age: Duration(seen.age(b.ID, b.CreatedAt, now)), Why: "dead and not the newest of its pod",
		}
		last := newest[pod].ID == b.ID
		switch {
		case owned[b.ID]:
			sel.keep(it, "has containers")
			continue
		case it.Age < Duration(p.MinAge):
			sel.keep(it, "younger than min_age")
			continue
		case last && peopled[pod]:
			sel.keep(it, "the last of a pod that has containers")
			continue
		case last && !p.finished(pod, seen, now):
			sel.keep(it, "the newest of its pod")
			continue
		case last:
			it.Why = "dead and its pod has finished"
		}
		sel.Remove = append(sel.Remove, it)
	}
	slices.SortFunc(sel.Remove, func(a, b Item) int {
		return cmp.Or(-cmp.Compare(a.Age, b.Age), strings.Compare(a.ID, b.ID))
	})
	slices.SortFunc(sel.Keep, func(a, b Item) int { return strings.Compare(a.ID, b.ID) })
	return sel
}

// newerSandbox orders the sandboxes of one pod, newest first. A ready one comes first whatever its
// timestamps: the pod runs in it.
func newerSandbox(a, b cri.Sandbox) int {
	ready := func(x cri.Sandbox) int {
		if x.Ready {
			return 1
		}
		return 0
	}
	return cmp.Or(-cmp.Compare(ready(a), ready(b)), -cmp.Compare(a.Attempt, b.Attempt),
		-a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
}
