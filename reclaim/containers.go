package reclaim

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/cri"
)

// ContainerPolicy decides which dead containers and sandboxes are removed.
type ContainerPolicy struct {
	MinAge          time.Duration // younger ones stay
	MaxPerContainer int           // newest dead ones to keep of each container of a pod; negative = all
	Max             int           // dead ones to keep on the node; negative = all
	// Finished also removes everything of finished pods; set it under pressure. Without pressure the
	// newest of each stay, because a runtime cannot distinguish a finished pod from one that a kubelet
	// is about to restart or whose owner still wants to inspect it. If the target is still missed, it
	// also removes dead containers that a newer attempt has replaced: no pod's usage includes the data
	// of a container that filled a disk and died of it, and other pods would be stopped for it.
	Finished bool

	// returning means that the runtime has started a short time ago: a kubelet may start the pods again that ran before.
	returning bool
}

// quietAtLeast is how long a pod must have shown no life before it counts as finished, however short
// the minimum age: while a kubelet re-creates a pod's sandbox, none is ready.
const quietAtLeast = time.Minute

// startsWithin is how long a container may take from its creation to its start, however short the minimum age.
const startsWithin = time.Minute

// finished reports whether the policy selects finished pods and this one has shown no life for long
// enough. A kubelet needs longer to start the pods of before a reboot again, as with many of them, a slow board, or no network.
func (p ContainerPolicy) finished(pod string, seen *sightings, now Moment) bool {
	return p.Finished && !(p.returning && seen.mayReturn(pod)) && seen.quietFor(pod, now) >= max(p.MinAge, quietAtLeast)
}

// dead is a dead container that is old enough to be removed.
type dead struct {
	item Item
	unit unit
	cri.Container
}

// unit is what restarts: a container of a pod, in any attempt.
type unit struct{ pod, name string }

func newDead(c cri.Container, pod string, names map[string]string, seen *sightings, now Moment) dead {
	return dead{Container: c, unit: unit{pod, c.Name}, item: Item{
		Kind: KindContainer, ID: c.ID, Name: names[pod] + "/" + c.Name, Age: Duration(seen.age(c.ID, c.CreatedAt, now)),
	}}
}

// selectContainers selects dead containers like the kubelet's garbage collector (kuberuntime_gc.go). A
// container is dead if it does not run, including one that was created but not started in time, and eligible if
// it was created more than MinAge ago. One in an unknown state may run while its sandbox is ready. Surplus
// attempts come before the newest ones, which only Max or Finished selects; the oldest come first.
func selectContainers(inv inventory, p ContainerPolicy, seen *sightings, now Moment) selection {
	var sel selection
	units := make(map[unit][]dead)
	pods := inv.podOf()
	names := podNames(inv)
	ready := make(map[string]bool, len(inv.Sandboxes))
	for _, b := range inv.Sandboxes {
		ready[b.ID] = b.Ready
	}
	for i, c := range inv.Containers {
		if c.State == cri.Running {
			continue
		}
		d := newDead(c, pods[i], names, seen, now)
		if c.State == cri.Unknown && ready[c.SandboxID] {
			sel.keep(d.item, whyMayRun)
			continue
		}
		if d.item.Age < Duration(p.MinAge) {
			sel.keep(d.item, "younger than min_age")
			continue
		}
		if c.State == cri.Created && d.item.Age < Duration(startsWithin) {
			sel.keep(d.item, "created just now, and not started yet")
			continue
		}
		units[d.unit] = append(units[d.unit], d)
	}
	var surplus, finished []dead
	rest := make(map[unit][]dead)
	for u, ds := range units {
		slices.SortFunc(ds, newestAttempt)
		n := len(ds)
		if p.MaxPerContainer >= 0 {
			n = min(n, p.MaxPerContainer)
		}
		surplus = append(surplus, ds[n:]...)
		if p.finished(u.pod, seen, now) {
			finished = append(finished, ds[:n]...)
		} else if n > 0 {
			rest[u] = ds[:n]
		}
	}
	over, kept := overCap(rest, p.Max)
	sel.remove(surplus, "dead and not among the newest of its container")
	sel.remove(over, "dead and above the cap of the node")
	sel.remove(finished, "dead and its pod has finished")
	slices.SortFunc(kept, oldest)
	for _, d := range kept {
		sel.keep(d.item, "among the newest of its container")
	}
	slices.SortFunc(sel.Keep, func(a, b Item) int { return strings.Compare(a.ID, b.ID) })
	return sel
}

