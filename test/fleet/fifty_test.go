package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/test/etcdtest"
	"github.com/criguard/criguard/test/lab"
)

// fifty is a fleet of fifty agents in two zones. In the first, the rate is normal whatever happens; the second has the
// states of a fleet.
type fifty struct {
	*testing.T
	c        *etcdtest.Cluster
	short    bool                         // a shorter run
	proxies  map[string][]*etcdtest.Proxy // by zone
	jobs     []job
	ledger   *ledger
	requests *requests
	end      func() // of all agents
}

// processes is how many of the agents are processes, which are killed at any point.
const processes = 6

func newFifty(t *testing.T, c *etcdtest.Cluster, short bool) *fifty {
	t.Helper()
	f := &fifty{T: t, c: c, short: short, proxies: map[string][]*etcdtest.Proxy{}}
	f.begin()
	users := map[string]etcdtest.Grants{}
	for _, zone := range []string{"z1", "z2"} {
		users[zone] = etcdtest.Grants{Read: []string{prefix}, Write: []string{
			prefix + "settling", prefix + "w/", prefix + "s/" + zone, prefix + "m/" + zone + "/", prefix + "u/" + zone + "/",
		}}
		for _, m := range f.c.Members {
			f.proxies[zone] = append(f.proxies[zone], etcdtest.NewProxy(t, m.Address))
		}
	}
	f.enable(users)
	for i := range 50 {
		zone := fmt.Sprint("z", i%2+1)
		j := job{
			Zone: zone, Node: fmt.Sprintf("%s-n%d", zone, i), TLS: f.c.Issue(t, zone), Timeout: time.Second, Rates: fast(), Rest: 2 * time.Second,
			Workloads: []string{"a/1", "a/2", "a/3", "b/1", "b/2", "b/3", "c/1", "c/2"},
		}
		j.Rates.Patience = f.patience()
		if zone == "z1" {
			j.Rates.MinZone = 1000
		} else {
			j.Rest = 80 * time.Second // about half of the zone wants a stop
		}
		if j.Guard = i < processes; j.Guard {
			j.Rest, j.State = time.Second, t.TempDir()
		}
		for _, p := range f.proxies[zone] {
			j.Endpoints = append(j.Endpoints, p.URL)
		}
		f.jobs = append(f.jobs, j)
	}
	return f
}

// long returns how long something lasts in this run.
func (f *fifty) long(d, short time.Duration) time.Duration {
	if f.short {
		return short
	}
	return d
}

func (f *fifty) patience() time.Duration { return f.long(30*time.Second, 15*time.Second) }

// begin begins to account for permits and requests.
func (f *fifty) begin() { f.ledger, f.requests = newLedger(), newRequests(f.patience()) }

// hear accounts for what a guard or an agent says.
func (f *fifty) hear(s said) {
	f.ledger.hear(s)
	if s.Answer != nil {
		f.requests.add(*s.Answer)
	}
}

// enable enables roles, also in an etcd that has lost them.
func (f *fifty) enable(users map[string]etcdtest.Grants) {
	f.Helper()
	f.c.EnableRoles(f.T, users)
}

// run starts all agents, until end.
func (f *fifty) run() { f.end = f.start(f.jobs...) }

func (f *fifty) start(jobs ...job) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	end = sync.OnceFunc(func() { cancel(); group.Wait() })
	f.Cleanup(end)
	for _, j := range jobs {
		if !j.Guard {
			group.Go(func() { _ = j.runNode(ctx, f.hear) })
			continue
		}
		group.Go(func() {
			for ctx.Err() == nil {
				j.DieAt = rand.IntN(10) // 0: only the parent kills it
				p := startProcess(f.T, j, f.hear)
				select {
				case <-time.After(rand.N(6 * time.Second)):
				case <-ctx.Done():
				}
				p.kill(f.T)
				f.requests.killed(j.Node)
			}
		})
	}
	return end
}

func (f *fifty) all(do func(*etcdtest.Proxy)) {
	for _, zone := range f.proxies {
		for _, p := range zone {
			do(p)
		}
	}
}

// during lets the agents run for a time.
func (f *fifty) during(d time.Duration) {
	select {
	case <-time.After(d):
	case <-f.Context().Done():
	}
}

// progress waits for two permits.
func (f *fifty) progress() {
	f.Helper()
	before := f.ledger.count()
	etcdtest.Wait(f.T, func() error {
		if f.ledger.count() < before+2 {
			return errors.New("no permits after the fault")
		}
		return nil
	})
}

