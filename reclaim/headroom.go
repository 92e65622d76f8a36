package reclaim

import (
	"context"
	"fmt"
	"time"
)

// Room is the measurement of a target, by statfs.
type Room struct {
	Bytes, Inodes int64 // free now, with what is reserved for root
	// LackBytes and LackInodes are missing to the target; 0 or less = met.
	LackBytes, LackInodes int64
	// Unlimited means that no room is enough: a run removes everything eligible, and only measures.
	Unlimited bool
	Lag       time.Duration // how long what was deleted may count as used, see cgroup.Space
}

// Met reports whether nothing is missing.
func (r Room) Met() bool { return !r.Unlimited && r.LackBytes <= 0 && r.LackInodes <= 0 }

// Target measures how much room there is and how much is missing.
type Target func(ctx context.Context) (Room, error)

// Bounds of the wait for what a removal frees; containerd frees it within 0.3 s of its answer.
const (
	settleAtMost = 2 * time.Second
	settleStill  = 500 * time.Millisecond // no rise for this long = no more space will come
)

// gauge tracks the room. In a dry run it subtracts the size of the items that would be removed, but no inodes.
type gauge struct {
	target Target
	dryRun bool
	room   Room
	err    error // the target could not be measured: remove nothing more
	// The space and inodes that came back at each removal.
	bytes, inodes gain
}

// gain sums up how far an amount rose, from each begin to the highest value until the next. Something else
// that takes the amount in between, such as a pod that writes, does not count.
type gain struct {
	base, peak, sum int64
	begun           bool // before the first begin, a rise has another cause
}

func (r *gain) see(v int64) { r.peak = max(r.peak, v) }

func (r *gain) begin(v int64) {
	r.sum = r.total()
	r.base, r.peak, r.begun = v, v, true
}

func (r *gain) total() int64 {
	if !r.begun {
		return 0
	}
	return r.sum + r.peak - r.base
}

// begin measures right before a removal.
func (g *gauge) begin(ctx context.Context) error {
	if err := g.measure(ctx); err != nil {
		return err
	}
	g.bytes.begin(g.room.Bytes)
	g.inodes.begin(g.room.Inodes)
	return nil
}

// freed returns what the removals since the last call brought.
func (g *gauge) freed() (bytes, inodes int64) {
	bytes, inodes = g.bytes.total(), g.inodes.total()
	g.bytes, g.inodes = gain{}, gain{}
	return bytes, inodes
}

// met reports whether the target is met; without a target it never is.
func (g *gauge) met() bool { return g.target != nil && g.err == nil && g.room.Met() }

// isUnsure reports whether inodes are missing in a dry run: how many a removal would free is not known.
func (g *gauge) isUnsure() bool { return g.dryRun && g.target != nil && g.room.LackInodes > 0 }

// measure measures the target.
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
	g.bytes.see(room.Bytes)
	g.inodes.see(room.Inodes)
	return nil
}

// after updates the room after the removal of an item.
func (g *gauge) after(ctx context.Context, it Item) error {
	if g.dryRun {
		g.room.LackBytes -= it.Size
		return nil
	}
	return g.measure(ctx)
}

// settle waits until the target is met, the expected number of bytes is back since before, or no more
// space comes.
func (g *gauge) settle(ctx context.Context, before, expected int64) error {
	if g.target == nil || g.dryRun {
		return nil
	}
	measure := func(ctx context.Context) (Room, error) {
		err := g.measure(ctx)
		return g.room, err
	}
	enough := func(r Room) bool { return r.Met() || expected > 0 && r.Bytes-before >= expected }
	return Settling{Still: settleStill, AtMost: settleAtMost}.Await(ctx, measure, enough)
}
