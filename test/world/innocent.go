package world

import (
	"slices"
	"time"

	"github.com/criguard/criguard/policy"
)

// innocent checks the stop of a pod for memory.
func (c *check) innocent(w *World, p *pod) {
	if p.rate > 0 {
		return
	}
	// A stall for another reason stops pods until memory is above the stall floor. That is not for the hog, if memory would be
	// below that without it, too.
	forStall := w.stallsApart(p.order.signal, p.order.at) && w.available()+w.hogTook < w.capacity/5
	if c.hogAt != 0 && w.Now()-c.hogAt < hogEchoes && !forStall {
		most := manyPerStop
		if c.soft > 0 {
			most += softBurst
		}
		// A leak within its request is not the first to be stopped, and stops for it are not for the hog. Nor are those for one that is
		// about to come back.
		if slices.ContainsFunc(w.pods, func(p *pod) bool { return (p.runs() || p.returns > 0) && p.rate > w.hog }) {
			return
		}
		if p.order.at-p.spec.CreatedAt.Sub(w.began) < startsWithin { // all that it uses is growth: it may be what was too much
			return
		}
		if c.innocents++; c.innocents > most {
			w.violate("%d pods were stopped for memory that a process outside of them took", c.innocents)
		}
		return
	}
	for _, leak := range w.pods {
		// Of equal priorities, the one that uses most is stopped first, but for one that came back.
		used, other := leak.used-int64(float64(leak.rate)*(w.Now()-p.order.at).Seconds()), p.used // when the stop was decided
		short := c.hard
		if p.order.kind == policy.Soft.String() {
			short = max(c.hard, c.soft)
		}
		switch p.order.signal {
		case policy.MemoryStall.String(), policy.IOStall.String():
			short = w.capacity / 5
			fallthrough
		case policy.SwapAvailable.String():
			used, other = used+leak.swapped, other+p.swapped
		}
		// One that does not take half of what is needed within a second is no culprit, as when the service comes back late.
		fast := leak.rate >= max(fastLeak, max(short-w.available(), 0)+w.hog+w.leaks()-leak.rate) || c.steady && leak.rate > 0 && used > other && !c.again(p)
		if fast && c.mustGo(w, leak, p.order.at) && !w.isCarried(leak, short-w.available()) {
			w.violate("%s was stopped, although %s leaks %d MiB/s", p, leak, leak.rate/mib)
		}
	}
}

// leaks returns how much the pods take each second.
func (w *World) leaks() (sum int64) {
	for _, p := range w.pods {
		if p.runs() {
			sum += p.rate
		}
	}
	return sum
}

// isCarried reports whether a leak is in a pod whose limit is its request, so that as long as others above theirs yield what lacks, they
// are stopped before it.
func (w *World) isCarried(leak *pod, lacks int64) bool {
	yield := int64(0)
	for _, p := range w.pods {
		if p != leak && p.runs() && !p.protected && p.limit == 0 {
			yield += p.used
		}
	}
	return leak.limit > 0 && leak.used < leak.limit && yield >= lacks
}

// startsWithin is how old a pod may be for all that it uses to be growth, with a sample from before a restart of the service.
const startsWithin = 3 * time.Second

// again reports whether a pod was stopped before and came back.
func (c *check) again(p *pod) bool {
	return slices.ContainsFunc(c.kills, func(k *pod) bool { return k != p && k.String() == p.String() })
}

// mustGo reports whether the service could know at a time that a pod takes something, and may stop it.
func (c *check) mustGo(w *World, p *pod, at time.Duration) bool {
	return w.Now() > max(c.blindUntil, c.sampledFrom) && p.runs() && !p.protected && at-p.leaks.Sub(w.began) > time.Second
}
