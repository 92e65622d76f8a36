package world

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

// How long after a threshold was met a stop may still follow, and how long a stop keeps the next one away.
const (
	mayFollow     = 5 * time.Second
	growthSpan    = time.Second      // from such a time on, the last sample shows how fast a pod grows
	budgetEvery   = 30 * time.Second // for a stop by a hard threshold
	stopLasts     = 10 * time.Second
	softLasts     = 30*time.Second + stopLasts // with its grace period
	deletionLasts = 10 * time.Minute
	hungLasts     = time.Minute // of a pod whose shim hangs
	hogEchoes     = time.Minute
	rounding      = 2 << 10 // bytes: the kernel says how much memory is available in KiB
	fastLeak      = 200 * mib
	manyPerStop   = 4               // pods for a hog outside: the breaker's three, and one that was already due
	softBurst     = 2               // besides, for a soft threshold
	diskRelief    = 2 * time.Minute // for a reclaim, measurements that are repeated, and the budget
	diskBound     = 90              // seconds from a threshold of the disk to a stop: a reclaim, a listing and fresh measurements
)

// check is what a world must always find. Its amounts are the widest that any configuration of the world had.
type check struct {
	hard, soft, pids int64         // a threshold is met below
	free             space         // of the disk; a threshold is met below
	swapShort        int64         // bytes of swap; a threshold is met below, while memory is short
	keeps            time.Duration // that long, an image stays that no pod has used
	steady           bool          // equal priorities, no requests
	busyUntil        time.Duration
	metAt            map[string]time.Duration // a threshold of a pool was last met
	dueAt            time.Duration            // a hard threshold of memory has been met since; 0 = it is not met
	shortAt          time.Duration            // the disk has been short since, and the service could stop pods for it
	fewAt            time.Duration            // the tasks have been short since, and the service could stop pods for them
	overAt           time.Duration            // more tasks than allowed last ran: no pod can start any
	roomAt           time.Duration            // a pod could last start as many as it takes to see that
	hogAt            time.Duration            // a hog outside the pods last took memory
	writtenAt        time.Duration            // the kernel's files last changed
	kills            []*pod                   // that the service stopped, in order
	blindUntil       time.Duration            // the runtime may not say what a new pod is, which protects it
	lateUntil        time.Duration            // memory in files may come back too late
	networkUntil     time.Duration            // the network of pods cannot be removed
	sampledFrom      time.Duration            // before, the service has no sample to tell who grows
	observe          bool
	pausedAt         time.Duration // from then …
	pausedUntil      time.Duration // … until then, an operator's pause lasts
	plenty           bool          // the budget never holds a stop back
	took             []taking      // by what is outside the pods
	full             bool          // the disk was full, or an image was missing
	reported         []string      // the stops in the history that the service returned at the end; nil = none was requested
	forgets          bool          // that history was so long that it lacks the oldest stops
	innocents        int           // while a hog took memory outside
	weak             bool          // memory may run out: the service was away or paused, or could not stop what took memory
}

