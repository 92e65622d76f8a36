package node

import (
	"errors"
	"strings"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// Track keeps descriptors open for the pods' cgroups, so that reading their usage opens no files. It comes before anybody measures
// these pods: one whose container has just been listed would seem to use nothing.
func (n *Node) Track(pods []inventory.Pod) {
	n.followPods(pods)
	n.countCPUs()
	dirs := make(map[string]string, len(pods))
	known := make(map[string][]string, len(pods))
	for i := range pods {
		p := &pods[i]
		if len(p.Containers) == 0 {
			known[p.ID] = []string{} // nothing runs in it, so it uses nothing but what its containers have left
			if rel := p.IdleCgroup; rel != "" && n.opt.Layout.CountsBelow(rel) {
				dirs[rel], known[p.ID] = rel, []string{rel}
			}
			continue
		}
		for _, rel := range n.counted(p) {
			if rel != "" {
				dirs[rel] = rel
				known[p.ID] = append(known[p.ID], rel)
			}
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known = known
	n.tracker.Sync(dirs)
	for rel := range dirs {
		if n.seen.Load() {
			break
		}
		n.seen.Store(n.tracker.Inode(rel) != 0)
	}
}

// counted returns the cgroups whose usage adds up to the pod's: its own or, if it has none or that leaves out those below it,
// those of its containers; and that of its sandbox's processes, if these run the containers, such as a virtual machine.
// "" = unknown.
func (n *Node) counted(p *inventory.Pod) (rels []string) {
	whole := p.Cgroup != "" && n.opt.Layout.CountsBelow(p.Cgroup)
	if whole {
		rels = append(rels, p.Cgroup)
	} else {
		for i := range p.Containers {
			rels = append(rels, p.Containers[i].Cgroup)
		}
	}
	if p.SandboxCgroup != "" && !(whole && strings.HasPrefix(p.SandboxCgroup, p.Cgroup+"/")) {
		rels = append(rels, p.SandboxCgroup)
	}
	return rels
}

// Measure sets what each candidate uses: memory, swap and tasks from its cgroups, disks from the last
// measurement. If the tasks of the pods cgroup are what is limited, a pod outside of it has none that count.
func (n *Node) Measure(cs []policy.Candidate) {
	unaccounted := false
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range cs {
		c := &cs[i]
		u := n.usage(c.ID)
		c.Memory, c.ActiveFile, c.Swap, c.PIDs = u.memory, u.activeFile, u.swap, u.pids
		unaccounted = unaccounted || u.memory.Known && !u.swap.Known
		if c.Apart = n.outside(c.ID); c.Apart && n.podsPIDs.Load() {
			c.PIDs = policy.Known(0)
		}
		if d, ok := n.opt.Meter.Usage(c.ID); ok {
			c.Disk, c.Inodes, c.DiskAt = d.Bytes, d.Inodes, d.At
		}
	}
	n.noSwap.Store(unaccounted)
}

// DiskUsage returns what a sandbox uses of the disks, in bytes and in inodes, from the last measurement.
func (n *Node) DiskUsage(sandbox string) (bytes, inodes policy.DiskUsage) {
	if d, ok := n.opt.Meter.Usage(sandbox); ok {
		return d.Bytes, d.Inodes
	}
	return policy.DiskUsage{}, policy.DiskUsage{}
}

// PodsMemory returns the working set of the pods cgroup, as of the last Observe.
func (n *Node) PodsMemory() policy.Amount { return n.podsMemory }

// Remaining returns what a pod's cgroups still hold of a pool. A removed cgroup holds nothing.
func (n *Node) Remaining(pod inventory.Pod, p policy.Pool) policy.Amount {
	rels := n.counted(&pod)
	u := n.sumUsage(rels, func(rel string) (cgroup.Usage, error) {
		if rel == "" {
			return cgroup.Usage{}, errUnknownCgroup
		}
		return n.tracker.Peek(rel)
	})
	switch {
	case len(rels) == 0:
		return policy.Amount{}
	case p == policy.PoolPIDs:
		return u.pids
	default:
		u.memory.Value = max(u.memory.Value-u.activeFile, 0)
		return u.memory
	}
}

var errUnknownCgroup = errors.New("the runtime does not report the cgroup")

// podUsage is what a pod's cgroups use: memory, activeFile and swap in bytes, pids in tasks. activeFile is the part of memory
// that a stop does not free for good, see [cgroup.Usage]. An amount that the kernel does not account is unknown.
type podUsage struct {
	memory, swap, pids policy.Amount
	activeFile         int64
}

// usage adds up a pod's cgroups.
func (n *Node) usage(sandbox string) podUsage {
	rels, ok := n.known[sandbox]
	if !ok {
		return podUsage{}
	}
	return n.sumUsage(rels, n.tracker.Usage)
}

// canSeePods reports whether the pods' cgroups are in the mounted tree, so that one that does not exist was removed. They are
// not in a container with a cgroup namespace of its own.
func (n *Node) canSeePods() bool {
	if n.seen.Load() {
		return true
	}
	rel := n.PodsCgroup()
	if rel == "" {
		return false
	}
	_, err := n.opt.Layout.Inode(rel)
	return err == nil
}

// sumUsage adds up cgroups. A removed cgroup uses nothing; one that cannot be read or seen makes the sum unknown.
func (n *Node) sumUsage(rels []string, read func(rel string) (cgroup.Usage, error)) podUsage {
	sum := podUsage{policy.Known(0), policy.Known(0), policy.Known(0), 0}
	for _, rel := range rels {
		u, err := read(rel)
		switch {
		case errors.Is(err, cgroup.ErrGone) && n.canSeePods():
			continue
		case err != nil:
			return podUsage{}
		}
		add(&sum.memory, u.Memory)
		add(&sum.swap, u.Swap)
		add(&sum.pids, u.PIDs)
		sum.activeFile += u.ActiveFile
	}
	return sum
}

// add adds n to a sum. A negative n is unknown and makes the sum unknown.
func add(sum *policy.Amount, n int64) {
	sum.Value += n
	sum.Known = sum.Known && n >= 0
}
