package cgroup

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// levelSlack is how far a level may be off before it is moved: about what the
	// kernel's own counting is off by.
	levelSlack = 1 << 20
	// farOff is from how far away the usage may be off by more: by an eighth of its
	// distance. On a node that does anything the levels move with its page cache all
	// the time, and each move keeps a thread in the kernel for milliseconds.
	farOff = 256 << 20
)

// armer registers memory thresholds. The kernel takes an RCU grace period for each,
// 5 to 20 ms, which the caller of SetMemoryThresholds must not wait for.
type armer struct {
	nudge chan struct{}

	mu      sync.Mutex // held before Waker.mu where both are
	groups  map[string]*levels
	scratch []int64
}

// levels are the thresholds of one v1 cgroup. armer.mu guards them.
type levels struct {
	rel    string
	usage  *file
	buf    []byte
	wanted []int64 // ascending
	before int64   // the usage when they were wanted
	armed  []threshold
	fired  atomic.Bool // one was crossed, or the cgroup removed
	moved  bool        // wanted has changed since it was armed
	arming bool        // a goroutine registers them right now
	dead   bool        // forgotten: whoever arms them cleans up
	err    error       // of arming
}

// threshold is a level that is registered.
type threshold struct {
	level  int64
	source *source
}

// SetMemoryThresholds wakes when the usage of a v1 cgroup, page cache included,
// crosses one of these levels in either direction, in bytes (cgroup-v1/memory.rst,
// section 9). They replace the earlier ones of that cgroup; those that moved by less
// than 1 MiB are left alone, and where all are nothing is allocated. While the usage is
// 256 MiB or more away from all of them, they may be off by an eighth of that distance:
// call again as it comes nearer.
//
// The first call for a cgroup registers before it returns, and so tells whether
// that works. Later ones return at once, and what goes wrong then is the error of
// the next call, after which the cgroup is begun anew. Whatever crosses a level
// while that is being registered wakes, too. ErrUnsupported on v2 and on kernels
// without the event (PREEMPT_RT), ErrGone when the cgroup was removed.
func (w *Waker) SetMemoryThresholds(rel string, bytes []int64) error {
	if w.layout.Version == V2 {
		return unsupported("watch memory thresholds", "cgroup v1")
	}
	a := &w.armer
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.groups[rel]
	if g != nil && g.fired.CompareAndSwap(true, false) && g.readUsage() < 0 {
		w.forget(g) // removed; there may be another under the same path by now
		g = nil
	}
	a.scratch = ascending(a.scratch[:0], bytes)
	switch {
	case g == nil && len(a.scratch) == 0:
		return nil
	case g == nil:
		return w.begin(rel)
	case g.err != nil:
		w.forget(g)
		return g.err
	case g.isClose(a.scratch):
		return nil
	}
	g.want(a.scratch)
	select {
	case a.nudge <- struct{}{}:
	default:
	}
	return nil
}

// begin registers the first levels of a cgroup, which are in scratch; armer.mu is
// held, but not while the kernel works.
func (w *Waker) begin(rel string) error {
	usage, err := openFile(filepath.Join(w.layout.Dir("memory", rel), "memory.usage_in_bytes"))
	if err != nil {
		return fmt.Errorf("watch memory of %s: %w", rel, gone(err))
	}
	g := &levels{rel: rel, usage: usage}
	g.want(w.armer.scratch)
	w.armer.groups[rel] = g
	w.armLevels(g)
	if g.err != nil {
		w.forget(g)
	}
	return g.err
}

// want takes note of levels that are to be armed.
func (g *levels) want(bytes []int64) {
	g.wanted = append(g.wanted[:0], bytes...)
	g.before, g.moved = g.readUsage(), true
}

// arm registers levels that have moved, until Close.
func (w *Waker) arm() {
	for {
		select {
		case <-w.quit:
			return
		case <-w.armer.nudge:
		}
		w.armer.mu.Lock()
		for _, g := range slices.Collect(maps.Values(w.armer.groups)) {
			w.armLevels(g)
		}
		w.armer.mu.Unlock()
	}
}

