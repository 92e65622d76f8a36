package agenttest

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/agent"
	"github.com/criguard/criguard/guard/fleet/etcd"
)

// Real is a real agent.
type Real struct {
	*agent.Agent
	opt etcd.Options
}

// Now is a clock for agents and guards whose state is hours old: the machine may have booted seconds ago.
func Now() time.Duration { return cgroup.BootTime() + 24*time.Hour }

// Start starts an agent that contacts this endpoint every 20 ms, until stop is called.
func Start(endpoint string, files fleet.TLS, saved fleet.Saved) (r *Real, stop func(), err error) {
	opt := etcd.Options{Fleet: "f", Zone: "z", Node: "n", Endpoints: []string{endpoint}, TLS: files, Now: Now}
	c, err := etcd.New(opt)
	if err != nil {
		return nil, nil, err
	}
	a := agent.New(agent.Options{
		Client: c, Disconnect: c.Close, Rates: fleet.DefaultRates(), Saved: agent.Saved{Saved: saved},
		ContactPeriod: 20 * time.Millisecond, Rand: rand.New(rand.NewPCG(1, 2)), Now: Now,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { a.Run(ctx) })
	return &Real{a, opt}, func() { cancel(); group.Wait() }, nil
}

// ServeHTTP answers a guard.
func (r *Real) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	agent.NewServer(r.Agent).Handler.ServeHTTP(w, q)
}

// Inspect looks at etcd as `criguard fleet check` does.
func (r *Real) Inspect(ctx context.Context) error {
	c, err := etcd.New(r.opt)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Inspect(ctx)
	return err
}
