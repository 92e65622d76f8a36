package fleet_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/fleet/etcd"
	"github.com/criguard/criguard/test/etcdtest"
)

// jobOf returns a job for an etcd.
func jobOf(c *etcdtest.Cluster, zone, node string) job {
	r := fast()
	r.MinZone = 1000 // all want stops, and no zone is full
	return job{Zone: zone, Node: node, Endpoints: c.Endpoints(), TLS: c.Root(), Timeout: time.Second, Rates: r, Workloads: []string{"shop/web", "shop/api"}}
}

// The slot of an agent that died after its transaction is free again when its time has passed, and leases of one that
// died before its transaction take no slot.
func TestAgentDies(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	n := member(t, options(c, "z1", "n1"))
	settled(t, c)
	ledger := newLedger()
	dies := jobOf(c, "z1", "n2")
	dies.DieAt = 4
	startProcess(t, dies, ledger.hear).wait(t)
	died := cgroup.BootTime()
	if read(t, c, "s/z1") == nil || ledger.count() != 0 {
		t.Fatal("the agent did not die between its transaction and its answer")
	}
	_, err := n.Acquire(t.Context(), dies.Rates, "other", rand.Text())
	denied(t, err, etcd.SlotTaken)
	etcdtest.Wait(t, func() error {
		_, err := n.Acquire(t.Context(), dies.Rates, "other", rand.Text())
		return err
	})
	if took := cgroup.BootTime() - died; took > 8*time.Second {
		t.Errorf("a slot of 2 s was lost for %s", took)
	}

	etcdtest.Wait(t, func() error {
		if e := read(t, c, "s/z1"); e != nil {
			return errors.New("the slot is taken")
		}
		return nil
	})
	leases := func() int {
		resp, err := pb.NewLeaseClient(c.Conn()).LeaseLeases(t.Context(), &pb.LeaseLeasesRequest{})
		must(t, err)
		return len(resp.Leases)
	}
	const members = 4 // leases of m and u of two nodes
	etcdtest.Wait(t, func() error {
		if got := leases(); got > members {
			return fmt.Errorf("%d leases", got)
		}
		return nil
	})
	dies.DieAt = 3
	startProcess(t, dies, ledger.hear).wait(t)
	if got := leases(); got != members+2 || read(t, c, "s/z1") != nil {
		t.Fatalf("the agent did not die between its leases and its transaction: %d leases", got)
	}
	_, err = n.Acquire(t.Context(), dies.Rates, "third", rand.Text())
	must(t, err)
	etcdtest.Wait(t, func() error {
		if got := leases(); got > members {
			return fmt.Errorf("%d leases", got)
		}
		return nil
	})
}

// An agent that died after its transaction gets the same permit after its restart, once, and long before its slots would have expired.
func TestKilledAgentAsksAgain(t *testing.T) {
	t.Parallel()
	each(t, testKilledAgentAsksAgain)
}

func testKilledAgentAsksAgain(t *testing.T, c *etcdtest.Cluster) {
	member(t, options(c, "z1", "n1"))
	settled(t, c)
	j := jobOf(c, "z1", "n2")
	j.Rates.Rate, j.Rates.WorkloadInterval = 10_000, time.Hour // a slot of 100 s
	j.Guard, j.State, j.Rest, j.DieAt = true, t.TempDir(), time.Minute, 4
	heard := make(chan said, 1000)
	hear := func(s said) { heard <- s }
	next := func() said {
		t.Helper()
		select {
		case s := <-heard:
			return s
		case <-time.After(time.Minute):
			t.Fatal("the guard says nothing")
			return said{}
		}
	}
	startProcess(t, j, hear).wait(t)
	slot := read(t, c, "s/z1")
	if slot == nil {
		t.Fatal("the agent did not die after its transaction")
	}
	for len(heard) > 0 {
		if s := next(); s.Grant != nil {
			t.Fatalf("granted before: %+v", s.Grant)
		}
	}
	var holder etcd.Holder
	must(t, json.Unmarshal([]byte(slot.Value), &holder))
	var wanted wish
	must(t, j.kept(guardState, &wanted))

	j.DieAt = 0
	p := startProcess(t, j, hear)
	s := next()
	for s.Grant == nil {
		s = next()
	}
	p.kill(t)
	if s.Answer.Request != wanted.Request || !s.Answer.Again || s.Grant.Workload != wanted.Workload || s.Grant.Permit.ID != holder.Permit {
		t.Errorf("got %+v for %+v, want the permit %s for %+v", s.Grant, s.Answer, holder.Permit, wanted)
	}
	if now := read(t, c, "s/z1"); now == nil || now.Value != slot.Value || now.Lease == slot.Lease {
		t.Errorf("the slot was %+v, then %+v", slot, now)
	}
	p = startProcess(t, j, hear)
	if s := next(); s.Answer.Request == wanted.Request || s.Answer.Again {
		t.Errorf("a request that was granted is repeated: %+v", s.Answer)
	}
	p.kill(t)
}

