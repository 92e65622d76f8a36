package fleet

import (
	"time"

	"github.com/criguard/criguard/policy"
)

// Saved is the part of a waiter that outlives a restart of the agent, but not of the node. All times are since boot.
type Saved struct {
	Held           map[policy.Pool]time.Duration // for how long the fleet has held the stop of an episode
	AloneSince     time.Duration                 // 0: not alone
	Paused         time.Duration                 // until then
	Trickle, Local SavedTokens
}

// SavedTokens is the state of a bucket.
type SavedTokens struct {
	On    bool
	First time.Duration // when there is the first token
}

// Save returns the state to keep.
func (w *Waiter) Save() Saved {
	s := Saved{
		Held: map[policy.Pool]time.Duration{}, Paused: w.paused,
		Trickle: SavedTokens{w.trickle.on, w.trickle.first}, Local: SavedTokens{w.local.on, w.local.first},
	}
	for p, e := range w.waits {
		if e != nil {
			s.Held[policy.Pool(p)] = e.held
		}
	}
	if since, alone := w.link.aloneSince(); alone {
		s.AloneSince = since
	}
	return s
}

// Restore continues the episodes of a waiter before a restart. Their next contact comes with NextContact. Permits
// are not restored: the agent asks again, with the same ID.
func (w *Waiter) Restore(s Saved, now time.Duration) {
	w.now, w.paused = now, s.Paused
	for p, held := range s.Held {
		if w.Begin(p, now); p < policy.PoolCount {
			w.waits[p].held = held
		}
	}
	if s.AloneSince > 0 {
		w.link = link{failing: true, alone: true, since: s.AloneSince - aloneAfter, next: w.beat.after(now)}
	}
	w.trickle.restore(s.Trickle, now)
	w.local.restore(s.Local, now)
}
