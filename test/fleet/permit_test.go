package fleet_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/fleet/etcd"
	"github.com/criguard/criguard/test/etcdtest"
)

func TestPermit(t *testing.T) {
	t.Parallel()
	each(t, testPermit)
}

func testPermit(t *testing.T, c *etcdtest.Cluster) {
	n1, n2, other := member(t, options(c, "z1", "n1")), member(t, options(c, "z1", "n2")), member(t, options(c, "z2", "n3"))
	settled(t, c)
	rates := fast()
	rates.WorkloadInterval = 20 * time.Second

	before := cgroup.BootTime()
	p, err := n1.Acquire(t.Context(), rates, "shop/web", rand.Text())
	must(t, err)
	if p.Deadline < before+2*time.Second || p.Deadline > cgroup.BootTime()+2*time.Second || p.Slot != 2*time.Second || p.Since < before {
		t.Errorf("requested at %s: %+v", before, p)
	}
	writes := revision(t, c)
	_, err = n2.Acquire(t.Context(), rates, "shop/api", rand.Text())
	if after := denied(t, err, etcd.SlotTaken); after > 3*time.Second {
		t.Errorf("retry after %s", after)
	}
	_, err = other.Acquire(t.Context(), rates, "shop/web", rand.Text())
	if after := denied(t, err, etcd.WorkloadTaken); after < 10*time.Second || after > 21*time.Second {
		t.Errorf("retry after %s", after)
	}
	if got := revision(t, c); got != writes {
		t.Errorf("two denials made %d writes", got-writes)
	}
	_, err = other.Acquire(t.Context(), rates, "shop/api", rand.Text())
	must(t, err)

	// Released, the same slots are free at once.
	must(t, n1.Release(t.Context(), p))
	must(t, n1.Release(t.Context(), p))
	p, err = n2.Acquire(t.Context(), rates, "shop/web", rand.Text())
	must(t, err)

	// Not released, the slot is free no sooner than the deadline, and soon after.
	etcdtest.Wait(t, func() error {
		_, err = n1.Acquire(t.Context(), rates, "shop/db", rand.Text())
		return err
	})
	if now := cgroup.BootTime(); now < p.Deadline || now > p.Deadline+5*time.Second {
		t.Errorf("the deadline was %s, the next permit came at %s", p.Deadline, now)
	}
}

// An agent that restarts asks with the same ID, and takes the slots of its permit again, with leases of its own: its predecessor may
// have revoked the others in a call that is still on its way. After the permit's deadline, the rest of the workload's slot does not
// keep the agent from another one.
func TestPermitAgain(t *testing.T) {
	t.Parallel()
	each(t, testPermitAgain)
}

func testPermitAgain(t *testing.T, c *etcdtest.Cluster) {
	n := member(t, options(c, "z1", "n1"))
	settled(t, c)
	rates := fast()
	rates.Rate = 200_000 // a slot of 5 s
	rates.WorkloadInterval = time.Minute
	id := rand.Text()
	p, err := n.Acquire(t.Context(), rates, "shop/web", id)
	must(t, err)
	restarted, other := client(t, options(c, "z1", "n1")), member(t, options(c, "z2", "n2"))
	slot := read(t, c, "s/z1")
	again, err := restarted.Acquire(t.Context(), rates, "shop/web", id)
	must(t, err)
	if again.ID != id || again.Since < p.Since || again.Deadline != again.Since+5*time.Second {
		t.Errorf("first %+v, then %+v", p, again)
	}
	must(t, n.Release(t.Context(), p))
	if now := read(t, c, "s/z1"); now == nil || now.Value != slot.Value || now.Lease == slot.Lease {
		t.Errorf("the slot was %+v, then %+v", slot, now)
	}
	must(t, restarted.Release(t.Context(), again))
	if read(t, c, "s/z1") != nil {
		t.Error("the slot is taken")
	}

	_, err = n.Acquire(t.Context(), rates, "shop/web", id)
	must(t, err)
	etcdtest.Wait(t, func() error {
		if e := read(t, c, "s/z1"); e != nil {
			return errors.New("the zone's slot is taken")
		}
		return nil
	})
	_, err = other.Acquire(t.Context(), rates, "shop/web", rand.Text())
	denied(t, err, etcd.WorkloadTaken)
	_, err = restarted.Acquire(t.Context(), rates, "shop/web", id)
	must(t, err)
}

