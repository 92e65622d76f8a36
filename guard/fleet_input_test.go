package guard

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/client"
	"github.com/criguard/criguard/guard/fleet/client/agenttest"
	fleetconfig "github.com/criguard/criguard/guard/fleet/config"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/certs"
)

// noEtcd is a server that is not an etcd for a fleet, in one of two ways.
type noEtcd struct {
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer
	kubernetes bool        // it holds the objects of an API server, instead of being kine
	expired    bool        // its certificate
	operator   atomic.Bool // the next requests are an operator's
}

// Txn answers the reads of an operator. A node has no permission beside the objects of an API server, and kine knows no
// transaction that only reads.
func (s *noEtcd) Txn(_ context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if !s.kubernetes {
		return nil, fmt.Errorf("unsupported transaction: %v", r)
	}
	if s.kubernetes && !s.operator.Load() {
		return nil, grpcstatus.Error(codes.PermissionDenied, "etcdserver: permission denied")
	}
	resp := &pb.TxnResponse{Succeeded: true}
	for _, op := range r.Success {
		found := &pb.RangeResponse{}
		if key := string(op.GetRequestRange().GetKey()); s.kubernetes && key == "/registry/" {
			found.Kvs = []*mvccpb.KeyValue{{Key: []byte("/registry/pods/shop/web")}}
		}
		resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: found}})
	}
	return resp, nil
}

// LeaseGrant grants a lease whose ID is its TTL if it is kine's.
func (s *noEtcd) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	if s.kubernetes {
		return &pb.LeaseGrantResponse{ID: 1 << 40, TTL: r.TTL}, nil
	}
	return &pb.LeaseGrantResponse{ID: r.TTL, TTL: r.TTL}, nil
}

// LeaseRevoke revokes nothing.
func (*noEtcd) LeaseRevoke(context.Context, *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	return &pb.LeaseRevokeResponse{}, nil
}

// serve starts the server with a certificate of an authority, and returns its URL.
func (s *noEtcd) serve(t *testing.T, a *certs.Authority) string {
	t.Helper()
	validity := time.Hour
	if s.expired {
		validity = -time.Minute
	}
	cert, pool, err := certs.Load(issue(t, a, "server", validity))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	})))
	pb.RegisterKVServer(server, s)
	pb.RegisterLeaseServer(server, s)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "https://" + l.Addr().String()
}