// stopped checks a stop of the service when it takes effect.
func (c *check) stopped(w *World, p *pod, direct bool) {
	how := "through the runtime"
	if direct {
		how = "directly"
	}
	w.logf("criguard stops %s %s: it uses %d MiB, %d MiB are available", p, how, p.used/mib, w.available()/mib)
	c.kills, p.stoppedAt = append(c.kills, p), w.time()
	c.busyUntil = max(c.busyUntil, w.Now()+stopLasts+p.linger)
	if p.asked {
		return
	}
	if w.service == nil && (direct || p.sinceOrder > softLasts) { // the runtime goes on with what it was asked for
		w.violate("%s was stopped without a service", p)
	}
	if p.protected && p.order.at >= p.protectedAt { // a stop in flight continues
		w.violate("%s is protected and was stopped", p)
	}
	if c.observe {
		w.violate("%s was stopped in observe mode", p)
	}
	late, decided := mayFollow, p.order.at // a soft stop takes effect up to its grace period later
	pool := p.order.pool()
	if direct && pool == "memory" && p.sinceOrder < directAfter { // the signals are read again just before
		late, decided = shortStep, c.writtenAt
	}
	if at := p.order.at; at > c.pausedAt && at < c.pausedUntil { // a pause cancels no stop in flight
		w.violate("%s was stopped during a pause", p)
	}
	c.note(w)
	if p.order.signal == "" {
		w.violate("%s was stopped without a word in the log", p)
	} else if at, met := c.metAt[pool]; pool != "limit" && (!met || decided-at > late) {
		w.violate("%s was stopped although no threshold of %s was met", p, pool)
	}
	for _, other := range w.pods {
		if other != p && other.waitsFor(pool) && other.isDying() && !other.asked && !other.jobEnded && w.time()-other.stoppedAt < stopLasts && direct {
			w.violate("%s was stopped while the stop of %s had not ended", p, other)
		}
	}
	for _, other := range w.pods {
		if pool == "memory" && direct && other.waitsFor(pool) && other.awaitsUnmount() && !other.asked && !other.jobEnded && other.linger == 0 &&
			other.run == len(w.services) && w.Now()-other.ended < sharedWait && other.used > other.expected/2 {
			w.violate("%s was stopped before the files in memory of %s were gone", p, other)
		}
	}
	switch pool {
	case "memory":
		c.innocent(w, p)
	case "tasks":
		p.few = p.tasks <= 2
		for _, bomb := range w.pods {
			cannot := c.overAt > 0 && p.order.at-c.overAt < mayFollow || p.order.at-c.roomAt > growthSpan // start one
			if p.forks == 0 && bomb.forks > 0 && c.mustGo(w, bomb, p.order.at) && (!cannot || c.steady && bomb.tasks > p.tasks && !c.again(p)) {
				w.violate("%s was stopped, although %s starts %d tasks a second", p, bomb, bomb.forks)
			}
		}
	case "limit":
		c.limited(w, p)
	case "disk":
		c.afterOther(w, p)
		if frees := c.canGive(w, p); frees.bytes < mib && frees.inodes == 0 && c.knowsVolume(w, p) {
			w.violate("%s was stopped, although a kubelet keeps all that it has on the disk", p)
		}
		if w.disk.on(w.disk.has(p)) == (space{}) {
			w.violate("%s was stopped for %s, and has nothing on that disk", p, p.order.signal)
		}
		for _, writer := range w.pods {
			gives := c.gives(w, writer, w.Now()-p.order.at+measuredBefore).of(p.order.signal)
			if p.writes == 0 && gives > w.disk.on(w.disk.has(p)).of(p.order.signal) && c.steady && !c.again(p) && c.mustGo(w, writer, p.order.at) {
				w.violate("%s was stopped for %s, although the stop of %s gives %d", p, p.order.signal, writer, gives)
			}
		}
	}
}

// knowsVolume reports whether the service knows that a stop does not free the volume of a pod: it remembers for ten minutes that
// it has stopped the pod before, and may for as long as the pod is back.
func (c *check) knowsVolume(w *World, p *pod) bool {
	return c.stoppedWithin(w, p, 10*time.Minute)
}

// stoppedWithin reports whether a pod was stopped so recently before it came back.
func (c *check) stoppedWithin(w *World, p *pod, d time.Duration) bool {
	return slices.ContainsFunc(c.kills, func(k *pod) bool { return k.UID == p.UID && k != p && w.time()-k.stoppedAt < d })
}

// walkKnown is how long the measurement of all volumes may take, a few at a time, for the results to be there when a stop cannot wait
// any longer.
const walkKnown = time.Second

// measuredBefore is how old the measurements may be that a stop is decided by.
const measuredBefore = 3 * time.Second

// gives returns what the stop of a pod would have given back of the disk so long ago, as far as the service can know.
func (c *check) gives(w *World, p *pod, ago time.Duration) space {
	since := space{bytes: int64(float64(p.writes) * ago.Seconds())}
	if p.fileSize > 0 {
		since.inodes = since.bytes / p.fileSize
	}
	return c.canGive(w, p).plus(since.times(-1))
}

