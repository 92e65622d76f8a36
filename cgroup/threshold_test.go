package cgroup

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"testing"
)

// levelsOf returns the registered levels of a cgroup, after waiting for their registration.
func levelsOf(t *testing.T, w *Waker, rel string) map[int64]int {
	t.Helper()
	armed := map[int64]int{}
	await(t, "registered thresholds", func() bool {
		w.armer.mu.Lock()
		defer w.armer.mu.Unlock()
		g := w.armer.groups[rel]
		if g == nil {
			return true
		}
		if g.moved || g.arming {
			return false
		}
		for _, a := range g.armed {
			armed[a.level] = a.source.fd
		}
		return true
	})
	return armed
}

func sortedLevels(armed map[int64]int) []int64 {
	var levels []int64
	for l := range armed {
		levels = append(levels, l)
	}
	slices.Sort(levels)
	return levels
}

func TestThresholdWakesWhenAChildAllocates(t *testing.T) {
	l := realV1(t)
	w := newWaker(t, l)
	rel := ownCgroup(t, l)
	const size = 64 << 20
	c := startIn(t, "allocate:"+strconv.Itoa(size), l.dir(rel))
	usage, err := readNumber(l.dir(rel) + "/memory.usage_in_bytes")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.SetMemoryThresholds(rel, []int64{usage + size/2}); err != nil {
		t.Fatal(err)
	}
	settled(t, w)
	quiet(t, w, WakeMemory)
	c.run(t)
	wakes(t, w, WakeMemory)
	c.done(t)
	settled(t, w)
	discard(w)
	// It also wakes on the way down.
	if _, err := l.Kill(rel); err != nil {
		t.Fatal(err)
	}
	wakes(t, w, WakeMemory)
}

func TestThresholdsAreMovedCheaply(t *testing.T) {
	l := realV1(t)
	w := newWaker(t, l)
	rel := ownCgroup(t, l)
	const unit = 16 << 20
	steps := []struct {
		set, want []int64 // in units, plus or minus a few bytes
		same      []int64 // levels that keep their descriptors
	}{
		{[]int64{4 * unit, 2 * unit, 0, -7}, []int64{2 * unit, 4 * unit}, nil},
		{[]int64{2*unit + levelSlack - 1, 4*unit - levelSlack + 1}, []int64{2 * unit, 4 * unit}, []int64{2 * unit, 4 * unit}},
		{[]int64{2*unit + levelSlack, 4 * unit}, []int64{2*unit + levelSlack, 4 * unit}, []int64{4 * unit}},
		{[]int64{4 * unit, 4 * unit, 8 * unit}, []int64{4 * unit, 8 * unit}, []int64{4 * unit}},
		{nil, nil, nil},
		{[]int64{unit}, []int64{unit}, nil},
	}
	before := map[int64]int{}
	for i, s := range steps {
		if err := w.SetMemoryThresholds(rel, s.set); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		armed := levelsOf(t, w, rel)
		if got := sortedLevels(armed); !slices.Equal(got, s.want) {
			t.Errorf("step %d: levels %v, want %v", i, got, s.want)
		}
		for _, level := range s.same {
			if armed[level] != before[level] {
				t.Errorf("step %d: level %d was registered anew", i, level)
			}
		}
		before = armed
	}
	if len(w.sources) != 1 {
		t.Errorf("%d sources for one level", len(w.sources))
	}
	levels := []int64{unit + 100}
	if n := testing.AllocsPerRun(100, func() { _ = w.SetMemoryThresholds(rel, levels) }); n != 0 {
		t.Errorf("unchanged levels: %v allocations", n)
	}
}

// Far from the usage a level need not be exact. Otherwise it would move with every page that is read.
func TestThresholdsFarAway(t *testing.T) {
	l := realV1(t)
	w := newWaker(t, l)
	rel := ownCgroup(t, l) // uses next to nothing
	const gib = 1 << 30
	for i, s := range []struct{ set, want []int64 }{
		{[]int64{8 * gib, 9 * gib}, []int64{8 * gib, 9 * gib}},
		{[]int64{8*gib - gib/2, 9*gib + gib/2}, []int64{8 * gib, 9 * gib}},                     // by less than an eighth
		{[]int64{7 * gib, 9 * gib}, []int64{7 * gib, 9 * gib}},                                 // by more
		{[]int64{farOff - 1, 9*gib + gib/2}, []int64{farOff - 1, 9*gib + gib/2}},               // one is near
		{[]int64{farOff - 1 - levelSlack, 9 * gib}, []int64{farOff - 1 - levelSlack, 9 * gib}}, // still near
	} {
		if err := w.SetMemoryThresholds(rel, s.set); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if got := sortedLevels(levelsOf(t, w, rel)); !slices.Equal(got, s.want) {
			t.Errorf("step %d: levels %v, want %v", i, got, s.want)
		}
	}
}

