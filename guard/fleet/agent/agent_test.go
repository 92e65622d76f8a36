package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/etcd"
	"github.com/criguard/criguard/policy"
)

// etcdFake is the fleet as a test wants it. Each call takes 10 ms.
type etcdFake struct {
	now func() time.Duration

	mu       sync.Mutex
	err      error         // of every call
	denial   error         // of Acquire, after it took effect
	paused   time.Duration // until then
	survey   etcd.Survey
	states   []etcd.State // reported
	acquired []string     // workloads
	ids      []string     // of the permits that were requested
	released []string     // permits
	closed   int
	shares   int // calls of Shared
}

// call makes a call. It holds no lock while it takes time, which would keep virtual time from passing.
func (f *etcdFake) call(do func()) error {
	time.Sleep(10 * time.Millisecond)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		do()
	}
	return f.err
}

func (f *etcdFake) Report(_ context.Context, s etcd.State) error {
	return f.call(func() { f.states = append(f.states, s) })
}

func (f *etcdFake) Survey(context.Context, fleet.Rates) (s etcd.Survey, err error) {
	err = f.call(func() {
		s = f.survey
		s.Paused = max(f.paused-f.now(), 0)
	})
	return s, err
}

func (f *etcdFake) Acquire(_ context.Context, _ fleet.Rates, workload, id string) (p etcd.Permit, err error) {
	since := f.now()
	f.set(func(f *etcdFake) { f.ids = append(f.ids, id) })
	err = f.call(func() {
		p = etcd.Permit{ID: id, Since: since, Slot: 10 * time.Second, Deadline: since + 10*time.Second}
		f.acquired = append(f.acquired, workload)
	})
	if err == nil {
		err = read(f, func(f *etcdFake) error { return f.denial })
	}
	return p, err
}

func (f *etcdFake) Shared(context.Context) (all []etcd.Shared, err error) {
	err = f.call(func() {
		f.shares++
		all = []etcd.Shared{{Digest: "d1", Version: "v1", Wanting: 9}, {Digest: "d2", Version: "v1", Wanting: 1}}
	})
	return all, err
}

func (f *etcdFake) Release(_ context.Context, p etcd.Permit) error {
	return f.call(func() { f.released = append(f.released, p.ID) })
}

func (f *etcdFake) set(change func(f *etcdFake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// read returns a value of the fake.
func read[T any](f *etcdFake, value func(f *etcdFake) T) T {
	f.mu.Lock()
	defer f.mu.Unlock()
	return value(f)
}

// node is an agent in virtual time.
type node struct {
	*testing.T
	*Agent
	etcd *etcdFake
	now  func() time.Duration
	stop func()

	mu    sync.Mutex
	saved []Saved // every state that the agent saved
}

// last returns the state that the agent saved last, and how many it has saved.
func (n *node) last() (Saved, int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.saved) == 0 {
		return Saved{}, 0
	}
	return n.saved[len(n.saved)-1], len(n.saved)
}

// run runs a test with an agent.
func run(t *testing.T, saved Saved, test func(n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		now := func() time.Duration { return time.Hour + time.Since(start) }
		f := &etcdFake{now: now}
		n := &node{T: t, etcd: f, now: now}
		a := New(Options{
			Client: f, Disconnect: func() { f.set(func(f *etcdFake) { f.closed++ }) }, Rates: fleet.DefaultRates(), Saved: saved,
			Save: func(s Saved) {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.saved = append(n.saved, s)
			},
			Soft: policy.Bucket{Burst: 2, Every: time.Minute}, Rand: rand.New(rand.NewPCG(1, 2)), Now: now,
		})
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { a.Run(ctx) })
		n.Agent, n.stop = a, sync.OnceFunc(func() { cancel(); group.Wait() })
		defer n.stop()
		test(n)
	})
}

// wants sends the state.
func (n *node) wants(pools ...policy.Pool) {
	n.SetState(State{Wants: pools, Digest: "d1", Version: "v1"})
}

