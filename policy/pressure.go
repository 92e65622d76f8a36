package policy

import (
	"slices"
	"time"
)

// Settings is how thresholds are judged over time.
type Settings struct {
	TransitionPeriod time.Duration // how long a condition outlives its thresholds
	SoftForgive      time.Duration // how long a signal must be clear for its grace period to start anew
	UnseenAtMost     time.Duration // how much of a time in which a signal was not read counts for its grace period; 0 = all of it
	StallFloor       Quantity      // a stall stops pods only while meminfo.available is below this
}

// State is what Evaluate remembers from one round to the next. It is a plain
// value; the zero value is a fresh start. It is kept by signal and kind, so that
// running grace periods survive a change of the configuration.
type State struct {
	marks [SignalCount][kindCount]mark
	seen  [conditionCount]sighting
}

// mark is the past of one threshold.
type mark struct {
	met      bool          // met at some evaluation
	since    time.Duration // met: when it was met first, later by what does not count
	read     time.Duration // met: when its signal was read last
	due      bool          // met at the last evaluation, and its grace period was over
	clearing bool          // met, but not at the last evaluation
	clear    time.Duration // clearing: since when
}

// sighting is when a condition was last raised by a met threshold.
type sighting struct {
	ever bool
	last time.Duration
}

// Met is a threshold that is met now.
type Met struct {
	Threshold
	Since     time.Duration // since boot: when it was met first, later by what was not seen
	Due       bool          // its grace period is over
	Wait      time.Duration // what is left of the grace period
	Available int64
	Target    int64 // what must be available for the pressure to end: value + minimum reclaim
	Deficit   int64 // Target − Available, at least 1
	WarnOnly  bool  // a stall above the floor, or with the floor unknown: stop nothing for it
}

// Pressure is the outcome of one evaluation.
type Pressure struct {
	Met        []Met // in the order of acting
	Conditions Conditions
}

// Evaluate judges every threshold by its own signal's observation, and nothing
// else. There is at most one threshold for each signal and kind, as
// ParseThresholds and Derive give them.
//
// A threshold is met while less than its value is available, and, once its grace
// period was over at the evaluation before, while less than value + minimum
// reclaim is. It is due when it has been met for its grace period or longer. A
// signal that became clear keeps the time it was met first until an evaluation
// finds it clear for SoftForgive; an absent signal counts as clear. A failed
// reading changes nothing for its own thresholds and lists none of them: nothing
// is due that was not just seen. Nor is what nobody saw: of a time without a
// reading, as a suspended node or a failing disk leaves one, a grace period counts
// UnseenAtMost.
//
// A condition is reported while one of its thresholds is met, grace period or
// not, and until TransitionPeriod after it was last seen met. A stall that only
// warns is none: under a condition pods are refused and held down.
func Evaluate(s State, ts []Threshold, set Settings, obs *Observations, now time.Duration) (State, Pressure) {
	next := State{seen: s.seen}
	var p Pressure
	for i := range ts {
		t := &ts[i]
		if t.Signal >= SignalCount || t.Kind >= kindCount {
			continue
		}
		o := obs[t.Signal]
		m := s.marks[t.Signal][t.Kind]
		if o.Status == Absent {
			m = m.notMet(now)
		} else if o.usable() {
			target := t.Target(o.Capacity)
			if o.Available < t.Value.Of(o.Capacity) || m.due && o.Available < target {
				m = m.metAt(now, set)
				wait := t.wait(m.since, now)
				m.due = wait <= 0
				warn := t.Signal.IsStall() && !belowFloor(obs, set.StallFloor)
				p.Met = append(p.Met, Met{
					Threshold: *t, Since: m.since, Due: m.due, Wait: max(wait, 0),
					Available: o.Available, Target: target, Deficit: target - o.Available, WarnOnly: warn,
				})
				if !warn {
					p.Conditions |= ConditionsOf(t.Signal.Condition())
				}
			} else {
				m = m.notMet(now)
			}
		}
		next.marks[t.Signal][t.Kind] = m
	}
	slices.SortStableFunc(p.Met, func(a, b Met) int { return a.Compare(b.Threshold) })
	for c := range conditionCount {
		if p.Conditions.Has(c) {
			next.seen[c] = sighting{true, now}
		} else if seen := next.seen[c]; seen.ever && now-seen.last < set.TransitionPeriod {
			p.Conditions |= ConditionsOf(c)
		}
	}
	return next, p
}

// wait is what is left at now of the grace period of a threshold met since then.
func (t *Threshold) wait(since, now time.Duration) time.Duration {
	if t.Kind == Hard {
		return 0
	}
	return t.Grace - (now - since)
}

// metAt remembers since when the threshold is met: anew, when it was clear for
// the time that forgives, and later by as much as too long a time without a reading
// exceeds what counts of it.
func (m mark) metAt(now time.Duration, set Settings) mark {
	if !m.met || m.clearing && now-m.clear >= set.SoftForgive {
		return mark{met: true, since: now, read: now}
	}
	since := m.since
	if set.UnseenAtMost > 0 {
		since += max(now-m.read-set.UnseenAtMost, 0)
	}
	return mark{met: true, since: since, read: now}
}

// notMet remembers since when the threshold is clear; whether that is long enough
// to be forgiven is asked when it is met again.
func (m mark) notMet(now time.Duration) mark {
	if m.met && !m.clearing {
		m.clearing, m.clear = true, now
	}
	m.due, m.read = false, now
	return m
}

// belowFloor reports whether memory is short enough for a stall to stop a pod.
// An unknown level is not short.
func belowFloor(obs *Observations, floor Quantity) bool {
	o := obs[MeminfoAvailable]
	return o.usable() && o.Available < floor.Of(o.Capacity)
}
