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
	Reason  string
	Left    time.Duration // until the slots are free
	Slot    time.Duration // length of the slot that is free last; 0: no permit at this rate
	Wanting int           // nodes of the zone that want a soft stop, if known
}

// Decide returns whether a fleet permits a stop of a workload in a zone. If it does not, the denial says why. Without
// a permit at rate 0, the denial has no slot.
func (r Rates) Decide(v View, zone, workload string, s Slots) (permitted bool, d Denial) {
	rate, wanting := r.Of(v, zone), v.Zones[zone].Wanting
	switch {
	case v.Paused:
		return false, Denial{Reason: "soft stops are paused"}
	case rate > 0 && s.Zone <= 0 && s.Workload <= 0:
		return true, Denial{}
	case rate > 0 && s.Workload > s.Zone:
		return false, Denial{fmt.Sprintf("workload %s: next permit in %s", workload, policy.ShortDuration(s.Workload)), s.Workload, r.WorkloadInterval, wanting}
	case rate > 0:
		return false, Denial{fmt.Sprintf("%s: next permit in %s", zoneName(zone), policy.ShortDuration(s.Zone)), s.Zone, Slot(rate), wanting}
	case r.FleetFull(v.Zones):
		return false, Denial{Reason: "fleet is full: 0/s"}
	default:
		return false, Denial{Reason: fmt.Sprintf("%s is %s: 0/s", zoneName(zone), r.State(v.Zones[zone]))}
	}
}

// Times of a request after one that was denied because a slot is taken.
const (
	// askEvery is the time between two requests of all nodes of a zone together, as long as that spreads them over at most
	// askWithin: of hundreds of nodes, nearly all are denied each time, and each request costs etcd a connection.
	askEvery  = 500 * time.Millisecond
	askWithin = 2 * time.Minute
)

// spread returns over how long the nodes that were denied spread their next requests.
func (d Denial) spread() time.Duration {
	return max(d.Slot/2, min(time.Duration(d.Wanting)*askEvery, askWithin))
}

func zoneName(zone string) string {
	if zone == "" {
		return "the zone"
	}
	return "zone " + zone
}
