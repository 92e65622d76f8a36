package etcd

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/criguard/criguard/guard/fleet"
)

// memory is an etcd in memory, as far as a fleet uses it. Its time only passes when a test changes now.
type memory struct {
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer
	disk

	now       time.Duration
	headless  bool                  // answers do not show how far the history has come
	interrupt func(done bool) error // before a call takes effect, and before its answer; an error takes its place
	onTheWay  []func() error        // calls that take effect later, if the interrupt returned errLater before they did
}

// disk is the part of an etcd that a snapshot has.
type disk struct {
	cluster  uint64
	revision int64
	keys     map[string]*mvccpb.KeyValue
	leases   map[int64]term
}

// term is the time of a lease.
type term struct{ ttl, ends time.Duration }

// errBroken is what a client sees whose connection breaks. errLater lets the call take effect later nevertheless.
var (
	errBroken = status.Error(codes.Unavailable, "error reading from server: EOF")
	errLater  = errors.New("later")
)

func newMemory() *memory {
	m := &memory{now: time.Hour}
	m.wipe()
	return m
}

// wipe restarts etcd without its data.
func (m *memory) wipe() {
	m.disk = disk{cluster: 1, revision: 1, keys: map[string]*mvccpb.KeyValue{}, leases: map[int64]term{}}
}

func (m *memory) snapshot() disk {
	d := m.disk
	d.keys, d.leases = maps.Clone(m.keys), maps.Clone(m.leases)
	return d
}

// restore restarts etcd from a snapshot. Leases have their whole time again.
func (m *memory) restore(d disk) {
	m.disk = d
	m.disk = m.snapshot()
	for id, l := range m.leases {
		m.leases[id] = term{l.ttl, m.now + l.ttl}
	}
}

// client returns the client of a node.
func (m *memory) client(t *testing.T, node string) *Client {
	t.Helper()
	rates := fleet.DefaultRates()
	return connect(t, m, m, Options{Node: node, Rates: rates, Now: func() time.Duration { return m.now }})
}

// call performs a call, around which others may come.
func (m *memory) call(do func() error) error {
	if m.interrupt != nil {
		if err := m.interrupt(false); errors.Is(err, errLater) {
			m.onTheWay = append(m.onTheWay, func() error { return m.call(do) })
			return errBroken
		} else if err != nil {
			return err
		}
	}
	for id, l := range m.leases {
		if m.now >= l.ends {
			m.revoke(id)
		}
	}
	err := do()
	if m.interrupt != nil && err == nil {
		err = m.interrupt(true)
	}
	return err
}

func (m *memory) revoke(id int64) {
	delete(m.leases, id)
	before := len(m.keys)
	maps.DeleteFunc(m.keys, func(_ string, kv *mvccpb.KeyValue) bool { return kv.Lease == id })
	if len(m.keys) < before {
		m.revision++
	}
}

// Txn implements [pb.KVServer].
func (m *memory) Txn(_ context.Context, r *pb.TxnRequest) (resp *pb.TxnResponse, err error) {
	err = m.call(func() error {
		resp = &pb.TxnResponse{Succeeded: !slices.ContainsFunc(r.Compare, func(c *pb.Compare) bool { return !m.holds(c) })}
		ops := r.Success
		if !resp.Succeeded {
			ops = r.Failure
		}
		for _, op := range ops {
			if put := op.GetRequestPut(); put != nil && put.Lease != 0 {
				if _, has := m.leases[put.Lease]; !has {
					return rpctypes.ErrGRPCLeaseNotFound
				}
			}
		}
		wrote := false
		for _, op := range ops {
			answer := &pb.ResponseOp{}
			if put := op.GetRequestPut(); put != nil {
				m.put(put)
				wrote, answer.Response = true, &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}
			} else {
				answer.Response = &pb.ResponseOp_ResponseRange{ResponseRange: m.list(op.GetRequestRange())}
			}
			resp.Responses = append(resp.Responses, answer)
		}
		if wrote {
			m.revision++
		}
		if !m.headless {
			resp.Header = &pb.ResponseHeader{ClusterId: m.cluster, Revision: m.revision}
		}
		return nil
	})
	return resp, err
}

