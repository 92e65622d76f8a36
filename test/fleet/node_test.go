package fleet_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/fleet/agent"
	"github.com/criguard/criguard/guard/fleet/etcd"
	"github.com/criguard/criguard/policy"
)

// hasty makes every random delay a 32nd of what it is in a fleet: below a second instead of half a minute.
type hasty struct{}

// Uint64 implements rand.Source.
func (hasty) Uint64() uint64 { return rand.Uint64()>>5 | 1<<20 }

// tally counts the answers that guards got.
type tally struct {
	mu      sync.Mutex
	answers map[string]int
	wrong   []string
	pending time.Duration // the longest time for which one request was pending
}

func (t *tally) add(a agent.Answer, pending time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending = max(t.pending, pending)
	switch {
	case a.State == agent.Granted && a.Source == agent.Fleet && a.ID != "" && a.Deadline > 0:
		t.answers["granted by the fleet"]++
	case a.State == agent.Granted && a.ID == "" && (a.Source == agent.Trickle || a.Source == agent.Local):
		t.answers["granted by "+a.Source]++
	case a.State == agent.Denied && a.Reason != "":
		t.answers["denied"]++
	case a.State == agent.Pending:
		t.answers["pending"]++
	default:
		t.wrong = append(t.wrong, fmt.Sprintf("%+v", a))
	}
}

// guardTick is how often a guard asks its agent.
const guardTick = 100 * time.Millisecond

// runNode runs an agent and its guard until ctx ends. The guard wants one soft stop after the other. It gives every
// fourth permit back unused.
func (j job) runNode(ctx context.Context, record func(grant), t *tally) error {
	readings := 0
	client, err := etcd.New(etcd.Options{
		Fleet: fleetName, Zone: j.Zone, Node: j.Node, Endpoints: j.Endpoints, TLS: j.TLS, Rates: j.Rates, Timeout: j.Timeout,
		Now: func() time.Duration {
			if readings++; readings == j.DieAt {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			return cgroup.BootTime()
		},
	})
	if err != nil {
		return err
	}
	a := agent.New(agent.Options{
		Client: client, Disconnect: client.Close, Rates: j.Rates, Soft: policy.Bucket{Burst: 1, Every: 3 * time.Second},
		Rand: rand.New(hasty{}), ContactPeriod: time.Second, Now: cgroup.BootTime,
	})
	var group sync.WaitGroup
	group.Go(func() { a.Run(ctx) })
	defer group.Wait()
	sleep := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	for n := 0; ctx.Err() == nil; n++ {
		workload, uid := j.Workloads[rand.IntN(len(j.Workloads))], fmt.Sprint("u", n)
		a.SetState(agent.State{Wants: []policy.Pool{policy.PoolMemory}, Digest: "d1", Version: "v1"})
		answer, pendingSince := agent.Answer{}, cgroup.BootTime()
		for ctx.Err() == nil && answer.State != agent.Granted {
			answer = a.Request(policy.PoolMemory, uid, agent.Request{Kind: "soft", Workload: workload})
			if answer.State != agent.Pending {
				pendingSince = cgroup.BootTime()
			}
			t.add(answer, cgroup.BootTime()-pendingSince)
			sleep(guardTick)
		}
		if answer.Source == agent.Fleet {
			g := grant{Zone: j.Zone, Node: j.Node, Workload: workload, Acquired: cgroup.BootTime() - guardTick}
			g.Permit = etcd.Permit{ID: answer.ID, Deadline: time.Duration(answer.Deadline), Since: time.Duration(answer.Deadline) - slotOf, Slot: slotOf}
			g.Acquired = min(g.Acquired, g.Permit.Deadline)
			record(g)
			if n%4 == 3 {
				g.ReleasedAt = cgroup.BootTime()
				record(g)
				a.Withdraw(policy.PoolMemory, uid)
			}
		}
		a.SetState(agent.State{Digest: "d1", Version: "v1"})
		sleep(j.Rest/2 + rand.N(j.Rest+1))
	}
	return nil
}

// slotOf is the slot of the rates fast.
const slotOf = 2 * time.Second
