package fleet_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/etcd"
	"github.com/criguard/criguard/test/etcdtest"
	"github.com/criguard/criguard/test/lab"
	"github.com/criguard/criguard/test/leak"
)

// built is the program under the client, by its version.
var built = map[string]string{}

func TestMain(m *testing.M) {
	if text := os.Getenv(agentEnv); text != "" {
		if err := runAgent(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	for _, version := range lab.Etcds() {
		path, err := lab.InstallEtcd(context.Background(), version, func(format string, args ...any) { fmt.Printf(format+"\n", args...) })
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		built[version] = path
	}
	// Each test has an etcd of its own, and mostly waits for leases to expire. -parallel overrides it.
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(leak.Main(m))
}

// fleetName names the fleet under test; prefix begins its keys.
const (
	fleetName = "test"
	prefix    = "/criguard/v1/" + fleetName + "/"
)

// fast are rates whose slots are as short as etcd's leases allow.
func fast() fleet.Rates {
	r := fleet.DefaultRates()
	r.Rate, r.Secondary, r.WorkloadInterval = 500_000, 500_000, 3*time.Second
	return r
}

// each runs a test on every version of etcd, with one member.
func each(t *testing.T, test func(t *testing.T, c *etcdtest.Cluster)) {
	t.Helper()
	for _, version := range lab.Etcds() {
		t.Run(version, func(t *testing.T) { test(t, etcdtest.Start(t, etcdtest.Options{Program: built[version]})) })
	}
}

// start starts the newest etcd.
func start(t *testing.T, members int, args ...string) *etcdtest.Cluster {
	t.Helper()
	return etcdtest.Start(t, etcdtest.Options{Program: built[lab.Etcd36], Members: members, Args: args})
}

// options returns the options of a node with root's certificate.
func options(c *etcdtest.Cluster, zone, node string) etcd.Options {
	return etcd.Options{Fleet: fleetName, Zone: zone, Node: node, Endpoints: c.Endpoints(), TLS: c.Root(), Now: cgroup.BootTime}
}

// client returns a client until the end of the test.
func client(t *testing.T, o etcd.Options) *etcd.Client {
	t.Helper()
	c, err := etcd.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// wants is the state of a node that wants a soft stop.
func wants() etcd.State {
	return etcd.State{Digest: "d1", Version: "v1", Pools: []string{"memory"}}
}

// member returns a node that wants a soft stop.
func member(t *testing.T, o etcd.Options) *etcd.Client {
	t.Helper()
	c := client(t, o)
	must(t, c.Report(t.Context(), wants()))
	return c
}

// settled ends the time in which an etcd that may have lost data gives no permits.
func settled(t *testing.T, c *etcdtest.Cluster) {
	t.Helper()
	kv := read(t, c, "settling")
	if kv == nil {
		return
	}
	_, err := pb.NewLeaseClient(c.Conn()).LeaseRevoke(t.Context(), &pb.LeaseRevokeRequest{ID: kv.Lease})
	must(t, err)
}

// entry is a key of the fleet.
type entry struct {
	Value string
	Lease int64
}

// read returns a key of the fleet, nil if it is absent.
func read(t *testing.T, c *etcdtest.Cluster, key string) *entry {
	t.Helper()
	resp, err := pb.NewKVClient(c.Conn()).Range(t.Context(), &pb.RangeRequest{Key: []byte(prefix + key)})
	must(t, err)
	if len(resp.Kvs) == 0 {
		return nil
	}
	return &entry{string(resp.Kvs[0].Value), resp.Kvs[0].Lease}
}

// revision returns the number of etcd's last write.
func revision(t *testing.T, c *etcdtest.Cluster) int64 {
	t.Helper()
	resp, err := pb.NewKVClient(c.Conn()).Range(t.Context(), &pb.RangeRequest{Key: []byte(prefix)})
	must(t, err)
	return resp.Header.Revision
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// denied fails the test unless err is a denial with a code, and returns when to retry.
func denied(t *testing.T, err error, code string) time.Duration {
	t.Helper()
	d, ok := errors.AsType[*etcd.DeniedError](err)
	if !ok || d.Code != code {
		t.Fatalf("got %v, want a denial: %s", err, code)
	}
	return d.Left
}
