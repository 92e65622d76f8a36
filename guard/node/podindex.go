package node

import (
	"errors"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/inventory"
)

// podIndex tracks which pod cgroups are empty, so that the search for unlisted pods before a kill costs the
// same however many there are: a node without a kubelet keeps the cgroups of all pods it ever ran. A cgroup
// is empty if no process was seen after it and its whole subtree were watched, and no event has come since.
type podIndex struct {
	mu       sync.Mutex
	complete bool                     // open and quiet together are all pod cgroups
	losses   int                      // how often events were lost
	open     map[string]bool          // may contain a process
	quiet    map[string]time.Duration // empty, watched and unchanged, and since when (boot clock)
	touched  map[string]bool          // changed since the last sweep began
	listed   time.Duration            // when a sweep last listed all pod cgroups (boot clock)
	inodes   [3]uint64                // of the parents of pod cgroups at that listing; 0 = missing
}

const (
	// relistEvery is how often a sweep lists all pod cgroups, although events report each of them.
	relistEvery = time.Minute
	// recheckQuiet is how many empty cgroups each of those listings checks again.
	recheckQuiet = 32
)

// suspects returns the pod cgroups that may contain a process, after applying all pending events. If events
// may be missing, it returns all pod cgroups.
func (n *Node) suspects(root string) []string {
	ix := &n.index
	ix.mu.Lock()
	defer ix.mu.Unlock()
	n.takeChanges()
	parents := qosParents(root)
	if ix.complete && n.inodes(parents) != ix.inodes {
		ix.lose() // a parent was removed and created again, but the watch was on the old one
	}
	if ix.complete {
		return slices.Collect(maps.Keys(ix.open))
	}
	var all []string
	for _, parent := range parents {
		rels, _ := n.podsIn(parents, parent)
		all = append(all, rels...)
	}
	return all
}

// podsIn returns the pod cgroups in one of their parents.
func (n *Node) podsIn(parents []string, parent string) (rels []string, err error) {
	names, err := n.opt.Layout.Children(parent)
	for _, name := range names {
		if rel := path.Join(parent, name); isPodCgroup(parents, rel) {
			rels = append(rels, rel)
		}
	}
	return rels, err
}

// takeChanges applies the changes that the kernel reported. n.index.mu is held.
func (n *Node) takeChanges() {
	ix := &n.index
	if n.waker == nil {
		return
	}
	if ix.open == nil {
		ix.open, ix.quiet, ix.touched = map[string]bool{}, map[string]time.Duration{}, map[string]bool{}
	}
	parents := qosParents(n.PodsCgroup())
	complete := n.waker.Changes(func(rel string, removed bool) {
		if slices.Contains(parents, rel) {
			ix.lose() // pods may have entered it before it was watched
		}
		if !isPodCgroup(parents, rel) {
			return
		}
		ix.touched[rel] = true
		delete(ix.quiet, rel)
		n.waker.RemoveTree(rel)
		if delete(ix.open, rel); !removed {
			ix.open[rel] = true
		}
	})
	if !complete {
		ix.lose()
	}
}

// inodes returns the inodes of the parents of pod cgroups.
func (n *Node) inodes(parents []string) (inodes [3]uint64) {
	for i, parent := range parents {
		inodes[i], _ = n.opt.Layout.Inode(parent)
	}
	return inodes
}

// lose assumes that any event may be missing: no cgroup counts as empty until a sweep has watched and checked
// it again.
func (ix *podIndex) lose() {
	ix.complete = false
	ix.losses++
	for rel := range ix.quiet {
		ix.open[rel] = true
	}
	clear(ix.quiet)
}

// Sweep finds out which pod cgroups are empty now, except those of listed pods. Only the lister's
// goroutine calls it, because its cost grows with the number of cgroups.
func (n *Node) Sweep(pods []inventory.Pod) {
	root := n.PodsCgroup()
	if root == "" || n.waker == nil {
		return
	}
	ix := &n.index
	ix.mu.Lock()
	n.takeChanges()
	clear(ix.touched)
	losses, list, now := ix.losses, !ix.complete || n.Now()-ix.listed >= relistEvery, n.Now()
	at := slices.Collect(maps.Keys(ix.open))
	ix.mu.Unlock()

	var all map[string]bool
	watched, inodes := true, n.inodes(qosParents(root))
	if list {
		all, watched = n.listPods(root)
		at = n.unsettled(all)
	}
	known := cgroupsOf(pods)
	emptied := n.watchEmpty(slices.DeleteFunc(at, func(rel string) bool { return known[rel] }))

	ix.mu.Lock()
	defer ix.mu.Unlock()
	n.takeChanges()
	if list {
		ix.listed, ix.inodes = now, inodes
		n.keepListed(all)
		ix.complete = watched && ix.losses == losses
	}
	for _, rel := range emptied {
		if ix.touched[rel] || ix.losses != losses {
			n.waker.RemoveTree(rel) // the next sweep checks it again
			continue
		}
		delete(ix.open, rel)
		ix.quiet[rel] = now
	}
}

