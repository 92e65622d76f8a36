package guard

import (
	"context"
	"errors"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/policy"
)

// strangers looks for pod cgroups that the inventory does not have: a pod that
// has just started, of which the runtime was not asked yet. One that cannot be read
// may use anything. Those that have outlived a listing a moment ago are not found again: one that
// stays, as another runtime's, would have the runtime asked before each kill. k.mu is held.
func (k *nodeKernel) strangers(pods []Pod, s policy.Signal) (largest int64, found bool) {
	root := k.podsCgroup()
	if root == "" {
		return 0, false
	}
	now := k.Now()
	maps.DeleteFunc(k.outlived, func(_ string, at time.Duration) bool { return now-at > outlivedFor })
	k.found, k.prior = k.prior[:0], k.found
	known := make(map[string]bool, len(pods))
	for i := range pods {
		known[pods[i].Cgroup] = true
	}
	for _, parent := range qosParents(root) {
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
				_, outlived := k.outlived[rel]
				largest, found = max(largest, k.peek(rel, s)), found || !outlived
				k.found = append(k.found, rel)
			}
		}
	}
	return largest, found
}

// outlivedFor is how long a stranger is not asked for that was not listed afresh.
const outlivedFor = 10 * time.Second

// Outlived notes that the strangers that were found last, and the time before, were not listed afresh
// in between. What has come since then may be listed yet.
func (k *nodeKernel) Outlived() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.outlived == nil {
		k.outlived = map[string]time.Duration{}
	}
	for _, rel := range k.found {
		if _, ok := k.outlived[rel]; !ok && slices.Contains(k.prior, rel) {
			k.outlived[rel] = k.Now()
		}
	}
}

// isBare tells whether a cgroup is that of a listed pod of which no container runs, as
// while one that crashes again and again is waited for.
func (k *nodeKernel) isBare(rel string, pods []Pod) bool {
	i := slices.IndexFunc(pods, func(p Pod) bool { return len(p.Containers) == 0 && ownCgroup(rel, p.UID) })
	return i >= 0 && !k.hasUnlisted(rel, &pods[i])
}

// current gives a pod with the containers that run in it. One of which a container was
// started since the listing, perhaps in place of a listed one, is listed afresh: what would
// be killed is not what runs. It is nil for one that is gone or that may not be stopped.
// What runs in it and is not listed afresh either shields no pod: the runtime may know nothing
// of it for ever.
func (g *Guard) current(ctx context.Context, p Pod) *Pod {
	if !g.kernel.HasUnlisted(p) {
		return &p
	}
	pod := podByID(g.runtime.Inventory(ctx, true).Pods, p.ID)
	g.kernel.Observe(&g.obs) // listing took time
	if pod == nil || pod.Protection != "" {
		return nil
	}
	return pod
}

// HasUnlisted reports whether a container of the pod runs that was not listed: one that was
// started since, perhaps in place of a listed one.
func (k *nodeKernel) HasUnlisted(p Pod) bool { return p.Cgroup != "" && k.hasUnlisted(p.Cgroup, &p) }

// hasUnlisted looks into a pod's cgroup. What the runtime itself runs for a sandbox or a
// container is right in it or in one that bears an ID of theirs; anything else is a
// container that was not listed.
func (k *nodeKernel) hasUnlisted(rel string, p *Pod) bool {
	children, err := k.layout.Children(rel)
	if err != nil {
		return !errors.Is(err, cgroup.ErrGone)
	}
	for _, name := range children {
		if strings.Contains(name, p.ID) || slices.ContainsFunc(p.Containers, func(c PodContainer) bool { return strings.Contains(name, c.ID) }) {
			continue
		}
		if populated, err := k.layout.Populated(path.Join(rel, name)); populated || err != nil && !errors.Is(err, cgroup.ErrGone) {
			return true
		}
	}
	return false
}

// peek reads what a cgroup that is not tracked uses of what the signal ranks, see
// policy.Rank.
func (k *nodeKernel) peek(rel string, s policy.Signal) int64 {
	u, err := k.tracker.Peek(rel)
	memory := s.Resource() == policy.ResourceMemory
	switch {
	case errors.Is(err, cgroup.ErrGone):
		return 0
	case err == nil && s == policy.SwapAvailable && u.Swap >= 0:
		return u.Swap
	case err == nil && memory && s.IsStall() && u.Memory >= 0:
		return u.Memory + max(u.Swap, 0)
	case err == nil && memory && u.Memory >= 0:
		return u.Memory
	case err == nil && !memory && u.PIDs >= 0:
		return u.PIDs
	default:
		return math.MaxInt64
	}
}

// qosParents are the cgroups that pod cgroups are in: the pods cgroup itself and
// one for each class below it.
func qosParents(pods string) []string {
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
