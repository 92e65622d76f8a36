package policy

import "time"

// ReliefWait bounds how long the effect of a stop is waited for before another
// victim may be chosen.
const ReliefWait = 5 * time.Second

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

// Settled reports whether a stop that ended waited ago has shown its effect, or
// has had the time to: its bytes are back, or ReliefWait is over.
func Settled(before, available, expected int64, waited time.Duration) bool {
	return waited >= ReliefWait || BytesBack(before, available, expected)
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
