package world

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// space is what files have of a disk.
type space struct{ bytes, inodes int64 }

func (s space) plus(o space) space { return space{s.bytes + o.bytes, s.inodes + o.inodes} }

// times returns a share of it.
func (s space) times(share float64) space {
	return space{int64(float64(s.bytes) * share), int64(float64(s.inodes) * share)}
}

// covers reports whether it is at least as much.
func (s space) covers(o space) bool { return s.bytes >= o.bytes && s.inodes >= o.inodes }

// of returns what a signal counts.
func (s space) of(signal string) int64 {
	if isInodes(signal) {
		return s.inodes
	}
	return s.bytes
}

func isInodes(signal string) bool {
	s, err := policy.ParseSignal(signal)
	return err == nil && s.Resource() == policy.ResourceInodes
}

// deletions are the files that were removed. A filesystem deletes one after the other, and gives back what they had meanwhile.
type deletions struct {
	perSecond space // 0 = all at once

	mu   sync.Mutex
	list []deletion // in the order of their begin
}

// deletion is that of a container's layer or a pod's volume.
type deletion struct {
	id     string
	had    space
	begins time.Time
	takes  time.Duration
}

// left is what is still to be deleted.
func (d *deletion) left(now time.Time) space {
	switch passed := now.Sub(d.begins); {
	case passed < 0:
		return d.had
	case passed >= d.takes:
		return space{}
	default:
		return d.had.times(1 - float64(passed)/float64(d.takes))
	}
}

// add deletes files.
func (d *deletions) add(id string, had space) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := deletion{id: id, had: had, begins: time.Now()}
	if p := d.perSecond; p != (space{}) {
		if n := len(d.list); n > 0 {
			if end := d.list[n-1].begins.Add(d.list[n-1].takes); end.After(next.begins) {
				next.begins = end
			}
		}
		next.takes = time.Duration(max(float64(had.bytes)/float64(p.bytes), float64(had.inodes)/float64(p.inodes)) * float64(time.Second))
	}
	d.list = append(d.list, next)
}

// left is what was still to be deleted at a time, of all files or of those with an ID.
func (d *deletions) left(at time.Time, ids ...string) (sum space) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.leftOf(at, ids...)
}

func (d *deletions) leftOf(at time.Time, ids ...string) (sum space) {
	for i := range d.list {
		if len(ids) == 0 || slices.Contains(ids, d.list[i].id) {
			sum = sum.plus(d.list[i].left(at))
		}
	}
	return sum
}

// done is what of the files with an ID was deleted at a time.
func (d *deletions) done(at time.Time, id string) (sum space) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.list {
		if d.list[i].id == id {
			sum = sum.plus(d.list[i].had)
		}
	}
	return sum.plus(d.leftOf(at, id).times(-1))
}

// deletionsOf lets the disk of a seed delete files over time, in one of two seeds, and its pods write many small files and a
// threshold for inodes be met by that, in one of three. It returns the lines of a configuration. It has dice of its own.
func deletionsOf(seed uint64, onFull bool) (lines []string, apply func(*World)) {
	d := diceOf(seed, 37)
	var perSecond space
	if d.oneIn(2) {
		perSecond = space{d.spread(100, 2000) * mib, d.spread(20_000, 200_000)}
	}
	if !onFull || !d.oneIn(3) {
		return nil, func(w *World) { w.disk.deleted.perSecond = perSecond }
	}
	free := d.between(200_000, 500_000)
	for _, signal := range []string{"nodefs.inodesFree", "imagefs.inodesFree"} {
		lines = append(lines, fmt.Sprintf("eviction.hard.%q = \"%d\"", signal, free))
	}
	return lines, func(w *World) {
		w.disk.deleted.perSecond, w.free.inodes = perSecond, free
		w.disk.inodes = free + d.between(100_000, 1_000_000)
		for _, p := range w.pods {
			if d.oneIn(2) {
				p.fileSize = d.spread(4<<10, 256<<10)
			}
		}
	}
}

