package world

import (
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/criguard/criguard/cgroup"
)

// waker is what wakes a service: cgroups that come and go and, on v1, usage that crosses a level. It implements node.Waker.
type waker struct {
	wakes chan cgroup.Wake

	mu        sync.Mutex
	dirs      map[string]bool // of AddDir
	trees     map[string]bool // of AddTree
	changed   map[string]bool // and whether it was removed
	closed    bool
	deaf      bool // it sends no wake-up
	overflows bool // it loses which cgroups changed
	v1        bool
	levels    map[string][]int64 // v1: of usage, by cgroup
	usage     map[string]int64
	stalls    map[cgroup.Wake]trigger
}

func newWaker(v1 bool) *waker {
	return &waker{wakes: make(chan cgroup.Wake, 16), dirs: map[string]bool{}, trees: map[string]bool{}, changed: map[string]bool{}, v1: v1, levels: map[string][]int64{}, usage: map[string]int64{}, stalls: map[cgroup.Wake]trigger{}}
}

// note reports a cgroup that was made or removed.
func (w *waker) note(rel string, removed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	news := w.dirs[path.Dir(rel)]
	if news {
		w.changed[rel] = removed
	}
	for tree := range w.trees {
		if !removed && strings.HasPrefix(rel, tree+"/") {
			w.changed[tree], news = false, true
		}
	}
	if news {
		w.wake(cgroup.WakePods)
	}
}

// wake wakes the service. w.mu is held.
func (w *waker) wake(by cgroup.Wake) {
	if w.closed || w.deaf {
		return
	}
	select {
	case w.wakes <- by:
	default: // one that waits is enough
	}
}

// spurious wakes for nothing.
func (w *waker) spurious() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wake(cgroup.WakeMemory)
}

// cross wakes if the usage of a cgroup has crossed a level since the last call.
func (w *waker) cross(rel string, usage int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.usage[rel]
	w.usage[rel] = usage
	if slices.ContainsFunc(w.levels[rel], func(l int64) bool { return (last < l) != (usage < l) }) {
		w.wake(cgroup.WakeMemory)
	}
}

func (w *waker) SetMemoryThresholds(rel string, levels []int64) error {
	if !w.v1 {
		return cgroup.ErrUnsupported
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.levels[rel] = slices.Clone(levels)
	return nil
}

func (w *waker) AddDir(rel string) error  { return w.watch(w.dirs, rel) }
func (w *waker) AddTree(rel string) error { return w.watch(w.trees, rel) }

func (w *waker) watch(in map[string]bool, rel string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	in[rel] = true
	return nil
}

func (w *waker) RemoveTree(rel string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.trees, rel)
}

func (w *waker) Changes(each func(string, bool)) bool {
	w.mu.Lock()
	changed := maps.Clone(w.changed)
	clear(w.changed)
	lost := w.overflows && len(changed) > 0
	w.mu.Unlock()
	if lost {
		return false
	}
	for rel, removed := range changed {
		each(rel, removed)
	}
	return true
}

func (w *waker) Wakes() <-chan cgroup.Wake    { return w.wakes }
func (w *waker) AddMemoryEvents(string) error { return nil }
func (w *waker) AddMounts() error             { return nil }

func (w *waker) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.closed = true
		close(w.wakes)
	}
}