// after lets time pass, in which the guard repeats its state.
func (n *node) after(d time.Duration) {
	for ; d > 0; d -= min(d, time.Minute) {
		time.Sleep(min(d, time.Minute))
		synctest.Wait()
		n.Agent.mu.Lock()
		s := n.state
		n.Agent.mu.Unlock()
		n.SetState(s)
	}
	synctest.Wait()
}

// ask asks for a permit for a pod each second until the answer has a state, at most for a time.
func (n *node) ask(p policy.Pool, sandbox, state string, most time.Duration) Answer {
	n.Helper()
	q := Request{Kind: "soft", Workload: "shop/web"}
	for begin := n.now(); ; {
		a := n.Request(p, sandbox, q)
		if a.State == state {
			return a
		}
		if n.now()-begin > most {
			n.Fatalf("after %s: %+v, want %s", most, a, state)
		}
		n.after(time.Second)
	}
}

const memory = policy.PoolMemory

// The first contact comes within 30 s, reports first, and then asks.
func TestPermitOfTheFleet(t *testing.T) {
	run(t, Saved{}, func(n *node) {
		n.wants(memory)
		if a := n.Request(memory, "u1", Request{Kind: "soft", Workload: "shop/web"}); a.State != Denied || a.RetryAfter <= 0 || a.Reason == "" {
			t.Errorf("the first answer is %+v", a)
		}
		a := n.ask(memory, "u1", Granted, 31*time.Second)
		if a.Source != Fleet || a.ID == "" || time.Duration(a.Deadline) <= n.now() || time.Duration(a.Deadline) > n.now()+10*time.Second {
			t.Errorf("at %s: %+v", n.now(), a)
		}
		if again := n.Request(memory, "u1", Request{Kind: "soft", Workload: "shop/web"}); again != a {
			t.Errorf("repeated: %+v, first %+v", again, a)
		}
		states := read(n.etcd, func(f *etcdFake) []etcd.State { return slices.Clone(f.states) })
		if len(states) == 0 || !slices.Equal(states[len(states)-1].Pools, []string{"memory"}) || states[0].Digest != "d1" || states[0].Version != "v1" {
			t.Errorf("reported %+v", states)
		}
		if s := n.Status(); len(s.Requests) != 1 || s.Requests[0].Answer != a || s.Counts.Permits != 1 {
			t.Errorf("status: %+v", s)
		}
		// After its deadline it is another permit, for which the agent asks only when the guard does.
		n.after(20 * time.Second)
		if got := read(n.etcd, func(f *etcdFake) int { return len(f.ids) }); got != 1 {
			t.Errorf("asked %d times", got)
		}
		if b := n.ask(memory, "u1", Granted, 10*time.Second); b.ID == a.ID {
			t.Errorf("the same permit again: %+v", b)
		}
		// The end of the episode releases nothing that the guard was given: the stop may have ended the episode.
		n.wants()
		n.after(time.Minute)
		if got := read(n.etcd, func(f *etcdFake) int { return len(f.released) }); got != 0 {
			t.Errorf("released %d permits", got)
		}
		states = read(n.etcd, func(f *etcdFake) []etcd.State { return f.states })
		if got := states[len(states)-1].Pools; len(got) > 0 {
			t.Errorf("still wants %v", got)
		}
	})
}

// A permit is given back that the guard does not use: withdrawn, not fetched before the end of the episode, or for a pod
// that is no longer the first.
func TestUnusedPermits(t *testing.T) {
	for name, unused := range map[string]func(n *node){
		"withdrawn":           func(n *node) { n.ask(memory, "u1", Granted, 31*time.Second); n.Withdraw(memory, "u1") },
		"episode ended":       func(n *node) { n.after(31 * time.Second); n.wants() },
		"not fetched in time": func(n *node) { n.after(time.Minute); n.wants() },
		"another pod": func(n *node) {
			n.after(31 * time.Second)
			n.Request(memory, "u2", Request{Kind: "limit", Workload: "shop/web"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, Saved{}, func(n *node) {
				n.wants(memory)
				n.Request(memory, "u1", Request{Kind: "soft", Workload: "shop/web"})
				unused(n)
				n.after(time.Second)
				got := read(n.etcd, func(f *etcdFake) []string { return f.released })
				if len(got) != 1 {
					t.Errorf("released %v", got)
				}
				n.Withdraw(memory, "unknown")
			})
		})
	}
}

