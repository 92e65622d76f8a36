package client

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/agent"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

// A client and the agent's own server understand each other on a real socket.
func TestRealAgent(t *testing.T) {
	dir, err := os.MkdirTemp("", "criguard") // leaves room for the socket's name
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	run := rundir.Dir(dir)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()

	// An agent that has been alone for long gives a token of the local budget every few seconds. The machine may have booted just now.
	now := func() time.Duration { return time.Hour + cgroup.BootTime() }
	a := agent.New(agent.Options{
		Rates: fleet.DefaultRates(), Soft: policy.Bucket{Burst: 1, Every: 4 * time.Second}, Rand: rand.New(rand.NewPCG(1, 2)), Now: now,
		Saved: agent.Saved{Saved: fleet.Saved{AloneSince: 1}},
	})
	l, err := net.Listen("unix", run.FleetSocket())
	if err != nil {
		t.Fatal(err)
	}
	server := agent.NewServer(a)
	group.Go(func() {
		if err := server.Serve(agent.Limit(l)); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	defer server.Close()

	cfg := configtest.Parse(t, strings.Replace(inFleet, `every = "5m"`, `every = "4s"`, 1))
	c := New(Options{Config: cfg, Dir: run, Access: rundir.ForAll(), BootID: "boot", Version: "v1", Log: slog.New(slog.DiscardHandler), Now: now})
	group.Go(func() { c.Run(ctx) })
	await := func(what string, done func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("no %s: %+v; warnings %q", what, a.Status(), c.Warnings())
			}
		}
	}
	permit := func(sandbox string) policy.Held { return c.Permit(stopFor(nodefs, sandbox)) }
	await("permit", func() bool { return permit("u1") == policy.Held{} })
	c.Observe(&api.Pass{Stop: &api.StopView{Sandbox: "u1", Kind: "soft"}})
	if s := a.Status(); !slices.Equal(s.Wants, []policy.Pool{nodefs}) || len(s.Requests) != 1 || s.Requests[0].Sandbox != "u1" || s.Requests[0].Kind != "soft" || s.Requests[0].Workload != "shop/u1" || s.Counts.Local != 1 {
		t.Errorf("the agent knows %+v", s)
	}
	var held policy.Held
	await("denial", func() bool { held = permit("u2"); return held.RetryAfter > 0 })
	if held.By != api.HeldFleet || held.Detail == "" || held.RetryAfter > maxRetry {
		t.Errorf("held by %+v", held)
	}
	await("withdrawal", func() bool { c.Observe(&api.Pass{}); return len(a.Status().Requests) == 0 })
	if w := c.Warnings(); len(w) > 0 {
		t.Errorf("warnings %q", w)
	}
}