// listPods first watches the parents of pod cgroups, then lists what they contain. watched is false if one
// cannot be watched or read.
func (n *Node) listPods(root string) (all map[string]bool, watched bool) {
	all, watched = map[string]bool{}, true
	parents := qosParents(root)
	for _, parent := range parents {
		err := n.waker.AddDir(parent)
		var rels []string
		if err == nil {
			rels, err = n.podsIn(parents, parent)
		}
		watched = watched && (err == nil || errors.Is(err, cgroup.ErrGone) && parent != root) // root reports its creation
		for _, rel := range rels {
			all[rel] = true
		}
	}
	return all, watched
}

// unsettled returns the pod cgroups in all that are not known to be empty. It checks some of the others
// again, different ones each time.
func (n *Node) unsettled(all map[string]bool) (at []string) {
	ix := &n.index
	var some []string
	ix.mu.Lock()
	for rel := range all { // in random order
		if _, quiet := ix.quiet[rel]; !quiet {
			at = append(at, rel)
		} else if len(some) < recheckQuiet {
			some = append(some, rel)
		}
	}
	ix.mu.Unlock()
	for _, rel := range some {
		if n.mayBeBusy(rel) {
			n.reopen(rel)
		}
	}
	return at
}

// mayBeBusy reports whether a cgroup contains a process or cannot be read.
func (n *Node) mayBeBusy(rel string) bool {
	populated, err := n.opt.Layout.Populated(rel)
	return populated || err != nil
}

// reopen marks a cgroup as possibly containing a process.
func (n *Node) reopen(rel string) {
	ix := &n.index
	ix.mu.Lock()
	defer ix.mu.Unlock()
	delete(ix.quiet, rel)
	ix.open[rel] = true
	n.waker.RemoveTree(rel)
}

// watchEmpty watches the cgroups that are empty and returns them.
func (n *Node) watchEmpty(rels []string) []string {
	return slices.DeleteFunc(rels, func(rel string) bool {
		busy := n.mayBeBusy(rel)
		if !busy && n.waker.AddTree(rel) != nil {
			return true // it stays open and is checked before each kill
		}
		if busy = busy || n.mayBeBusy(rel); busy {
			n.waker.RemoveTree(rel)
		}
		return busy
	})
}

// keepListed sets the index to the listed cgroups and those that changed since the sweep began. n.index.mu is
// held.
func (n *Node) keepListed(all map[string]bool) {
	ix := &n.index
	forgetStale := func(rel string) {
		if !all[rel] && !ix.touched[rel] {
			delete(ix.open, rel)
			delete(ix.quiet, rel)
			n.waker.RemoveTree(rel)
		}
	}
	for rel := range ix.open {
		forgetStale(rel)
	}
	for rel := range ix.quiet {
		forgetStale(rel)
	}
	for rel := range all {
		if _, quiet := ix.quiet[rel]; !quiet && !ix.touched[rel] {
			ix.open[rel] = true
		}
	}
}

// QuietFor returns the pod cgroups that have been empty and unchanged for at least age, and since when. It
// returns none if events may be missing: an unwatched cgroup may be about to be used.
func (n *Node) QuietFor(age time.Duration) map[string]time.Duration {
	ix := &n.index
	ix.mu.Lock()
	defer ix.mu.Unlock()
	n.takeChanges()
	old := map[string]time.Duration{}
	for rel, since := range ix.quiet {
		if ix.complete && n.Now()-since >= age {
			old[rel] = since
		}
	}
	return old
}

// RemoveQuiet removes a pod cgroup unless it has changed since it was chosen.
func (n *Node) RemoveQuiet(rel string, since time.Duration) error {
	ix := &n.index
	ix.mu.Lock()
	n.takeChanges()
	at, ok := ix.quiet[rel]
	ix.mu.Unlock()
	if !ok || at != since {
		return cgroup.ErrGone
	}
	err := n.opt.Layout.Remove(rel)
	if err != nil && !errors.Is(err, cgroup.ErrGone) {
		n.reopen(rel) // a process is in it, or entered it meanwhile
	}
	return err
}
