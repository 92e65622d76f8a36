package top

import (
	"math"
	"time"

	"github.com/criguard/criguard/guard"
)

const (
	// trendMemory is how long a change is remembered: a reading counts e times less so much later.
	trendMemory = 10 * time.Second
	// trendLeast is how long a signal is watched before its change is a trend.
	trendLeast = 3 * time.Second
	// trendGap is how long readings may be apart to be compared.
	trendGap = time.Minute
	// trendSteady is how long the capacity would last at a rate that is no trend.
	trendSteady = 10 * 24 * time.Hour
	// trendHorizon is how far ahead a threshold is foretold.
	trendHorizon = 24 * time.Hour
)

// trend is how fast a signal changes, smoothed: the mean of its changes, which count the less
// the older they are.
type trend struct {
	since, at time.Time // of the first reading and the last
	value     int64
	rate      float64 // per second
	weight    float64 // of all that is in rate; grows towards 1
}

// add takes a reading. One that is not later than the last says nothing.
func (t *trend) add(at time.Time, value int64) {
	dt := at.Sub(t.at)
	switch {
	case t.at.IsZero() || dt > trendGap:
		*t = trend{since: at, at: at, value: value}
		return
	case dt <= 0:
		return
	}
	rate := (float64(value) - float64(t.value)) / dt.Seconds()
	fresh := 1 - math.Exp(-dt.Seconds()/trendMemory.Seconds())
	old := t.weight * (1 - fresh)
	t.rate = (old*t.rate + fresh*rate) / (old + fresh)
	t.weight = old + fresh
	t.at, t.value = at, value
}

// known reports whether there are readings over a time that tells something.
func (t *trend) known() bool { return t.at.Sub(t.since) >= trendLeast }

// steady reports whether a signal of such a capacity does not move to speak of.
func (t *trend) steady(capacity int64) bool {
	return math.Abs(t.rate)*trendSteady.Seconds() < float64(capacity)
}

// reaches foretells which threshold the signal meets next, and when. It does not for one that
// does not fall, or not within a day.
func (t *trend) reaches(s *guard.SignalStatus) (kind string, in time.Duration) {
	if !t.known() || math.IsNaN(t.rate) || t.rate >= 0 || t.steady(s.Capacity) {
		return "", 0
	}
	var next *guard.ThresholdStatus
	for i := range s.Thresholds {
		if th := &s.Thresholds[i]; !th.Met && th.Amount < s.Available && (next == nil || th.Amount > next.Amount) {
			next = th
		}
	}
	if next == nil {
		return "", 0
	}
	seconds := (float64(s.Available) - float64(next.Amount)) / -t.rate
	if seconds > trendHorizon.Seconds() {
		return "", 0
	}
	return next.Kind, time.Duration(seconds * float64(time.Second))
}
