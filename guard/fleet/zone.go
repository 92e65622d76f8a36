package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// State is the state of a zone. The names are the node lifecycle controller's.
type State uint8

// The states.
const (
	Normal  State = iota // stops are rare events of single nodes
	Partial              // a large part of the zone wants a soft stop
	Full                 // every member wants a soft stop
)

var stateNames = []string{"normal", "partial", "full"}

// String returns "normal", "partial" or "full".
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// MarshalText returns the name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the name.
func (s *State) UnmarshalText(text []byte) error {
	i := slices.Index(stateNames, string(text))
	if i < 0 {
		return fmt.Errorf("parse zone state %q: not one of %s", text, strings.Join(stateNames, ", "))
	}
	*s = State(i)
	return nil
}

// Zone is how many nodes of a zone are members, and how many of them want a soft stop now. A node wants one if it is
// due, attainable and held by nothing but the fleet.
type Zone struct {
	Members int `json:"members"` // nodes in the zone
	Wanting int `json:"wanting"` // nodes that want a soft stop
}

// Size returns the number of members. A node that wants a stop is a member, even if its membership has expired.
func (z Zone) Size() int { return max(z.Members, z.Wanting) }

// View is what a member knows of the fleet at one moment.
type View struct {
	Zones    map[string]Zone
	Settling bool // the fleet's store was empty a short time ago, so its counts say little about the zones
	Paused   bool // an operator has suspended soft stops
}

// State returns the state of a zone.
func (r Rates) State(z Zone) State {
	switch n := z.Size(); {
	case n < r.MinZone || z.Wanting == 0:
		return Normal
	case z.Wanting == n:
		return Full
	case z.Wanting > 2 && r.reached(z.Wanting, n):
		return Partial
	default:
		return Normal
	}
}

// FleetFull reports whether all zones of at least MinZone members are full, there is one, and the share of all
// members that want a stop reaches Unhealthy: a bad rollout looks like this.
func (r Rates) FleetFull(zones map[string]Zone) bool {
	var all Zone
	full := false
	for _, z := range zones {
		all.Members += z.Size()
		all.Wanting += z.Wanting
		if z.Size() >= r.MinZone {
			if r.State(z) != Full {
				return false
			}
			full = true
		}
	}
	return full && r.reached(all.Wanting, all.Members)
}

// reached reports whether a part is at least the share Unhealthy of a whole.
func (r Rates) reached(part, whole int) bool {
	return int64(part)*int64(one) >= int64(r.Unhealthy)*int64(whole)
}

// Of returns how many soft stops a second a zone may make. A pause comes first, then settling, then a full fleet, and
// then the state of the zone.
func (r Rates) Of(v View, zone string) Millionths {
	z := v.Zones[zone]
	switch {
	case v.Paused:
		return 0
	case v.Settling:
		return r.Secondary
	case r.FleetFull(v.Zones):
		return 0
	case r.State(z) == Normal:
		return r.Rate
	case z.Size() > r.LargeZone:
		return r.Secondary
	default:
		return 0
	}
}

// MinSlot is the shortest slot. It is the shortest time to live that etcd grants with its default election timeout.
const MinSlot = 2 * time.Second

// LongestSlot returns for how long a permit takes the slot of a zone or of a workload at most.
func (r Rates) LongestSlot() time.Duration {
	return max(r.WorkloadInterval, Slot(r.Rate), Slot(r.Secondary))
}

// Slot returns for how long a permit at a rate takes its zone's slot: the time between two permits, rounded up to
// whole seconds, which is the unit of etcd's leases, and at least MinSlot. At rate 0 there are no permits, and it
// returns 0.
func Slot(rate Millionths) time.Duration {
	if rate <= 0 {
		return 0
	}
	return max(time.Duration((one+rate-1)/rate)*time.Second, MinSlot)
}
