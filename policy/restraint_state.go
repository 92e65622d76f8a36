package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrImplausible is a saved restraint that cannot be one.
var ErrImplausible = errors.New("implausible state")

// Bounds of what a saved restraint may say. No boot lasts longer than maxUptime.
const (
	maxUptime    = 100 * 365 * 24 * time.Hour
	maxSavedSize = 1 << 20 // bytes of JSON
)

// saved is the JSON of a restraint. Times are nanoseconds since boot.
type saved struct {
	BootID    string             `json:"boot_id"`
	Now       time.Duration      `json:"now"`
	Hard      fill               `json:"hard"`
	Soft      fill               `json:"soft"`
	Recent    []recentStop       `json:"recent,omitempty"`
	Workloads map[string]stopped `json:"workloads,omitempty"`
	Fruitless map[string]int     `json:"fruitless,omitempty"` // by signal
}

// MarshalJSON saves what was stopped. The bounds are not saved: they come from
// the configuration.
func (r *Restraint) MarshalJSON() ([]byte, error) {
	s := saved{
		BootID: r.bootID, Now: r.now, Hard: r.fills[Hard], Soft: r.fills[Soft],
		Recent: r.recent, Workloads: r.workloads, Fruitless: map[string]int{},
	}
	for sig, n := range r.fruitless {
		if n > 0 {
			s.Fruitless[Signal(sig).String()] = n
		}
	}
	return json.Marshal(s)
}

// UnmarshalJSON restores what MarshalJSON saved and keeps the bounds in force.
// What cannot be true is taken for what holds back most: a stop in the future
// happened just now. On an error the restraint stays as it was.
func (r *Restraint) UnmarshalJSON(data []byte) error {
	var s saved
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
	saneFill := func(f fill) fill { return fill{Used: max(f.Used, 0), At: sane(f.At)} }
	n := Restraint{bootID: s.BootID, budget: r.budget, backoff: r.backoff, now: s.Now}
	for k, f := range [kindCount]fill{Hard: s.Hard, Soft: s.Soft} {
		n.fills[k] = saneFill(f)
	}
	for _, stop := range s.Recent {
		n.recent = append(n.recent, recentStop{sane(stop.At), stop.Kind, saneFill(stop.Before)})
	}
	slices.SortFunc(n.recent, func(a, b recentStop) int { return cmp.Compare(a.At, b.At) })
	for name, w := range s.Workloads {
		if n.workloads == nil {
			n.workloads = map[string]stopped{}
		}
		w.First, w.Last, w.Previous, w.Count = sane(w.First), sane(w.Last), sane(w.Previous), min(max(w.Count, 1), maxInARow)
		n.workloads[name] = w
	}
	for name, count := range s.Fruitless {
		if sig, err := ParseSignal(name); err == nil {
			n.fruitless[sig] = min(max(count, 0), maxFruitless)
		}
	}
	*r = n
	return nil
}

// LoadRestraint restores a restraint that was saved on this boot. Data from
// another boot starts afresh: its times mean nothing here, and a reboot may
// refill the budget. So does data that cannot be read, with an error that says
// why. The restraint can be used in either case and is to be configured next.
func LoadRestraint(data []byte, bootID string, now time.Duration) (*Restraint, error) {
	r := NewRestraint(bootID)
	err := json.Unmarshal(data, r)
	if err != nil || r.bootID != bootID {
		r = NewRestraint(bootID)
	}
	r.at(now)
	return r, err
}