// Denials by rate read the other zones only if the own zone does not decide.
func TestRates(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		members map[string][2]int // members and wanting by zone, the node itself included
		want    string            // "" = a permit
	}{
		{"normal", map[string][2]int{"z1": {5, 1}}, ""},
		{"small", map[string][2]int{"z1": {3, 3}}, ""},
		{"partial", map[string][2]int{"z1": {5, 4}}, etcd.RateZero},
		{"full", map[string][2]int{"z1": {5, 5}, "z2": {20, 0}}, etcd.RateZero},
		{"full, and nearly all of the fleet", map[string][2]int{"z1": {50, 50}, "z2": {10, 9}}, etcd.RateZero},
		{"large and full, and another zone is well", map[string][2]int{"z1": {51, 51}, "z2": {51, 0}}, ""},
		{"large and full, and another zone is partial", map[string][2]int{"z1": {51, 51}, "z2": {10, 9}}, ""},
		{"full fleet", map[string][2]int{"z1": {51, 51}, "z2": {10, 10}}, etcd.FleetFull},
		{"full fleet but for a small zone", map[string][2]int{"z1": {51, 51}, "z2": {3, 0}}, etcd.FleetFull},
		{"large full fleet", map[string][2]int{"z1": {120, 120}}, etcd.FleetFull},
		{"small zone in a full fleet", map[string][2]int{"z1": {3, 3}, "z2": {10, 10}}, etcd.FleetFull},
		{"small zone beside a partial one", map[string][2]int{"z1": {3, 3}, "z2": {10, 9}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, 1)
			n := member(t, options(c, "z1", "n0"))
			settled(t, c)
			kv := pb.NewKVClient(c.Conn())
			for zone, count := range tt.members {
				for i := range count[0] {
					for j, kind := range []string{"m", "u"} {
						if i < count[j] {
							_, err := kv.Put(t.Context(), &pb.PutRequest{Key: fmt.Appendf(nil, "%s%s/%s/n%d", prefix, kind, zone, i), Value: []byte(`{"digest":"d1","version":"v1"}`)})
							must(t, err)
						}
					}
				}
			}
			_, err := n.Acquire(t.Context(), fast(), "shop/web", rand.Text())
			if tt.want == "" {
				must(t, err)
				return
			}
			denied(t, err, tt.want)
			shared, err := n.Shared(t.Context())
			must(t, err)
			if want := []etcd.Shared{{Digest: "d1", Version: "v1", Wanting: min(tt.members["z1"][1], 100)}}; !slices.Equal(shared, want) {
				t.Errorf("the zone's configurations are %+v, want %+v", shared, want)
			}
		})
	}
}

// A slot that has no lease would never be free, so it is taken, and a request for it writes nothing.
func TestSlotWithoutLease(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	n := member(t, options(c, "z1", "n1"))
	settled(t, c)
	_, err := pb.NewKVClient(c.Conn()).Put(t.Context(), &pb.PutRequest{Key: []byte(prefix + "s/z1"), Value: []byte("x")})
	must(t, err)
	leases := func() int {
		all, err := pb.NewLeaseClient(c.Conn()).LeaseLeases(t.Context(), &pb.LeaseLeasesRequest{})
		must(t, err)
		return len(all.Leases)
	}
	before := leases()
	_, err = n.Acquire(t.Context(), fast(), "shop/web", rand.Text())
	if denied(t, err, etcd.SlotTaken); !strings.Contains(err.Error(), "has no lease") {
		t.Error(err)
	}
	if now := leases(); now != before {
		t.Errorf("%d leases, %d before", now, before)
	}
}

// An etcd that may have lost its slots gives no permit until the longest of them would have ended.
func TestSettling(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	n := member(t, options(c, "z1", "n1"))
	rates := fast()
	rates.WorkloadInterval = time.Hour
	_, err := n.Acquire(t.Context(), rates, "shop/web", rand.Text())
	if after := denied(t, err, etcd.Settling); after < 59*time.Minute || after > time.Hour+time.Second {
		t.Errorf("retry after %s", after)
	}
	begin := cgroup.BootTime()
	etcdtest.Wait(t, func() error {
		_, err := n.Acquire(t.Context(), fast(), "shop/web", rand.Text())
		return err
	})
	if took := cgroup.BootTime() - begin; took > 12*time.Second {
		t.Errorf("the first permit took %s", took)
	}
}

// A fleet settles for longer if a lost slot may last longer, so that it cannot have a second permit.
func TestSettlesForTheLongestSlot(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	o := options(c, "z1", "n1")
	o.Rates = fast()
	o.Rates.WorkloadInterval = 24 * time.Hour
	n := member(t, o)
	_, err := n.Acquire(t.Context(), o.Rates, "shop/web", rand.Text())
	if after := denied(t, err, etcd.Settling); after < 24*time.Hour-time.Minute {
		t.Errorf("retry after %s", after)
	}
	all, err := n.List(t.Context())
	must(t, err)
	if !all.Settling || all.SettlingFor < 24*time.Hour-time.Minute || all.SettlingTime != 24*time.Hour {
		t.Errorf("settling for %s of %s", all.SettlingFor, all.SettlingTime)
	}
}