// selectReplaced selects the dead containers that a newer, running attempt has replaced, the oldest
// first.
func selectReplaced(inv inventory, p ContainerPolicy, seen *sightings, now Moment) selection {
	pods, names := inv.podOf(), podNames(inv)
	running := make(map[unit]uint32)
	for i, c := range inv.Containers {
		if u := (unit{pods[i], c.Name}); c.State == cri.Running {
			running[u] = max(running[u], c.Attempt)
		}
	}
	var sel selection
	var replaced []dead
	for i, c := range inv.Containers {
		d := newDead(c, pods[i], names, seen, now)
		if newer, ok := running[d.unit]; ok && c.State == cri.Exited && c.Attempt < newer && d.item.Age >= Duration(p.MinAge) {
			replaced = append(replaced, d)
		}
	}
	sel.remove(replaced, "dead and a newer attempt runs")
	return sel
}

// exited returns the sandboxes among those that were ended whose containers have all exited, and whether each is ready.
func (inv inventory) exited(ended map[string]time.Duration) (ready map[string]bool) {
	ready = make(map[string]bool, len(ended))
	for _, b := range inv.Sandboxes {
		if _, ok := ended[b.ID]; ok {
			ready[b.ID] = b.Ready
		}
	}
	for _, c := range inv.Containers {
		if c.State != cri.Exited {
			delete(ready, c.SandboxID)
		}
	}
	return ready
}

// ending counts the sandboxes of pods that have ended by a stop after that time, and that the runtime has still to stop.
func (inv inventory) ending(ended map[string]time.Duration, since time.Duration) (n int) {
	for id, ready := range inv.exited(ended) {
		if ready && ended[id] > since {
			n++
		}
	}
	return n
}

// removeEnded also selects what stays of sandboxes that were ended: once such a sandbox is not ready and none of its containers
// may run, a kubelet starts none in it any more.
func (s *selection) removeEnded(inv inventory, ended map[string]time.Duration) {
	over := inv.exited(ended)
	dead := map[string]bool{}
	for _, c := range inv.Containers {
		ready, ok := over[c.SandboxID]
		dead[c.ID] = ok && !ready
	}
	s.Keep = slices.DeleteFunc(s.Keep, func(it Item) bool {
		if dead[it.ID] {
			it.Why = "dead and its pod was stopped"
			s.Remove = append(s.Remove, it)
		}
		return dead[it.ID]
	})
}

// overCap selects the containers above the node's limit (negative = none): first the older ones of
// units that keep several, then the oldest on the node.
func overCap(units map[unit][]dead, limit int) (over, kept []dead) {
	total := 0
	for _, ds := range units {
		total += len(ds)
	}
	if limit < 0 || total <= limit {
		for _, ds := range units {
			kept = append(kept, ds...)
		}
		return nil, kept
	}
	each := max(limit/len(units), 1)
	for _, ds := range units {
		n := min(len(ds), each)
		kept, over = append(kept, ds[:n]...), append(over, ds[n:]...)
	}
	slices.SortFunc(kept, oldest)
	n := max(len(kept)-limit, 0)
	return append(over, kept[:n]...), kept[n:]
}

func (s *selection) keep(it Item, why string) {
	it.Why = why
	s.Keep = append(s.Keep, it)
}

func (s *selection) remove(ds []dead, why string) {
	slices.SortFunc(ds, oldest)
	for _, d := range ds {
		d.item.Why = why
		s.Remove = append(s.Remove, d.item)
	}
}

// newestAttempt orders the attempts of one container. Attempts are numbered, so their order holds even
// if the clock was set between them.
func newestAttempt(a, b dead) int {
	return cmp.Or(-cmp.Compare(a.Attempt, b.Attempt), -a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
}

func oldest(a, b dead) int {
	return cmp.Or(-cmp.Compare(a.item.Age, b.item.Age), a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Attempt, b.Attempt), strings.Compare(a.ID, b.ID))
}

// podNames returns namespace/name by pod key, or the UID or sandbox if neither a sandbox nor a label has the name.
func podNames(inv inventory) map[string]string {
	names := make(map[string]string, len(inv.Sandboxes))
	for i, key := range inv.podOf() {
		l := inv.Containers[i].Labels
		if names[key] = cmp.Or(l[labelPodUID], key); l[labelPodName] != "" {
			names[key] = l[labelPodNamespace] + "/" + l[labelPodName]
		}
	}
	for _, b := range inv.Sandboxes {
		names[podKey(b)] = b.Namespace + "/" + b.Name
	}
	return names
}
