package cgroup

import "time"

// stallSamples is the number of readings that a window keeps. They are at least window/stallSteps
// apart, so that they span two windows.
const (
	stallSamples = 64
	stallSteps   = 32
)

// StallWindow computes from readings of a stall total how long tasks were stalled in the last window.
// It has no side effects. The zero value is ready to use.
type StallWindow struct {
	ring  [stallSamples]stallSample
	first int
	count int
}

type stallSample struct{ at, total time.Duration }

// Add takes a reading: its time since boot and the total at that time. It returns how long tasks were
// stalled within the period over: the window, or slightly more if no reading was taken exactly at its
// start. It returns false until the readings span a whole window, and starts over if time or total
// decreases.
func (w *StallWindow) Add(now, total, window time.Duration) (stalled, over time.Duration, ok bool) {
	if window <= 0 {
		return 0, 0, false
	}
	if w.count > 0 {
		if last := w.sample(w.count - 1); now < last.at || total < last.total {
			w.count = 0
		}
	}
	if w.count == 0 || now-w.sample(w.count-1).at >= window/stallSteps {
		w.push(stallSample{now, total})
	}
	// The window starts at the newest reading that is at least one window old.
	for i := w.count - 1; i >= 0; i-- {
		if s := w.sample(i); now-s.at >= window {
			over = now - s.at
			return min(total-s.total, over), over, true
		}
	}
	return 0, 0, false
}

// Slept makes the readings younger by a time in which the machine slept: no task stalls meanwhile, and a stall right before or
// after would be spread over it.
func (w *StallWindow) Slept(d time.Duration) {
	for i := range w.ring {
		w.ring[i].at += d
	}
}

// sample returns the i-th reading, oldest first.
func (w *StallWindow) sample(i int) stallSample { return w.ring[(w.first+i)%stallSamples] }

func (w *StallWindow) push(s stallSample) {
	if w.count == stallSamples {
		w.first = (w.first + 1) % stallSamples
		w.count--
	}
	w.ring[(w.first+w.count)%stallSamples] = s
	w.count++
}
