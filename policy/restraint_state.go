package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrImplausible means that a saved restraint contains impossible values.
var ErrImplausible = errors.New("implausible state")

// Limits for a saved restraint. No boot lasts longer than maxUptime.
const (
	maxUptime    = 100 * 365 * 24 * time.Hour
	maxSavedSize = 4 << 20 // bytes of JSON
)

// saved is the JSON form of a restraint. Times are nanoseconds since boot.
type saved struct {
	BootID   string           `json:"boot_id"`
	Now      time.Duration    `json:"now"`
	Stops    []Stop           `json:"stops,omitempty"`
	Breakers map[Pool]breaker `json:"breakers,omitempty"`

	Limited   map[string]Limited `json:"limited,omitempty"`
	Protected ProtectedPods      `json:"protected"`
}

// savedStop is a stop as it is read.
type savedStop struct {
	Stop
	Next *Wait `json:"next"` // the only disk that could wait for a stop in an earlier version
}

// MarshalJSON saves the recorded stops. It does not save the limits, which come from the configuration.
func (r *Restraint) MarshalJSON() ([]byte, error) {
	s := saved{r.bootID, r.now, r.stops, map[Pool]breaker{}, r.Limited, r.Protected}
	for p, b := range r.breakers {
		if b.counts() {
			s.Breakers[Pool(p)] = b
		}
	}
	return json.Marshal(s)
}

// UnmarshalJSON restores what MarshalJSON saved and keeps the current limits. It replaces an impossible
// value with the most restrictive one: a stop in the future becomes a stop just now. Each pool waits for one stop at most, and
// the others are over once their outcome is known. On an error, the restraint does not change.
func (r *Restraint) UnmarshalJSON(data []byte) error {
	var s struct {
		saved
		Stops []savedStop `json:"stops"`
	}
	if len(data) > maxSavedSize {
		return fmt.Errorf("restore restraint: %d bytes: %w", len(data), ErrImplausible)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("restore restraint: %w", err)
	}
	if s.Now < 0 || s.Now > maxUptime {
		return fmt.Errorf("restore restraint: %s since boot: %w", s.Now, ErrImplausible)
	}
	sane := func(t time.Duration) time.Duration { return min(max(t, s.Now-maxUptime), s.Now) }
	n := Restraint{bootID: s.BootID, budget: r.budget, backoff: r.backoff, now: s.Now}
	for _, read := range s.Stops {
		stop := read.Stop
		if read.Next != nil {
			stop.Waits = append(stop.Waits, *read.Next)
		}
		stop.At, stop.Taken, stop.Count = sane(stop.At), sane(stop.Taken), min(max(stop.Count, 1), maxInARow)
		stop.Expected, stop.Back, stop.Need = max(stop.Expected, 0), max(stop.Back, 0), max(stop.Need, 0)
		stop.Kept, stop.Free = max(stop.Kept, 0), cmp.Or(stop.Free, stop.Available)
		stop.Grace = min(max(stop.Grace, 0), maxUptime)
		stop.met = s.Now // it may be back
		n.stops = append(n.stops, stop)
	}
	slices.SortStableFunc(n.stops, func(a, b Stop) int { return cmp.Compare(a.At, b.At) })
	var waits [PoolCount]bool
	for i := len(n.stops) - 1; i >= 0; i-- {
		switch stop := &n.stops[i]; {
		case stop.Over:
		case stop.isAwaited() && !waits[stop.Pool]:
			waits[stop.Pool] = true
		case stop.Pass == 0:
			stop.Over = true
		default:
			stop.Released = true
		}
	}
	for i := len(n.stops) - 1; i >= 0; i-- {
		all := n.stops[i].Waits
		n.stops[i].Waits = nil
		for _, w := range all {
			if w.Pool.IsDisk() && !waits[w.Pool] {
				w.Expected, waits[w.Pool] = max(w.Expected, 0), true
				n.stops[i].AwaitDisk(w)
			}
		}
	}
	for p, b := range s.Breakers {
		b.Fruitless, b.Need, b.Seen = min(max(b.Fruitless, 0), maxInARow), max(b.Need, 0), sane(b.Seen)
		b.Last = b.Last[max(len(b.Last)-maxInARow, 0):]
		for i := range b.Last {
			b.Last[i].Back, b.Last[i].At = max(b.Last[i].Back, 0), sane(b.Last[i].At)
		}
		n.breakers[p] = b
	}
	n.Protected = ProtectedPods{sane(s.Protected.At), s.Protected.Sandboxes}
	for uid, l := range s.Limited {
		l.Seen, l.Kept = s.Now, max(l.Kept, 0)
		n.Limit(uid, l)
	}
	*r = n
	return nil
}

// LoadRestraint restores a restraint that was saved on this boot. Data from another boot is discarded:
// its times have no meaning here, and a reboot may refill the budget. Unreadable data is discarded,
// too, and the error says why. The returned restraint is always usable; call Configure next.
func LoadRestraint(data []byte, bootID string, now time.Duration) (*Restraint, error) {
	r := NewRestraint(bootID)
	err := json.Unmarshal(data, r)
	if err != nil || r.bootID != bootID {
		r = NewRestraint(bootID)
	}
	r.shift(max(r.now-now, 0)) // nothing expires before Configure
	r.unseen(max(now-r.now, 0))
	r.now = now
	return r, err
}
