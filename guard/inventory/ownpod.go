package inventory

import (
	"os"
	"slices"
	"sync"

	"github.com/criguard/criguard/cgroup"
)

// ownPod locates criguard's own cgroup, so that criguard recognizes its own pod.
type ownPod struct {
	mu     sync.Mutex
	cgroup string                      // "" = not known
	list   func(string) ([]int, error) // lists the processes of a cgroup; nil = do not search
}

// findOwnPod finds criguard's own cgroup. If a container's namespaces hide it, contains searches the cgroups
// of the pods' containers until it finds criguard there.
func findOwnPod(l cgroup.Layout, proc cgroup.Proc) *ownPod {
	if cgroup.Namespaced(proc) {
		return &ownPod{list: l.Procs}
	}
	rel, _ := l.OfPID(os.Getpid()) // unknown = not in a pod
	return &ownPod{cgroup: rel}
}

// contains reports whether criguard runs in the pod.
func (o *ownPod) contains(p *Pod) bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := 0; i < len(p.Containers) && o.cgroup == "" && o.list != nil; i++ {
		rel := p.Containers[i].Cgroup
		if rel == "" || rel == "/" {
			continue // everything is below the root
		}
		// cgroup.procs never lists our PID for a process of another PID namespace.
		if pids, err := o.list(rel); err == nil && slices.Contains(pids, os.Getpid()) {
			o.cgroup = rel
		}
	}
	return p.holds(o.cgroup)
}