func TestDenial(t *testing.T) {
	run(t, Saved{}, func(n *node) {
		n.etcd.denial = &etcd.DeniedError{Code: etcd.SlotTaken, Denial: fleet.Denial{Reason: "next permit in 7s", Left: 7 * time.Second, Slot: 10 * time.Second}}
		n.wants(memory)
		n.ask(memory, "u1", Denied, 0)
		n.after(31 * time.Second)
		a := n.ask(memory, "u1", Denied, time.Second)
		if a.Reason != "next permit in 7s" || a.RetryAfter <= 0 || time.Duration(a.RetryAfter) > 12*time.Second {
			t.Errorf("denied: %+v", a)
		}
		if s := n.Status(); s.Error != "" || s.Requests[0].Answer != a {
			t.Errorf("status: %+v", s)
		}
		n.etcd.set(func(f *etcdFake) { f.denial = nil })
		n.ask(memory, "u1", Granted, 13*time.Second)
	})
}

// An etcd that lost the node's state gets it again before the next request.
func TestLostState(t *testing.T) {
	run(t, Saved{}, func(n *node) {
		n.etcd.denial = &etcd.DeniedError{Code: etcd.NotReported, Denial: fleet.Denial{Reason: "lost"}}
		n.wants(memory)
		n.ask(memory, "u1", Denied, 0)
		n.after(31 * time.Second)
		reports := read(n.etcd, func(f *etcdFake) int { return len(f.states) })
		if reports < 2 || reports > 10 {
			t.Errorf("%d reports in 31 s", reports)
		}
		if s := n.Status(); s.Error == "" {
			t.Errorf("status: %+v", s)
		}
		n.etcd.set(func(f *etcdFake) { f.denial = nil })
		n.ask(memory, "u1", Granted, time.Minute)
	})
}

// A node that is alone gets a trickle, then its local budget, and permits again two minutes after the fleet returns.
func TestAlone(t *testing.T) {
	run(t, Saved{}, func(n *node) {
		n.etcd.err = etcd.ErrNoLeader
		n.wants(memory)
		n.ask(memory, "u1", Denied, 0)
		n.after(90 * time.Second)
		s := n.Status()
		if s.AloneFor <= 0 || s.Cause != "no_leader" || s.Error == "" {
			t.Errorf("status: %+v", s)
		}
		if a := n.ask(memory, "u1", Denied, 0); a.Reason != "alone" {
			t.Errorf("alone: %+v", a)
		}
		n.after(16 * time.Minute)
		if a := n.ask(memory, "u1", Granted, 6*time.Minute); a.Source != Local && a.Source != Trickle || a.ID != "" || time.Duration(a.Deadline) != n.now()+tokenValid {
			t.Errorf("local: %+v", a)
		}
		n.etcd.set(func(f *etcdFake) { f.err = nil })
		n.after(4 * time.Minute)
		if s := n.Status(); s.AloneFor != 0 || s.Error != "" {
			t.Errorf("status: %+v", s)
		}
		if a := n.ask(memory, "u1", Granted, 31*time.Second); a.Source != Fleet {
			t.Errorf("after the return: %+v", a)
		}
	})
}

// asks asks for a permit of a workload each second for a time. It returns the last answer.
func (n *node) asks(sandbox, workload string, d time.Duration) (a Answer) {
	for ; d > 0; d -= time.Second {
		a = n.Request(memory, sandbox, Request{Kind: "soft", Workload: workload})
		n.after(time.Second)
	}
	return a
}

