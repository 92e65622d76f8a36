package node

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// Unlisted searches for unlisted pod cgroups, such as a pod that has just started, or for a disk signal for
// unmeasured pods. largest is the most that one of them uses; an unreadable one may use any amount. found
// excludes confirmed unlisted cgroups, such as another runtime's: they would force a re-list before every
// kill.
func (n *Node) Unlisted(pods []inventory.Pod, s policy.Signal) (largest int64, found bool) {
	if s.IsDisk() {
		return n.opt.Meter.Unmeasured(pods)
	}
	root := n.PodsCgroup()
	if root == "" {
		return 0, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.Now()
	maps.DeleteFunc(n.confirmed, func(_ string, u unlisted) bool { return now-u.since > confirmedFor })
	n.found, n.prior = n.prior[:0], n.found
	known := cgroupsOf(pods)
	for _, rel := range n.suspects(root) {
		if known[rel] && n.opt.Layout.CountsBelow(rel) || !n.mayRun(rel) || n.isListed(rel, pods) {
			delete(n.confirmed, rel)
			continue
		}
		u := unlisted{rel: rel, running: n.unlistedIn(rel), since: math.MaxInt64}
		c, confirmed := n.confirmed[rel]
		largest, found = max(largest, n.peek(rel, s)), found || !confirmed || u.hasMore(&c)
		if i := slices.IndexFunc(n.prior, func(p unlisted) bool { return p.rel == rel }); i >= 0 && !u.hasMore(&n.prior[i]) {
			u.since = n.prior[i].since
		}
		n.found = append(n.found, u)
	}
	now = n.Now() // searching took time
	for i := range n.found {
		n.found[i].since = min(n.found[i].since, now)
	}
	return largest, found
}

// unlisted is a pod cgroup that is not listed, and since when each search has found it.
type unlisted struct {
	rel     string
	running []string // cgroups in it
	since   time.Duration
}

// hasMore reports whether more runs in it than before: its sandbox starts before its containers.
func (u *unlisted) hasMore(before *unlisted) bool {
	return slices.ContainsFunc(u.running, func(rel string) bool { return !slices.Contains(before.running, rel) })
}

// cgroupsOf returns the cgroups of pods.
func cgroupsOf(pods []inventory.Pod) map[string]bool {
	known := make(map[string]bool, len(pods))
	for i := range pods {
		known[pods[i].Cgroup] = true
	}
	return known
}

// confirmedFor is how long a confirmed unlisted cgroup does not force a re-list.
const confirmedFor = 10 * time.Second

// ConfirmUnlisted confirms the unlisted cgroups that the last search found beside a listing which began at that time, if an earlier
// search had found them: the listing did not include them. Other cgroups may still be listed.
func (n *Node) ConfirmUnlisted(listed time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.confirmed == nil {
		n.confirmed = map[string]unlisted{}
	}
	for _, u := range n.found {
		if c, ok := n.confirmed[u.rel]; (!ok || u.hasMore(&c)) && u.since <= listed {
			n.confirmed[u.rel] = unlisted{u.rel, u.running, n.Now()}
		}
	}
}

// isListed reports whether everything that runs in a pod cgroup belongs to listed sandboxes: to one without a
// running container, such as a crash-looping pod, or to several that share the cgroup.
func (n *Node) isListed(rel string, pods []inventory.Pod) bool {
	var owners []*inventory.Pod
	for i := range pods {
		if p := &pods[i]; p.Owns(rel) {
			owners = append(owners, p)
		}
	}
	return len(owners) > 0 && len(n.unlistedIn(rel, owners...)) == 0
}

// UnlistedIn returns the cgroups of a pod's unlisted containers that run, such as one that started after the
// listing, perhaps in place of a listed one.
func (n *Node) UnlistedIn(p inventory.Pod) []string {
	rel := cmp.Or(p.Cgroup, p.IdleCgroup)
	if rel == "" {
		return nil
	}
	return n.unlistedIn(rel, &p)
}

// unlistedIn returns the children of a pod's cgroup that belong to unlisted containers, or the cgroup itself if it cannot
// be read. The runtime's own processes for a sandbox or container are in the cgroup itself or in a child named after a
// listed ID. A process in any other child belongs to an unlisted container.
func (n *Node) unlistedIn(rel string, owners ...*inventory.Pod) (unlisted []string) {
	children, err := n.opt.Layout.Children(rel)
	if err != nil && !errors.Is(err, cgroup.ErrGone) {
		return []string{rel}
	}
	for _, name := range children {
		if slices.ContainsFunc(owners, func(p *inventory.Pod) bool { return p.OwnsCgroupNamed(name) }) {
			continue
		}
		if child := path.Join(rel, name); n.mayRun(child) {
			unlisted = append(unlisted, child)
		}
	}
	return unlisted
}

// mayRun reports whether a cgroup contains a process, or exists and cannot be read.
func (n *Node) mayRun(rel string) bool {
	populated, err := n.opt.Layout.Populated(rel)
	return populated || err != nil && !errors.Is(err, cgroup.ErrGone)
}

// peek reads an untracked cgroup's usage of the resource that the signal ranks by, see policy.Rank. If the
// usage is unknown, it returns math.MaxInt64.
func (n *Node) peek(rel string, s policy.Signal) int64 {
	u, err := n.tracker.Peek(rel)
	memory := s.Resource() == policy.ResourceMemory
	switch {
	case errors.Is(err, cgroup.ErrGone):
		return 0
	case memory && !n.opt.Layout.CountsBelow(rel):
		return math.MaxInt64
	case err == nil && memory && s.IsEvidence() && u.Memory >= 0:
		return u.Memory + max(u.Swap, 0)
	case err == nil && memory && u.Memory >= 0:
		return u.Memory
	case err == nil && !memory && u.PIDs >= 0:
		return u.PIDs
	default:
		return math.MaxInt64
	}
}

// qosParents returns the parents of pod cgroups: the pods cgroup itself and one for each QoS class below it.
func qosParents(pods string) []string {
	if base, ok := strings.CutSuffix(pods, ".slice"); ok {
		last := path.Base(base)
		return []string{pods, path.Join(pods, last+"-burstable.slice"), path.Join(pods, last+"-besteffort.slice")}
	}
	return []string{pods, path.Join(pods, "burstable"), path.Join(pods, "besteffort")}
}

// isPodCgroup reports whether a cgroup is a pod's, by its parents, which qosParents returns, and its name, with either cgroup
// driver. The slice of a QoS class repeats the name of the kubelet's cgroup root, which may be like a pod's.
func isPodCgroup(parents []string, rel string) bool {
	if !slices.Contains(parents, path.Dir(rel)) || slices.Contains(parents, rel) {
		return false
	}
	if base, ok := strings.CutSuffix(path.Base(rel), ".slice"); ok {
		return strings.Contains(base, "-pod")
	}
	return strings.HasPrefix(path.Base(rel), "pod")
}
