package scenario

import (
	"fmt"
	"slices"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// passes returns criguard's history, or nil while criguard restarts.
func (n *Node) passes() []api.Pass {
	passes, err := n.guard.History(n.context(), 0)
	if err != nil {
		return nil
	}
	return passes
}

// stops returns the stops in criguard's history, in order.
func (n *Node) stops() []api.StopView {
	var stops []api.StopView
	for _, p := range n.passes() {
		if p.Stop != nil {
			stops = append(stops, *p.Stop)
		}
	}
	return stops
}

// settledStops returns the stops whose effect is known.
func (n *Node) settledStops() []api.StopView {
	var stops []api.StopView
	for _, p := range n.passes() {
		stops = append(stops, p.Settled...)
	}
	return stops
}

// NobodyStopped checks for the given time that criguard stops no pod.
func (n *Node) NobodyStopped(within time.Duration) {
	end := time.Now().Add(within)
	for time.Now().Before(end) && len(n.stops()) == 0 {
		time.Sleep(200 * time.Millisecond)
	}
	for _, s := range n.stops() {
		n.Wrongf("%s was stopped, which nobody wanted: %s", s.Pod, s.Reason)
	}
}

// Stopped waits until criguard has stopped the pod with a stop of that kind ("hard") for one of the
// signals, and returns the stop with its effect.
func (n *Node) Stopped(p *Pod, kind string, signals ...policy.Signal) api.StopView {
	stop := n.stopped(p, kind, signals...)
	if r := stop.Result; r != nil {
		n.Sayf("stopped %s for %s (%s), empty after %s by %s", p.ID(), stop.Signal, kind, r.EmptiedIn.Round(time.Millisecond), r.Method)
	}
	return stop
}

// stopped is Stopped without a line in the report.
func (n *Node) stopped(p *Pod, kind string, signals ...policy.Signal) api.StopView {
	p.stopped = true
	n.victims = append(n.victims, p)
	var stop api.StopView
	n.Until(fmt.Sprintf("stop of %s for %v", p.ID(), signals), func() bool {
		all := n.settledStops()
		i := slices.IndexFunc(all, func(s api.StopView) bool { return s.UID == p.UID })
		if i < 0 {
			return false
		}
		stop = all[i]
		return true
	})
	known := slices.ContainsFunc(signals, func(s policy.Signal) bool { return s.String() == stop.Signal })
	if !known || stop.Kind != kind {
		n.Errorf("%s was stopped for %s (%s), want %v (%s)", p.ID(), stop.Signal, stop.Kind, signals, kind)
	}
	if r := stop.Result; r == nil || !r.Emptied {
		n.Errorf("%s was stopped without effect: %+v", p.ID(), r)
	}
	return stop
}

// allow accepts the stops of at most so many pods, of any kind, and returns how many there were.
func (n *Node) allow(most int) int {
	stops, gone := n.stops(), 0
	for _, p := range n.pods {
		if i := slices.IndexFunc(stops, func(s api.StopView) bool { return s.UID == p.UID }); i >= 0 {
			p.stopped = true
			if gone++; gone > most {
				n.Errorf("%d pods were stopped, want %d at most: %s", gone, most, n.Shell(fmt.Sprintf("criguard explain %d", stops[i].Pass)))
			}
		}
	}
	return gone
}