// An etcd without space answers reports, but no request: a node that waits is alone until a request is answered.
func TestAloneWithoutSpace(t *testing.T) {
	run(t, Saved{}, func(n *node) {
		n.etcd.denial = etcd.ErrNoSpace
		n.wants(memory)
		n.asks("u1", "shop/web", 2*time.Minute)
		if s := n.Status(); s.AloneFor <= 0 {
			t.Errorf("status: %+v", s)
		}
		if a := n.asks("u1", "shop/web", 20*time.Minute); a.Source == Fleet {
			t.Errorf("alone: %+v", a)
		}
		if s := n.Status(); s.AloneFor < api.Duration(20*time.Minute) || s.Counts.Local == 0 {
			t.Errorf("status: %+v", s)
		}
		n.etcd.set(func(f *etcdFake) { f.denial = nil })
		n.asks("u1", "shop/web", 4*time.Minute)
		if s := n.Status(); s.AloneFor != 0 || s.Counts.Permits == 0 {
			t.Errorf("after the return: %+v", s)
		}
	})
}

// A workload whose slot is taken does not hold back the pool's next victim, of another workload.
func TestDenialOfAnotherWorkload(t *testing.T) {
	t.Run("replaced", func(t *testing.T) { testDenialOfAnotherWorkload(t, false) })
	t.Run("withdrawn", func(t *testing.T) { testDenialOfAnotherWorkload(t, true) })
}

// testDenialOfAnotherWorkload lets the guard withdraw the denied request first or not.
func testDenialOfAnotherWorkload(t *testing.T, withdrawn bool) {
	run(t, Saved{}, func(n *node) {
		n.etcd.denial = &etcd.DeniedError{Code: etcd.WorkloadTaken, Denial: fleet.Denial{Reason: "workload shop/web: next permit in 5m", Left: 5 * time.Minute, Slot: 5 * time.Minute}}
		n.wants(memory)
		if a := n.asks("u1", "shop/web", 32*time.Second); a.State != Denied || a.Reason != "workload shop/web: next permit in 5m" {
			t.Fatalf("%+v", a)
		}
		n.etcd.set(func(f *etcdFake) { f.denial = nil })
		if withdrawn {
			n.Withdraw(memory, "u1")
			if a := n.asks("u1", "shop/web", time.Second); a.State != Denied || a.Reason == fleet.FirstContact {
				t.Errorf("the same workload again: %+v", a)
			}
			n.Withdraw(memory, "u1")
		}
		if a := n.Request(memory, "u2", Request{Kind: "soft", Workload: "shop/api"}); a.State != Denied || a.Reason != fleet.FirstContact {
			t.Errorf("at once: %+v", a)
		}
		if a := n.asks("u2", "shop/api", 31*time.Second); n.Status().Counts.Permits == 0 {
			t.Errorf("half a minute later: %+v", a)
		}
	})
}

// A node whose patience is over asks no more. That the fleet is full ends with what its zone shows, or after a time.
func TestFullEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		survey etcd.Survey
		after  time.Duration
	}{
		"the zone is not full": {etcd.Survey{Zone: fleet.Zone{Members: 12, Wanting: 11}, State: fleet.Partial}, wantInterval + 30*time.Second},
		"nothing shows it":     {etcd.Survey{Zone: fleet.Zone{Members: 12, Wanting: 12}, State: fleet.Full}, fullFor + wantInterval},
		"the zone is small":    {etcd.Survey{Zone: fleet.Zone{Members: 3}}, fullFor + wantInterval},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, Saved{}, func(n *node) {
				n.etcd.survey = etcd.Survey{Zone: fleet.Zone{Members: 12, Wanting: 12}, State: fleet.Full}
				n.etcd.denial = &etcd.DeniedError{Code: etcd.FleetFull, Denial: fleet.Denial{Reason: "fleet is full: 0/s"}}
				n.wants(memory)
				n.asks("u1", "shop/web", 16*time.Minute)
				if !n.Status().Full {
					t.Fatal("not full")
				}
				n.etcd.set(func(f *etcdFake) { f.survey = tt.survey })
				n.asks("u1", "shop/web", tt.after)
				if n.Status().Full {
					t.Errorf("full %s later", tt.after)
				}
			})
		})
	}
}