// afterOther checks the stop of a pod for the disk: what the stop of another gives back may be enough, and the service waits until
// its files are deleted, unless others write as fast. Nothing says for how long the files of one that was stopped for its limit
// wait before the pods are measured again: once its processes have ended, it is no candidate. Nor does it wait longer than a minute.
func (c *check) afterOther(w *World, p *pod) {
	speed := w.disk.deleted.perSecond
	if w.Now() < c.blindUntil || speed.bytes > 0 && c.writes(w, p) > speed.bytes/2 {
		return
	}
	if rate := speed.of(p.order.signal); rate > 0 && c.free.of(p.order.signal)/rate > reclaimLasts {
		return
	}
	// Large files that are deleted first free no inodes for longer than a stop waits that sees none come back.
	if isInodes(p.order.signal) && speed.bytes > 0 && w.disk.deleted.left(time.Now()).bytes/speed.bytes > stillLasts {
		return
	}
	if slices.ContainsFunc(w.took, func(t taking) bool { return t.hides(p.order.at, speed.bytes) }) {
		return
	}
	decided := w.began.Add(p.order.at)
	for _, other := range c.kills {
		known := other.run == p.run || other.run == p.run-1 && !other.byLimit() // the next run takes over
		runs := other.ended == 0 || other.ended > p.order.at
		if other == p || !known || other.order.pool() != "disk" && !other.byLimit() || other.byLimit() && runs || other.linger > 0 || other.hangs {
			continue
		}
		if left := c.coming(w, other, decided); left.of(p.order.signal) > 0 && w.disk.open(w.disk.unused().plus(c.coming(w, other, time.Now()))).covers(c.free) {
			w.violate("%s was stopped for %s, although the files of %s, which was stopped for %s, were not deleted: %d MiB, %d inodes", p, p.order.signal, other, other.order.signal, left.bytes/mib, left.inodes)
		}
	}
}

// taking is what something took of the disk at once.
type taking struct {
	at    time.Duration
	bytes int64
}

// hides reports whether it hides at a time that files are being deleted, until as much was: only more free space than ever before says
// that. A stop that seems to be over because of it may be followed by another until a reclaim has ended that began when it was noticed.
func (t taking) hides(at time.Duration, speed int64) bool {
	age := at - t.at
	return age >= 0 && (age < hidesDeletion || speed > 0 && t.bytes > speed && age < reclaimLasts*time.Second+hidesDeletion)
}

// hidesDeletion is how long free space may not rise before nothing seems to be deleted any more, and some more.
const hidesDeletion = 1500 * time.Millisecond

// stillLasts is how many seconds a stop waits for a disk that does not rise.
const stillLasts = 30

// reclaimLasts is how many seconds a stop waits for what is being deleted.
const reclaimLasts = 60

// rounded is by how much the times of a stop may be off.
const rounded = 10 * time.Millisecond

// gaveBack checks that the service saw what the stop of a pod gave back of the disk, unless as much was written meanwhile: half of
// what it expected, if that much was deleted of the pod's writable layer.
func (c *check) gaveBack(w *World, p *pod, s *api.StopView) {
	r, settled := s.Result, p.order.at
	if r == nil || !r.Emptied || r.NotContinued || (order{signal: s.Signal}).pool() != "disk" || isInodes(s.Signal) {
		return
	}
	settled += time.Duration(r.SettledIn)
	within := func(at time.Duration) bool { return at >= p.order.at && at <= settled }
	if w.askedAt > 0 && within(w.askedAt-rounded) { // it waits no longer
		return
	}
	if slices.ContainsFunc(w.sleptAt, within) || slices.ContainsFunc(w.took, func(t taking) bool { return within(t.at) }) {
		return
	}
	taken := int64(0)
	for _, other := range w.pods {
		mayWrite := other.leaks.Before(w.began.Add(settled)) || other.rate > 0 || other.forks > 0 // it may have written before
		if other != p && mayWrite && (other.ended == 0 || other.ended > p.order.at) {
			taken += int64(float64(other.writes) * time.Duration(r.SettledIn).Seconds())
		}
	}
	if gave := w.disk.deleted.done(w.began.Add(settled), p.Containers[0].ID).bytes; r.Freed < min(gave, s.Expected)/2-taken {
		w.violate("the stop of %s has given back %d MiB of %s, and the service saw %d MiB", p, gave/mib, s.Signal, r.Freed/mib)
	}
}

// coming is what the stop of a pod had still to give back of the disk at a time.
func (c *check) coming(w *World, p *pod, at time.Time) space {
	layer := p.Containers[0].ID
	left := w.disk.deleted.left(at, layer, p.UID, w.disk.logs.ofPod(p))
	has := w.disk.has(p)
	if !w.runtime.Has(layer) { // its log is gone, too, or that of the pod that came back
		has.layer, has.log = space{}, space{}
	}
	if w.keepsVolume(p) {
		has.volume = space{}
	}
	return left.plus(w.disk.on(has))
}

// risesAgain is how long after a pod has ended that wrote to the disk its free space may be below what it was before.
const risesAgain = 30 * time.Second

// writes returns how many bytes the pods write per second, one that is being stopped and those that have just ended among them.
func (c *check) writes(w *World, stopping *pod) (sum int64) {
	for _, p := range w.pods {
		if p.runs() || p == stopping || w.Now()-p.ended < risesAgain {
			sum += p.writes
		}
	}
	return sum
}
