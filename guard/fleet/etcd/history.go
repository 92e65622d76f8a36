package etcd

import (
	"context"
	"errors"
	"time"

	"github.com/criguard/criguard/guard/fleet"
)

// position is how far etcd's history had come when this client last looked; zero = not known.
type position struct{ cluster, revision int64 }

// recall is for how long a position counts without a report. All nodes report within this time, so what a node notices that was
// away for longer has been noticed before.
const recall = 80 * time.Minute

// forget forgets a position that does not count any more.
func (c *Client) forget(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now-c.reported > max(recall, c.longestSlot(now)) {
		c.seen, c.back, c.reported = position{}, false, 0
	}
}

func (c *Client) position() position {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

// follow notes the position that an answer shows, and whether etcd has gone back behind the one before the call: it was restored
// from a snapshot, or lost its data. Transactions are linearizable, so that of one etcd, even of another member, does not go back.
func (c *Client) follow(before position, h *header) {
	if h == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = position{h.cluster, h.revision}
	c.back = c.back || before != position{} && (c.seen.cluster != before.cluster || c.seen.revision < before.revision)
}

// wentBack reports whether etcd has gone back since the last report that succeeded.
func (c *Client) wentBack() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.back
}

// applied notes the rates that are in force, also by the operators' policy. Slots that were taken by others last on.
func (c *Client) applied(rates fleet.Rates) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.opt.Now()
	if slot := rates.LongestSlot(); slot >= c.longestSlot(now) {
		c.longest, c.longestAt = slot, now
	}
}

// longestSlot returns how long a slot may last that was taken until now. The caller holds the lock.
func (c *Client) longestSlot(now time.Duration) time.Duration {
	if now-c.longestAt > c.longest {
		return c.opt.Rates.LongestSlot()
	}
	return max(c.longest, c.opt.Rates.LongestSlot())
}

// settle lets the fleet settle, unless it does already or another condition does not hold.
func (c *Client) settle(ctx context.Context, op string, conditions ...*compare) error {
	c.mu.Lock()
	whole := max(SettlingTTL, c.longestSlot(c.opt.Now()))
	c.mu.Unlock()
	id, _, err := c.grant(ctx, whole)
	if err != nil {
		return err
	}
	settling := c.keys.settling()
	resp, err := c.transact(ctx, op, &txnRequest{
		compare: append(conditions, absent(settling)),
		success: []*requestOp{put(settling, "{}", id)},
		failure: []*requestOp{get(settling)},
	})
	if err == nil && (resp.succeeded || leaseOf(first(resp.responses[0].read)) == id) { // a repeated call fails
		return nil
	}
	if isUnknown(err) { // it may settle, and others may rely on it already
		return err
	}
	return errors.Join(err, c.abandon(ctx, id))
}
