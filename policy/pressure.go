package policy

import (
	"slices"
	"time"
)

// Settings controls how thresholds are judged over time.
type Settings struct {
	TransitionPeriod time.Duration // how long a condition stays on after its thresholds cleared
	SoftForgive      time.Duration // how long a signal must be clear before its grace period restarts
	UnseenAtMost     time.Duration // how much of a gap between readings counts towards a grace period; 0 = all of it
	StallFloor       Quantity      // a stall or short swap stops pods only while meminfo.available is below this
}

// State is what Evaluate keeps between rounds. It is a plain value, and the zero value is a fresh
// start. It is indexed by signal and kind, so that running grace periods survive a change of the
// configuration.
type State struct {
	marks [SignalCount][kindCount]mark
	seen  [conditionCount]sighting
}

// mark is the history of one threshold.
type mark struct {
	met      bool          // met at some evaluation
	since    time.Duration // if met: start of the grace period, moved later by gaps that do not count
	read     time.Duration // time of the signal's last reading
	due      bool          // met at the last evaluation, after its grace period
	value    Quantity      // of the threshold then: a lower one in its place has another target
	clearing bool          // met before, but not at the last evaluation
	clear    time.Duration // if clearing: since when
}

// sighting is when a met threshold last raised a condition.
type sighting struct {
	ever bool
	last time.Duration
}

// Met is a threshold that is currently met.
type Met struct {
	Threshold
	Since     time.Duration // since boot: when it was first met, moved later by gaps between readings
	Due       bool          // the grace period is over, and it is not WarnOnly
	Wait      time.Duration // rest of the grace period
	Available int64
	Target    int64 // amount that must be available for the pressure to end: value + minimum reclaim
	// Deficit is what lacks to the threshold or, inside the minimum reclaim, to the target, and Lack is what
	// lacks to the target. A stall has no amount of its own: its lack is what memory lacks to the stall
	// floor, and its deficit a twentieth of that. Swap lacks no more than memory does.
	Deficit, Lack int64
	WarnOnly      bool // a stall or short swap while memory is above the floor or unknown: never due, without a deficit
}

// lacks sets what lacks of an observed signal.
func (m *Met) lacks(obs *Observations, floor Quantity) {
	o := obs[m.Signal]
	m.Available, m.Target = o.Available, m.Threshold.Target(o.Capacity)
	if value := m.Value.Of(o.Capacity); m.Available < value {
		m.Deficit, m.Lack = value-m.Available+o.Over, m.Target-m.Available+o.Over
	} else {
		m.Deficit = m.Target - m.Available
		m.Lack = m.Deficit
	}
	if !m.Signal.IsEvidence() {
		return
	}
	memory := obs[MeminfoAvailable]
	lack := floor.Of(memory.Capacity) - memory.Available
	switch m.WarnOnly = !memory.usable() || lack <= 0; {
	case m.WarnOnly:
		m.Deficit, m.Lack = 0, 0
	case m.Signal.IsStall():
		m.Deficit, m.Lack = twentieth(lack), lack
	default:
		m.Deficit, m.Lack = min(m.Deficit, lack), min(m.Lack, lack)
	}
}

// twentieth returns a twentieth of n, rounded up.
func twentieth(n int64) int64 { return n/20 + min(n%20, 1) }

// Pressure is the result of one evaluation.
type Pressure struct {
	Met        []Met // in the order of Threshold.Compare
	Conditions Conditions
}

// Evaluate judges every threshold by the observation of its own signal and nothing else. There must be
// at most one threshold per signal and kind, as Derive returns them.
//
// A threshold is met while less than its value is available. If its grace period was already over at
// the previous evaluation, it stays met while less than value + minimum reclaim is available. It is due
// once it has been met for its grace period. A signal that clears keeps its first-met time until it has
// been clear for SoftForgive; an absent signal counts as clear.
//
// A failed reading changes nothing for its own thresholds, and none of them is listed as met: only a
// threshold that was just seen can be due. A gap without readings, as after a suspend or with a failing
// disk, counts towards a grace period for at most UnseenAtMost.
//
// A condition is reported while one of its thresholds is met, in its grace period or not, and for
// TransitionPeriod after it was last seen met. A stall that only warns raises no condition, because a
// condition makes criguard refuse pods and hold them down.
func Evaluate(s State, ts []Threshold, set Settings, obs *Observations, now time.Duration) (State, Pressure) {
	next := State{seen: s.seen}
	var p Pressure
	for i := range ts {
		t := &ts[i]
		if t.Signal >= SignalCount || t.Kind >= kindCount {
			continue
		}
		o, m := obs[t.Signal], s.marks[t.Signal][t.Kind]
		switch {
		case o.usable() && (o.Available < t.Value.Of(o.Capacity) || m.due && t.Value.Of(o.Capacity) >= m.value.Of(o.Capacity) && o.Available < t.Target(o.Capacity)):
			m = m.metAt(now, set)
			met := Met{Threshold: *t, Since: m.since}
			if t.Kind == Soft {
				met.Wait = max(t.Grace-(now-m.since), 0)
			}
			m.due, m.value = met.Wait == 0, t.Value
			met.lacks(obs, set.StallFloor)
			met.Due = m.due && !met.WarnOnly
			p.Met = append(p.Met, met)
			if !met.WarnOnly {
				p.Conditions |= ConditionsOf(t.Signal.Condition())
			}
		case o.usable() || o.Status == Absent:
			m = m.notMet(now)
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

// ClearsIn returns for how long a condition still holds although none of its thresholds is met. It returns 0 if
// one is met or the condition does not hold.
func (s *State) ClearsIn(c Condition, p *Pressure, set Settings, now time.Duration) time.Duration {
	met := slices.ContainsFunc(p.Met, func(m Met) bool { return m.Signal.Condition() == c && !m.WarnOnly })
	if met || !p.Conditions.Has(c) {
		return 0
	}
	return max(s.seen[c].last+set.TransitionPeriod-now, 0)
}

// metAt marks the threshold as met. It restarts the grace period if the threshold was clear for
// SoftForgive, and moves its start later by the part of a gap between readings that exceeds
// UnseenAtMost.
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

// notMet records since when the threshold is clear. metAt decides whether that was long enough to
// forgive.
func (m mark) notMet(now time.Duration) mark {
	if m.met && !m.clearing {
		m.clearing, m.clear = true, now
	}
	m.due, m.read = false, now
	return m
}

// IsMet reports whether a threshold is met.
func (p *Pressure) IsMet(t Threshold) bool {
	return slices.ContainsFunc(p.Met, func(m Met) bool { return m.Compare(t) == 0 })
}