// alarm raises or clears the alarm that etcd is out of space.
func (f *fifty) alarm(action pb.AlarmRequest_AlarmAction) {
	f.Helper()
	_, err := pb.NewMaintenanceClient(f.c.Members[f.c.Leader(f.T)].Conn()).Alarm(f.Context(), &pb.AlarmRequest{Action: action, Alarm: pb.AlarmType_NOSPACE})
	must(f.T, err)
}

// faults returns what happens to the fleet, in this order. Only a cluster has a leader that can be lost.
func (f *fifty) faults(r *recorder) []fault {
	all := []fault{{"none", func() { f.during(f.long(20*time.Second, 12*time.Second)) }}}
	if len(f.c.Members) > 1 {
		all = append(all, fault{"the leader is killed", func() {
			i := f.c.Leader(f.T)
			f.c.Members[i].Kill()
			f.during(4 * time.Second)
			f.c.Members[i].Start(f.T)
			f.c.Ready(f.T)
		}}, fault{"the leader is stopped", func() {
			i := f.c.Leader(f.T)
			f.c.Members[i].Stop(f.T)
			f.during(4 * time.Second)
			f.c.Members[i].Continue(f.T)
			f.c.Ready(f.T)
		}})
	}
	return append(all, fault{"a zone is cut off", func() {
		for _, p := range f.proxies["z1"] {
			p.Cut()
		}
		f.during(f.long(18*time.Second, 3*time.Second)) // in the long run, its nodes are alone
		f.all((*etcdtest.Proxy).Heal)
	}}, fault{"everything takes 200 ms", func() {
		f.all(func(p *etcdtest.Proxy) { p.Delay(100 * time.Millisecond) })
		f.during(f.long(15*time.Second, 5*time.Second))
		f.all((*etcdtest.Proxy).Heal)
	}}, fault{"answers get lost", func() {
		for range 5 {
			f.all((*etcdtest.Proxy).Hang)
			f.during(300 * time.Millisecond)
			f.all((*etcdtest.Proxy).Cut)
			f.all((*etcdtest.Proxy).Heal)
			f.during(700 * time.Millisecond)
		}
	}}, fault{"compaction", func() {
		_, err := pb.NewKVClient(f.c.Members[f.c.Leader(f.T)].Conn()).Compact(f.Context(), &pb.CompactionRequest{Revision: r.reached(), Physical: true})
		must(f.T, err)
		f.during(3 * time.Second)
	}}, fault{"out of space", func() {
		f.alarm(pb.AlarmRequest_ACTIVATE)
		f.during(3 * time.Second)
		before := f.ledger.count()
		f.during(3 * time.Second)
		if got := f.ledger.count() - before; got > 0 {
			f.Errorf("%d permits without space", got)
		}
		f.alarm(pb.AlarmRequest_DEACTIVATE)
	}})
}

type fault struct {
	name string
	do   func()
}

// Fifty agents with their guards, in two zones with roles, ask an etcd for permits all the time, while one fault follows the
// other. The invariants are counted over the whole run.
func TestFiftyAgents(t *testing.T) {
	t.Parallel()
	for _, version := range lab.Etcds() {
		for _, members := range []int{1, 3} {
			// One after the other: each needs a processor.
			t.Run(fmt.Sprintf("%s, members: %d", version, members), func(t *testing.T) {
				c := etcdtest.Start(t, etcdtest.Options{Program: built[version], Members: members})
				newFifty(t, c, version != lab.Etcd36 || members == 1).test()
			})
		}
	}
}

func (f *fifty) test() {
	recorder, stopRecorder := startRecorder(f.T, f.c)
	f.run()
	f.settle()
	var calm span // without faults
	pauses := watchPauses()
	for _, fault := range f.faults(recorder) {
		before, begin := f.ledger.count(), cgroup.BootTime()
		fault.do()
		if fault.name == "none" {
			calm = span{begin, cgroup.BootTime()}
		}
		f.progress()
		f.Logf("%s: %d permits in %s", fault.name, f.ledger.count()-before, (cgroup.BootTime() - begin).Round(100*time.Millisecond))
	}
	pause := pauses()
	f.end()
	recorder.awaitFree(f.T, f.c)
	stopRecorder()
	var longest, calmest struct{ zone, workload time.Duration }
	for key, spans := range recorder.check(f.T, f.ledger) {
		for _, s := range spans {
			all, calmly := &longest.zone, &calmest.zone
			if key[0] == 'w' {
				all, calmly = &longest.workload, &calmest.workload
			}
			if *all = max(*all, s.to-s.from); s.from >= calm.from && s.to <= calm.to {
				*calmly = max(*calmly, s.to-s.from)
			}
		}
	}
	f.Logf("longest slot of a zone %s, of a workload %s; without faults %s and %s; the test stood still for %s", longest.zone, longest.workload, calmest.zone, calmest.workload, pause)
	const outages = 15 * time.Second // changes of the leader extend all leases
	if longest.zone > slotOf+outages || longest.workload > fast().WorkloadInterval+outages {
		f.Error("a permit was lost for longer than the faults explain")
	}
	// etcd looks for leases that have expired twice a second.
	late := 2*time.Second + pause
	if calmest.zone == 0 || calmest.zone > slotOf+late || calmest.workload == 0 || calmest.workload > fast().WorkloadInterval+late {
		f.Errorf("without faults, slots of zones lasted %s and of workloads %s, want at most %s more than their time", calmest.zone, calmest.workload, late)
	}

	f.checkZones()
	f.check(fast().WorkloadInterval)
	f.loseData()
}

