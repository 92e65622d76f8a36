package etcd

import (
	"context"
	"errors"
	"time"
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
	if now-c.reported > max(recall, c.opt.Rates.LongestSlot()) {
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

// settle lets the fleet settle, unless it does already or another condition does not hold.
func (c *Client) settle(ctx context.Context, op string, conditions ...*compare) error {
	id, _, err := c.grant(ctx, max(SettlingTTL, c.opt.Rates.LongestSlot()))
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
