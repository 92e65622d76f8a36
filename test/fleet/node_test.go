package fleet_test

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/agent"
	"github.com/criguard/criguard/guard/fleet/etcd"
	"github.com/criguard/criguard/policy"
)

// hasty makes every random delay a 32nd of what it is in a fleet: below a second instead of half a minute.
type hasty struct{}

// Uint64 implements rand.Source.
func (hasty) Uint64() uint64 { return mathrand.Uint64()>>5 | 1<<20 }

// noting notes the permits that a client acquires: the agent only shows their IDs and deadlines.
type noting struct {
	*etcd.Client
	longest time.Duration // slot of a zone

	mu      sync.Mutex
	permits map[string]etcd.Permit // by ID
	unsure  map[string]bool        // etcd may have granted it in an answer that was lost
}

// Acquire implements agent.Client.
func (n *noting) Acquire(ctx context.Context, r fleet.Rates, workload, id string) (etcd.Permit, error) {
	p, err := n.Client.Acquire(ctx, r, workload, id)
	_, denied := errors.AsType[*etcd.DeniedError](err)
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err == nil && n.unsure[id]: // its slots may have been taken long ago, but not before this
		q := p
		q.Since, q.Slot = p.Deadline-n.longest, n.longest
		n.permits[id] = q
	case err == nil:
		n.permits[id] = p
	case !denied:
		n.unsure[id] = true
	}
	return p, err
}

func (n *noting) permit(id string) etcd.Permit {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.permits[id]
}

// guardTick is how often a guard asks its agent.
const guardTick = 100 * time.Millisecond

// runNode runs an agent and its guard until ctx ends and the guard's last request is not pending. The guard wants one soft stop
// after the other. It gives every fourth permit back unused.
func (j job) runNode(ctx context.Context, hear func(said)) error {
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
	notes := &noting{Client: client, longest: fleet.Slot(j.Rates.Secondary), permits: map[string]etcd.Permit{}, unsure: map[string]bool{}}
	a := agent.New(agent.Options{
		Client: notes, Disconnect: client.Close, Rates: j.Rates, Soft: policy.Bucket{Burst: 1, Every: 3 * time.Second},
		Rand: mathrand.New(hasty{}), ContactPeriod: time.Second, Now: cgroup.BootTime,
	})
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	group.Go(func() { a.Run(running) })
	defer func() { stop(); group.Wait() }()
	for n := 0; ctx.Err() == nil; n++ {
		workload, id := j.Workloads[mathrand.IntN(len(j.Workloads))], rand.Text()
		answer := j.stop(ctx, a, id, workload, func(x answered) {
			g := (*grant)(nil)
			if x.Answer.Source == agent.Fleet {
				g = &grant{Permit: notes.permit(x.Answer.ID), Zone: j.Zone, Node: j.Node, Workload: workload, Acquired: min(x.At, time.Duration(x.Answer.Deadline))}
			}
			hear(said{&x, g})
			if g != nil && n%4 == 3 {
				back := *g
				back.ReleasedAt = cgroup.BootTime()
				hear(said{Grant: &back})
			}
		})
		if answer.Source == agent.Fleet && n%4 == 3 {
			a.Withdraw(policy.PoolMemory, id)
		}
		a.SetState(agent.State{Digest: "d1", Version: "v1"})
		select {
		case <-time.After(j.Rest/2 + mathrand.N(j.Rest+1)):
		case <-ctx.Done():
		}
	}
	return nil
}

// stop asks for a permit until it is granted, or until ctx ends and the fleet has decided.
func (j job) stop(ctx context.Context, a *agent.Agent, id, workload string, hear func(answered)) (answer agent.Answer) {
	began := cgroup.BootTime()
	a.SetState(agent.State{Wants: []policy.Pool{policy.PoolMemory}, Digest: "d1", Version: "v1"})
	for since := began; answer.State != agent.Granted; {
		before := cgroup.BootTime()
		alone := time.Duration(a.Status().AloneFor)
		answer = a.Request(policy.PoolMemory, id, agent.Request{Kind: "soft", Workload: workload})
		now := cgroup.BootTime()
		if alone > 0 {
			alone += now - before
		}
		if answer.State != agent.Pending {
			since = now
		}
		hear(answered{Request: id, Node: j.Node, Began: began, At: now, Alone: alone, Answer: answer})
		if ctx.Err() != nil && (answer.State != agent.Pending || now-since > mostPending) {
			break
		}
		time.Sleep(guardTick)
	}
	return answer
}

// slotOf is the slot of the rates fast.
const slotOf = 2 * time.Second
