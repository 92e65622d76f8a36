package policy

import "time"

// How long the effect of a stop is waited for.
const (
	reliefWait     = 5 * time.Second
	diskReliefWait = 30 * time.Second
	// risingWait bounds it while a disk becomes emptier: to delete millions of files takes
	// a slow disk minutes.
	risingWait = 10 * time.Minute
)

// ReliefWait bounds how long the effect of a stop for a signal is waited for before
// another victim may be chosen by its rank, unless a disk is becoming emptier. What a pod wrote to a
// disk comes back long after its processes have ended: the runtime has to be asked for it,
// may delete gigabytes, and containerd says that a container is removed before it begins to
// delete its files.
func ReliefWait(s Signal) time.Duration {
	if s.IsDisk() {
		return diskReliefWait
	}
	return reliefWait
}

// Relieved reports whether a signal has come back to its threshold plus the
// minimum reclaim. After reclaiming, this alone decides whether a stop is still
// needed; what other signals do plays no part. It is false when the observation
// cannot be acted on.
func Relieved(t Threshold, o Observation) bool {
	return o.usable() && o.Available >= t.Target(o.Capacity)
}

// BytesBack reports whether 80 % of what a stop should free is back: available
// was before when the stop began. An expectation of 0 or less is met at once.
func BytesBack(before, available, expected int64) bool {
	return expected <= 0 || available-before >= expected-expected/5
}

// Effect is what is seen of a stop that has ended.
type Effect struct {
	Signal                      Signal
	Before, Available, Expected int64         // as the stop began, now, and what it should free
	Waited                      time.Duration // since the stop ended
	Pressed                     bool          // of a disk: a threshold of it is still met
	Rising                      time.Duration // of a pressed disk: since it became emptier than it was since the stop ended
}

// Settled reports whether a stop has shown its effect, or has had the time to: its bytes
// are back, or ReliefWait is over. A pod that fills a disk goes on while it is measured,
// so that it may have taken more than it should free, which may not be known at all:
// while a pressed disk is still becoming emptier, no effect is final.
func (e Effect) Settled() bool {
	switch {
	case e.Pressed && e.Rising < reliefWait:
		return e.Waited >= risingWait
	case e.Waited >= ReliefWait(e.Signal):
		return true
	case e.Pressed && e.Expected <= 0:
		return false
	default:
		return BytesBack(e.Before, e.Available, e.Expected)
	}
}

// Moved reports whether a stop did something for the signal, which is what the
// breaker asks: the signal is relieved, or at least 5 % of what was missing is
// back. What the victim gave back by itself does not count: a small pod stopped
// for what something outside every pod takes has moved nothing. m is the threshold
// as it was when the stop began, with before available; o is the signal now.
// Without a reading there is no evidence against the stop.
func Moved(m Met, before int64, o Observation) bool {
	if !o.usable() || Relieved(m.Threshold, o) {
		return true
	}
	return o.Available-before >= max(m.Deficit/20, 1)
}
