package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/criguard/criguard/guard/fleet"
)

// fake answers as a server that is no etcd.
type fake struct {
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer
	txn   func(*pb.TxnRequest) (*pb.TxnResponse, error)
	grant func(*pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error)

	now func() time.Duration // nil = it stands still

	revoked []int64
}

func (f *fake) Txn(_ context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) { return f.txn(r) }

func (f *fake) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	return f.grant(r)
}

// LeaseRevoke fails as kine's does.
func (f *fake) LeaseRevoke(_ context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	f.revoked = append(f.revoked, r.ID)
	return nil, errors.New("lease revoke is not supported")
}

// serve starts a server in plain text and returns its client.
func serve(t *testing.T, f *fake) *Client {
	t.Helper()
	if f.now == nil {
		f.now = func() time.Duration { return time.Hour }
	}
	return connect(t, f, f, Options{Node: "n", Now: f.now})
}

// connect starts a server and returns a client of it, in the zone "z" of the fleet "f". Without the client's TLS, it is one in
// plain text.
func connect(t *testing.T, kv pb.KVServer, lease pb.LeaseServer, opt Options, options ...grpc.ServerOption) *Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(options...)
	pb.RegisterKVServer(s, kv)
	pb.RegisterLeaseServer(s, lease)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	scheme := "https://"
	if opt.TLS == (fleet.TLS{}) {
		opt.TLS.Insecure, scheme = true, "http://"
	}
	opt.Fleet, opt.Zone, opt.Endpoints = "f", "z", []string{scheme + l.Addr().String()}
	c, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		s.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // before it began
			t.Error(err)
		}
	})
	return c
}

// empty answers reads as an etcd without keys does.
func empty(r *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp := &pb.TxnResponse{Succeeded: true}
	for range r.Success {
		resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{}}})
	}
	return resp, nil
}

// likeKine refuses every transaction but those by which Kubernetes creates, updates and deletes an object, as kine does
// (https://github.com/k3s-io/kine/blob/master/pkg/server/limited.go).
func likeKine(r *pb.TxnRequest) (*pb.TxnResponse, error) {
	return nil, fmt.Errorf("unsupported transaction: %v", r)
}

// kine refuses the transactions of a fleet. Its lease IDs are TTLs, whether it returns the requested TTL or none.
func TestKineIsRefused(t *testing.T) {
	for _, answer := range []func(*pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error){
		func(r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
			return &pb.LeaseGrantResponse{ID: r.TTL, TTL: r.TTL}, nil
		},
		func(r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
			return &pb.LeaseGrantResponse{ID: r.ID, TTL: r.ID}, nil
		},
	} {
		c := serve(t, &fake{txn: likeKine, grant: answer})
		_, acquire := c.Acquire(t.Context(), fleet.DefaultRates(), "shop/web", "id")
		for name, err := range map[string]error{
			"report":  c.Report(t.Context(), State{Pools: []string{"memory"}}),
			"acquire": acquire,
			"pause":   c.Pause(t.Context(), time.Hour),
		} {
			if !errors.Is(err, ErrNotEtcd) || !strings.Contains(err.Error(), "kine") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := c.Inspect(t.Context()); !errors.Is(err, ErrNotEtcd) {
			t.Errorf("inspect: %v", err)
		}
	}
}

// A server that answers something else than was asked neither grants a permit nor crashes the agent.
func TestHostileAnswers(t *testing.T) {
	ranges := func(values ...string) func(*pb.TxnRequest) (*pb.TxnResponse, error) {
		return func(r *pb.TxnRequest) (*pb.TxnResponse, error) {
			resp, err := empty(r)
			for i, v := range values {
				if v != "" && i < len(resp.Responses) {
					resp.Responses[i].GetResponseRange().Kvs = []*mvccpb.KeyValue{{Value: []byte(v)}}
				}
			}
			return resp, err
		}
	}
	for name, txn := range map[string]func(*pb.TxnRequest) (*pb.TxnResponse, error){
		"nothing": func(*pb.TxnRequest) (*pb.TxnResponse, error) { return &pb.TxnResponse{}, nil },
		"success": func(*pb.TxnRequest) (*pb.TxnResponse, error) { return &pb.TxnResponse{Succeeded: true}, nil },
		"empty answers": func(r *pb.TxnRequest) (*pb.TxnResponse, error) {
			return &pb.TxnResponse{Succeeded: true, Responses: make([]*pb.ResponseOp, len(r.Success))}, nil
		},
		"failed": func(r *pb.TxnRequest) (*pb.TxnResponse, error) {
			resp, err := empty(r)
			resp.Succeeded = false
			return resp, err
		},
		"no leases":      empty,
		"broken slot":    ranges("", "", "\x00"),
		"broken policy":  ranges("", "", "", "", "", "{"),
		"broken pause":   ranges("", "", "", "", "{"),
		"broken members": ranges("\xff", "\xff", "\xff", "\xff", "", "", "\xff", "\xff"),
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, &fake{txn: txn, grant: func(*pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
				return &pb.LeaseGrantResponse{ID: -1, TTL: 1 << 62, Error: "\x1b"}, nil
			}})
			if p, err := c.Acquire(t.Context(), fleet.DefaultRates(), "shop/web", "id"); err == nil {
				t.Errorf("got a permit: %+v", p)
			} else {
				t.Log(err)
			}
			if err := c.Report(t.Context(), State{Pools: []string{"memory"}}); err == nil {
				t.Error("reported")
			}
			_, _ = c.List(t.Context())
			_, _ = c.Zones(t.Context())
			_, _ = c.Forget(t.Context(), "n")
		})
	}
}

