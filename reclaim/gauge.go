package reclaim

import (
	"context"
	"fmt"
	"time"
)

// Room is what a target measures, by statfs.
type Room struct {
	Bytes, Inodes int64 // available now
	// LackBytes and LackInodes are what is missing to the target; 0 or less = met.
	LackBytes, LackInodes int64
}

// Met reports whether nothing is missing.
func (r Room) Met() bool { return r.LackBytes <= 0 && r.LackInodes <= 0 }

// Target measures how much room there is and how much is missing.
type Target func(ctx context.Context) (Room, error)

// Times of waiting for a runtime that frees space after it has answered:
// containerd does so within 0.3 s.
const (
	settleAtMost  = 2 * time.Second
	settleQuiet   = 500 * time.Millisecond // no change for so long = nothing more comes
	settlePoll    = 10 * time.Millisecond
	settlePollMax = 100 * time.Millisecond
)

// gauge follows the room. In a dry run it takes off what would be removed.
type gauge struct {
	target Target
	dryRun bool
	room   Room
	err    error // the target could not be measured: nothing more may be removed
}

// met reports whether the target is met; without one it never is.
func (g *gauge) met() bool { return g.target != nil && g.err == nil && g.room.Met() }

// measure asks the target.
func (g *gauge) measure(ctx context.Context) error {
	if g.target == nil {
		return nil
	}
	room, err := g.target(ctx)
	if err != nil {
		g.err = fmt.Errorf("measure target: %w", err)
		return g.err
	}
	g.room = room
	return nil
}

// after takes in that an item was removed.
func (g *gauge) after(ctx context.Context, it Item) error {
	if g.dryRun {
		g.room.LackBytes -= it.Size
		return nil
	}
	return g.measure(ctx)
}

// settle waits until the target is met, what was expected has come back since
// before, or nothing more comes.
func (g *gauge) settle(ctx context.Context, before, expected int64) error {
	if g.target == nil || g.dryRun {
		return nil
	}
	started := time.Now()
	changed, last := started, g.room.Bytes
	wait := settlePoll
	for !g.met() && (expected <= 0 || g.room.Bytes-before < expected) {
		now := time.Now()
		if now.Sub(started) >= settleAtMost || now.Sub(changed) >= settleQuiet {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
			wait = min(2*wait, settlePollMax)
		}
		if err := g.measure(ctx); err != nil {
			return err
		}
		if g.room.Bytes != last {
			changed, last = time.Now(), g.room.Bytes
		}
	}
	return nil
}