func TestPause(t *testing.T) {
	run(t, Saved{}, func(n *node) {
		n.etcd.paused = n.now() + 10*time.Minute
		n.wants(memory)
		n.ask(memory, "u1", Denied, 0)
		n.after(31 * time.Second)
		if a := n.ask(memory, "u1", Denied, 0); a.Reason != "soft stops are paused" || time.Duration(a.RetryAfter) < 9*time.Minute {
			t.Errorf("paused: %+v", a)
		}
		n.etcd.set(func(f *etcdFake) { f.paused = 0 }) // resumed
		n.ask(memory, "u1", Granted, 2*time.Minute)
		n.after(11 * time.Second)
		n.etcd.set(func(f *etcdFake) {
			f.denial = &etcd.DeniedError{Code: etcd.Paused, Denial: fleet.Denial{Reason: "soft stops are paused", Left: time.Minute}}
		})
		n.ask(memory, "u1", Denied, time.Minute)
		n.after(time.Second)
		if a := n.ask(memory, "u1", Denied, 0); a.Reason != "soft stops are paused" {
			t.Errorf("paused while asking: %+v", a)
		}
	})
}

// An idle node reports every hour ± 10 min, one that wants a stop every 3 minutes, and neither holds a connection.
func TestReports(t *testing.T) {
	run(t, Saved{}, func(n *node) {
		n.wants()
		n.after(24 * time.Hour)
		if got := read(n.etcd, func(f *etcdFake) int { return len(f.states) }); got < 21 || got > 30 {
			t.Errorf("%d reports in a day", got)
		}
		n.wants(memory)
		before := read(n.etcd, func(f *etcdFake) int { f.closed = 0; return len(f.states) })
		n.after(time.Hour)
		if got := read(n.etcd, func(f *etcdFake) int { return len(f.states) }) - before; got < 19 || got > 22 {
			t.Errorf("%d reports in an hour of pressure", got)
		}
		if got := read(n.etcd, func(f *etcdFake) int { return f.closed }); got == 0 {
			t.Error("the connection stays open")
		}
	})
}

// The agent does not speak for a guard that has ended.
func TestSilentGuard(t *testing.T) {
	run(t, Saved{}, func(n *node) {
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := read(n.etcd, func(f *etcdFake) int { return len(f.states) }); got != 0 {
			t.Errorf("%d reports before the guard started", got)
		}
		n.wants(memory)
		n.ask(memory, "u1", Denied, 0)
		time.Sleep(guardTimeout + time.Minute)
		synctest.Wait()
		states := read(n.etcd, func(f *etcdFake) []etcd.State { return slices.Clone(f.states) })
		if last := states[len(states)-1]; len(last.Pools) != 0 {
			t.Errorf("the last report is %+v", last)
		}
		time.Sleep(6 * time.Hour)
		synctest.Wait()
		if got := read(n.etcd, func(f *etcdFake) int { return len(f.states) }); got != len(states) {
			t.Errorf("%d more reports without a guard", got-len(states))
		}
		n.ask(memory, "u1", Granted, 31*time.Second)
	})
}

// A restart does not shorten the patience of an episode, or the time alone.
func TestRestart(t *testing.T) {
	saved := Saved{Saved: fleet.Saved{Held: map[policy.Pool]time.Duration{memory: 14 * time.Minute}}}
	run(t, saved, func(n *node) {
		n.etcd.denial = &etcd.DeniedError{Code: etcd.RateZero, Denial: fleet.Denial{Reason: "fleet is full: 0/s"}}
		n.wants(memory)
		n.ask(memory, "u1", Denied, 0)
		n.after(70 * time.Second)
		if a := n.ask(memory, "u1", Denied, 0); a.Reason != "held for 15m, soft stops at a tenth" {
			t.Errorf("after patience: %+v", a)
		}
		n.stop()
		n.Save()
		if s, _ := n.last(); s.Held[memory] < 15*time.Minute {
			t.Errorf("saved %+v", s)
		}
	})
}

