package fleet_test

import (
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/etcd"
	"github.com/criguard/criguard/test/etcdtest"
)

// A node's keys have the leases that the protocol says; reporting the same state again writes nothing.
func TestReport(t *testing.T) {
	t.Parallel()
	each(t, testReport)
}

func testReport(t *testing.T, c *etcdtest.Cluster) {
	n := client(t, options(c, "z1", "n1"))
	idle := etcd.State{Digest: "d1", Version: "v1"}
	must(t, n.Report(t.Context(), idle))
	for key, ttl := range map[string]time.Duration{"m/z1/n1": 3 * time.Hour, "settling": 70 * time.Minute} {
		e := read(t, c, key)
		if e == nil {
			t.Fatalf("%s is absent", key)
		}
		lease, err := pb.NewLeaseClient(c.Conn()).LeaseTimeToLive(t.Context(), &pb.LeaseTimeToLiveRequest{ID: e.Lease})
		must(t, err)
		if got := time.Duration(lease.GrantedTTL) * time.Second; got != ttl {
			t.Errorf("%s has a lease of %s, want %s", key, got, ttl)
		}
	}
	if e := read(t, c, "u/z1/n1"); e != nil {
		t.Errorf("an idle node wants a stop: %s", e.Value)
	}
	before := revision(t, c)
	must(t, n.Report(t.Context(), idle))
	if after := revision(t, c); after != before {
		t.Errorf("reporting the same state made %d writes", after-before)
	}

	must(t, n.Report(t.Context(), wants()))
	if after := revision(t, c); after != before+1 {
		t.Errorf("a wish for a stop made %d writes, want one transaction", after-before)
	}
	must(t, n.Report(t.Context(), wants()))
	if after := revision(t, c); after != before+1 {
		t.Errorf("reporting the same wish made %d writes", after-before-1)
	}
	if got := read(t, c, "u/z1/n1").Value; got != `{"pools":["memory"],"digest":"d1","version":"v1"}` {
		t.Errorf("the wish is %s", got)
	}
	must(t, n.Report(t.Context(), etcd.State{Digest: "d2", Version: "v1"}))
	if e := read(t, c, "u/z1/n1"); e != nil {
		t.Errorf("the node still wants a stop: %s", e.Value)
	}
	if got := read(t, c, "m/z1/n1").Value; !strings.HasPrefix(got, `{"digest":"d2","version":"v1","instance":"`) {
		t.Errorf("the member is %s", got)
	}
}