// A caller that gives up at any point leaves nothing behind.
func TestCallerGivesUp(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	p := etcdtest.NewProxy(t, c.Members[0].Address)
	o := options(c, "z1", "n1")
	o.Endpoints = []string{p.URL}
	n := member(t, o)
	settled(t, c)
	p.Delay(5 * time.Millisecond)
	granted, late := 0, 0
	for i := range 60 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*3*time.Millisecond)
		permit, err := n.Acquire(ctx, fast(), "shop/web", rand.Text())
		cancel()
		if err == nil {
			granted++
			must(t, n.Release(t.Context(), permit))
		} else if errors.Is(err, etcd.ErrTimeout) || errors.Is(err, context.Canceled) {
			late++
		}
		if e := read(t, c, "s/z1"); e != nil {
			t.Fatalf("after %d ms the slot is %s (%v)", 3*i, e.Value, err)
		}
	}
	t.Logf("%d permits, %d given up", granted, late)
	if granted == 0 || late == 0 {
		t.Error("want both")
	}
	// A lease whose answer came too late expires.
	etcdtest.Wait(t, func() error {
		resp, err := pb.NewLeaseClient(c.Conn()).LeaseLeases(t.Context(), &pb.LeaseLeasesRequest{})
		if err == nil && len(resp.Leases) > 2 { // m and u
			err = fmt.Errorf("%d leases", len(resp.Leases))
		}
		return err
	})
}

// An answer may get lost at any point of a report or a request, so that the client does not know which leases etcd has granted.
// After the next report, only the member's lease is left; those of slots end within seconds.
func TestLostAnswersLeaveNoLease(t *testing.T) {
	t.Parallel()
	each(t, testLostAnswersLeaveNoLease)
}

func testLostAnswersLeaveNoLease(t *testing.T, c *etcdtest.Cluster) {
	p := etcdtest.NewProxy(t, c.Members[0].Address)
	o := options(c, "z1", "n1")
	o.Endpoints, o.Timeout = []string{p.URL}, 300*time.Millisecond
	n := member(t, o)
	settled(t, c)
	idle := etcd.State{Digest: "d1", Version: "v1"}
	must(t, n.Report(t.Context(), idle))
	lost := 0
	for i := range 20 {
		p.Delay(2 * time.Millisecond)
		var group sync.WaitGroup
		group.Go(func() { time.Sleep(time.Duration(2*i) * time.Millisecond); p.Hang() })
		err := n.Report(t.Context(), wants())
		if err == nil {
			_, err = n.Acquire(t.Context(), fast(), "shop/web", rand.Text())
		}
		if errors.Is(err, etcd.ErrTimeout) {
			lost++
		}
		group.Wait()
		p.Cut()
		p.Heal()
		etcdtest.Wait(t, func() error { return n.Report(t.Context(), idle) })
	}
	if t.Logf("%d calls without an answer", lost); lost < 5 {
		t.Errorf("%d calls without an answer", lost)
	}
	etcdtest.Wait(t, func() error {
		resp, err := pb.NewLeaseClient(c.Conn()).LeaseLeases(t.Context(), &pb.LeaseLeasesRequest{})
		if err == nil && len(resp.Leases) > 1 {
			err = fmt.Errorf("%d leases", len(resp.Leases))
		}
		return err
	})
}

// An etcd that restarts without its data has lost all slots. Even so, no slot has two permits.
func TestRestartedEmpty(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	ledger := newLedger()
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	end := func() { stop(); group.Wait() }
	t.Cleanup(end)
	for _, zone := range []string{"z1", "z2"} {
		for i := range 3 {
			group.Go(func() {
				_ = jobOf(c, zone, fmt.Sprintf("%s-n%d", zone, i)).run(ctx, ledger.record, ledger.failed)
			})
		}
	}
	for range 3 {
		before := ledger.count()
		etcdtest.Wait(t, func() error {
			if ledger.count() < before+2 {
				return errors.New("no permits")
			}
			return nil
		})
		c.Members[0].Kill()
		c.Members[0].Wipe(t)
		c.Members[0].Start(t)
		c.Ready(t)
	}
	end()
	ledger.check(t, fast().WorkloadInterval)
}

// An etcd that is restored from a snapshot, with the fleet's keys, settles once a node is back that has seen more.
func TestRestoredFromSnapshot(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	n1, n2 := member(t, options(c, "z1", "n1")), member(t, options(c, "z1", "n2"))
	settled(t, c)
	etcd1 := c.Members[0]
	etcd1.Kill()
	restore := etcd1.Snapshot(t)
	etcd1.Start(t)
	c.Ready(t)
	rates := fast()
	rates.WorkloadInterval = time.Hour
	etcdtest.Wait(t, func() error { return n1.Report(t.Context(), wants()) })
	_, err := n1.Acquire(t.Context(), rates, "shop/web", rand.Text())
	must(t, err)
	etcdtest.Wait(t, func() error { return n2.Report(t.Context(), wants()) })

	etcd1.Kill()
	restore()
	etcd1.Start(t)
	c.Ready(t)
	etcdtest.Wait(t, func() error { return n2.Report(t.Context(), wants()) })
	if read(t, c, "m/z1/n1") == nil || read(t, c, "s/z1") != nil {
		t.Fatal("the snapshot is not of before the permit")
	}
	if read(t, c, "settling") == nil {
		t.Error("the fleet is not settling")
	}
	_, err = n2.Acquire(t.Context(), rates, "shop/web", rand.Text())
	denied(t, err, etcd.Settling)
	etcdtest.Wait(t, func() error { return n1.Report(t.Context(), wants()) })
}
