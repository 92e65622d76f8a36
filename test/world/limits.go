package world

import (
	"fmt"
	"time"

	"github.com/criguard/criguard/guard/api"
)

// limitsOf limits what some pods may have on the disk, in some seeds, and lets some of these write, and take memory while they are
// being stopped for it. It returns the limits as lines of a configuration. It has dice of its own.
func limitsOf(seed uint64, length time.Duration, onFull bool) (lines []string, limit func(*World)) {
	d := diceOf(seed, 31)
	if !d.oneIn(4) && !(onFull && d.oneIn(2)) {
		return nil, func(*World) {}
	}
	limits := map[string]int64{}
	for i := range 40 {
		if d.oneIn(2) {
			name, bytes := fmt.Sprint("pod-", i), d.spread(50, 2000)*mib
			limits[name] = bytes
			lines = append(lines, fmt.Sprintf("[[limit]]\nname = %q\nephemeral_storage = \"%dMi\"", name, bytes/mib))
		}
	}
	return lines, func(w *World) {
		if d.oneIn(2) {
			w.slowStops = d.at(100*time.Millisecond, 1500*time.Millisecond)
		}
		for _, p := range w.pods {
			if p.diskLimit = limits[p.spec.Name]; p.diskLimit == 0 {
				continue
			}
			if d.oneIn(2) {
				p.flushes = d.spread(500, 3000) * mib
			}
			if d.oneIn(3) && !w.flat {
				p.shared, p.unmounting = 0.9, d.at(10*time.Millisecond, 700*time.Millisecond)
				w.mount(p)
			}
			if bytes := p.diskLimit / 10 * 12; d.oneIn(8) && bytes < w.disk.other.Load() {
				w.disk.volumes.add(p.UID, space{bytes: bytes})
				w.disk.other.Add(-bytes)
			}
		}
		fastest := 40.0
		if onFull {
			fastest = 400
			w.disk.walk = d.at(0, 2*time.Second)
		}
		for range d.between(1, 2) {
			w.At(d.at(5*time.Second, length/2), func(w *World) {
				if p := someone(w, d); p != nil && p.diskLimit > 0 && p.writes == 0 {
					p.writes, p.leaks = d.spread(1, fastest)*mib, time.Now()
					w.logf("%s begins to write %d MiB/s, its limit is %d MiB", p, p.writes/mib, p.diskLimit/mib)
				}
			})
		}
	}
}

// noteStop notes that the runtime was asked to stop a container, and returns how long it takes to begin.
func (k *kernel) noteStop(container string, hash uint32) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stops[container] = true
	if k.slowStops == 0 {
		return 0
	}
	return k.slowStops/2 + time.Duration(hash)%(k.slowStops/2)
}

// flush lets pods take memory that are being stopped for their limits.
func (w *World) flush() {
	for _, p := range w.pods {
		if p.flushes == 0 || p.rate > 0 || !p.runs() {
			continue
		}
		w.kernel.mu.Lock()
		stops := w.stops[p.Containers[0].ID]
		w.kernel.mu.Unlock()
		if stops && w.orderOf(p.UID).kind == api.KindLimit {
			p.rate, p.leaks = p.flushes, time.Now()
			w.logf("%s takes %d MiB/s while it is being stopped", p, p.rate/mib)
		}
	}
}

// byLimit reports whether a pod was stopped for its limit.
func (p *pod) byLimit() bool { return p.order.kind == api.KindLimit }

// directAfter is how long after a stop through the runtime its processes are killed directly if they have not ended.
const directAfter = 2 * time.Second

// waitsFor reports whether a pool waits for the stop of a pod that it has asked for: for its own one, or one for a limit that
// memory has made a direct one.
func (p *pod) waitsFor(pool string) bool {
	return p.order.pool() == pool || pool == "memory" && p.byLimit() && p.direct && p.sinceOrder < directAfter
}

// limited checks the stop of a pod for its limit.
func (c *check) limited(w *World, p *pod) {
	has := w.disk.has(p)
	if uses := has.sum().bytes; uses <= p.diskLimit {
		w.violate("%s was stopped for its limit of %d MiB, and has %d MiB on the disk", p, p.diskLimit/mib, uses/mib)
	}
	p.kept = has.volume.plus(has.log).bytes
	for _, k := range c.kills {
		if k != p && k.UID == p.UID && k.byLimit() && w.time()-k.order.time() < time.Hour && p.kept > p.diskLimit && p.kept == k.kept && has.layer.bytes <= p.diskLimit {
			w.violate("%s was stopped again for its limit, although it has not written more", p)
		}
	}
	stops := 0
	for _, k := range c.kills {
		if k.byLimit() && !k.direct && !k.asked {
			stops++
		}
	}
	if most := softBurst + int(p.stoppedAt/softEvery) + 1; stops > most {
		w.violate("%d pods were stopped for their limits within %v", stops, p.stoppedAt)
	}
}

// softEvery is how often the budget lets a pod be stopped for a soft threshold or a limit, after the burst.
const softEvery = 5 * time.Minute
