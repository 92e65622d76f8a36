package guard

import (
	"fmt"
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

// settle looks at the stops in flight. One has settled when its cgroups are
// empty and its bytes are back, or when that took too long.
func (g *Guard) settle(now time.Duration, p *Pass) {
	kept := g.flights[:0]
	for _, f := range g.flights {
		if view, settled := g.settled(f, now); settled {
			p.Settled = append(p.Settled, view)
			if f.judged() {
				g.waits[f.met.Signal] = wait{}
			}
			if view.Result.Moved || !f.judged() {
				continue
			}
			if h := g.restraint.Check(f.kind, f.met.Signal, "", now); h.By == HeldBreaker {
				p.Alarm, p.AlarmBy = breakerAlarm(f.met.Signal), f.met.Threshold.String()
			}
			continue
		}
		kept = append(kept, f)
	}
	clear(g.flights[len(kept):])
	g.flights = kept
}

// breakerAlarm is what is said of a signal whose breaker is open.
func breakerAlarm(s policy.Signal) string {
	return fmt.Sprintf("%s: the last stops did not move it; no more pods are stopped for it until it is clear", s)
}

// conclude settles the stops that are through without waiting for their effect.
func (g *Guard) conclude() Pass {
	p := Pass{At: g.kernel.Now(), Wake: "end", Conditions: g.pressure.Conditions}
	g.kernel.Observe(&g.obs)
	for _, f := range g.flights {
		f.unawaited = true
	}
	g.settle(p.At, &p)
	g.seq++
	p.ID = g.seq
	return p
}

func (g *Guard) settled(f *flight, now time.Duration) (StopView, bool) {
	select {
	case <-f.job.Done():
	default:
		return StopView{}, false
	}
	if f.ended == 0 {
		g.end(f, now)
	}
	out := f.job.Outcome()
	o := g.obs[f.met.Signal]
	switch {
	case out.Nothing && !f.unawaited && f.view.Kind != kindDrain: // a drain takes nothing from the budget
		g.restraint.Return(f.kind, f.met.Signal, f.workload, f.started)
		g.skip[f.view.Sandbox] = now + ineffective
	case f.unawaited, !f.judged() && f.view.Expected <= 0: // there is no effect to wait for
	case !out.Returned && !g.effect(f, now).Settled():
		return StopView{}, false
	}
	view := *f.view
	res := out.Result
	res.Available, res.SettledIn = o.Available, now-f.started
	res.Moved = policy.Moved(f.met, f.view.Available, o)
	if f.judged() && res.Emptied {
		res.DeadIn = f.launched - f.met.Since + res.EmptiedIn
	}
	view.Result = &res
	if !out.Nothing && f.judged() && (res.Moved || !f.unawaited) {
		g.judgeStop(f.met.Signal, res.Moved)
	}
	return view, true
}