func authority(t *testing.T) *certs.Authority {
	t.Helper()
	a, err := certs.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *certs.Authority, name string, validity time.Duration) fleet.TLS {
	t.Helper()
	files, err := a.Issue(name, validity)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// lonely is the state of a node that has been alone for long, with one token of its local budget.
func lonely(now time.Duration) fleet.Saved {
	return fleet.Saved{
		Held: map[policy.Pool]time.Duration{policy.PoolMemory: 0}, AloneSince: now - 16*time.Minute,
		Local: fleet.SavedTokens{On: true, First: now},
	}
}

// restarted makes a service continue with this state.
func restarted(t *testing.T, state func(now time.Duration) fleet.Saved) func(s *Service) {
	return func(s *Service) {
		t.Helper()
		saved := struct {
			BootID string      `json:"boot_id"`
			Fleet  fleet.Saved `json:"fleet"`
		}{s.host.bootID, state(agenttest.Now())}
		if err := rundir.Save(s.opt.Dir, "fleet.json", s.readers, saved, !rundir.Synced); err != nil {
			t.Fatal(err)
		}
		s.fleet = client.New(client.Options{
			Config: s.opt.Config, Dir: s.opt.Dir, Access: s.readers, BootID: s.host.bootID, Log: slog.New(slog.DiscardHandler), Now: agenttest.Now,
		})
	}
}

// waiting is the state of a guard that waits for its agent.
func waiting(time.Duration) fleet.Saved {
	return fleet.Saved{Held: map[policy.Pool]time.Duration{policy.PoolMemory: 0}}
}

// staysGuarded fails the test unless the node of a service makes one soft stop, which is what its local budget has, holds the
// next one, and makes hard stops.
func staysGuarded(t *testing.T, pass func(mib int) api.Pass) {
	t.Helper()
	var p api.Pass
	pass(3000)
	nodetest.Await(t, "a soft stop", func() bool { p = pass(1500); return p.Stop != nil })
	if p.Stop.Kind != policy.Soft.String() {
		t.Errorf("stopped %+v", p.Stop)
	}
	nodetest.Await(t, "the local budget to hold the next one", func() bool {
		if p = pass(1500); p.Stop != nil {
			t.Fatalf("another soft stop: %+v", p.Stop)
		}
		return p.Held == api.HeldFleet && strings.Contains(p.HeldDetail, "local budget")
	})
	nodetest.Await(t, "a hard stop", func() bool { p = pass(512); return p.Stop != nil })
	if p.Stop.Kind != policy.Hard.String() {
		t.Errorf("stopped %+v", p.Stop)
	}
}

var fleetKey = regexp.MustCompile(`(?m)^(\w+) = .*$`)

// A mistake in any key of fleet.toml is named, and keeps the agent from starting. A node whose agent has been absent for long
// keeps its local budget and its hard stops.
func TestGuardWithBadConfigurationOfTheFleet(t *testing.T) {
	text, err := os.ReadFile("../fleet.example.toml")
	if err != nil {
		t.Fatal(err)
	}
	keys := fleetKey.FindAllSubmatchIndex(text, -1)
	if len(keys) != 15 {
		t.Errorf("%d keys", len(keys))
	}
	for _, at := range keys {
		key := string(text[at[2]:at[3]])
		t.Run(key, func(t *testing.T) {
			_, err := fleetconfig.Parse("fleet.toml", string(text[:at[0]])+key+" = -1"+string(text[at[1]:]))
			if err == nil || !strings.Contains(err.Error(), key+" = -1: must be ") {
				t.Fatalf("got %v", err)
			}
			_, pass := fleetService(t, nil, restarted(t, lonely))
			staysGuarded(t, pass)
		})
	}
}

// An agent names what is wrong with its certificate or its etcd, and its node, which has been alone for long, keeps its local
// budget and its hard stops.
func TestGuardWithBadEtcdOfTheFleet(t *testing.T) {
	ours, others := authority(t), authority(t)
	kine, kubernetes := &noEtcd{}, &noEtcd{kubernetes: true}
	good := issue(t, ours, "node", time.Hour)
	withCA := func(files fleet.TLS, ca string) fleet.TLS { files.CA = ca; return files }
	withKey := func(files fleet.TLS, key string) fleet.TLS { files.Key = key; return files }
	for _, tt := range []struct {
		name        string
		server      *noEtcd
		tls         fleet.TLS
		cause, says string
	}{
		{"the certificate has expired", kine, issue(t, ours, "old", -time.Minute), "certificate", "expired"},
		{"the certificate is of another authority", kine, withCA(issue(t, others, "node", time.Hour), ours.CA()), "certificate", "tls: "},
		{"etcd's certificate is of another authority", kine, withCA(good, others.CA()), "certificate", "unknown authority"},
		{"etcd's certificate has expired", &noEtcd{expired: true}, good, "certificate", "expired"},
		{"the key is another certificate's", kine, withKey(good, issue(t, ours, "other", time.Hour).Key), "certificate", "private key does not match"},
		{"there is no key", kine, fleet.TLS{CA: good.CA, Cert: good.Cert, Key: "/nonexistent"}, "certificate", "/nonexistent"},
		{"kine", kine, good, "not_etcd", "kine"},
		{"a Kubernetes cluster's etcd", kubernetes, good, "permission", "permission denied"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, stop, err := agenttest.Start(tt.server.serve(t, ours), tt.tls, lonely(agenttest.Now()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(stop)
			if tt.server.kubernetes {
				tt.server.operator.Store(true)
				if err := a.Inspect(t.Context()); err == nil || !strings.Contains(err.Error(), "this is the etcd of a Kubernetes cluster") {
					t.Errorf("got %v", err)
				}
				tt.server.operator.Store(false)
			}
			_, pass := fleetService(t, a.ServeHTTP, restarted(t, waiting))
			staysGuarded(t, pass)
			nodetest.Await(t, "the agent to name the cause", func() bool { return a.Status().Cause != "" })
			if s := a.Status(); s.Cause != tt.cause || !strings.Contains(s.Error, tt.says) || s.Counts != (fleet.Counts{Local: 1}) {
				t.Errorf("cause %s: %s; %+v", s.Cause, s.Error, s.Counts)
			}
		})
	}
}