// The patience of an episode does not run while neither agent nor guard run: an episode from before a restart ends, as one of
// a running agent does, if the guard does not repeat it.
func TestRestartWithoutGuard(t *testing.T) {
	saved := Saved{Saved: fleet.Saved{Held: map[policy.Pool]time.Duration{memory: time.Minute}}}
	run(t, saved, func(n *node) {
		n.etcd.denial = &etcd.DeniedError{Code: etcd.RateZero, Denial: fleet.Denial{Reason: "fleet is full: 0/s"}}
		time.Sleep(20 * time.Minute)
		n.wants(memory)
		n.ask(memory, "u1", Denied, 0)
		n.after(13 * time.Minute)
		if a := n.ask(memory, "u1", Denied, 0); a.Reason != "fleet is full: 0/s" {
			t.Errorf("before patience: %+v", a)
		}
	})
}

// A restart brings no token forward: the guard sends its budget only later.
func TestRestartKeepsThePeriodOfTheTokens(t *testing.T) {
	first := 10 * time.Hour
	saved := Saved{Soft: policy.Bucket{Burst: 1, Every: time.Hour}, Saved: fleet.Saved{
		Held: map[policy.Pool]time.Duration{memory: time.Hour}, Trickle: fleet.SavedTokens{On: true, First: first},
	}}
	run(t, saved, func(n *node) {
		n.ask(memory, "u1", Denied, 0)
		n.after(10 * time.Second)
		n.SetState(State{Wants: []policy.Pool{memory}, Soft: Soft{1, api.Duration(time.Hour)}})
		n.Save()
		if s, _ := n.last(); s.Trickle.First != first || s.Soft != saved.Soft {
			t.Errorf("saved %+v", s)
		}
	})
}

// An agent that is killed while etcd grants its permit asks again with the same ID, and gets that permit. Once the guard was
// given it, no restart asks with that ID again.
func TestIDOutlivesRestart(t *testing.T) {
	q := Request{Kind: "soft", Workload: "shop/web"}
	var saved Saved
	run(t, Saved{}, func(n *node) {
		n.etcd.denial = etcd.ErrTimeout // it grants the permit, and its answer is lost
		n.wants(memory)
		n.Request(memory, "u1", q)
		n.after(31 * time.Second)
		saved, _ = n.last() // SIGKILL
		if ids := read(n.etcd, func(f *etcdFake) []string { return f.ids }); len(ids) == 0 || saved.Requests[memory] != (SavedRequest{"u1", q, ids[0]}) {
			t.Fatalf("asked with %v, saved %+v", ids, saved)
		}
	})
	for _, tt := range []struct {
		sandbox string
		q       Request
		same    bool
	}{{"u1", q, true}, {"u2", q, false}, {"u1", Request{Kind: "soft", Workload: "shop/api"}, false}} {
		run(t, saved, func(n *node) {
			n.wants(memory)
			n.Request(memory, tt.sandbox, tt.q)
			n.after(31 * time.Second)
			ids := read(n.etcd, func(f *etcdFake) []string { return f.ids })
			if len(ids) == 0 || (ids[0] == saved.Requests[memory].ID) != tt.same {
				t.Fatalf("%+v: asked with %v, saved %+v", tt, ids, saved)
			}
			if a := n.Request(memory, tt.sandbox, tt.q); a.State != Granted {
				t.Fatalf("%+v: %+v", tt, a)
			}
			if s, _ := n.last(); len(s.Requests) > 0 {
				t.Errorf("%+v: the guard has the permit, and the agent saved %+v", tt, s)
			}
		})
	}
	run(t, saved, func(n *node) {
		n.wants() // the episode has ended meanwhile
		n.Save()
		if s, _ := n.last(); len(s.Requests) > 0 {
			t.Errorf("after the episode: %+v", s)
		}
	})
}