// The usage may cross a level after the reading from which the level was computed, but before it is
// registered. The kernel then sees no crossing.
func TestThresholdCrossedWhileItIsArmed(t *testing.T) {
	l := realV1(t)
	w := newWaker(t, l)
	rel := ownCgroup(t, l)
	const size = 32 << 20
	c := startIn(t, "allocate:"+strconv.Itoa(size), l.dir(rel))
	if err := w.SetMemoryThresholds(rel, []int64{1 << 40}); err != nil {
		t.Fatal(err)
	}
	usage, err := readNumber(l.dir(rel) + "/memory.usage_in_bytes")
	if err != nil {
		t.Fatal(err)
	}
	// Hold the armer up until the child has allocated.
	w.armer.mu.Lock()
	g := w.armer.groups[rel]
	g.want([]int64{usage + size/2})
	w.armer.mu.Unlock()
	c.run(t)
	c.done(t)
	settled(t, w)
	quiet(t, w, WakeMemory)
	w.armer.mu.Lock()
	w.armLevels(g)
	w.armer.mu.Unlock()
	wakes(t, w, WakeMemory)
	settled(t, w)
	// A level that was exceeded all along is not a crossing.
	if err := w.SetMemoryThresholds(rel, []int64{usage + size/4}); err != nil {
		t.Fatal(err)
	}
	levelsOf(t, w, rel)
	settled(t, w)
	quiet(t, w, WakeMemory)
}

func TestThresholdsOfARemovedCgroup(t *testing.T) {
	l := realV1(t)
	w := newWaker(t, l)
	rel := ownCgroup(t, l)
	levels := []int64{1 << 40}
	if err := w.SetMemoryThresholds(rel, levels); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(l.dir(rel)); err != nil {
		t.Fatal(err)
	}
	wakes(t, w, WakeMemory) // the kernel also signals the removal
	if err := w.SetMemoryThresholds(rel, levels); !errors.Is(err, ErrGone) {
		t.Errorf("removed: %v, want ErrGone", err)
	}
	if len(w.armer.groups) != 0 || len(w.sources) != 0 {
		t.Errorf("%d groups and %d sources are left of it", len(w.armer.groups), len(w.sources))
	}
	if err := os.Mkdir(l.dir(rel), 0o755); err != nil {
		t.Fatal(err)
	}
	// The same levels for another cgroup.
	if err := w.SetMemoryThresholds(rel, levels); err != nil {
		t.Errorf("made anew: %v", err)
	}
	const size = 32 << 20
	if err := w.SetMemoryThresholds(rel, []int64{size / 2}); err != nil {
		t.Fatal(err)
	}
	levelsOf(t, w, rel)
	c := startIn(t, "allocate:"+strconv.Itoa(size), l.dir(rel))
	c.run(t)
	wakes(t, w, WakeMemory)
}

// The next call returns an error from arming in the background. The call after that starts over.
func TestThresholdErrorIsToldOnce(t *testing.T) {
	l := realV1(t)
	w := newWaker(t, l)
	rel := ownCgroup(t, l)
	if err := w.SetMemoryThresholds(rel, []int64{1 << 40}); err != nil {
		t.Fatal(err)
	}
	// The cgroup is removed and created again before its thresholds are checked. The kernel refuses to
	// mix the two cgroups.
	w.armer.mu.Lock()
	if err := os.Remove(l.dir(rel)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(l.dir(rel), 0o755); err != nil {
		t.Fatal(err)
	}
	g := w.armer.groups[rel]
	g.want([]int64{2 << 40})
	w.armLevels(g)
	g.fired.Store(false)
	w.armer.mu.Unlock()
	if err := w.SetMemoryThresholds(rel, []int64{2 << 40}); err == nil {
		t.Error("no error of the registration")
	}
	if err := w.SetMemoryThresholds(rel, []int64{2 << 40}); err != nil {
		t.Errorf("begun anew: %v", err)
	}
	if got := sortedLevels(levelsOf(t, w, rel)); !slices.Equal(got, []int64{2 << 40}) {
		t.Errorf("levels %v", got)
	}
}

func TestThresholdsUnsupported(t *testing.T) {
	w := newWaker(t, testTree(t, "6.1-v2-systemd"))
	if err := w.SetMemoryThresholds("/kubepods.slice", []int64{1}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("v2: %v, want ErrUnsupported", err)
	}
	v1 := newWaker(t, testTree(t, "5.10-v1-cgroupfs"))
	// The captured tree lacks cgroup.event_control, like a kernel with PREEMPT_RT.
	if err := v1.SetMemoryThresholds("/kubepods", []int64{1 << 30}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("without events: %v, want ErrUnsupported", err)
	}
	if err := v1.SetMemoryThresholds("/gone", []int64{1 << 30}); !errors.Is(err, ErrGone) {
		t.Errorf("gone: %v, want ErrGone", err)
	}
	if err := v1.SetMemoryThresholds("/kubepods", nil); err != nil {
		t.Errorf("no levels: %v", err)
	}
}

// The root cgroup has thresholds, too.
func TestThresholdsOfTheRoot(t *testing.T) {
	l := realV1(t)
	w := newWaker(t, l)
	if err := w.SetMemoryThresholds("/", []int64{1 << 50}); err != nil {
		t.Fatal(err)
	}
	if got := sortedLevels(levelsOf(t, w, "/")); !slices.Equal(got, []int64{1 << 50}) {
		t.Errorf("levels %v", got)
	}
}
