package scenario

import (
	"slices"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
)

// passes is criguard's history. While criguard restarts there is none.
func (n *Node) passes() []guard.Pass {
	passes, err := n.guard.History(n.context(), 0)
	if err != nil {
		return nil
	}
	return passes
}

// stops are the stops in criguard's history, in their order.
func (n *Node) stops() []guard.StopView {
	var stops []guard.StopView
	for _, p := range n.passes() {
		if p.Stop != nil {
			stops = append(stops, *p.Stop)
		}
	}
	return stops
}

// settledStops are the stops whose effect is known.
func (n *Node) settledStops() []guard.StopView {
	var stops []guard.StopView
	for _, p := range n.passes() {
		stops = append(stops, p.Settled...)
	}
	return stops
}

// Stopped waits until criguard has stopped the pod for the signal by a stop of that kind ("hard"), and
// returns the stop with its effect.
func (n *Node) Stopped(p *Pod, signal policy.Signal, kind string) guard.StopView {
	p.stopped = true
	var stop guard.StopView
	n.Until("stop of "+p.ID()+" for "+signal.String(), func() bool {
		all := n.settledStops()
		i := slices.IndexFunc(all, func(s guard.StopView) bool { return s.UID == p.UID })
		if i < 0 {
			return false
		}
		stop = all[i]
		return true
	})
	if stop.Signal != signal.String() || stop.Kind != kind {
		n.Errorf("%s was stopped for %s (%s), want %s (%s)", p.ID(), stop.Signal, stop.Kind, signal, kind)
	}
	switch r := stop.Result; {
	case r == nil || !r.Emptied:
		n.Errorf("%s was stopped without effect: %+v", p.ID(), r)
	default:
		n.Sayf("stopped %s for %s (%s), empty after %s by %s", p.ID(), signal, kind, r.EmptiedIn.Round(1e6), r.Method)
	}
	return stop
}
