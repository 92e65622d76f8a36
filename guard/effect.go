package guard

import (
	"time"

	"github.com/criguard/criguard/policy"
)

// rise is how a signal came back after a stop.
type rise struct {
	highest int64 // available at most since the stop ended
	at      time.Duration
}

// end notes that a flight's job was seen done.
func (g *Guard) end(f *flight, now time.Duration) {
	f.ended = now
	for s := range policy.SignalCount {
		f.rises[s] = rise{g.obs[s].Available, now}
	}
}

// effect is what is seen now of a stop that has ended. What a disk's bytes do tells nothing
// of its inodes: every signal of the device that is met is looked at.
func (g *Guard) effect(f *flight, now time.Duration) policy.Effect {
	e := policy.Effect{
		Signal: f.met.Signal, Before: f.view.Available, Available: g.obs[f.met.Signal].Available, Expected: f.view.Expected,
		Waited: now - f.ended, Rising: now - f.ended,
	}
	layout := g.kernel.Layout()
	for _, m := range g.pressure.Met {
		if !layout.SameDevice(f.met.Signal, m.Signal) {
			continue
		}
		e.Pressed = true
		r := &f.rises[m.Signal]
		if m.Available-r.highest >= max(m.Deficit/100, 1) { // less is what any node deletes all the time
			*r = rise{m.Available, now}
		}
		e.Rising = min(e.Rising, now-r.at)
	}
	return e
}
