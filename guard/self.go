package guard

import (
	"os"
	"slices"
	"sync"

	"github.com/criguard/criguard/cgroup"
)

// ownPlace is where criguard itself runs, for its own pod to be known.
type ownPlace struct {
	mu     sync.Mutex
	cgroup string                      // "" = not known
	list   func(string) ([]int, error) // the processes of a cgroup; nil = they are not looked through
}

// findSelf finds criguard's own cgroup. Where the namespaces of a container hide it, it is
// looked for among the pods' containers, until it is found there.
func findSelf(l cgroup.Layout, proc cgroup.Proc) *ownPlace {
	if cgroup.Namespaced(proc) {
		return &ownPlace{list: l.Procs}
	}
	rel, _ := l.OfPID(os.Getpid()) // unknown = not in a pod
	return &ownPlace{cgroup: rel}
}

// in tells whether criguard runs in a pod.
func (o *ownPlace) in(p *Pod) bool {
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
		// In a cgroup's list a process of another PID namespace has no number that is ours.
		if pids, err := o.list(rel); err == nil && slices.Contains(pids, os.Getpid()) {
			o.cgroup = rel
		}
	}
	return p.holds(o.cgroup)
}
