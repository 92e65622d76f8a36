package fleet_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
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
	asks func() // before each request

	mu      sync.Mutex
	permits map[string]etcd.Permit // by ID
}

// Acquire implements agent.Client.
func (n *noting) Acquire(ctx context.Context, r fleet.Rates, workload, id string) (etcd.Permit, error) {
	n.asks()
	p, err := n.Client.Acquire(ctx, r, workload, id)
	if err == nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.permits[id] = p
	}
	return p, err
}

func (n *noting) permit(id string) etcd.Permit {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.permits[id]
}

// wish is a stop that a guard wants until it is granted, also after a restart.
type wish struct {
	Request, Workload string
	Began             time.Duration // when the node began to want the stop
}

// keep replaces a file of the node's state, so that a kill leaves the old one or the new one.
func (j job) keep(name string, v any) {
	if j.State == "" {
		return
	}
	path := filepath.Join(j.State, name)
	text, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		panic(err)
	}
}

// kept reads a file of the node's state into v, unless there is none.
func (j job) kept(name string, v any) error {
	if j.State == "" {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(j.State, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// The files of a node's state.
const (
	agentState = "agent.json"
	guardState = "guard.json"
)

// guardTick is how often a guard asks its agent.
const guardTick = 100 * time.Millisecond

// runNode runs an agent and its guard until ctx ends and the guard's last request is not pending. The guard wants one soft stop
// after the other, beginning with the one that it wanted before a restart. It gives every fourth permit back unused.
func (j job) runNode(ctx context.Context, hear func(said)) error {
	var saved agent.Saved
	var next wish
	if err := errors.Join(j.kept(agentState, &saved), j.kept(guardState, &next)); err != nil {
		return err
	}
	readings, asked := 0, false
	client, err := etcd.New(etcd.Options{
		Fleet: fleetName, Zone: j.Zone, Node: j.Node, Endpoints: j.Endpoints, TLS: j.TLS, Rates: j.Rates, Timeout: j.Timeout,
		Now: func() time.Duration {
			if asked {
				readings++
			}
			if readings > 0 && readings == j.DieAt {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			return cgroup.BootTime()
		},
	})
	if err != nil {
		return err
	}
	notes := &noting{Client: client, asks: func() { asked = true }, permits: map[string]etcd.Permit{}}
	a := agent.New(agent.Options{
		Client: notes, Disconnect: client.Close, Rates: j.Rates, Soft: policy.Bucket{Burst: 1, Every: 3 * time.Second},
		Rand: mathrand.New(hasty{}), ContactPeriod: time.Second, Now: cgroup.BootTime,
		Saved: saved, Save: func(s agent.Saved) { j.keep(agentState, s) },
	})
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	group.Go(func() { a.Run(running) })
	defer func() { stop(); group.Wait() }()
	again := next.Request != ""
	if !again {
		a.SetState(noWish) // ends the episodes from before a restart
	}
	for n := 0; ctx.Err() == nil; n++ {
		w := next
		if w.Request == "" {
			w = wish{rand.Text(), j.Workloads[mathrand.IntN(len(j.Workloads))], cgroup.BootTime()}
			j.keep(guardState, w)
		}
		answer := j.stop(ctx, a, w, func(x answered) {
			if x.Again = again; x.Answer.State == agent.Granted {
				j.keep(guardState, wish{}) // a request is granted once
			}
			g := (*grant)(nil)
			if x.Answer.Source == agent.Fleet {
				g = &grant{Permit: notes.permit(x.Answer.ID), Zone: j.Zone, Node: j.Node, Workload: w.Workload, Acquired: min(x.At, time.Duration(x.Answer.Deadline))}
			}
			hear(said{Answer: &x, Grant: g})
			if g != nil && n%4 == 3 {
				back := *g
				back.ReleasedAt = cgroup.BootTime()
				hear(said{Grant: &back})
			}
		})
		if answer.Source == agent.Fleet && n%4 == 3 {
			a.Withdraw(policy.PoolMemory, w.Request)
		}
		next, again = wish{}, false
		a.SetState(noWish)
		a.Save() // else the next stop would continue this one's episode after a kill
		select {
		case <-time.After(j.Rest/2 + mathrand.N(j.Rest+1)):
		case <-ctx.Done():
		}
	}
	return nil
}

// noWish is the state of a node that wants no stop.
var noWish = agent.State{Digest: "d1", Version: "v1"}

// stop asks for a permit until it is granted, or until ctx ends and the fleet has decided.
func (j job) stop(ctx context.Context, a *agent.Agent, w wish, hear func(answered)) (answer agent.Answer) {
	a.SetState(agent.State{Wants: []policy.Pool{policy.PoolMemory}, Digest: "d1", Version: "v1"})
	for since := cgroup.BootTime(); answer.State != agent.Granted; {
		before := cgroup.BootTime()
		alone := time.Duration(a.Status().AloneFor)
		answer = a.Request(policy.PoolMemory, w.Request, agent.Request{Kind: "soft", Workload: w.Workload})
		now := cgroup.BootTime()
		if alone > 0 {
			alone += now - before
		}
		if answer.State != agent.Pending {
			since = now
		}
		hear(answered{Request: w.Request, Node: j.Node, Began: w.Began, At: now, Alone: alone, Answer: answer})
		if ctx.Err() != nil && (answer.State != agent.Pending || now-since > mostPending) {
			break
		}
		time.Sleep(guardTick)
	}
	return answer
}

// slotOf is the slot of the rates fast.
const slotOf = 2 * time.Second