func (m *memory) put(r *pb.PutRequest) {
	kv := &mvccpb.KeyValue{Key: r.Key, Value: r.Value, Lease: r.Lease, CreateRevision: m.revision + 1}
	if old := m.keys[string(r.Key)]; old != nil {
		kv.CreateRevision = old.CreateRevision
	}
	m.keys[string(r.Key)] = kv
}

func (m *memory) list(r *pb.RangeRequest) *pb.RangeResponse {
	resp := &pb.RangeResponse{}
	for _, name := range slices.Sorted(maps.Keys(m.keys)) {
		if name != string(r.Key) && (len(r.RangeEnd) == 0 || name < string(r.Key) || name >= string(r.RangeEnd)) {
			continue
		}
		if resp.Count++; !r.CountOnly && (r.Limit == 0 || resp.Count <= r.Limit) {
			resp.Kvs = append(resp.Kvs, m.keys[name])
		}
	}
	return resp
}

// holds reports whether a condition holds for all keys of its range, or for a key without values if there is none.
func (m *memory) holds(c *pb.Compare) bool {
	found := m.list(&pb.RangeRequest{Key: c.Key, RangeEnd: c.RangeEnd}).Kvs
	if len(found) == 0 {
		found = []*mvccpb.KeyValue{{}}
	}
	return !slices.ContainsFunc(found, func(kv *mvccpb.KeyValue) bool {
		switch {
		case c.Target == pb.Compare_LEASE:
			return kv.Lease != c.GetLease()
		case c.Result == pb.Compare_GREATER:
			return kv.CreateRevision <= c.GetCreateRevision()
		}
		return kv.CreateRevision != c.GetCreateRevision()
	})
}

// LeaseGrant implements [pb.LeaseServer].
func (m *memory) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (resp *pb.LeaseGrantResponse, err error) {
	err = m.call(func() error {
		if _, has := m.leases[r.ID]; has || r.ID <= 0 {
			return rpctypes.ErrGRPCLeaseExist
		}
		ttl := time.Duration(r.TTL) * time.Second
		m.leases[r.ID] = term{ttl, m.now + ttl}
		resp = &pb.LeaseGrantResponse{ID: r.ID, TTL: r.TTL}
		return nil
	})
	return resp, err
}

// LeaseRevoke implements [pb.LeaseServer].
func (m *memory) LeaseRevoke(_ context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	return &pb.LeaseRevokeResponse{}, m.call(func() error {
		if _, has := m.leases[r.ID]; !has {
			return rpctypes.ErrGRPCLeaseNotFound
		}
		m.revoke(r.ID)
		return nil
	})
}

// LeaseTimeToLive implements [pb.LeaseServer].
func (m *memory) LeaseTimeToLive(_ context.Context, r *pb.LeaseTimeToLiveRequest) (resp *pb.LeaseTimeToLiveResponse, err error) {
	err = m.call(func() error {
		resp = &pb.LeaseTimeToLiveResponse{ID: r.ID, TTL: -1}
		if l, has := m.leases[r.ID]; has {
			resp.TTL, resp.GrantedTTL = int64((l.ends-m.now)/time.Second), int64(l.ttl/time.Second)
		}
		return nil
	})
	return resp, err
}

// LeaseKeepAlive implements [pb.LeaseServer].
func (m *memory) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return err // the client ends each stream
		}
		resp := &pb.LeaseKeepAliveResponse{ID: r.ID}
		err = m.call(func() error {
			if l, has := m.leases[r.ID]; has {
				m.leases[r.ID], resp.TTL = term{l.ttl, m.now + l.ttl}, int64(l.ttl/time.Second)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}
