package policy

import "time"

// BackoffConfig is how often the same workload is stopped. A First of 0 switches
// back-off and hold-down off.
type BackoffConfig struct {
	First time.Duration // after the first stop; doubled by each further one
	Max   time.Duration // the longest wait
	Reset time.Duration // forgotten after this long without a stop
}

// stopped is what is remembered of a workload that was stopped.
type stopped struct {
	Last      time.Duration `json:"last"`               // when, since boot
	First     time.Duration `json:"first,omitempty"`    // the first one in a row
	Previous  time.Duration `json:"previous,omitempty"` // the stop before, to undo the last
	Count     int           `json:"count"`              // stops in a row
	Condition Condition     `json:"condition"`          // what the last one was for
	Over      bool          `json:"over,omitempty"`     // that condition has ended since
}

// maxInARow is where counting stops: no wait doubles more often.
const maxInARow = 64

// wait is how long after its last stop a workload is left alone.
func (b BackoffConfig) wait(s stopped) time.Duration {
	wait := b.First
	for range s.Count - 1 {
		if wait >= b.Max/2 {
			return max(b.Max, b.First)
		}
		wait *= 2
	}
	return wait
}

// forgotten reports whether nothing of a workload's past counts any more. That
// is never so while its back-off runs.
func (b BackoffConfig) forgotten(s stopped, now time.Duration) bool {
	return b.First <= 0 || now-s.Last >= max(b.Reset, b.wait(s))
}
