package history

import (
	"cmp"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

// Number of stored samples: one per second for over ten minutes, and the samples between them, which are
// taken while a threshold is near. A sample takes 112 bytes: 182 KiB in all.
const (
	calmEvery    = time.Second
	calmSamples  = 640
	denseSamples = 1024
)

// unread marks a signal that was not read, or that the node does not have.
const unread = -1

// reading is one sample: the available amount of every signal at one moment.
type reading struct {
	at        time.Duration // since boot
	available [policy.SignalCount]int64
}

// ring keeps the newest samples in a fixed amount of memory.
type ring struct {
	samples []reading // allocated in full at the start, so that it never grows
	next, n int
}

func newRing(size int) ring { return ring{samples: make([]reading, size)} }

func (r *ring) add(s reading) {
	r.samples[r.next] = s
	r.next = (r.next + 1) % len(r.samples)
	r.n = min(r.n+1, len(r.samples))
}

// since appends the samples that are not older than at, oldest first.
func (r *ring) since(at time.Duration, into []reading) []reading {
	for i := range r.n {
		s := r.samples[(r.next-r.n+i+len(r.samples))%len(r.samples)]
		if s.at >= at {
			into = append(into, s)
		}
	}
	return into
}

// Samples stores the signals of the last ten minutes, and those around the last stops. Each pass adds a
// sample. One per second is kept for long; the samples between them, taken while a threshold is near, are
// kept as long as there is room.
type Samples struct {
	mu          sync.Mutex
	calm, dense ring
	last        time.Duration // time of the newest calm sample
	capacity    [policy.SignalCount]int64
	windows     *windows

	saving  sync.Mutex
	dir     string // of the windows
	readers rundir.Access
}

// NewSamples returns samples in memory. The windows around stops are also stored below dir if it is
// writable, and those of an earlier run are loaded. After that, only Save accesses the disk.
func NewSamples(dir string) *Samples {
	dir = filepath.Join(dir, WindowDir)
	readers := rundir.ForOperators()
	old := inTime(func() *windows { return openWindows(dir, readers) })
	return &Samples{
		calm: newRing(calmSamples), dense: newRing(denseSamples), last: -calmEvery, windows: cmp.Or(old, &windows{}), dir: dir, readers: readers,
	}
}

// Dir returns the directory in which the windows around stops are saved.
func (s *Samples) Dir() string { return s.dir }

// Add stores a pass's observations and reports whether there is something to save now. It allocates only
// around a stop.
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

// Stop starts a window around a stop: the minute before it and the minute after it. A stop that is not for a
// signal has no window.
func (s *Samples) Stop(p *api.Pass, ts []policy.Threshold) {
	if _, err := policy.ParseSignal(p.Stop.Signal); err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := thin(s.from(time.Duration(p.At)-windowReach), windowDense)
	s.windows.open(p, before, s.capacity, limitsOf(ts, &s.capacity))
}

// from returns the samples that are not older than at, oldest first. The caller holds the lock.
func (s *Samples) from(at time.Duration) []reading {
	all := s.dense.since(at, s.calm.since(at, nil))
	slices.SortFunc(all, func(a, b reading) int { return cmp.Compare(a.at, b.at) })
	return all
}

// Last returns the samples of the period d before now.
func (s *Samples) Last(d, now time.Duration) api.Series {
	s.mu.Lock()
	defer s.mu.Unlock()
	return seriesOf(s.from(now-d), &s.capacity)
}

// Windows returns the windows around the last stops, oldest first.
func (s *Samples) Windows() []api.Window {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.windows.list()
}

// Close finishes the open windows early.
func (s *Samples) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.windows.close()
}

// Save writes the finished windows to files, and blocks as long as the disk does. The next call retries the
// windows that this call could not write.
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
	if err := saveWindows(s.dir, s.readers, fresh, gone); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.news.saved, w.gone = news.added, slices.Clone(w.gone[len(gone):])
	return nil
}

// thin keeps the newest n samples, and one per second of the older ones.
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

// seriesOf converts samples to columns, for the signals that were read at least once.
func seriesOf(all []reading, capacity *[policy.SignalCount]int64) api.Series {
	s := api.Series{At: make([]api.Duration, len(all)), Available: map[policy.Signal][]int64{}, Capacity: map[policy.Signal]int64{}}
	for i := range all {
		s.At[i] = api.Duration(all[i].at)
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
