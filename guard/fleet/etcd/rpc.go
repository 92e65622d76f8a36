package etcd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
)

func get(key string) *requestOp { return &requestOp{read: &rangeRequest{key: key}} }

// count counts the keys with a prefix.
func count(prefix string) *requestOp {
	return &requestOp{read: &rangeRequest{key: prefix, end: prefixEnd(prefix), countOnly: true}}
}

// list reads the keys with a prefix, in their order, without their values if keysOnly.
func list(prefix string, keysOnly bool) *requestOp {
	return &requestOp{read: &rangeRequest{key: prefix, end: prefixEnd(prefix), keysOnly: keysOnly}}
}

func put(key, value string, lease int64) *requestOp {
	return &requestOp{put: &putRequest{key: key, value: value, lease: lease}}
}

// absent holds if a key does not exist.
func absent(key string) *compare {
	return &compare{result: equal, target: createRevision, key: key}
}

// present holds if a key exists.
func present(key string) *compare {
	return &compare{result: greater, target: createRevision, key: key}
}

// noneBelow holds if no key with the prefix exists.
func noneBelow(prefix string) *compare {
	c := absent(prefix)
	c.end = prefixEnd(prefix)
	return c
}

// hasLease holds if a key has a lease still, or still has none, or is absent, with 0.
func hasLease(key string, lease int64) *compare {
	return &compare{result: equal, target: leaseOfKey, key: key, value: explicit(lease)}
}

// transact performs a transaction that is safe to repeat.
func (c *Client) transact(ctx context.Context, op string, txn *txnRequest) (resp *txnResponse, err error) {
	before := c.position()
	err = c.do(ctx, op, func(ctx context.Context, conn *grpc.ClientConn) error {
		resp = &txnResponse{}
		return conn.Invoke(ctx, txnCall, txn, resp)
	})
	if err != nil {
		return nil, err
	}
	c.follow(before, resp.header)
	return resp, complete(op, txn, resp)
}

// transactOnce performs a transaction once. If it returns an error, the transaction may have been performed.
func (c *Client) transactOnce(ctx context.Context, op string, txn *txnRequest) (resp *txnResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.Timeout)
	defer cancel()
	before := c.position()
	err = c.once(ctx, op, func(ctx context.Context, conn *grpc.ClientConn) error {
		resp = &txnResponse{}
		return conn.Invoke(ctx, txnCall, txn, resp)
	})
	if err != nil {
		return nil, err
	}
	c.follow(before, resp.header)
	return resp, complete(op, txn, resp)
}

// complete checks that a response answers every operation of its transaction with the same kind.
func complete(op string, txn *txnRequest, resp *txnResponse) error {
	ops := txn.success
	if !resp.succeeded {
		ops = txn.failure
	}
	ok := len(resp.responses) == len(ops)
	for i := 0; ok && i < len(ops); i++ {
		if ops[i].read != nil {
			ok = resp.responses[i].read != nil
		}
	}
	if !ok {
		return refuse(op, ErrRefused, "the answer is incomplete")
	}
	return nil
}

// read performs a read-only transaction, which costs etcd no entry in its log, and returns an answer for each operation.
func (c *Client) read(ctx context.Context, op string, ops ...*requestOp) ([]*rangeResponse, error) {
	resp, err := c.transact(ctx, op, &txnRequest{success: ops})
	if err != nil {
		return nil, err
	}
	if len(resp.responses) != len(ops) {
		return nil, refuse(op, ErrRefused, "the answer is incomplete")
	}
	ranges := make([]*rangeResponse, len(ops))
	for i, r := range resp.responses {
		ranges[i] = r.read
	}
	return ranges, nil
}

// first returns the only key of an answer, or nil.
func first(r *rangeResponse) *keyValue {
	if r == nil || len(r.kvs) == 0 {
		return nil
	}
	return r.kvs[0]
}

// leaseOf returns the lease of a key, 0 without one.
func leaseOf(kv *keyValue) int64 {
	if kv == nil {
		return 0
	}
	return kv.lease
}

// maxTTL is the longest lease that etcd grants, in seconds. As a time.Duration it does not overflow.
const maxTTL = 9_000_000_000

