package top

import (
	"math"
	"time"

	"github.com/criguard/criguard/guard/api"
)

const (
	// memoryTrend and diskTrend are the time constants of the smoothing: a reading's weight falls by a factor
	// of e in this time. A disk fills slowly and in steps.
	memoryTrend = 10 * time.Second
	diskTrend   = 5 * time.Minute
	// trendLeast is the minimum observation time before a trend is shown, as a part of the time constant.
	trendLeast = 0.3
	// trendNoise is how many standard errors a rate must differ from zero to be more than noise.
	trendNoise = 2
	// trendGap is the maximum time between two readings that are compared.
	trendGap = time.Minute
	// trendSteady defines a steady signal: at its rate, the capacity would last longer than this.
	trendSteady = 10 * 24 * time.Hour
	// trendHorizon is how far ahead a threshold crossing is predicted.
	trendHorizon = 24 * time.Hour
)

// trend is a signal's rate of change, smoothed with weights that decay with age.
type trend struct {
	disk      bool
	since, at time.Time // times of the first and the last reading
	value     int64
	rate      float64 // per second
	square    float64 // mean square of the rates
	weight    float64 // total weight in rate; grows towards 1
	weights   float64 // sum of the squares of the weights
}

// add adds a reading. It ignores one that is not later than the last.
func (t *trend) add(at time.Time, value int64) {
	dt := at.Sub(t.at)
	switch {
	case t.at.IsZero() || dt > trendGap:
		*t = trend{disk: t.disk, since: at, at: at, value: value}
		return
	case dt <= 0:
		return
	}
	rate := (float64(value) - float64(t.value)) / dt.Seconds()
	fresh := 1 - math.Exp(-dt.Seconds()/t.memory().Seconds())
	old := t.weight * (1 - fresh)
	t.rate = (old*t.rate + fresh*rate) / (old + fresh)
	t.square = (old*t.square + fresh*rate*rate) / (old + fresh)
	t.weight = old + fresh
	t.weights = t.weights*(1-fresh)*(1-fresh) + fresh*fresh
	t.at, t.value = at, value
}

// memory returns the time constant.
func (t *trend) memory() time.Duration {
	if t.disk {
		return diskTrend
	}
	return memoryTrend
}

// known reports whether the readings cover enough time for a trend.
func (t *trend) known() bool { return t.at.Sub(t.since).Seconds() >= trendLeast*t.memory().Seconds() }

// noise reports whether the rate may be zero, by its standard error: a signal that fluctuates, or that
// made one step, has no trend.
func (t *trend) noise() bool {
	variance := max(t.square-t.rate*t.rate, 0)
	return math.Abs(t.rate)*t.weight < trendNoise*math.Sqrt(variance*t.weights)
}

// steady reports whether a signal of this capacity hardly changes, or only fluctuates.
func (t *trend) steady(capacity int64) bool {
	return t.noise() || math.Abs(t.rate)*trendSteady.Seconds() < float64(capacity)
}

// reaches predicts which threshold the signal meets next, and when. It returns "" if the signal
// does not fall or meets none within a day.
func (t *trend) reaches(s *api.SignalStatus) (kind string, in time.Duration) {
	if !t.known() || math.IsNaN(t.rate) || t.rate >= 0 || t.steady(s.Capacity) {
		return "", 0
	}
	var next *api.ThresholdStatus
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
