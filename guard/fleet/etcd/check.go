package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/criguard/criguard/guard/fleet"
)

// Server describes the member of etcd that answers.
type Server struct {
	Cluster   int64 // ID of the cluster that it is a member of
	Version   string
	Size      int64         // of the database, in bytes
	Quota     int64         // in bytes; 0 = unknown, before etcd 3.6
	Errors    []string      // such as alarms
	RoundTrip time.Duration // of a read that a majority confirmed
	Revision  int64         // number of writes
	Compacted bool          // its first revision is gone
}

// Inspect checks that the endpoint is an etcd that suits a fleet, and describes it. It writes a lease and revokes it.
// Only an operator's credentials see the keys by which ErrKubernetes is found.
func (c *Client) Inspect(ctx context.Context) (Server, error) {
	lease, _, err := c.grant(ctx, fleet.MinSlot)
	if err != nil {
		return Server{}, err
	}
	if err := c.revoke(ctx, lease); err != nil {
		return Server{}, err
	}
	start := c.opt.Now()
	if _, err := c.Look(ctx, ""); err != nil {
		return Server{}, err
	}
	s := Server{RoundTrip: c.opt.Now() - start}
	kubernetes := list(kubernetesPrefix, true)
	kubernetes.read.limit = 1
	r, err := c.read(ctx, "look for other programs", kubernetes)
	switch {
	case isDenied(err): // as it should be
	case err != nil:
		return Server{}, err
	case len(r[0].kvs) > 0:
		return Server{}, refuse("look for other programs", ErrKubernetes, fmt.Sprintf("it has keys below %s", kubernetesPrefix))
	}
	if s.Revision, s.Compacted, err = c.history(ctx); err != nil {
		return Server{}, err
	}
	err = c.do(ctx, "read status", func(ctx context.Context, conn *grpc.ClientConn) error {
		resp := statusResponse{header: &header{}}
		if err := conn.Invoke(ctx, statusCall, &blank{}, &resp); err != nil {
			return err
		}
		s.Cluster, s.Version, s.Size, s.Quota = resp.header.cluster, clean(resp.version), resp.size, resp.quota
		for _, text := range resp.errors {
			s.Errors = append(s.Errors, clean(text))
		}
		return nil
	})
	return s, err
}

// history returns the number of writes, and whether the first is gone. An etcd does not say whether it compacts its
// history by itself, but without compaction the first revision can still be read.
func (c *Client) history(ctx context.Context) (revision int64, compacted bool, err error) {
	const op = "read history"
	err = c.do(ctx, op, func(ctx context.Context, conn *grpc.ClientConn) error {
		r := &rangeRequest{key: c.keys.settling()}
		resp := rangeResponse{header: &header{}}
		if err := conn.Invoke(ctx, rangeCall, r, &resp); err != nil {
			return err
		}
		revision, r.revision = resp.header.revision, 1
		err := conn.Invoke(ctx, rangeCall, r, &blank{})
		if compacted = err != nil && strings.Contains(err.Error(), "has been compacted"); compacted {
			return nil
		}
		return err
	})
	return revision, compacted, err
}

// CheckNode returns an error for each key that the node needs and may not write. It changes nothing: etcd checks the
// permissions of a transaction's both branches, and the one that puts is never taken.
func (c *Client) CheckNode(ctx context.Context) error {
	zone, node := c.opt.Zone, c.opt.Node
	return c.mayWrite(ctx, c.keys.member(zone, node), c.keys.want(zone, node), c.keys.zoneSlot(zone), c.keys.workloadSlot(""), c.keys.settling())
}

// CheckOperator returns an error for each key that an operator needs and may not write. It changes nothing.
func (c *Client) CheckOperator(ctx context.Context) error {
	zone, node := c.opt.Zone, c.opt.Node
	return c.mayWrite(ctx, c.keys.pause(), c.keys.rates(), c.keys.member(zone, node), c.keys.want(zone, node)) // the last two to forget one
}

func (c *Client) mayWrite(ctx context.Context, keys ...string) error {
	var all []error
	for _, key := range keys {
		_, err := c.transact(ctx, "write "+key, &txnRequest{
			compare: []*compare{{result: less, target: createRevision, key: key}},
			success: []*requestOp{put(key, "", 0)},
		})
		if err != nil && !isDenied(err) {
			return err
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}