// A request keeps its ID over denials and failures. Each permit that the guard is given has its own.
func TestIDOfRequest(t *testing.T) {
	run(t, Saved{}, func(n *node) {
		q := Request{Kind: "soft", Workload: "shop/web"}
		n.wants(memory)
		n.etcd.denial = &etcd.DeniedError{Code: etcd.SlotTaken, Denial: fleet.Denial{Reason: "taken", Left: time.Second, Slot: time.Second}}
		n.ask(memory, "u1", Denied, 0)
		for range 60 {
			n.Request(memory, "u1", q)
			n.after(time.Second)
		}
		n.etcd.set(func(f *etcdFake) { f.denial = nil })
		a := n.ask(memory, "u1", Granted, 10*time.Second)
		ids := read(n.etcd, func(f *etcdFake) []string { return f.ids })
		if len(ids) < 5 || len(slices.Compact(ids)) != 1 || a.ID != ids[0] {
			t.Errorf("asked with %v, granted %s", ids, a.ID)
		}
		// One write for the ID, and one for the permit.
		if _, count := n.last(); count != 2 {
			t.Errorf("%d states were saved", count)
		}
	})
}

// An agent that is killed right after it gave a token does not give that one again: the state is saved before the answer.
// Nothing else is written while the node is held.
func TestTokenOutlivesKill(t *testing.T) {
	run(t, Saved{}, func(n *node) {
		n.etcd.err = etcd.ErrUnreachable
		n.wants(memory)
		tokens := 0
		for range 3 * 3600 {
			a := n.Request(memory, "u1", Request{Kind: "soft", Workload: "shop/web"})
			if a.State == Granted && time.Duration(a.Deadline) == n.now()+tokenValid {
				tokens++
				again := New(Options{Rates: fleet.DefaultRates(), Soft: n.opt.Soft, Rand: rand.New(rand.NewPCG(1, 2)), Now: n.now})
				saved, count := n.last()
				if again.waiter.Restore(saved.Saved, n.now()); count != tokens {
					t.Fatalf("%d tokens, %d states saved", tokens, count)
				}
				n.Agent.mu.Lock()
				want, got := n.waiter.Save(), again.waiter.Save()
				n.Agent.mu.Unlock()
				if got.Trickle != want.Trickle || got.Local != want.Local {
					t.Fatalf("after token %d: saved %+v, the agent has %+v", tokens, got, want)
				}
			}
			n.after(time.Second)
		}
		if tokens < 100 {
			t.Errorf("%d tokens in 3 h", tokens)
		}
	})
}

// A guard that asks for one pod after the other makes the agent remember no more than a request for each pool.
func TestFloodOfRequests(t *testing.T) {
	run(t, Saved{}, func(n *node) {
		n.wants(memory)
		n.after(31 * time.Second)
		for i := range 20_000 {
			n.Request(policy.Pool(i)%policy.PoolCount, fmt.Sprint("u", i), Request{Kind: "soft", Workload: fmt.Sprint("shop/w", i)})
			if i%10 == 0 {
				time.Sleep(10 * time.Millisecond)
			}
		}
		n.Agent.mu.Lock()
		unused := len(n.unused)
		n.Agent.mu.Unlock()
		if unused > int(policy.PoolCount) {
			t.Errorf("%d permits to release", unused)
		}
		n.after(time.Second)
		asked, released := read(n.etcd, func(f *etcdFake) int { return len(f.acquired) }), read(n.etcd, func(f *etcdFake) int { return len(f.released) })
		if asked == 0 || asked-released > int(policy.PoolCount) {
			t.Errorf("%d permits, %d given back", asked, released)
		}
	})
}
