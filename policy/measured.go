package policy

// Quality is how reliable an amount is.
type Quality uint8

// The qualities, worst first.
const (
	QualityUnknown Quality = iota // it may be anything, and never counts as 0
	QualityAtLeast                // the measurement was cut short: the amount is a lower bound
	QualityExact
)

// Measured is an amount from a measurement that may have been cut short.
type Measured struct {
	Value   int64 // 0 when unknown
	Quality Quality
}

// Exactly returns an amount that was measured in full.
func Exactly(v int64) Measured { return Measured{Value: v, Quality: QualityExact} }

// AtLeast returns a lower bound. A bound of 0 or less carries no information and yields unknown.
func AtLeast(v int64) Measured {
	if v <= 0 {
		return Measured{}
	}
	return Measured{Value: v, Quality: QualityAtLeast}
}

// Plus adds two amounts. The sum of a known and an unknown amount is at least the known one.
func (m Measured) Plus(o Measured) Measured {
	sum := addCapped(m.Value, o.Value)
	if m.Quality == QualityExact && o.Quality == QualityExact {
		return Exactly(sum)
	}
	return AtLeast(sum)
}

// Measured converts an amount to one that is either exact or unknown.
func (a Amount) Measured() Measured {
	if !a.Known {
		return Measured{}
	}
	return Exactly(a.Value)
}

// Unmeasured reports whether the usage of an unprotected pod other than the victim is not known
// exactly. That pod may be the right one to stop, so it must be measured again first.
func Unmeasured(ranked []Ranked, victim *Ranked) bool {
	return contains(ranked, func(r *Ranked) bool {
		return r.Protection == "" && r.Quality != QualityExact && (victim == nil || r.ID != victim.ID)
	})
}