// Of nodes that find the fleet empty at the same time, one marks it as settling, and no lease is left over.
func TestOneNodeStartsTheFleet(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	const nodes = 8
	var group sync.WaitGroup
	for i := range nodes {
		n := client(t, options(c, "z1", "n"+string(rune('a'+i))))
		group.Go(func() {
			if err := n.Report(t.Context(), wants()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if read(t, c, "settling") == nil {
		t.Error("the fleet is not settling")
	}
	leases, err := pb.NewLeaseClient(c.Conn()).LeaseLeases(t.Context(), &pb.LeaseLeasesRequest{})
	must(t, err)
	if got := len(leases.Leases); got != 2*nodes+1 {
		t.Errorf("%d leases, want one for each of %d keys", got, 2*nodes+1)
	}
}

func TestListAndForget(t *testing.T) {
	t.Parallel()
	each(t, testListAndForget)
}

func testListAndForget(t *testing.T, c *etcdtest.Cluster) {
	member(t, options(c, "z1", "n1"))
	must(t, client(t, options(c, "z2", "n2")).Report(t.Context(), etcd.State{Digest: "d2", Version: "v2"}))
	settled(t, c)
	n := member(t, options(c, "z1", "n3"))
	p, err := n.Acquire(t.Context(), fast(), "shop/web", rand.Text())
	must(t, err)

	operator := client(t, options(c, "", ""))
	f, err := operator.List(t.Context())
	must(t, err)
	if got, want := f.Zones, map[string]fleet.Zone{"z1": {Members: 2, Wanting: 2}, "z2": {Members: 1}}; len(got) != 2 || got["z1"] != want["z1"] || got["z2"] != want["z2"] {
		t.Errorf("zones: %v, want %v", got, want)
	}
	want := []etcd.Member{
		{Zone: "z1", Name: "n1", Digest: "d1", Version: "v1", Pools: []string{"memory"}},
		{Zone: "z1", Name: "n3", Digest: "d1", Version: "v1", Pools: []string{"memory"}},
		{Zone: "z2", Name: "n2", Digest: "d2", Version: "v2"},
	}
	if !slices.EqualFunc(f.Members, want, func(a, b etcd.Member) bool {
		return slices.Equal(a.Pools, b.Pools) && a.Zone == b.Zone && a.Name == b.Name && a.Digest == b.Digest && a.Version == b.Version
	}) {
		t.Errorf("members: %v", f.Members)
	}
	if len(f.Slots) != 1 || f.Slots[0].Zone != "z1" || f.Slots[0].Node != "n3" || f.Slots[0].Permit != p.ID || f.Slots[0].FreeIn > 3*time.Second {
		t.Errorf("slots: %+v", f.Slots)
	}
	zones, err := operator.Zones(t.Context())
	must(t, err)
	if len(zones) != 2 || zones["z1"] != f.Zones["z1"] || zones["z2"] != f.Zones["z2"] {
		t.Errorf("counted %v, listed %v", zones, f.Zones)
	}

	removed, err := operator.Forget(t.Context(), "n1")
	must(t, err)
	if removed != 2 || read(t, c, "m/z1/n1") != nil || read(t, c, "u/z1/n1") != nil {
		t.Errorf("removed %d keys of n1", removed)
	}
	must(t, n.Report(t.Context(), wants()))
	if read(t, c, "m/z1/n3") == nil {
		t.Error("another node is gone")
	}
}

// A forgotten node comes back with its next report, and a report survives that its lease is revoked under it.
func TestForgottenNodeReturns(t *testing.T) {
	t.Parallel()
	each(t, testForgottenNodeReturns)
}

func testForgottenNodeReturns(t *testing.T, c *etcdtest.Cluster) {
	n := member(t, options(c, "z1", "n1"))
	_, err := client(t, options(c, "", "")).Forget(t.Context(), "n1")
	must(t, err)
	settled(t, c)
	_, err = n.Acquire(t.Context(), fast(), "shop/web", rand.Text())
	denied(t, err, etcd.NotReported)
	must(t, n.Report(t.Context(), wants()))
	if read(t, c, "settling") == nil {
		t.Error("a fleet without members is not settling")
	}
	settled(t, c)
	_, err = n.Acquire(t.Context(), fast(), "shop/web", rand.Text())
	must(t, err)
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	each(t, testPolicy)
}

func testPolicy(t *testing.T, c *etcdtest.Cluster) {
	n := member(t, options(c, "z1", "n1"))
	settled(t, c)
	operator := client(t, options(c, "", ""))

	must(t, operator.Pause(t.Context(), time.Hour))
	_, err := n.Acquire(t.Context(), fast(), "shop/web", rand.Text())
	if left := denied(t, err, etcd.Paused); left < 59*time.Minute || left > time.Hour+time.Second {
		t.Errorf("paused for %s", left)
	}
	if s, err := n.Survey(t.Context(), fast()); err != nil || s.Paused < 59*time.Minute || s.Paused > time.Hour+time.Second || s.Resumed || s.Zone != (fleet.Zone{Members: 1, Wanting: 1}) {
		t.Errorf("%+v, %v", s, err)
	}
	look, err := n.Look(t.Context(), "shop/web")
	must(t, err)
	if !look.Policy.Paused || look.Policy.Resumed {
		t.Errorf("during a pause: %+v", look.Policy)
	}
	must(t, operator.Resume(t.Context()))
	if look, err = n.Look(t.Context(), "shop/web"); err != nil || look.Policy.Paused || !look.Policy.Resumed {
		t.Errorf("after a resume: %+v, %v", look.Policy, err)
	}

	if s, err := n.Survey(t.Context(), fast()); err != nil || s.Paused != 0 || !s.Resumed {
		t.Errorf("%+v, %v", s, err)
	}

	zero := fleet.Millionths(0)
	must(t, operator.SetRates(t.Context(), &etcd.Overrides{Rate: &zero, Secondary: &zero}))
	_, err = n.Acquire(t.Context(), fast(), "shop/web", rand.Text())
	denied(t, err, etcd.RateZero)
	must(t, operator.SetRates(t.Context(), nil))
	_, err = n.Acquire(t.Context(), fast(), "shop/web", rand.Text())
	must(t, err)
}
