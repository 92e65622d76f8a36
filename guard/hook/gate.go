package hook

import (
	"context"
	"sync"
	"time"
)

// BusyFor bounds how long an event waits for a node that is being relieved: that
// of an alarm comes when nothing relieves it.
const BusyFor = 30 * time.Second

// Gate says when a program may be started. The zero value is open.
type Gate struct {
	mu      sync.Mutex
	state   State
	changed chan struct{} // closed with the next change; nil = nobody waits
}

// State is what shuts a gate.
type State struct {
	Busy    bool // the node is being relieved: a fork can wait
	NoTasks bool // there are no tasks to be had: nothing forks, however long
}

// Set tells how the node is. It never waits.
func (g *Gate) Set(s State) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s == g.state {
		return
	}
	g.state = s
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// Wait waits until a program may be started for an event of that time. The error
// is that of ctx.
func (g *Gate) Wait(ctx context.Context, event time.Time) error {
	for {
		s, changed := g.look()
		late := time.Since(event) >= BusyFor
		if !s.NoTasks && (!s.Busy || late) {
			return ctx.Err()
		}
		var over <-chan time.Time
		timer := time.NewTimer(BusyFor - time.Since(event))
		if !late {
			over = timer.C
		}
		select {
		case <-changed:
		case <-over:
		case <-ctx.Done():
		}
		timer.Stop()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (g *Gate) look() (State, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	return g.state, g.changed
}
