package fleet_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/criguard/criguard/guard/fleet/etcd"
	"github.com/criguard/criguard/test/etcdtest"
	"github.com/criguard/criguard/test/lab"
)

// refused fails the test unless err is of a kind, and its text names the cause and a remedy.
func refused(t *testing.T, err, kind error, cause string) {
	t.Helper()
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), cause) {
		t.Errorf("got %v, want %v: … %s", err, kind, cause)
	}
	t.Log(err)
}

// The roles in the package's documentation suffice for a node, and bind it to its zone.
func TestRoles(t *testing.T) {
	t.Parallel()
	each(t, testRoles)
}

func testRoles(t *testing.T, c *etcdtest.Cluster) {
	node := func(zone string) etcdtest.Grants {
		return etcdtest.Grants{Read: []string{prefix}, Write: []string{
			prefix + "settling", prefix + "w/", prefix + "s/" + zone, prefix + "m/" + zone + "/", prefix + "u/" + zone + "/",
		}}
	}
	c.EnableRoles(t, map[string]etcdtest.Grants{
		"z1": node("z1"), "z2": node("z2"), "reader": {Read: []string{prefix}},
		"operator": {Read: []string{prefix}, Write: []string{prefix}},
	})
	as := func(user, zone, node string) etcd.Options {
		o := options(c, zone, node)
		o.TLS = c.Issue(t, user)
		return o
	}
	n1, n2 := member(t, as("z1", "z1", "n1")), member(t, as("z2", "z2", "n2"))
	settled(t, c)
	p1, err := n1.Acquire(t.Context(), fast(), "shop/web", rand.Text())
	must(t, err)
	_, err = n2.Acquire(t.Context(), fast(), "shop/api", rand.Text())
	must(t, err)

	intruder := client(t, as("z2", "z1", "n1"))
	refused(t, intruder.Report(t.Context(), etcd.State{Digest: "other"}), etcd.ErrPermission, "permission denied")
	refused(t, client(t, as("z2", "z1", "n9")).Report(t.Context(), wants()), etcd.ErrPermission, "permission denied")
	refused(t, intruder.Release(t.Context(), p1), etcd.ErrPermission, "permission denied")
	refused(t, n1.Pause(t.Context(), time.Hour), etcd.ErrPermission, "permission denied")
	refused(t, n1.SetRates(t.Context(), nil), etcd.ErrPermission, "permission denied")
	_, err = n1.Forget(t.Context(), "n2")
	refused(t, err, etcd.ErrPermission, "permission denied")
	refused(t, client(t, as("reader", "z1", "n3")).Report(t.Context(), wants()), etcd.ErrPermission, "permission denied")
	refused(t, client(t, as("unknown", "z1", "n4")).Report(t.Context(), wants()), etcd.ErrPermission, "")

	// A denial may leave leases without keys behind, but no keys.
	for _, key := range []string{"m/z1/n3", "m/z1/n4", "m/z1/n9", "policy/pause", "policy/rates"} {
		if e := read(t, c, key); e != nil {
			t.Errorf("%s is %s", key, e.Value)
		}
	}
	if read(t, c, "m/z2/n2") == nil || read(t, c, "s/z1") == nil {
		t.Error("another node's key is gone")
	}

	operator := client(t, as("operator", "", ""))
	must(t, operator.Pause(t.Context(), time.Hour))
	if removed, err := operator.Forget(t.Context(), "n2"); err != nil || removed != 2 {
		t.Errorf("removed %d keys of n2: %v", removed, err)
	}
	if s, err := operator.Inspect(t.Context()); err != nil || !strings.HasPrefix(s.Version, "3.") || s.Size <= 0 {
		t.Errorf("inspect: %+v, %v", s, err)
	}
}

func TestKubernetesIsRefused(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	_, err := pb.NewKVClient(c.Conn()).Put(t.Context(), &pb.PutRequest{Key: []byte("/registry/pods/shop/web"), Value: []byte("{}")})
	must(t, err)
	_, err = client(t, options(c, "", "")).Inspect(t.Context())
	refused(t, err, etcd.ErrKubernetes, "/registry/")
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	other := etcdtest.NewAuthority(t)
	for _, tt := range []struct {
		name  string
		edit  func(o *etcd.Options)
		cause string
	}{
		{"etcd's is of an unknown authority", func(o *etcd.Options) { o.TLS.CA = other.CA() }, "unknown authority"},
		{"the node's is of an unknown authority", func(o *etcd.Options) { o.TLS = other.Issue(t, "root"); o.TLS.CA = c.CA() }, "tls: "},
		{"the node's has expired", func(o *etcd.Options) { o.TLS = c.IssueExpired(t, "old") }, "tls: "},
		{"another host", func(o *etcd.Options) {
			o.Endpoints = []string{strings.Replace(o.Endpoints[0], "127.0.0.1", "localhost", 1)}
		}, "localhost"},
		{"no file", func(o *etcd.Options) { o.TLS.Key = "/nonexistent" }, "/nonexistent"},
		{"no certificate in it", func(o *etcd.Options) { o.TLS.CA = o.TLS.Key }, "no certificate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options(c, "z1", "n1")
			tt.edit(&o)
			err := client(t, o).Report(t.Context(), wants())
			refused(t, err, etcd.ErrCertificate, tt.cause)
		})
	}
}