// grant requests a lease and returns its ID and its time to live, which etcd may have made longer. The client chooses the ID,
// so that it can revoke a lease whose grant was not answered.
func (c *Client) grant(ctx context.Context, ttl time.Duration) (id int64, granted time.Duration, err error) {
	const op = "grant lease"
	var resp leaseGrantResponse
	err = c.do(ctx, op, func(ctx context.Context, conn *grpc.ClientConn) error {
		resp = leaseGrantResponse{}
		r := &leaseGrantRequest{seconds(ttl), rand.Int64()} // an ID of a lease that exists is refused
		err := conn.Invoke(ctx, leaseGrantCall, r, &resp)
		if err != nil {
			c.orphan(r.id)
		}
		return err
	})
	switch {
	case err != nil:
		return 0, 0, err
	case resp.id == resp.ttl: // kine; etcd's IDs are random numbers of 63 bits
		return 0, 0, refuse(op, ErrNotEtcd, fmt.Sprintf("the lease's ID is its TTL, %d", resp.ttl))
	case resp.id == 0 || resp.ttl <= 0 || resp.ttl > maxTTL || resp.error != "":
		return 0, 0, refuse(op, ErrRefused, fmt.Sprintf("lease %x for %d s: %s", resp.id, resp.ttl, clean(resp.error)))
	}
	return resp.id, time.Duration(resp.ttl) * time.Second, nil
}

// seconds rounds up to whole seconds, the unit of leases.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// renew renews a lease. It returns errLeaseGone if there is no such lease.
func (c *Client) renew(ctx context.Context, id int64) error {
	const op = "renew lease"
	var resp keepAliveResponse
	err := c.do(ctx, op, func(ctx context.Context, conn *grpc.ClientConn) error {
		ctx, cancel := context.WithCancel(ctx) // ends the stream
		defer cancel()
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, keepAliveCall)
		if err != nil {
			return err
		}
		_ = stream.SendMsg(&leaseRequest{id}) // if it fails, RecvMsg returns the cause
		resp = keepAliveResponse{}
		return stream.RecvMsg(&resp)
	})
	if err == nil && resp.ttl <= 0 {
		err = fmt.Errorf("%s: %w", op, errLeaseGone)
	}
	return err
}

// revoke revokes leases, and removes their keys. A lease that is gone already counts as revoked. If etcd refuses to revoke one,
// it goes on, and returns the last error: the lease expires by itself. If the result is unknown, the rest are orphans.
func (c *Client) revoke(ctx context.Context, ids ...int64) error {
	var last error
	for i, id := range ids {
		err := c.do(ctx, "revoke lease", func(ctx context.Context, conn *grpc.ClientConn) error {
			return conn.Invoke(ctx, leaseRevokeCall, &leaseRequest{id}, &blank{})
		})
		switch {
		case isUnknown(err):
			c.orphan(ids[i:]...)
			return err
		case err != nil && !isGone(err):
			last = err
		}
	}
	return last
}

// orphan notes leases that etcd may have and that are not needed. The next Report or Acquire begins with them.
func (c *Client) orphan(ids ...int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.orphans = append(c.orphans, ids...)
}

// revokeOrphans revokes the leases that are not needed. It returns an error if etcd may revoke one of them later.
func (c *Client) revokeOrphans(ctx context.Context) error {
	c.mu.Lock()
	ids := c.orphans
	c.orphans = nil
	c.mu.Unlock()
	if err := c.revoke(ctx, ids...); isUnknown(err) {
		return err
	}
	return nil
}

// abandon revokes leases even if the caller gave up, and those whose grant has just failed.
func (c *Client) abandon(ctx context.Context, leases ...int64) error {
	c.orphan(leases...)
	return c.revokeOrphans(context.WithoutCancel(ctx))
}

// remaining returns for how long a lease lives on at most; 0 if it is gone. etcd rounds down to whole seconds.
func (c *Client) remaining(ctx context.Context, id int64) (time.Duration, error) {
	left, _, err := c.readLease(ctx, id)
	return left, err
}

// readLease does the same, and returns for how long the lease was granted.
func (c *Client) readLease(ctx context.Context, id int64) (left, granted time.Duration, err error) {
	var resp timeToLiveResponse
	err = c.do(ctx, "read lease", func(ctx context.Context, conn *grpc.ClientConn) error {
		resp = timeToLiveResponse{}
		return conn.Invoke(ctx, timeToLiveCall, &leaseRequest{id}, &resp)
	})
	if isGone(err) || err == nil && resp.ttl < 0 {
		return 0, 0, nil
	}
	return time.Duration(min(resp.ttl, maxTTL)+1) * time.Second, time.Duration(min(resp.granted, maxTTL)) * time.Second, err
}