// If the answer to a transaction is lost, the own permit in both slots means that it was performed. Slots with the leases of
// an earlier request with the same ID end earlier than the permit would.
func TestUnknownResult(t *testing.T) {
	for _, tt := range []struct {
		name             string
		performed, reads bool // the transaction was performed; the slots can be read after it
		earlier          bool // the slots have an earlier request's leases
		err              error
	}{
		{"performed", true, true, false, nil},
		{"not performed", false, true, false, ErrUnreachable},
		{"performed, and the connection stays broken", true, false, false, ErrUnreachable},
		{"performed for an earlier request", true, true, true, ErrUnreachable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			taken, lost := map[string]*mvccpb.KeyValue{}, false
			f := &fake{}
			f.txn = func(r *pb.TxnRequest) (*pb.TxnResponse, error) {
				if len(r.Compare) > 0 {
					for _, op := range r.Success {
						if put := op.GetRequestPut(); tt.performed {
							taken[string(put.Key)] = &mvccpb.KeyValue{Value: put.Value, Lease: put.Lease}
							if tt.earlier {
								taken[string(put.Key)].Lease -= 100
							}
						}
					}
					lost = true
					return nil, status.Error(codes.Unavailable, "error reading from server: EOF")
				}
				if lost && !tt.reads {
					return nil, status.Error(codes.Unavailable, "error reading from server: EOF")
				}
				return holding(r, taken)
			}
			f.grant = numbered()
			p, err := serve(t, f).Acquire(t.Context(), fleet.DefaultRates(), "shop/web", "id")
			if !errors.Is(err, tt.err) {
				t.Fatalf("got %v, want %v", err, tt.err)
			}
			if err == nil && (p.ID != "id" || p.Slot != 10*time.Second || p.Deadline != time.Hour+10*time.Second || len(f.revoked) > 0) {
				t.Errorf("%+v, revoked %v", p, f.revoked)
			}
			if err != nil && !slices.Equal(f.revoked, []int64{1001, 1002}) {
				t.Errorf("revoked %v", f.revoked)
			}
		})
	}
}

// numbered grants leases from 1001 on.
func numbered() func(*pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	leases := int64(1000)
	return func(r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
		leases++
		return &pb.LeaseGrantResponse{ID: leases, TTL: r.TTL}, nil
	}
}

// holding answers a read with some keys and the node's wish for a stop.
func holding(r *pb.TxnRequest, keys map[string]*mvccpb.KeyValue) (*pb.TxnResponse, error) {
	resp, err := empty(r)
	for i, op := range r.Success {
		key := string(op.GetRequestRange().Key)
		kv := keys[key]
		if key == keysOf("f").want("z", "n") {
			kv = &mvccpb.KeyValue{Value: []byte("{}"), Lease: 7}
		}
		if kv != nil {
			resp.Responses[i].GetResponseRange().Kvs = []*mvccpb.KeyValue{kv}
		}
	}
	return resp, err
}

