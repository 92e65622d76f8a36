package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/fleet/client/agenttest"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

// agentFake is an agent as a test wants it: it serves each connection.
type agentFake struct {
	now func() time.Duration

	mu    sync.Mutex
	serve func(net.Conn) // nil = there is no agent
	calls []call
	conns sync.WaitGroup
}

// call is a request that the agent got.
type call struct {
	at           time.Duration
	method, path string
	body         map[string]any
}

func (f *agentFake) dial(context.Context, string, string) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.serve == nil {
		return nil, errors.New("connect: no such file or directory")
	}
	mine, theirs := net.Pipe()
	serve := f.serve
	f.conns.Go(func() {
		defer theirs.Close()
		serve(theirs)
	})
	return mine, nil
}

// set replaces the agent. nil ends it.
func (f *agentFake) set(serve func(net.Conn)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.serve = serve
}

// answers is an agent that gets requests and answers each with a text.
func (f *agentFake) answers(answer func(c call) string) func(net.Conn) {
	return f.handles(func(w http.ResponseWriter, c call) { _, _ = io.WriteString(w, answer(c)) })
}

func (f *agentFake) handles(handle func(w http.ResponseWriter, c call)) func(net.Conn) {
	return agenttest.Handle(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := call{f.now(), r.Method, r.URL.Path, nil}
		_ = json.NewDecoder(r.Body).Decode(&c.body)
		f.mu.Lock()
		f.calls = append(f.calls, c)
		f.mu.Unlock()
		handle(w, c)
	}))
}

// got returns the calls whose method and path begin with these, and forgets all.
func (f *agentFake) got(method, path string) []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return slices.DeleteFunc(calls, func(c call) bool { return c.method != method || !strings.HasPrefix(c.path, path) })
}

// Answers of an honest agent.
const (
	isPending = agenttest.Pending
	isDenied  = agenttest.Denied
)

// honest is an agent that gives this answer to requests.
func (f *agentFake) honest(answer string) func(net.Conn) {
	return f.answers(func(c call) string {
		if agenttest.AsksPermit(c.method, c.path) {
			return answer
		}
		return agenttest.State
	})
}

// isGranted is the answer of an agent that permits a stop for a time.
func (f *agentFake) isGranted(d time.Duration) string {
	text, _ := json.Marshal(map[string]any{"state": "granted", "source": "fleet", "id": "p1", "deadline": api.Duration(f.now() + d)})
	return string(text)
}

// guard is a guard in virtual time.
type guard struct {
	*testing.T
	*Client
	agent *agentFake
	now   func() time.Duration
	stop  func()
	dir   rundir.Dir
	log   *strings.Builder
	want  map[policy.Pool]string // the pod to stop for each pool
}

const inFleet = `
fleet.enabled = true
budget.soft = {burst = 2, every = "5m"}
[eviction.soft]
"memory.available" = "10%"
[eviction.soft_grace_period]
"memory.available" = "90s"
`

func enabled(t *testing.T) config.Config { return configtest.Parse(t, inFleet) }

// run runs a test with a client whose agent denies.
func run(t *testing.T, test func(g *guard)) {
	t.Helper()
	dir := rundir.Dir(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		f := &agentFake{now: func() time.Duration { return time.Hour + time.Since(start) }}
		f.set(f.honest(isDenied))
		g := &guard{T: t, agent: f, now: f.now, dir: dir, log: &strings.Builder{}, want: map[policy.Pool]string{}}
		g.start("boot", enabled(t))
		defer func() { g.stop(); f.conns.Wait() }()
		test(g)
	})
}

// start starts the client, as after a start of the service.
func (g *guard) start(boot string, cfg config.Config) {
	g.Client = New(Options{
		Config: cfg, Dir: g.dir, Access: rundir.ForAll(), BootID: boot, Version: "v1", Log: slog.New(slog.NewTextHandler(g.log, nil)),
		Rand: rand.New(rand.NewPCG(1, 2)), Now: g.now,
	})
	g.http.Transport.(*http.Transport).DialContext = g.agent.dial
	ctx, cancel := context.WithCancel(g.Context())
	var group sync.WaitGroup
	group.Go(func() { g.Client.Run(ctx) })
	g.stop = sync.OnceFunc(func() { cancel(); group.Wait() })
}

// pass makes a pass, which stops the first pod that is permitted. It takes no time.
func (g *guard) pass() (stopped string, held policy.Held) {
	g.Helper()
	p := api.Pass{At: api.Duration(g.now())}
	began := time.Now()
	for pool := range policy.PoolCount {
		sandbox := g.want[pool]
		if sandbox == "" || p.Stop != nil {
			continue
		}
		h := g.Permit(stopFor(pool, sandbox))
		if h.By == "" {
			p.Stop = &api.StopView{Sandbox: sandbox, Kind: policy.Soft.String()}
			delete(g.want, pool)
		}
		if held.By == "" {
			held = h
		}
	}
	g.Observe(&p)
	if d := time.Since(began); d != 0 {
		g.Errorf("a pass waited for %s", d)
	}
	if p.Stop != nil {
		return p.Stop.Sandbox, policy.Held{}
	}
	return "", held
}

func stopFor(pool policy.Pool, sandbox string) *policy.Stop {
	return &policy.Stop{Sandbox: sandbox, Workload: "shop/" + sandbox, Kind: policy.Soft, Pool: pool}
}

// after makes passes for a time, as the loop does while a stop is held back. It returns what was stopped, and what the
// last pass was held by.
func (g *guard) after(d time.Duration) (stopped []string, held policy.Held) {
	g.Helper()
	for end := g.now() + d; ; {
		var s string
		if s, held = g.pass(); s != "" {
			stopped = append(stopped, s)
		}
		if g.now() >= end {
			return stopped, held
		}
		time.Sleep(min(250*time.Millisecond, end-g.now()))
		synctest.Wait()
	}
}

// wantHeld fails the test unless no pod was stopped, for that reason.
func (g *guard) wantHeld(d time.Duration, detail string) {
	g.Helper()
	if s, held := g.after(d); len(s) > 0 || held.By != api.HeldFleet && held.By != api.HeldAsking || !strings.Contains(held.Detail, detail) {
		g.Fatalf("at %s: stopped %v, held by %+v, want %q", g.now()-time.Hour, s, held, detail)
	}
}

const memory, pids, nodefs = policy.PoolMemory, policy.PoolPIDs, policy.PoolNodeBytes
