package fleet

import (
	"fmt"
	"time"

	"github.com/criguard/criguard/policy"
)

// Slots is how long the slots of a request are still taken; 0 means free.
type Slots struct {
	Zone     time.Duration // by another permit of the zone
	Workload time.Duration // by another permit of the workload, in any zone
}

// Denial is why the fleet does not permit a stop now.
type Denial struct {
	Reason string
	Left   time.Duration // until the slots are free
	Slot   time.Duration // length of the slot that is free last; 0: no permit at this rate
}

// Decide returns whether a fleet permits a stop of a workload in a zone. If it does not, the denial says why. Without
// a permit at rate 0, the denial has no slot.
func (r Rates) Decide(v View, zone, workload string, s Slots) (permitted bool, d Denial) {
	rate := r.Of(v, zone)
	switch {
	case v.Paused:
		return false, Denial{Reason: "soft stops are paused"}
	case rate > 0 && s.Zone <= 0 && s.Workload <= 0:
		return true, Denial{}
	case rate > 0 && s.Workload > s.Zone:
		return false, Denial{fmt.Sprintf("workload %s: next permit in %s", workload, policy.ShortDuration(s.Workload)), s.Workload, r.WorkloadInterval}
	case rate > 0:
		return false, Denial{fmt.Sprintf("%s: next permit in %s", zoneName(zone), policy.ShortDuration(s.Zone)), s.Zone, Slot(rate)}
	case r.FleetFull(v.Zones):
		return false, Denial{Reason: "fleet is full: 0/s"}
	default:
		return false, Denial{Reason: fmt.Sprintf("%s is %s: 0/s", zoneName(zone), r.State(v.Zones[zone]))}
	}
}

func zoneName(zone string) string {
	if zone == "" {
		return "the zone"
	}
	return "zone " + zone
}
