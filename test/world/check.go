package world

import (
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/api"
)

// How long after a threshold was met a stop may still follow, and how long a stop keeps the next one away.
const (
	mayFollow   = 5 * time.Second
	stopLasts   = 10 * time.Second
	hogEchoes   = time.Minute
	fastLeak    = 200 * mib
	manyPerStop = 4 // pods for a hog outside: the breaker's three, and one that was already due
)

// check is what a world must always find. Its amounts are the widest that any configuration of the world had.
type check struct {
	hard, soft, pids int64 // a threshold is met below
	steady           bool  // equal priorities, no requests
	busyUntil        time.Duration
	metAt            time.Duration // a threshold was last met
	hogAt            time.Duration // a hog outside the pods last took memory
	kills            []*pod        // that the service stopped, in order
	blindUntil       time.Duration // the runtime may not say what a new pod is, which protects it
	observe          bool
	pausedAt         time.Duration // from then …
	pausedUntil      time.Duration // … until then, an operator's pause lasts
	innocents        int           // while a hog took memory outside
	weak             bool          // memory may run out: the service was away or paused, or could not stop what took memory
}

// stopped checks a stop of the service when it takes effect.
func (c *check) stopped(w *World, p *pod, direct bool) {
	how := "through the runtime"
	if direct {
		how = "directly"
	}
	w.tell("criguard stops %s %s: it uses %d MiB, %d MiB are available", p, how, p.used/mib, w.available()/mib)
	c.kills = append(c.kills, p)
	c.busyUntil = max(c.busyUntil, w.Now()+stopLasts+p.linger)
	if p.asked {
		return
	}
	if w.service == nil {
		w.violate("%s was stopped without a service", p)
	}
	if p.protected {
		w.violate("%s is protected and was stopped", p)
	}
	if w.Now() > c.pausedAt && w.Now() < c.pausedUntil {
		w.violate("%s was stopped during a pause", p)
	}
	if c.observe {
		w.violate("%s was stopped in observe mode", p)
	}
	late := mayFollow
	if direct {
		late = shortStep // the signals are read again just before
	}
	c.note(w)
	if c.metAt == 0 || w.Now()-c.metAt > late {
		w.violate("%s was stopped although no threshold was met", p)
	}
	for _, other := range w.pods {
		samePool := (other.forks > 0) == (p.forks > 0)
		if other != p && samePool && other.isDying() && !other.asked && !other.jobEnded && time.Since(other.killed) < stopLasts && direct {
			w.violate("%s was stopped while the stop of %s had not ended", p, other)
		}
	}
	if hog := c.hogAt != 0 && w.Now()-c.hogAt < hogEchoes; hog {
		if p.rate == 0 && p.forks == 0 {
			if c.innocents++; c.innocents > manyPerStop {
				w.violate("%d pods were stopped for memory that a process outside of them took", c.innocents)
			}
		}
		return
	}
	if p.rate > 0 || p.forks > 0 {
		return
	}
	again := slices.ContainsFunc(c.kills[:len(c.kills)-1], func(k *pod) bool { return k.String() == p.String() })
	for _, leak := range w.pods {
		// Of equal priorities, the one that uses most is stopped first, but for one that came back.
		fast := leak.rate >= fastLeak || c.steady && leak.rate > 0 && leak.used > p.used && !again
		if fast && w.Now() > c.blindUntil && leak.runs() && !leak.protected && time.Since(leak.leaks) > time.Second {
			w.violate("%s was stopped, although %s leaks %d MiB/s", p, leak, leak.rate/mib)
		}
	}
}

// ended checks a pod some time after it has ended.
func (c *check) ended(w *World, p *pod) {
	if p.jobEnded {
		return // its other containers go on
	}
	for _, container := range p.Containers {
		if w.runtime.Alive(container.ID) && w.Now() > c.blindUntil && w.service != nil && len(w.services) == 1 {
			w.violate("%s was stopped, and its container %s still runs", p, container.Name)
		}
	}
}

// inspect checks the world after a step.
func (c *check) inspect(w *World) {
	c.note(w)
	if w.hog > 0 {
		c.hogAt = w.Now()
	}
	for _, p := range w.pods {
		c.weak = c.weak || p.rate > 0 && p.protected || p.linger > 0 && (p.rate > 0 || p.isDying())
	}
	if w.out {
		w.tell("memory has run out")
		if !c.weak && c.hogAt == 0 && w.Now() > c.blindUntil {
			w.violate("memory has run out")
		}
	}
}

// note notes which thresholds are met.
func (c *check) note(w *World) {
	if w.available() < max(c.hard, c.soft) || w.freeTasks() < c.pids {
		c.metAt = w.Now()
	}
}

// budget checks the stops for hard thresholds that the budget bounds: not those of culprits and of workloads that came back.
func (c *check) budget(w *World, stops []api.StopView) {
	const burst, every = 3, 30 * time.Second
	tokens, last := float64(burst), time.Duration(0)
	stopped := map[string]bool{}
	for _, p := range c.kills {
		i := slices.IndexFunc(stops, func(s api.StopView) bool { return s.Sandbox == p.ID })
		again := stopped[p.String()]
		stopped[p.String()] = true
		if i < 0 || again || stops[i].Kind != "hard" || strings.Contains(stops[i].Reason, "culprit=yes") {
			continue
		}
		at := p.killed.Sub(w.began)
		tokens = min(tokens+float64(at-last)/float64(every), burst)
		last = at
		if tokens--; tokens < -0.1 {
			w.violate("the stop of %s exceeds the budget", p)
		}
	}
}

// agree checks at the end that the history has the stops that the world saw, each once and in order.
func (c *check) agree(w *World) {
	var told, seen []string
	stops := w.Stops()
	c.budget(w, stops)
	for _, s := range stops {
		if !s.DryRun {
			told = append(told, s.Sandbox)
		}
	}
	for _, p := range c.kills {
		if !p.asked {
			seen = append(seen, p.ID)
		}
	}
	for _, id := range seen {
		if !slices.Contains(told, id) {
			w.violate("the history does not have the stop of %s", w.nameOf(id))
		}
	}
	for i, id := range told {
		if slices.Contains(told[:i], id) {
			w.violate("the history has two stops of %s", w.nameOf(id))
		}
	}
}

func (w *World) nameOf(id string) string {
	for _, p := range w.pods {
		if p.ID == id {
			return p.String() + " " + id[:12]
		}
	}
	return id
}
