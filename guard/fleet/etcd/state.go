package etcd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// How long keys live without Report. Report at a third of it.
const (
	MemberTTL   = 3 * time.Hour
	WantTTL     = 10 * time.Minute
	SettlingTTL = 70 * time.Minute // longer than it takes all members to report; longer if a slot may be
)

// State is what a node reports to the fleet.
type State struct {
	Digest  string   // of its configuration
	Version string   // of criguard
	Pools   []string // that want a soft stop; empty = none
}

// memberValue is the value of a member's key, wantValue of a want's.
type memberValue struct {
	Digest   string `json:"digest"`
	Version  string `json:"version"`
	Instance string `json:"instance,omitempty"` // the client that reported; absent before criguard had it
}

type wantValue struct {
	Pools   []string `json:"pools"`
	Digest  string   `json:"digest"`
	Version string   `json:"version"`
}

// key is a key of the node as it is in etcd and as it should be.
type key struct {
	name  string
	value string
	ttl   time.Duration
	lease int64 // 0 = it needs a new one
	fresh bool  // it is as it should be, and renewed
}

// Report makes the node a member of its zone and reports which pools want a soft stop. If etcd has the same already, it
// only renews the leases, which costs etcd no write.
func (c *Client) Report(ctx context.Context, s State) error {
	const op = "report state"
	now := c.opt.Now()
	c.forget(now)
	err := c.revokeOrphans(ctx) // a key may have one of them
	if err != nil {
		return err
	}
	for range 3 { // a lease may be revoked since it was renewed, and etcd may have lost its data since it was read
		if err = c.report(ctx, op, s); err == nil {
			c.mu.Lock()
			c.reported = now
			c.mu.Unlock()
		}
		if !isGone(err) {
			return err
		}
	}
	return refuse(op, ErrRefused, err.Error())
}

func (c *Client) report(ctx context.Context, op string, s State) error {
	member, err := json.Marshal(memberValue{s.Digest, s.Version, c.instance})
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	want, err := json.Marshal(wantValue{s.Pools, s.Digest, s.Version})
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	m := key{name: c.keys.member(c.opt.Zone, c.opt.Node), value: string(member), ttl: MemberTTL}
	u := key{name: c.keys.want(c.opt.Zone, c.opt.Node), value: string(want), ttl: WantTTL}
	r, err := c.read(ctx, op, get(m.name), get(u.name), get(c.keys.settling()))
	if err != nil {
		return err
	}
	if c.wentBack() {
		if first(r[2]) == nil {
			if err := c.settle(ctx, op); err != nil {
				return err
			}
		}
		c.mu.Lock()
		c.back, c.reported = false, 0 // the member's key may be from before this client
		c.mu.Unlock()
	}
	c.compareName(first(r[0]))
	if err := c.refresh(ctx, &m, first(r[0])); err != nil {
		return err
	}
	if old := first(r[1]); len(s.Pools) > 0 {
		if err := c.refresh(ctx, &u, old); err != nil {
			return err
		}
	} else {
		u.fresh = true
		if old != nil {
			if err := c.revoke(ctx, old.lease); err != nil {
				return err
			}
		}
	}
	if m.fresh && u.fresh {
		return nil
	}
	begun := cmp.Or(first(r[0]), first(r[2]))
	if begun == nil {
		others := list(c.keys.members(), true)
		others.read.limit = 1
		r, err := c.read(ctx, op, others) // etcd visits all members to count them
		if err != nil {
			return err
		}
		if begun = first(r[0]); begun == nil {
			if err := c.settle(ctx, op, noneBelow(c.keys.members())); err != nil {
				return err
			}
			begun = &keyValue{key: c.keys.settling()}
		}
	}
	return c.write(ctx, op, m, u, begun.key)
}

// compareName notes if another client has reported under the node's name since this one did. A client that has not reported yet
// to this history of etcd cannot tell: it may follow one on the same node.
func (c *Client) compareName(kv *keyValue) {
	var v memberValue
	if kv == nil || json.Unmarshal([]byte(kv.value), &v) != nil || v.Instance == "" || v.Instance == c.instance {
		return
	}
	now := c.opt.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reported > 0 {
		c.other = now
	}
}

// nameTaken reports whether another node has reported under the same name within the time that all nodes report in.
func (c *Client) nameTaken() bool {
	now := c.opt.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.other > 0 && now-c.other < MemberTTL
}

// refresh renews the lease of a key that etcd has, which may have another value there.
func (c *Client) refresh(ctx context.Context, k *key, kv *keyValue) error {
	if kv == nil || kv.lease == 0 {
		return nil
	}
	switch err := c.renew(ctx, kv.lease); {
	case isGone(err):
		return nil
	case err != nil:
		return err
	}
	k.lease, k.fresh = kv.lease, kv.value == k.value
	return nil
}

// write puts the keys in one transaction if a key exists that shows that the fleet has members or settles. Else etcd has lost its
// data meanwhile, and write returns errLeaseGone.
func (c *Client) write(ctx context.Context, op string, m, u key, begun string) error {
	var granted []int64
	txn := &txnRequest{compare: []*compare{present(begun)}}
	for _, k := range []*key{&m, &u} {
		if k == &u && u.fresh {
			continue
		}
		if k.lease == 0 {
			id, _, err := c.grant(ctx, k.ttl)
			if err != nil {
				return errors.Join(err, c.abandon(ctx, granted...))
			}
			k.lease, granted = id, append(granted, id)
		}
		txn.success = append(txn.success, put(k.name, k.value, k.lease))
	}
	resp, err := c.transact(ctx, op, txn)
	if err == nil && !resp.succeeded {
		err = fmt.Errorf("%s: %w", op, errLeaseGone)
	}
	if err != nil {
		return errors.Join(err, c.abandon(ctx, granted...))
	}
	return nil
}

// Forget removes a node from the fleet, in every zone. A node that still runs comes back with its next report. It
// returns how many keys it removed, and needs an operator's role.
func (c *Client) Forget(ctx context.Context, node string) (removed int, err error) {
	r, err := c.read(ctx, "find node", list(c.keys.members(), true), list(c.keys.wants(), true))
	if err != nil {
		return 0, err
	}
	for i, prefix := range []string{c.keys.members(), c.keys.wants()} {
		for _, kv := range r[i].kvs {
			if _, name, ok := splitNode(prefix, kv.key); !ok || name != node {
				continue
			}
			if err := c.revoke(ctx, kv.lease); err != nil {
				return removed, err
			}
			removed++
		}
	}
	return removed, nil
}