// armLevels makes the kernel's levels of a cgroup the wanted ones. New ones are
// registered before old ones are dropped, so that no crossing falls between.
// armer.mu is held, but not while the kernel works.
func (w *Waker) armLevels(g *levels) {
	if g.arming {
		return // whoever does it sees what has moved since
	}
	g.arming = true
	for g.moved && g.err == nil && !g.dead {
		g.moved = false
		kept, missing := match(g.wanted, g.armed)
		before := g.before
		w.armer.mu.Unlock()
		fresh, err := w.register(g, missing)
		w.armer.mu.Lock()
		if after := g.readUsage(); slices.ContainsFunc(fresh, func(t threshold) bool { return before < t.level && t.level <= after }) {
			w.queue.put(WakeMemory)
		}
		g.err = err
		old := g.armed
		g.armed = append(kept, fresh...)
		w.dropAll(old, g.armed)
	}
	g.arming = false
	if g.dead {
		w.bury(g)
	}
}

// forget drops a cgroup's levels; armer.mu is held.
func (w *Waker) forget(g *levels) {
	if w.armer.groups[g.rel] == g {
		delete(w.armer.groups, g.rel)
	}
	if g.dead = true; !g.arming {
		w.bury(g)
	}
}

func (w *Waker) bury(g *levels) {
	w.dropAll(g.armed, nil)
	g.armed = nil
	g.usage.close()
}

// dropAll drops the thresholds that are not among those to keep.
func (w *Waker) dropAll(old, keep []threshold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range old {
		if !slices.Contains(keep, t) {
			w.drop(t.source)
		}
	}
}

// register makes the kernel signal an eventfd for each level. What was registered
// before an error is returned with it.
func (w *Waker) register(g *levels, bytes []int64) ([]threshold, error) {
	var done []threshold
	for _, level := range bytes {
		s, err := w.registerLevel(g, level)
		if err != nil {
			return done, fmt.Errorf("watch memory of %s: %w", g.rel, err)
		}
		done = append(done, threshold{level, s})
	}
	return done, nil
}

func (w *Waker) registerLevel(g *levels, level int64) (*source, error) {
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create eventfd: %w", err)
	}
	dir := w.layout.Dir("memory", g.rel)
	if err := writeFile(filepath.Join(dir, "cgroup.event_control"), fmt.Sprintf("%d %d %d", event, g.usage.fd, level)); err != nil {
		_ = unix.Close(event)
		_, lookup := inode(dir)
		switch {
		case errors.Is(lookup, ErrGone):
			return nil, ErrGone
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOENT):
			return nil, unsupported("register memory threshold", "a kernel without PREEMPT_RT")
		}
		return nil, err
	}
	crossed := func(fd int, events uint32) bool {
		g.fired.Store(true)
		return readAway(fd, events)
	}
	s := &source{fd: event, wake: WakeMemory, drain: crossed}
	if err := w.add(s, unix.EPOLLIN); err != nil {
		return nil, err
	}
	return s, nil
}

// readUsage is the cgroup's usage now; −1 when it cannot be read, which is after
// its end.
func (g *levels) readUsage() int64 {
	b, err := g.usage.read(&g.buf)
	if err != nil {
		return -1
	}
	return parseNumber(b)
}

// ascending appends the levels in ascending order, each once, without those that are
// always exceeded.
func ascending(to, bytes []int64) []int64 {
	for _, level := range bytes {
		if level > 0 {
			to = append(to, level)
		}
	}
	slices.Sort(to)
	return slices.Compact(to)
}

// isClose reports whether the levels that were wanted last are close enough to these.
func (g *levels) isClose(bytes []int64) bool {
	if slices.EqualFunc(bytes, g.wanted, isNear) {
		return true
	}
	usage, slack := g.readUsage(), int64(math.MaxInt64)
	for _, level := range bytes {
		slack = min(slack, distance(usage, level)/8)
	}
	return slack >= farOff/8 && slices.EqualFunc(bytes, g.wanted, func(x, y int64) bool { return distance(x, y) < slack })
}

func distance(x, y int64) int64 { return max(x, y) - min(x, y) }

func isNear(x, y int64) bool { return distance(x, y) < levelSlack }

// match splits the wanted levels into those that are armed near enough and those
// that are missing.
func match(wanted []int64, armed []threshold) (kept []threshold, missing []int64) {
	for _, level := range wanted {
		i := slices.IndexFunc(armed, func(t threshold) bool {
			return isNear(t.level, level) && !slices.Contains(kept, t)
		})
		if i < 0 {
			missing = append(missing, level)
		} else {
			kept = append(kept, armed[i])
		}
	}
	return kept, missing
}