// canGive is the same of now.
func (c *check) canGive(w *World, p *pod) space {
	has := w.disk.has(p)
	if c.stoppedWithin(w, p, math.MaxInt64) || w.disk.walk*time.Duration(1+w.disk.volumes.count()/4) > walkKnown {
		has.volume = space{}
	}
	return w.disk.on(has)
}

// ended checks a pod some time after it has ended.
func (c *check) ended(w *World, p *pod) {
	if p.jobEnded {
		return // its other containers go on
	}
	if w.Now() <= c.blindUntil || w.service == nil || p.run != len(w.services) {
		return
	}
	c.discarded(w, p)
	for _, container := range p.Containers {
		if w.runtime.Alive(container.ID) && len(w.services) == 1 {
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
		takes := p.rate > 0 || p.writes > 0
		c.weak = c.weak || takes && p.protected || p.linger > 0 && (takes || p.isDying())
	}
	c.inspectShared(w)
	c.inspectDisk(w)
	c.inspectDue(w)
	c.inspectShort(w)
	c.inspectTasks(w)
	if w.out {
		w.logf("memory has run out")
		if !c.weak && c.hogAt == 0 && w.Now() > c.blindUntil && w.Now() > c.lateUntil {
			w.violate("memory has run out")
		}
	}
}

// inspectDue checks that a leak is stopped in time: the stop of the pods before it waits for the budget at most.
func (c *check) inspectDue(w *World) {
	if w.available() >= c.hard || w.isStopping() || c.weak || c.observe || c.hogAt != 0 || w.Now() < c.blindUntil {
		c.dueAt = 0
		return
	}
	if c.dueAt == 0 {
		c.dueAt = w.Now()
	}
	leaks := slices.ContainsFunc(w.pods, func(p *pod) bool { return p.runs() && p.rate > 0 })
	if leaks && w.Now()-c.dueAt > budgetEvery+time.Second {
		c.dueAt = w.Now()
		w.violate("a hard threshold of memory has been met for %v, and no pod was stopped", budgetEvery)
	}
}

// mayStop reports whether the service may stop a pod now.
func (c *check) mayStop(w *World) bool {
	return !w.isStopping() && w.service != nil && !c.observe && w.Now() >= max(c.blindUntil, c.pausedUntil)
}

// inspectShort checks that a pod is stopped for a disk that is short, if the pods have enough on it and nothing is deleted any more.
func (c *check) inspectShort(w *World) {
	free := w.disk.free()
	if free.covers(c.free) || !c.mayStop(w) {
		c.shortAt = w.Now()
		return
	}
	for _, p := range w.pods {
		if p.runs() && !p.protected {
			free = free.plus(c.canGive(w, p))
		}
	}
	if !free.covers(c.free) || w.disk.deleted.left(time.Now()) != (space{}) {
		c.shortAt = w.Now()
	} else if w.Now()-c.shortAt > diskRelief {
		c.shortAt = w.Now()
		if w.kubelet && strings.Contains(w.story.String(), "fs.available:hard reason=breaker") { // it has kept what three pods had
			return
		}
		w.violate("the disk has been short for %v, and no pod was stopped", diskRelief)
	}
}

// inspectDisk checks the disk, if anything writes to it.
func (c *check) inspectDisk(w *World) {
	if c.free == (space{}) || c.full {
		return
	}
	if c.full = w.disk.available() == 0; c.full {
		w.logf("the disk is full")
		if !c.weak && w.Now() > c.blindUntil && c.slowWrites(w) {
			w.violate("the disk is full")
		}
	}
	c.inspectImages(w)
	for _, p := range w.pods {
		if p.runs() && !w.runtime.Has(p.Containers[0].ImageID) {
			c.full = true // it is said once
			w.violate("the image of %s is gone", p)
		}
	}
}

// inspectImages checks those that no pod uses: the service removes none that it has to keep. Half a second is for the order of
// what happens within a step.
func (c *check) inspectImages(w *World) {
	w.images = slices.DeleteFunc(w.images, func(img image) bool {
		if w.runtime.Has(img.id) {
			return false
		}
		if age := w.time() - img.pulled; age+time.Second/2 < c.keeps {
			w.violate("an unused image was removed %v after its pull", age)
		}
		return true
	})
}

// slowWrites reports whether stops free all that is written, and it leaves the time to measure and to reclaim.
func (c *check) slowWrites(w *World) bool {
	sum := int64(0)
	for _, p := range w.pods {
		if p.writes > 0 && p.toVolume > 0 && w.keepsVolume(p) {
			return false // no stop frees it
		}
		sum += p.writes
	}
	return sum > 0 && c.free.bytes/sum > diskBound
}

// note notes which thresholds are met.
func (c *check) note(w *World) {
	if free := w.freeTasks(); free < 0 {
		c.overAt = w.Now()
	} else if free >= c.pids {
		c.roomAt = w.Now()
	}
	for pool, met := range map[string]bool{
		"memory": w.available() < max(c.hard, c.soft)+rounding || (w.freeSwap() < c.swapShort || w.isMet(w.Now())) && w.available() < w.capacity/5+rounding, "tasks": w.freeTasks() < c.pids, "disk": !w.disk.free().covers(c.free),
	} {
		if met {
			c.metAt[pool] = w.Now()
		}
	}
}

// writeAll brings the kernel's files up to date, and notes which thresholds are met then: the service may read them before the step ends.
func (w *World) writeAll() {
	w.kernel.writeAll()
	w.writtenAt = w.Now()
	w.note(w)
}

// budget checks the stops for hard thresholds that the budget bounds: not those of culprits and of workloads that came back.
func (c *check) budget(w *World, stops []api.StopView) {
	const burst = 3
	if c.plenty {
		return
	}
	tokens, last := float64(burst), time.Duration(0)
	stopped := map[string]bool{}
	kills := slices.SortedStableFunc(slices.Values(c.kills), func(a, b *pod) int { return cmp.Compare(a.order.time(), b.order.time()) })
	for _, p := range kills {
		name := p.String()
		i := slices.IndexFunc(stops, func(s api.StopView) bool { return s.Sandbox == p.ID })
		// The pod may have ended by itself while it was being stopped for the first time.
		again := stopped[name] || i >= 0 && slices.ContainsFunc(stops[:i], func(s api.StopView) bool { return s.Pod == name })
		stopped[name] = true
		isCulprit := func(reason string) bool {
			return strings.Contains(reason, "culprit=yes") && !strings.Contains(reason, "grew by 0/s")
		}
		if i < 0 || again || stops[i].Kind != "hard" || isCulprit(stops[i].Reason) {
			continue
		}
		at := p.order.time()
		tokens = min(tokens+float64(at-last)/float64(budgetEvery), burst)
		last = at
		if tokens--; tokens < -0.1 {
			w.violate("the stop of %s exceeds the budget", p)
		}
	}
}

// transition is how long a condition outlasts its threshold.
const transition = 5 * time.Minute

// passesKept is the default of history.passes.
const passesKept = 1000

// ask checks what the service says of itself, in a world that has stood still for a while.
func (c *check) ask(w *World) {
	s := w.service
	if s == nil || w.out || w.unread {
		return
	}
	time.Sleep(time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client := control.NewClientOver(rundir.Dir(s.dir), s.control.dial)
	status, err := client.Status(ctx)
	if err != nil {
		w.violate("the service does not say its status: %v", err)
		return
	}
	at, met := c.metAt["memory"]
	switch has := status.Conditions.Has(policy.MemoryPressure); {
	case has && (!met || w.Now()-at > transition+mayFollow):
		w.violate("the status has MemoryPressure, although no threshold of memory has been met since %v", at)
	case !has && w.available() < c.hard:
		w.violate("the status has no MemoryPressure, although %d MiB are available", w.available()/mib)
	}
	if s.away {
		return // of its history, the service has only the end in memory
	}
	list, err := client.Passes(ctx, api.HistoryQuery{})
	if err != nil {
		w.violate("the service does not say its history: %v", err)
		return
	}
	if up := w.inTurn(list.Passes); status.Runtime.Up && (!up || w.said(s) != "up") {
		w.violate("the runtime is up, which the history (%t) or the log (%q) does not say", up, w.said(s))
	}
	c.reported, c.forgets = []string{}, len(list.Passes) >= passesKept
	for _, p := range list.Passes {
		if p.Stop != nil && !p.Stop.DryRun {
			c.reported = append(c.reported, p.Stop.Sandbox)
		}
	}
}

// agree checks at the end that the history has the stops that the world saw, each once and in order.
func (c *check) agree(w *World) {
	var saved []string
	stops := w.Stops()
	c.budget(w, stops)
	w.inTurn(w.passesOnDisk())
	// A kubelet starts a pod again under its UID, and the service may not have listed its new sandbox.
	ofPod := map[string]int{}
	for _, s := range stops {
		if s.DryRun {
			continue
		}
		saved = append(saved, s.Sandbox)
		r := s.Result
		if r == nil || r.Emptied {
			ofPod[s.UID]++
		}
		lasts := stopLasts + mayFollow // one that the end of the service cuts short is continued by the next run
		switch order := w.orderOf(s.UID); {
		case (order.pool() == "disk" || order.pool() == "limit") && w.service == nil:
			// The files were still being deleted when it was killed, and no run follows.
			lasts = deletionLasts
		case s.Kind == "soft" || policy.Cause(s.Kind).ByOperator(): // with a grace period
			lasts = softLasts
		}
		for _, p := range w.pods {
			if p.ID != s.Sandbox {
				continue
			}
			c.gaveBack(w, p, &s)
			if p.hangs { // its files stay, too
				lasts = max(lasts, hungLasts)
			}
		}
		last := w.services[len(w.services)-1].began // it goes on with what the run before it has begun
		waits := cmp.Or(w.askedAt, w.Now())-max(w.orderOf(s.UID).at, last) < lasts
		if !waits && (r == nil || !r.Emptied && len(r.Errors) == 0) {
			w.violate("the history does not know how the stop of %s ended: %+v", w.nameOf(s.Sandbox), r)
		}
	}
	last := saved
	if c.forgets { // the file is shortened later
		last = saved[max(len(saved)-len(c.reported), 0):]
	}
	if c.reported != nil && !slices.Equal(c.reported, last) {
		w.violate("the service returned the stops %q, and its history on disk has %q", c.reported, last)
	}
	killed := map[string]int{}
	for _, p := range c.kills {
		// One that begins in the moment in which the service is killed may begin before that is saved.
		atKill := slices.ContainsFunc(w.services, func(s *service) bool { return s.cut && (s.cutAt-p.order.at).Abs() < time.Millisecond })
		if killed[p.UID]++; !p.asked && !atKill && !slices.Contains(saved, p.ID) && killed[p.UID] > ofPod[p.UID] {
			w.violate("the history does not have the stop of %s", p)
		}
	}
	for _, p := range w.pods {
		if p.jobEnded {
			killed[p.UID]++ // by itself, while it was being stopped
		}
	}
	for i, s := range stops {
		again := slices.ContainsFunc(stops[:i], func(o api.StopView) bool { return o.Sandbox == s.Sandbox })
		// The first time, the pod survived, or the runtime could not stop its sandbox.
		failed := slices.ContainsFunc(w.pods, func(p *pod) bool { return p.ID == s.Sandbox && (p.linger >= stopLasts || p.hangs) })
		// A run that was killed or ends may not have come to its stop. After a sleep, the pod may still be listed, and the service
		// does not remember that long that it has emptied it.
		if !s.DryRun && s.Result != nil && again && !failed && killed[s.UID]+len(w.services)-1+len(w.sleptAt) < ofPod[s.UID] {
			w.violate("the history has two stops of %s", w.nameOf(s.Sandbox))
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
