package cgroup

import "time"

// stallSamples is how many readings a window keeps; closer together than the
// window's stallSteps part they are not kept, so that they span two windows.
const (
	stallSamples = 64
	stallSteps   = 32
)

// StallWindow turns readings of a stall's total into how much of the last window
// was stalled. It is pure; its zero value has seen nothing.
type StallWindow struct {
	ring  [stallSamples]stallSample
	first int
	count int
}

type stallSample struct{ at, total time.Duration }

// Add takes one more reading, its time (since boot) and the total by then, and
// tells how long was stalled of the time over: the window, or a little more where
// no reading was taken right at its start. It is false until a whole window was
// seen, and begins anew when time or total go back.
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
	// The window starts at the youngest reading that is at least that old.
	for i := w.count - 1; i >= 0; i-- {
		if s := w.sample(i); now-s.at >= window {
			over = now - s.at
			return min(total-s.total, over), over, true
		}
	}
	return 0, 0, false
}

// sample is the i-th reading, the oldest first.
func (w *StallWindow) sample(i int) stallSample { return w.ring[(w.first+i)%stallSamples] }

func (w *StallWindow) push(s stallSample) {
	if w.count == stallSamples {
		w.first = (w.first + 1) % stallSamples
		w.count--
	}
	w.ring[(w.first+w.count)%stallSamples] = s
	w.count++
}