// A server that offers no more than TLS 1.2 is refused, even if all certificates are right.
func TestOldTLS(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{Program: built[lab.Etcd36], Args: []string{"--tls-min-version=TLS1.2", "--tls-max-version=TLS1.2"}})
	refused(t, client(t, options(c, "z1", "n1")).Report(t.Context(), wants()), etcd.ErrCertificate, "protocol version")
}

// A renewed certificate is used after Close, without a new client.
func TestRenewedCertificate(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	o := options(c, "z1", "n1")
	o.TLS = c.IssueExpired(t, "node")
	n := client(t, o)
	refused(t, n.Report(t.Context(), wants()), etcd.ErrCertificate, "expired")
	c.Issue(t, "node")
	n.Close()
	must(t, n.Report(t.Context(), wants()))
}

func TestMinimumTTL(t *testing.T) {
	t.Parallel()
	c := start(t, 1, "--heartbeat-interval=500", "--election-timeout=5000")
	n := member(t, options(c, "z1", "n1"))
	settled(t, c)
	leases := func() int {
		resp, err := pb.NewLeaseClient(c.Conn()).LeaseLeases(t.Context(), &pb.LeaseLeasesRequest{})
		must(t, err)
		return len(resp.Leases)
	}
	before := leases()
	_, err := n.Acquire(t.Context(), fast(), "shop/web", rand.Text())
	refused(t, err, etcd.ErrMinTTL, "granted 8s")
	if after := leases(); after != before {
		t.Errorf("%d leases are left over", after-before)
	}
}

func TestNoSpace(t *testing.T) {
	t.Parallel()
	c := start(t, 1, "--quota-backend-bytes=200000")
	n := member(t, options(c, "z1", "n1"))
	settled(t, c)
	kv := pb.NewKVClient(c.Conn())
	etcdtest.Wait(t, func() error { // etcd notices with its next commit to disk
		if _, err := kv.Put(t.Context(), &pb.PutRequest{Key: []byte("/fill"), Value: make([]byte, 50_000)}); err == nil {
			return errors.New("there is space")
		}
		return nil
	})
	_, err := n.Acquire(t.Context(), fast(), "shop/web", rand.Text())
	refused(t, err, etcd.ErrNoSpace, "space exceeded")
	must(t, n.Report(t.Context(), wants())) // a renewal
	refused(t, n.Report(t.Context(), etcd.State{Digest: "new"}), etcd.ErrNoSpace, "space exceeded")
}

func TestNoLeader(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	n := member(t, options(c, "z1", "n1"))
	settled(t, c)
	c.Members[1].Kill()
	c.Members[2].Kill()
	o := options(c, "z1", "n1")
	o.Endpoints = o.Endpoints[:1]
	alone := client(t, o)
	// The member notices after its election timeout.
	etcdtest.Wait(t, func() error {
		if err := alone.Report(t.Context(), wants()); !errors.Is(err, etcd.ErrNoLeader) {
			return errors.Join(errors.New("it has a leader"), err)
		}
		return nil
	})
	c.Members[1].Start(t)
	etcdtest.Wait(t, func() error { return n.Report(t.Context(), wants()) })
	must(t, n.Report(t.Context(), wants()))
}

// A change of the leader extends the leases in force. The denial by such a slot says so.
func TestExtendedSlot(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	n1, n2 := member(t, options(c, "z1", "n1")), member(t, options(c, "z1", "n2"))
	settled(t, c)
	rates := fast()
	rates.Rate = 50_000 // a slot of 20 s
	_, err := n1.Acquire(t.Context(), rates, "shop/web", rand.Text())
	must(t, err)
	ask := func() (d *etcd.DeniedError) {
		etcdtest.Wait(t, func() error {
			_, err := n2.Acquire(t.Context(), rates, "shop/api", rand.Text())
			if d, _ = errors.AsType[*etcd.DeniedError](err); d == nil {
				return fmt.Errorf("not denied: %w", err)
			}
			return nil
		})
		if d.Code != etcd.SlotTaken {
			t.Fatalf("denied: %+v", d)
		}
		return d
	}
	etcdtest.Wait(t, func() error {
		d := ask()
		if d.Extended {
			t.Fatalf("extended without a change of the leader: %+v", d)
		}
		if d.Left > 16*time.Second {
			return errors.New("little of the slot has passed")
		}
		return nil
	})
	c.Members[c.Leader(t)].Kill()
	if d := ask(); !d.Extended || d.Left < 18*time.Second {
		t.Errorf("after a change of the leader: %+v", d)
	}
}

// A member that does not answer costs one timeout; one that is away costs nothing.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	n := member(t, options(c, "z1", "n1"))
	leader := c.Leader(t)
	follower := (leader + 1) % 3

	o := options(c, "z1", "n2")
	o.Endpoints = []string{"https://" + unusedAddress(t), c.Members[follower].URL, c.Members[leader].URL}
	o.Timeout = 2 * time.Second
	n2 := member(t, o)
	c.Members[follower].Stop(t)
	refused(t, n2.Report(t.Context(), wants()), etcd.ErrTimeout, c.Members[follower].URL)
	must(t, n2.Report(t.Context(), wants()))
	c.Members[follower].Continue(t)
	c.Ready(t)

	c.Members[leader].Kill()
	etcdtest.Wait(t, func() error { return n.Report(t.Context(), wants()) })
	c.Members[follower].Kill()
	c.Members[3-leader-follower].Kill()
	err := n.Report(t.Context(), wants())
	refused(t, err, etcd.ErrUnreachable, "connection refused")
}

func unusedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close())
	return l.Addr().String()
}
