package guard

import (
	"cmp"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/criguard/criguard/policy"
)

// How many samples are kept: one a second for a good ten minutes, and those between
// them, taken while a threshold is near. One is 112 bytes: 182 KiB in all.
const (
	calmEvery    = time.Second
	calmSamples  = 640
	denseSamples = 1024
)

// unread stands for a signal that was not read, or that the node does not have.
const unread = -1

// reading is what was available of every signal at one moment.
type reading struct {
	at        time.Duration // since boot
	available [policy.SignalCount]int64
}

// ring keeps the newest samples in memory of a fixed size.
type ring struct {
	samples []reading // full from the start, so that it never grows
	next, n int
}

func newRing(size int) ring { return ring{samples: make([]reading, size)} }

func (r *ring) add(s reading) {
	r.samples[r.next] = s
	r.next = (r.next + 1) % len(r.samples)
	r.n = min(r.n+1, len(r.samples))
}

// since appends the samples from a time on, oldest first.
func (r *ring) since(at time.Duration, into []reading) []reading {
	for i := range r.n {
		s := r.samples[(r.next-r.n+i+len(r.samples))%len(r.samples)]
		if s.at >= at {
			into = append(into, s)
		}
	}
	return into
}

// Samples are the signals of the last ten minutes, and those around the last stops.
// Each pass offers one: one a second is kept for long, the ones between them, that
// come while a threshold is near, as long as there is room.
type Samples struct {
	mu          sync.Mutex
	calm, dense ring
	last        time.Duration // the newest calm one
	capacity    [policy.SignalCount]int64
	windows     *windows

	saving sync.Mutex
	dir    string // of windows
}

// NewSamples keeps samples in memory. Those around stops are in dir, too, as far as it can
// be written, where an earlier run may have left some; none but Save touches it later.
func NewSamples(dir string) *Samples {
	dir = filepath.Join(dir, windowDir)
	return &Samples{calm: newRing(calmSamples), dense: newRing(denseSamples), last: -calmEvery, windows: openWindows(dir), dir: dir}
}

// Add takes what a pass observed, and tells whether there is something to save by now. It
// allocates nothing but around a stop.
func (s *Samples) Add(obs *policy.Observations, now time.Duration) (unsaved bool) {
	one := reading{at: now}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range obs {
		one.available[i] = unread
		if o := &obs[i]; o.Status == policy.OK {
			one.available[i], s.capacity[i] = o.Available, o.Capacity
		}
	}
	if now-s.last >= calmEvery {
		s.last = now
		s.calm.add(one)
	} else {
		s.dense.add(one)
	}
	return s.windows.add(one)
}

// Stop begins to keep what is around a stop: a minute before it, and the minute that
// comes. A stop that no signal asked for has none.
func (s *Samples) Stop(p *Pass, ts []policy.Threshold) {
	if _, err := policy.ParseSignal(p.Stop.Signal); err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := thin(s.from(p.At-windowReach), windowDense)
	s.windows.open(p, before, s.capacity, limitsOf(ts, &s.capacity))
}

// from lists the samples from a time on, oldest first. The caller holds the lock.
func (s *Samples) from(at time.Duration) []reading {
	all := s.dense.since(at, s.calm.since(at, nil))
	slices.SortFunc(all, func(a, b reading) int { return cmp.Compare(a.at, b.at) })
	return all
}

// Last is what was sampled for so long before now.
func (s *Samples) Last(d, now time.Duration) Series {
	s.mu.Lock()
	defer s.mu.Unlock()
	return seriesOf(s.from(now-d), &s.capacity)
}

// Windows lists what is kept around the last stops, oldest first.
func (s *Samples) Windows() []Window {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.windows.list()
}

// Close ends the windows that are open as they are.
func (s *Samples) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.windows.close()
}

// Save puts the windows that are through into files. It takes as long as the disk does. What
// could not be written is tried again by the next call.
func (s *Samples) Save() error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	w, news, gone := s.windows, s.windows.news, s.windows.gone
	fresh := slices.Clone(w.done[len(w.done)-news.unsaved(len(w.done)):])
	s.mu.Unlock()
	if len(fresh)+len(gone) == 0 {
		return nil
	}
	if err := saveWindows(s.dir, fresh, gone); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.news.saved, w.gone = news.added, slices.Clone(w.gone[len(gone):])
	return nil
}

// thin keeps the newest n samples, and of the older ones one a second.
func thin(all []reading, n int) []reading {
	var kept []reading
	for i := len(all) - 1; i >= 0; i-- {
		if len(kept) < n || kept[len(kept)-1].at-all[i].at >= calmEvery {
			kept = append(kept, all[i])
		}
	}
	slices.Reverse(kept)
	return kept
}

// Series is signals over time, in columns.
type Series struct {
	At []time.Duration `json:"at"` // since boot, in nanoseconds
	// Available is what was available of each signal at these times: bytes, inodes,
	// tasks, or millionths for stalls; −1 where it was not read.
	Available map[policy.Signal][]int64 `json:"available"`
	Capacity  map[policy.Signal]int64   `json:"capacity"`
}

// seriesOf turns samples into columns, of the signals that were read at least once.
func seriesOf(all []reading, capacity *[policy.SignalCount]int64) Series {
	s := Series{At: make([]time.Duration, len(all)), Available: map[policy.Signal][]int64{}, Capacity: map[policy.Signal]int64{}}
	for i := range all {
		s.At[i] = all[i].at
	}
	for sig := range policy.SignalCount {
		if !slices.ContainsFunc(all, func(one reading) bool { return one.available[sig] != unread }) {
			continue
		}
		column := make([]int64, len(all))
		for i := range all {
			column[i] = all[i].available[sig]
		}
		s.Available[sig], s.Capacity[sig] = column, capacity[sig]
	}
	return s
}

// SampleList is what was sampled, as programs get it.
type SampleList struct {
	APIVersion string        `json:"apiVersion"`
	Time       time.Time     `json:"time"` // now, by the wall clock
	Now        time.Duration `json:"now"`  // and since boot
	Series
}

// WindowList is what is kept around stops, as programs get it.
type WindowList struct {
	APIVersion string   `json:"apiVersion"`
	Windows    []Window `json:"windows"`
}
