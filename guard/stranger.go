package guard

import (
	"errors"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/policy"
)

// strangers looks for pod cgroups that the inventory does not have: a pod that
// has just started, of which the runtime was not asked yet. One that cannot be read
// may use anything.
func (k *nodeKernel) strangers(pods []Pod, r policy.Resource) (largest int64, found bool) {
	if k.pods == "" {
		return 0, false
	}
	known := make(map[string]bool, len(pods))
	for i := range pods {
		known[pods[i].Cgroup] = true
	}
	for _, parent := range qosParents(k.layout, k.pods) {
		names, err := k.layout.Children(parent)
		if err != nil {
			continue
		}
		for _, name := range names {
			rel := path.Join(parent, name)
			if !isPodCgroup(name) || known[rel] {
				continue
			}
			if populated, err := k.layout.Populated(rel); err == nil && populated && !k.isBare(rel, pods) {
				largest, found = max(largest, k.peek(rel, r)), true
			}
		}
	}
	return largest, found
}

// isBare tells whether a cgroup is that of a listed pod of which no container runs, as
// while one that crashes again and again is waited for. What the runtime itself runs
// for a sandbox is right in the pod's cgroup or in one that bears the sandbox's ID;
// anything else is a container that was not listed.
func (k *nodeKernel) isBare(rel string, pods []Pod) bool {
	i := slices.IndexFunc(pods, func(p Pod) bool { return len(p.Containers) == 0 && ownCgroup(rel, p.UID) })
	if i < 0 {
		return false
	}
	children, err := k.layout.Children(rel)
	if err != nil {
		return errors.Is(err, cgroup.ErrGone)
	}
	for _, name := range children {
		if strings.Contains(name, pods[i].ID) {
			continue
		}
		if populated, err := k.layout.Populated(path.Join(rel, name)); populated || err != nil && !errors.Is(err, cgroup.ErrGone) {
			return false
		}
	}
	return true
}

// peek reads what a cgroup uses that is not tracked.
func (k *nodeKernel) peek(rel string, r policy.Resource) int64 {
	u, err := k.tracker.Peek(rel)
	switch {
	case errors.Is(err, cgroup.ErrGone):
		return 0
	case err == nil && r == policy.ResourceMemory:
		return u.Memory
	case err == nil && u.PIDs >= 0:
		return u.PIDs
	default:
		return math.MaxInt64
	}
}

// qosParents are the cgroups that pod cgroups are in: the pods cgroup itself and
// one for each class below it.
func qosParents(_ cgroup.Layout, pods string) []string {
	if base, ok := strings.CutSuffix(pods, ".slice"); ok {
		last := path.Base(base)
		return []string{pods, path.Join(pods, last+"-burstable.slice"), path.Join(pods, last+"-besteffort.slice")}
	}
	return []string{pods, path.Join(pods, "burstable"), path.Join(pods, "besteffort")}
}

// isPodCgroup tells a pod's cgroup by its name, under either driver.
func isPodCgroup(name string) bool {
	if base, ok := strings.CutSuffix(name, ".slice"); ok {
		return strings.Contains(base, "-pod")
	}
	return strings.HasPrefix(name, "pod")
}
