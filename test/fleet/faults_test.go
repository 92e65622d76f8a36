package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/test/etcdtest"
)

// Agents of several zones acquire permits all the time, through proxies, from an etcd of three members with roles, while
// one fault follows the other. In the last two zones they are processes that are killed at any point.
func TestFaults(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	zones := []string{"z1", "z2", "z3", "z4", "killed1", "killed2"}
	users := map[string]etcdtest.Grants{}
	for _, zone := range zones {
		users[zone] = etcdtest.Grants{Read: []string{prefix}, Write: []string{
			prefix + "settling", prefix + "w/", prefix + "s/" + zone, prefix + "m/" + zone + "/", prefix + "u/" + zone + "/",
		}}
	}
	c.EnableRoles(t, users)
	proxies := map[string][]*etcdtest.Proxy{}
	jobs := map[string]job{}
	rates := fast()
	rates.MinZone = 1000 // all want stops, and no zone is full
	for _, zone := range zones {
		j := job{Zone: zone, TLS: c.Issue(t, zone), Timeout: time.Second, Rates: rates, Workloads: []string{"a/1", "a/2", "a/3", "b/1", "b/2", "b/3", "c/1", "c/2"}}
		for _, m := range c.Members {
			p := etcdtest.NewProxy(t, m.Address)
			proxies[zone] = append(proxies[zone], p)
			j.Endpoints = append(j.Endpoints, p.URL)
		}
		jobs[zone] = j
	}
	all := func(f func(*etcdtest.Proxy)) {
		for _, zone := range zones {
			for _, p := range proxies[zone] {
				f(p)
			}
		}
	}
	recorder, stopRecorder := startRecorder(t, c)
	ledger := newLedger()
	ctx, stopAgents := context.WithCancel(context.Background())
	var group sync.WaitGroup
	end := func() { stopAgents(); group.Wait() }
	t.Cleanup(end)
	named := func(zone string, i int) job {
		j := jobs[zone]
		j.Node = fmt.Sprintf("%s-n%d", zone, i)
		return j
	}
	for _, zone := range zones[:4] {
		for i := range 3 {
			group.Go(func() { _ = named(zone, i).run(ctx, ledger.record, ledger.failed) })
		}
	}
	for _, zone := range zones[4:] {
		group.Go(func() {
			for ctx.Err() == nil {
				p := startProcess(t, named(zone, 0), ledger.hear)
				select {
				case <-time.After(rand.N(3 * time.Second)):
				case <-ctx.Done():
				}
				p.kill(t)
			}
		})
	}

	// during lets the agents run for a time, which the fault lasts.
	during := func(d time.Duration) {
		t.Helper()
		before := ledger.count()
		begin := cgroup.BootTime()
		select {
		case <-time.After(d):
		case <-t.Context().Done():
		}
		t.Logf("  %d permits in %s", ledger.count()-before, (cgroup.BootTime() - begin).Round(time.Millisecond))
	}
	progress := func() {
		t.Helper()
		before := ledger.count()
		etcdtest.Wait(t, func() error {
			if ledger.count() < before+2 {
				return errors.New("no permits after the fault")
			}
			return nil
		})
	}
	for _, fault := range []struct {
		name string
		do   func()
	}{
		{"none", func() { during(4 * time.Second) }},
		{"the leader is killed", func() {
			i := c.Leader(t)
			c.Members[i].Kill()
			during(3 * time.Second)
			c.Members[i].Start(t)
			c.Ready(t)
		}},
		{"a follower is stopped", func() {
			i := (c.Leader(t) + 1) % 3
			c.Members[i].Stop(t)
			during(2500 * time.Millisecond)
			c.Members[i].Continue(t)
		}},
		{"the leader is stopped", func() {
			i := c.Leader(t)
			c.Members[i].Stop(t)
			during(3 * time.Second)
			c.Members[i].Continue(t)
			c.Ready(t)
		}},
		{"two zones are cut off", func() {
			for _, zone := range zones[:2] {
				for _, p := range proxies[zone] {
					p.Cut()
				}
			}
			during(2 * time.Second)
			all((*etcdtest.Proxy).Heal)
		}},
		{"everything takes 200 ms", func() {
			all(func(p *etcdtest.Proxy) { p.Delay(200 * time.Millisecond) })
			during(5 * time.Second)
			all((*etcdtest.Proxy).Heal)
		}},
		{"answers get lost", func() {
			for range 6 {
				all((*etcdtest.Proxy).Hang)
				during(300 * time.Millisecond)
				all((*etcdtest.Proxy).Cut)
				all((*etcdtest.Proxy).Heal)
				during(400 * time.Millisecond)
			}
		}},
		{"compaction", func() {
			_, err := pb.NewKVClient(c.Members[c.Leader(t)].Conn()).Compact(t.Context(), &pb.CompactionRequest{Revision: recorder.reached(), Physical: true})
			must(t, err)
			during(2 * time.Second)
		}},
		{"out of space", func() {
			leader := pb.NewMaintenanceClient(c.Members[c.Leader(t)].Conn())
			_, err := leader.Alarm(t.Context(), &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE})
			must(t, err)
			before := ledger.count()
			etcdtest.Wait(t, func() error {
				if ledger.failures("no_space") == 0 {
					return errors.New("no agent noticed")
				}
				return nil
			})
			during(time.Second)
			if got := ledger.count() - before; got > len(zones) { // those on their way
				t.Errorf("%d permits without space", got)
			}
			_, err = leader.Alarm(t.Context(), &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE})
			must(t, err)
		}},
	} {
		t.Log(fault.name)
		fault.do()
		progress()
	}
	end()
	recorder.awaitFree(t, c)
	stopRecorder()
	ledger.check(t, rates.WorkloadInterval)
	longest := map[byte]time.Duration{}
	for key, spans := range recorder.check(t, ledger) {
		for _, s := range spans {
			longest[key[0]] = max(longest[key[0]], s.to-s.from)
		}
	}
	// Outages, and changes of the leader, which extends all leases, come on top of the slot's time.
	const outages = 15 * time.Second
	if longest['s'] > fleet.MinSlot+outages || longest['w'] > rates.WorkloadInterval+outages {
		t.Error("a permit was lost for longer than the faults explain")
	}
	t.Logf("longest slot of a zone %s, of a workload %s", longest['s'], longest['w'])
}