// A slot is not taken for a permit that has ended before.
func TestLateGrant(t *testing.T) {
	now := time.Hour
	f := &fake{now: func() time.Duration { now += 5 * time.Second; return now }}
	f.grant = numbered()
	f.txn = func(r *pb.TxnRequest) (*pb.TxnResponse, error) {
		if len(r.Compare) > 0 {
			t.Error("the slots are taken")
		}
		return holding(r, nil)
	}
	rates := fleet.DefaultRates()
	rates.Rate = 250_000 // a slot of 4 s
	_, err := serve(t, f).Acquire(t.Context(), rates, "shop/web", "id")
	denied, ok := errors.AsType[*DeniedError](err)
	if !ok || denied.Code != TooLate || !slices.Equal(f.revoked, []int64{1001, 1002}) {
		t.Errorf("got %v, revoked %v", err, f.revoked)
	}
}

// An agent that stands still for a minute between its look at the fleet and its transaction takes no slot of a fleet that has
// changed meanwhile: an operator may have paused it, or etcd may have lost its data, and other permits with it.
func TestFleetChangesMeanwhile(t *testing.T) {
	k := keysOf("f")
	for name, tt := range map[string]struct {
		change func(keys map[string]*mvccpb.KeyValue)
		want   string // "" = a permit
	}{
		"nothing changes": {func(map[string]*mvccpb.KeyValue) {}, ""},
		"paused": {func(keys map[string]*mvccpb.KeyValue) {
			keys[k.pause()] = &mvccpb.KeyValue{Value: []byte(`{"paused":true}`), Lease: 9}
		}, TooLate},
		"lost its data": {func(keys map[string]*mvccpb.KeyValue) { clear(keys) }, TooLate},
		"began again": {func(keys map[string]*mvccpb.KeyValue) {
			clear(keys)
			keys[k.want("z", "n")] = &mvccpb.KeyValue{Lease: 8}
			keys[k.settling()] = &mvccpb.KeyValue{Lease: 9}
		}, TooLate},
		"lost its data but for the policy": {func(keys map[string]*mvccpb.KeyValue) { delete(keys, k.want("z", "n")) }, TooLate},
		"settles":                          {func(keys map[string]*mvccpb.KeyValue) { keys[k.settling()] = &mvccpb.KeyValue{Lease: 9} }, TooLate},
		"another stop": {func(keys map[string]*mvccpb.KeyValue) {
			keys[k.zoneSlot("z")] = &mvccpb.KeyValue{Value: []byte(`{"node":"n2","permit":"p2"}`), Lease: 9}
		}, SlotTaken},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Hour
			keys := map[string]*mvccpb.KeyValue{k.want("z", "n"): {Lease: 7}, k.pause(): {Value: []byte(`{"paused":false}`), Lease: 6}}
			f := &fake{now: func() time.Duration { return now }, grant: numbered()}
			f.txn = func(r *pb.TxnRequest) (*pb.TxnResponse, error) {
				resp := &pb.TxnResponse{Succeeded: holds(r.Compare, keys)}
				ops := r.Success
				if !resp.Succeeded {
					ops = r.Failure
				}
				for _, op := range ops {
					found := &pb.RangeResponse{}
					if kv := keys[string(op.GetRequestRange().GetKey())]; kv != nil {
						found.Kvs = []*mvccpb.KeyValue{kv}
					}
					resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: found}})
				}
				if len(r.Compare) == 0 && len(r.Success) > 4 { // the look
					now += time.Minute
					tt.change(keys)
				}
				return resp, nil
			}
			rates := fleet.DefaultRates()
			rates.MinZone = 1000 // so that the zone is normal, and nothing else is read
			_, err := serve(t, f).Acquire(t.Context(), rates, "shop/web", "id")
			denied, _ := errors.AsType[*DeniedError](err)
			if tt.want == "" && err != nil || tt.want != "" && (denied == nil || denied.Code != tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if err != nil && !slices.Equal(f.revoked, []int64{1001, 1002}) {
				t.Errorf("revoked %v", f.revoked)
			}
		})
	}
}

// holds reports whether conditions hold.
func holds(conditions []*pb.Compare, keys map[string]*mvccpb.KeyValue) bool {
	return !slices.ContainsFunc(conditions, func(c *pb.Compare) bool {
		kv := keys[string(c.Key)]
		if c.Target == pb.Compare_LEASE {
			return kv.GetLease() != c.GetLease()
		}
		return kv != nil // CreateRevision is not 0
	})
}
