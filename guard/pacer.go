package guard

import (
	"time"

	"github.com/criguard/criguard/policy"
)

// Bounds of the pause between two looks at memory. The node is never looked at
// more often than every minPause, whatever wakes the loop.
const (
	minPause  = 5 * time.Millisecond
	maxPause  = time.Second
	heldPause = 250 * time.Millisecond // while a met threshold is held back
	jobPause  = 10 * time.Millisecond  // while a stop's effect is waited for
)

// unseenAtMost is how much of a time without a pass, or without a reading, counts for a
// grace period: as much as the kubelet has between two looks, and ten times what lies
// between two passes on a node that is not too busy to make them. More is a node that was
// suspended, or a disk that did not answer, and nobody saw the pressure go on.
const unseenAtMost = 10 * maxPause

// minFill is the fill rate assumed when none was seen: bytes per second.
const minFill = 1 << 30

// fillMemory is how long a fill rate that was seen counts.
const fillMemory = time.Minute

// fillSpan is the least time that a fill rate is taken over. The kernel adds up what each
// CPU has charged in lumps of megabytes: between two looks 5 ms apart, one such lump would
// pass for a fill that no memory could take.
const fillSpan = 50 * time.Millisecond

// pacer decides how long the loop may sleep: half of what the fastest fill seen
// lately needs to eat the headroom. It is pure: readings come in, a pause comes out.
type pacer struct {
	last   [policy.SignalCount]policy.Observation
	rate   int64 // bytes per second, the fastest in the running minute
	older  int64 // and in the minute before it
	window time.Duration
}

// see learns the fill rate from one more reading of the byte signals of memory.
func (p *pacer) see(obs *policy.Observations, now time.Duration) {
	if now-p.window >= fillMemory {
		p.older, p.rate, p.window = p.rate, 0, now
	}
	for s := range policy.SignalCount {
		o := obs[s]
		if o.Status != policy.OK || !paced(s) {
			continue
		}
		if l := p.last[s]; l.Status == policy.OK {
			drop, dt := l.Available-o.Available, o.At-l.At
			if dt < fillSpan {
				continue
			}
			if drop > 0 {
				p.rate = max(p.rate, perSecond(drop, dt))
			}
		}
		p.last[s] = o
	}
}

// paced tells the signals that can fall fast enough to be looked at more often
// than once a second.
func paced(s policy.Signal) bool {
	switch s {
	case policy.MemoryAvailable, policy.AllocatableMemoryAvailable, policy.MeminfoAvailable, policy.SwapAvailable:
		return true
	default:
		return false
	}
}

func perSecond(n int64, d time.Duration) int64 {
	return int64(float64(n) / d.Seconds())
}

// pause returns how long the loop may sleep. Thresholds that are met already ask
// for what they wait for, the others for half of the time until the fastest
// fill could reach them.
func (p *pacer) pause(ts []policy.Threshold, pr policy.Pressure, obs *policy.Observations, interval time.Duration) time.Duration {
	d := min(maxPause, interval)
	rate := p.fastest()
	for _, t := range ts {
		o := obs[t.Signal]
		if o.Status != policy.OK || !paced(t.Signal) || isMet(pr, t) {
			continue
		}
		headroom := o.Available - t.Value.Of(o.Capacity)
		d = min(d, time.Duration(float64(headroom)/(2*float64(rate))*float64(time.Second)))
	}
	for _, m := range pr.Met {
		if m.Due {
			d = min(d, heldPause)
		} else {
			d = min(d, m.Wait)
		}
	}
	return max(d, minPause)
}

// caught returns how long the loop may sleep while a met signal must not run out unseen: half
// of the time in which the fastest fill takes what is left; no bound for signals that fall slowly.
func (p *pacer) caught(s policy.Signal, o policy.Observation) time.Duration {
	if o.Status != policy.OK || !paced(s) {
		return maxPause
	}
	return max(minPause, time.Duration(float64(o.Available)/(2*float64(p.fastest()))*float64(time.Second)))
}

// fastest is the fill rate that is reckoned with.
func (p *pacer) fastest() int64 { return max(p.rate, p.older, minFill) }

func isMet(pr policy.Pressure, t policy.Threshold) bool {
	for i := range pr.Met {
		if pr.Met[i].Signal == t.Signal && pr.Met[i].Kind == t.Kind {
			return true
		}
	}
	return false
}
