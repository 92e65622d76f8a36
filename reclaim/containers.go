package reclaim

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/cri"
)

// ContainerPolicy says which dead containers and sandboxes may go.
type ContainerPolicy struct {
	MinAge          time.Duration // younger ones stay
	MaxPerContainer int           // newest dead ones kept of each container of a pod; negative = all
	Max             int           // dead ones kept on the node; negative = all
	// Finished takes everything of pods that have finished, too: under pressure. A
	// runtime alone cannot tell a finished pod from one that a kubelet is about to
	// start again, or that its owner still wants to look at, so that in quiet times
	// the newest of each stay. And where a target is missed with all else, it takes dead
	// containers in whose place a newer attempt runs: what has filled a disk and ended for it is in no
	// pod's usage, and others would be stopped for it.
	Finished bool
}

// quietAtLeast is how long a pod must have shown no life before it counts as
// finished, however short the minimum age: a kubelet that re-creates a pod's
// sandbox leaves none ready for a while.
const quietAtLeast = time.Minute

// finished reports whether a pod shows no life and has not for long enough.
func (p ContainerPolicy) finished(pod string, seen *sightings, now Moment) bool {
	return p.Finished && seen.quietFor(pod, now) >= max(p.MinAge, quietAtLeast)
}

// dead is a dead container that is old enough to go.
type dead struct {
	item Item
	unit unit
	cri.Container
}

// unit is what restarts: a container of a pod, whatever its attempt.
type unit struct{ pod, name string }

func newDead(c cri.Container, pod string, names map[string]string, seen *sightings, now Moment) dead {
	return dead{Container: c, unit: unit{pod, c.Name}, item: Item{
		Kind: KindContainer, ID: c.ID, Name: names[pod] + "/" + c.Name, Age: seen.age(c.ID, c.CreatedAt, now),
	}}
}

// selectContainers chooses among the dead containers as the kubelet's garbage
// collector does (kuberuntime_gc.go): a container is dead when it does not run,
// one that was created and not started included, and may go when it is older than
// MinAge, counted from its creation. Surplus attempts go before the newest ones
// that only Max or Finished gives up, and the oldest first.
func selectContainers(inv inventory, p ContainerPolicy, seen *sightings, now Moment) selection {
	var sel selection
	units := make(map[unit][]dead)
	pods := inv.podOf()
	names := podNames(inv)
	for i, c := range inv.Containers {
		if c.State == cri.Running {
			continue
		}
		d := newDead(c, pods[i], names, seen, now)
		if d.item.Age < p.MinAge {
			sel.keep(d.item, "younger than min_age")
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

// selectReplaced chooses the dead containers in whose place a newer attempt runs, the oldest first.
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
		if newer, ok := running[d.unit]; ok && c.State == cri.Exited && c.Attempt < newer && d.item.Age >= p.MinAge {
			replaced = append(replaced, d)
		}
	}
	sel.remove(replaced, "dead and a newer attempt runs")
	return sel
}

// overCap takes what is above the node's cap (negative = none): first the older
// ones of units that keep several, then the oldest on the node.
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

// newestAttempt orders the attempts of one container. Attempts are counted, so
// that their order holds when the clock was set between them.
func newestAttempt(a, b dead) int {
	return cmp.Or(-cmp.Compare(a.Attempt, b.Attempt), -a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
}

func oldest(a, b dead) int {
	return cmp.Or(-cmp.Compare(a.item.Age, b.item.Age), a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Attempt, b.Attempt), strings.Compare(a.ID, b.ID))
}

// podNames gives namespace/name by pod key, or the key where no sandbox tells.
func podNames(inv inventory) map[string]string {
	names := make(map[string]string, len(inv.Sandboxes))
	for i, key := range inv.podOf() {
		l := inv.Containers[i].Labels
		if names[key] = key; l[labelPodName] != "" {
			names[key] = l[labelPodNamespace] + "/" + l[labelPodName]
		}
	}
	for _, b := range inv.Sandboxes {
		names[podKey(b)] = b.Namespace + "/" + b.Name
	}
	return names
}
