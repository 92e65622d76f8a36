package hook

import (
	"context"
	"sync"
	"time"
)

// busyFor limits how long an event waits while criguard relieves pressure. Otherwise an alarm could
// wait indefinitely: it is raised when relief fails.
const busyFor = 30 * time.Second

// gate controls when programs may be started. The zero value is open.
type gate struct {
	mu      sync.Mutex
	state   gateState
	changed chan struct{} // closed on the next change; nil without waiters
}

// gateState lists the reasons to close a gate.
type gateState struct {
	Busy    bool // criguard is relieving pressure: delay the fork
	NoTasks bool // no free PIDs: do not fork, however long it takes
}

// set updates the node's state. It never blocks.
func (g *gate) set(s gateState) {
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

// wait blocks until a program may be started for an event that happened at the given time. It
// returns ctx's error if ctx ends first.
func (g *gate) wait(ctx context.Context, event time.Time) error {
	for {
		s, changed := g.look()
		late := time.Since(event) >= busyFor
		if !s.NoTasks && (!s.Busy || late) {
			return ctx.Err()
		}
		var over <-chan time.Time
		timer := time.NewTimer(busyFor - time.Since(event))
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

func (g *gate) look() (gateState, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	return g.state, g.changed
}
