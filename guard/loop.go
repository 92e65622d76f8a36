package guard

import (
	"context"
	"time"

	"github.com/criguard/criguard/policy"
)

// Loop runs passes: when something wakes it, and when the pacer says so.
type Loop struct {
	Guard *Guard
	// Wakes are hints that the node may have changed: each a short word.
	Wakes <-chan string
	// Calls run between two passes, in the loop's goroutine.
	Calls <-chan func()
	// After is told of every pass. It must not wait.
	After func(*Pass)
}

// minGap is the least time between two passes that wakes began, however many come. A
// wake does not wait for what the timer began: near a threshold that is every few
// milliseconds.
const minGap = minPause

// Run passes until ctx ends. The first pass is at once.
func (l *Loop) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	wake, due := "start", time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case call := <-l.Calls:
			call()
			continue
		case w := <-l.Wakes:
			wake = w
			if gap := time.Until(due); gap > 0 {
				// Too soon after the last pass: the wake is remembered and the
				// pass made when it may be.
				timer.Reset(gap)
				continue
			}
		case <-timer.C:
		}
		p := l.Guard.Pass(ctx, wake)
		if wake != "timer" {
			due = time.Now().Add(minGap)
		}
		l.After(&p)
		wake = "timer"
		timer.Reset(l.Guard.Pause())
	}
}

// Pause is how long the loop may sleep after the last pass.
func (g *Guard) Pause() time.Duration {
	g.pacer.see(&g.obs, g.kernel.Now())
	d := g.pacer.pause(g.thresholds, g.pressure, &g.obs, g.cfg.Eviction.Interval)
	if g.drainMore {
		return minPause
	}
	if left, waits := g.reliefPause(g.kernel.Now()); waits {
		d = max(min(d, left), minPause)
	}
	for s := range g.waits {
		if g.waits[s].used != nil { // somebody may be seen to be the cause
			d = min(d, g.pacer.caught(policy.Signal(s), g.obs[s]))
		}
	}
	for _, f := range g.flights {
		if f.ended != 0 {
			return min(d, jobPause) // the bytes are on their way back
		}
	}
	return d
}