// checkZones fails the test unless both zones got permits, and the second one was denied some because of its state.
func (f *fifty) checkZones() {
	f.Helper()
	zones, zero := f.ledger.zones(), f.requests.zero
	f.Logf("permits by zone: %v; denials at rate 0: %v", zones, zero)
	if zones["z1"] == 0 || zones["z2"] == 0 {
		f.Errorf("permits by zone: %v, want some in both", zones)
	}
	if zero["zone z2 is partial: 0/s"]+zero["zone z2 is full: 0/s"] == 0 {
		f.Errorf("denials at rate 0: %v, want one because of the state of z2", zero)
	}
}

// settle ends the time after the start of a fleet in which the states of its zones do not matter. Before there is a member, the
// first node would begin it again.
func (f *fifty) settle() {
	f.Helper()
	etcdtest.Wait(f.T, func() error {
		resp, err := pb.NewKVClient(f.c.Conn()).Range(f.Context(), &pb.RangeRequest{Key: []byte(prefix + "m/"), RangeEnd: []byte(prefix + "m0"), CountOnly: true})
		if err == nil && resp.Count == 0 {
			err = errors.New("the fleet has no member")
		}
		return err
	})
	settled(f.T, f.c)
}

// watchPauses measures the longest time for which a busy machine does not run the test.
func watchPauses() (stop func() time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	longest := time.Duration(0)
	group.Go(func() {
		const every = 50 * time.Millisecond
		tick := time.NewTicker(every)
		defer tick.Stop()
		for last := cgroup.BootTime(); ctx.Err() == nil; {
			<-tick.C
			now := cgroup.BootTime()
			longest, last = max(longest, now-last-every), now
		}
	})
	return func() time.Duration { cancel(); group.Wait(); return longest }
}

// loseData lets the agents run while etcd restarts without its data. It is away for less than a workload's slot, and then gives
// each zone a slot of 10 s instead of 2 s: permits that are closer to each other show that the fleet did not settle. A new node
// asks for the workload that was stopped last, and does not know that.
func (f *fifty) loseData() {
	f.Helper()
	f.begin()
	const secondary, interval = 100_000, 30 * time.Second
	for i := range f.jobs {
		f.jobs[i].Rates.Secondary, f.jobs[i].Rates.WorkloadInterval = secondary, interval
	}
	f.run()
	permits := func(least int) {
		f.Helper()
		etcdtest.Wait(f.T, func() error {
			if n := f.ledger.most(f.ledger.lost); n < least {
				return fmt.Errorf("%d permits", n)
			}
			return nil
		})
	}
	permits(len(f.jobs[0].Workloads))
	newcomer := f.jobs[len(f.jobs)-1]
	newcomer.Zone, newcomer.Node, newcomer.Workloads = "z3", "z3-n50", []string{f.ledger.last().Workload}
	lost := f.restartEmpty()
	f.ledger.mu.Lock()
	f.ledger.lost, f.ledger.slot = lost, fleet.Slot(secondary)
	f.ledger.mu.Unlock()
	end := f.start(newcomer)
	permits(1)
	permits(3)
	end()
	f.end()
	f.check(interval)
}

// restartEmpty restarts etcd without its data, and so without its roles. It returns when the data was lost.
func (f *fifty) restartEmpty() (lost time.Duration) {
	f.Helper()
	for _, m := range f.c.Members {
		m.Kill()
	}
	lost = cgroup.BootTime()
	for _, m := range f.c.Members {
		m.Wipe(f.T)
		m.Start(f.T)
	}
	f.c.Ready(f.T)
	return lost
}

// check counts the invariants over the whole run.
func (f *fifty) check(interval time.Duration) {
	f.Helper()
	f.ledger.check(f.T, interval)
	f.requests.check(f.T, f.ledger, func(node string) bool {
		return slices.ContainsFunc(f.jobs, func(j job) bool { return j.Guard && j.Node == node })
	})
}
