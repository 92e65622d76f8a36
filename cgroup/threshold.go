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
	// levelSlack is how far a level may drift before it is moved: about the inaccuracy of the kernel's
	// own counting.
	levelSlack = 1 << 20
	// farOff is the distance from which a level may be off by an eighth of that distance. On a busy
	// node the levels constantly move with the page cache, and each move keeps a thread in the kernel
	// for milliseconds.
	farOff = 256 << 20
)

// armer registers memory thresholds. Each takes the kernel an RCU grace period of 5 to 20 ms, for which
// the caller of SetMemoryThresholds must not wait.
type armer struct {
	nudge chan struct{}

	mu      sync.Mutex // lock order: before Waker.mu
	groups  map[string]*levels
	scratch []int64
}

// levels are the thresholds of one v1 cgroup, guarded by armer.mu.
type levels struct {
	rel    string
	usage  *file
	buf    []byte
	wanted []int64 // ascending
	before int64   // usage when wanted was set
	armed  []threshold
	fired  atomic.Bool // a level was crossed, or the cgroup was removed
	moved  bool        // wanted changed since it was armed
	arming bool        // a goroutine is registering them
	dead   bool        // forgotten; the goroutine that arms them cleans up
	err    error       // from arming
}

// threshold is a registered level.
type threshold struct {
	level  int64
	source *source
}

// SetMemoryThresholds wakes when the usage of a v1 cgroup, including page cache, crosses one of these
// levels in either direction (cgroup-v1/memory.rst, section 9). Levels are in bytes. They replace the
// cgroup's earlier levels. A level that moved by less than 1 MiB stays as it is, and if all do, the
// call allocates nothing. While usage is 256 MiB or more away from every level, levels may be off by an
// eighth of that distance, so call this again as usage approaches them.
//
// The first call for a cgroup registers the levels before it returns, and so reports whether that
// works. Later calls return at once, and the next call returns their error; the call after that starts
// over. A crossing during registration also wakes. SetMemoryThresholds returns ErrUnsupported on v2 and
// on kernels without the event (PREEMPT_RT), and ErrGone if the cgroup was removed.
func (w *Waker) SetMemoryThresholds(rel string, bytes []int64) error {
	if w.layout.Version == V2 {
		return unsupported("watch memory thresholds", "cgroup v1")
	}
	a := &w.armer
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.groups[rel]
	if g != nil && g.fired.CompareAndSwap(true, false) && g.readUsage() < 0 {
		w.forget(g) // removed; a new cgroup may have the same path by now
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

// begin registers the first levels of a cgroup, which are in armer.scratch. The caller holds armer.mu,
// which is released while the kernel works.
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

// want records the levels to arm.
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

// armLevels makes the kernel's levels of a cgroup match the wanted ones. It registers new levels before
// it drops old ones, so that no crossing is missed. The caller holds armer.mu, which is released while
// the kernel works.
func (w *Waker) armLevels(g *levels) {
	if g.arming {
		return // the other goroutine picks up levels that moved since
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

// forget drops a cgroup's levels. The caller holds armer.mu.
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

// dropAll drops the thresholds in old that are not in keep.
func (w *Waker) dropAll(old, keep []threshold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range old {
		if !slices.Contains(keep, t) {
			w.drop(t.source)
		}
	}
}

// register makes the kernel signal an eventfd for each level. On error it also returns the levels that
// it has registered.
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

// readUsage returns the cgroup's current usage. It returns −1 if that cannot be read, as after the
// cgroup was removed.
func (g *levels) readUsage() int64 {
	b, err := g.usage.read(&g.buf)
	if err != nil {
		return -1
	}
	return parseNumber(b)
}

// ascending appends the levels in ascending order without duplicates. It skips levels of 0 or less,
// which are always exceeded.
func ascending(to, bytes []int64) []int64 {
	for _, level := range bytes {
		if level > 0 {
			to = append(to, level)
		}
	}
	slices.Sort(to)
	return slices.Compact(to)
}

// isClose reports whether the last wanted levels are close enough to these.
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

// match splits the wanted levels into those that are already armed closely enough and those that are
// missing.
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
