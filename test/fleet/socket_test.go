package fleet_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/fleet/agent"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/etcdtest"
	"github.com/criguard/criguard/test/harness"
)

// shortest makes every random delay 0: rand multiplies with it and takes the upper half, if the lower is not too small.
type shortest struct{}

// Uint64 implements rand.Source.
func (shortest) Uint64() uint64 { return 1 << 20 }

// guard is a guard with its agent, connected by a unix socket.
type guard struct {
	*testing.T
	http *http.Client
}

func startAgent(t *testing.T, c *etcdtest.Cluster, node string) *guard {
	t.Helper()
	rates := fast()
	rates.MinZone = 1000
	client := client(t, options(c, "z1", node))
	a := agent.New(agent.Options{
		Client: client, Disconnect: client.Close, Rates: rates, Soft: policy.Bucket{Burst: 1, Every: time.Minute},
		Rand: rand.New(shortest{}), Now: cgroup.BootTime,
	})
	path := filepath.Join(harness.ShortDir(t), "fleet.sock")
	l, err := net.Listen("unix", path)
	must(t, err)
	server := agent.NewServer(a)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { a.Run(ctx) })
	group.Go(func() {
		if err := server.Serve(agent.Limit(l)); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		_ = server.Close()
		group.Wait()
	})
	return &guard{t, &http.Client{Transport: transport, Timeout: 5 * time.Second}}
}

// send sends a request and parses its answer.
func (g *guard) send(method, path string, body, answer any) {
	g.Helper()
	text, err := json.Marshal(body)
	must(g.T, err)
	r, err := http.NewRequestWithContext(g.Context(), method, "http://agent"+path, bytes.NewReader(text))
	must(g.T, err)
	resp, err := g.http.Do(r)
	must(g.T, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		g.Fatalf("%s %s: %s", method, path, resp.Status)
	}
	must(g.T, json.NewDecoder(resp.Body).Decode(answer))
}

// wants sends the state of a guard.
func (g *guard) wants(pools ...policy.Pool) (s agent.Status) {
	g.Helper()
	g.send("PUT", "/v1/state", agent.State{Wants: pools, Digest: "d1", Version: "v1"}, &s)
	return s
}

// permit requests a permit until it is granted.
func (g *guard) permit(uid, workload string) (a agent.Answer) {
	g.Helper()
	etcdtest.Wait(g.T, func() error {
		g.send("PUT", "/v1/permits/memory/"+uid, agent.Request{Kind: "soft", Workload: workload}, &a)
		if a.State != agent.Granted {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	return a
}

// Two guards get permits of one zone through their agents, one after the other, and a permit that is given back is free
// at once.
func TestGuardsAndAgents(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	g1, g2 := startAgent(t, c, "n1"), startAgent(t, c, "n2")
	g1.wants(policy.PoolMemory)
	g2.wants(policy.PoolMemory)
	a := g1.permit("u1", "shop/web")
	b := g2.permit("u2", "shop/api")
	if now := cgroup.BootTime(); a.Source != agent.Fleet || b.Source != agent.Fleet || now < time.Duration(a.Deadline) {
		t.Errorf("at %s: %+v and %+v", now, a, b)
	}
	var s agent.Status
	g2.send("DELETE", "/v1/permits/memory/u2", nil, &s)
	etcdtest.Wait(t, func() error {
		if e := read(t, c, "s/z1"); e != nil && strings.Contains(e.Value, b.ID) {
			return errors.New("the permit is not released")
		}
		return nil
	})
	if left := time.Duration(b.Deadline) - cgroup.BootTime(); left < 0 {
		t.Logf("released %s after its deadline", -left)
	}
	if s := g1.wants(); len(s.Requests) != 0 || s.Error != "" {
		t.Errorf("status: %+v", s)
	}
	etcdtest.Wait(t, func() error {
		if e := read(t, c, "u/z1/n1"); e != nil {
			return errors.New("n1 still wants a stop")
		}
		return nil
	})
	if read(t, c, "u/z1/n2") == nil || read(t, c, "m/z1/n1") == nil {
		t.Error("n2 wants no stop, or n1 is no member")
	}
}
