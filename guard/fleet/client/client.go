package client

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

// Options configures a Client.
type Options struct {
	Config  config.Config
	Dir     rundir.Dir    // has the agent's socket, and keeps the client's state
	Access  rundir.Access // of the state
	BootID  string
	Version string // of the program
	Log     *slog.Logger
	Rand    *rand.Rand             // nil = a random one
	Now     func() time.Duration   // the time since boot (CLOCK_BOOTTIME)
	Host    func() (string, error) // the node's host name; nil = os.Hostname
}

// Client requests permits from the fleet's agent. Its methods are safe for concurrent use, and only Run waits.
type Client struct {
	opt   Options
	http  *http.Client
	wake  chan struct{} // has an element after something is to be sent
	saved []byte        // as in the run directory; for Run

	mu      sync.Mutex
	enabled bool
	soft    policy.Bucket
	digest  string        // of the configuration
	linger  time.Duration // how long a pool wants a stop after a pass has asked last
	waiter  *fleet.Waiter
	pools   [policy.PoolCount]pool
	offered offer
	passed  time.Duration // when the last pass ended
	gone    []target      // requests to withdraw
	report  time.Duration // when to send the state
	rest    time.Duration // until then, nothing is sent: the agent has just failed
	broken  bool          // the last answer to a request is not valid: other answers do not show that the agent works
	err     error         // of the last round trip
}

// pool is what the client knows of one pool.
type pool struct {
	wants   bool          // the pool wants a gentle stop
	asked   time.Duration // when a pass asked last
	request *request      // nil = none
	had     []string      // workloads whose limits have asked in this round
}

// request is the request for the stop of one pod.
type request struct {
	target
	ask
	begun   time.Duration // when a pass asked first
	sent    bool          // the agent may know it
	due     time.Duration // when to send it, for the first time or again
	pending time.Duration // since when the agent has been asking the fleet; 0 = it is not
	decided bool          // the fleet has decided
	reason  string        // why the stop is held
	retry   time.Duration // when the answer may change; 0 = not known
	permit  time.Duration // permitted until then; 0 = it is not
}

// turnOver reports whether the limit of another workload may ask in the place of this one.
func (r *request) turnOver(now time.Duration) bool {
	return r.decided && now >= r.permit && now-r.begun >= turnEvery
}

// target is the pod that a request is for.
type target struct {
	pool    policy.Pool
	sandbox string
}

// offer is the permit or token that Permit last answered with in a pass.
type offer struct {
	target
	valid, token bool
}

const (
	// withdrawAfter is how long no pass asks for a stop until its request is withdrawn. A pass that begins another
	// stop leaves out the pools after it.
	withdrawAfter = time.Second
	// turnEvery is how long a limit may ask until another one of the pool does.
	turnEvery = 30 * time.Second
	// episodeGap is how long no pass asks for a stop until its pool wants none, besides the longest soft grace
	// period: in the same episode, a signal that clears for a moment starts its grace period again.
	episodeGap = 30 * time.Second
	// maxGrace limits the part of the grace period.
	maxGrace = 10 * time.Minute
	// noPatience disables the patience of the client's own waiter: the agent's configuration has it.
	noPatience = 10 * 365 * 24 * time.Hour
)

// New returns a client that continues where one of the same boot stopped.
func New(opt Options) *Client {
	if opt.Rand == nil {
		opt.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	if opt.Host == nil {
		opt.Host = os.Hostname
	}
	c := &Client{opt: opt, wake: make(chan struct{}, 1), http: newHTTP(opt.Dir.FleetSocket())}
	c.waiter = fleet.NewWaiter(noPatience, policy.Bucket{}, opt.Rand)
	c.Configure(opt.Config)
	c.load()
	return c
}

// Configure applies a configuration.
func (c *Client) Configure(cfg config.Config) {
	digest, grace := "", time.Duration(0)
	if cfg.Fleet.Enabled { // formatting it needs code that nothing else in the service uses
		digest = fmt.Sprintf("%x", sha256.Sum256([]byte(cfg.Effective())))
	}
	for _, t := range cfg.Eviction.Thresholds {
		if t.Kind == policy.Soft {
			grace = max(grace, t.Grace)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !cfg.Fleet.Enabled {
		c.waiter = fleet.NewWaiter(noPatience, cfg.Budget.Soft, c.opt.Rand)
		c.pools, c.offered, c.gone, c.err = [policy.PoolCount]pool{}, offer{}, nil, nil
	}
	c.enabled, c.soft, c.digest, c.linger = cfg.Fleet.Enabled, cfg.Budget.Soft, digest, episodeGap+min(grace, maxGrace)
	c.waiter.SetSoft(c.soft)
	c.report = c.opt.Now()
	c.notify()
}

// Permit implements eviction.Fleet.
func (c *Client) Permit(s *policy.Stop) policy.Held {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.enabled {
		return policy.Held{}
	}
	now, t, a := c.opt.Now(), target{s.Pool, plain(s.Sandbox, maxSandbox)}, ask{policy.Soft.String(), plain(c.shared(s.Workload), maxWorkload)}
	if s.Cause == policy.CauseLimit {
		t.pool, a.Kind = policy.PoolNodeBytes, api.KindLimit
	}
	p := &c.pools[t.pool]
	if r := p.request; r != nil && (r.target != t || r.ask != a) {
		// A threshold that is due does not wait behind a limit, whose workload may be the one that has to wait.
		keeps := now-p.asked < withdrawAfter && (r.ask.Kind == a.Kind || a.Kind == api.KindLimit)
		if r.ask.Kind == api.KindLimit && a.Kind == api.KindLimit { // nor do the limits of other workloads: they take turns
			keeps = !r.turnOver(now) || slices.Contains(p.had, a.Workload)
		}
		if keeps {
			return policy.Held{By: api.HeldFleet, Detail: "another stop of the pool waits for its permit"}
		}
		c.withdraw(p)
	}
	if p.asked = now; !p.wants {
		p.wants, c.report = true, now
		c.waiter.Begin(t.pool, now)
		c.notify()
	}
	if p.request == nil {
		if a.Kind == api.KindLimit {
			p.had = append(p.had, a.Workload)
		}
		p.request = &request{target: t, ask: a, begun: now, due: now, reason: "waiting for the agent"}
		c.notify()
	}
	return c.verdict(p.request, now)
}

// shared returns the name of a workload that the nodes of a fleet share: a kubelet appends its node's name to that of a static pod.
func (c *Client) shared(workload string) string {
	host, err := c.opt.Host()
	if err != nil || host == "" {
		return workload
	}
	return strings.TrimSuffix(workload, "-"+strings.ToLower(host))
}

// verdict returns what holds the stop of a request back.
func (c *Client) verdict(r *request, now time.Duration) policy.Held {
	if now < r.permit {
		c.offered = offer{target: r.target, valid: true}
		return policy.Held{}
	}
	by, reason, retry := api.HeldFleet, r.reason, r.retry
	if c.err != nil {
		reason, retry = "the agent does not answer", c.rest
	}
	if c.err != nil || !r.decided {
		by = api.HeldAsking
	}
	if _, alone := c.waiter.Alone(now); alone {
		turn := c.waiter.Turn(r.pool, now)
		if turn.Verdict == fleet.Trickle || turn.Verdict == fleet.Local {
			c.offered = offer{target: r.target, valid: true, token: true}
			return policy.Held{}
		}
		by, reason, retry = api.HeldFleet, turn.Reason, turn.Until
	}
	return policy.Held{By: by, Detail: reason, RetryAfter: max(retry-now, 0)}
}

// Observe notes what a pass did with its permit, and withdraws the requests that passes do not repeat. Call it after
// every pass.
func (c *Client) Observe(pass *api.Pass) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.enabled {
		return
	}
	now, o, began := c.opt.Now(), c.offered, c.passed // a pass may take longer than withdrawAfter
	c.offered, c.passed = offer{}, now
	if s := pass.Stop; o.valid && s != nil && (s.Kind == policy.Soft.String() || s.Kind == api.KindLimit) && plain(s.Sandbox, maxSandbox) == o.sandbox {
		p := &c.pools[o.pool]
		if o.token {
			c.waiter.Stop(o.pool, now)
			c.withdraw(p)
			c.notify() // to save it: a service that is killed after this takes it once
		}
		p.request = nil // the agent counts a permit as used unless it is given back
	}
	for i := range c.pools {
		p := &c.pools[i]
		if r := p.request; r != nil && r.ask.Kind == api.KindLimit && r.turnOver(now) { // all others of this pass have asked
			p.had = []string{r.ask.Workload}
		}
		if p.request != nil && p.asked <= began && now-p.asked >= withdrawAfter {
			c.withdraw(p)
		}
		if p.wants && now-p.asked >= c.linger {
			p.wants, c.report = false, now
			_, _ = c.waiter.End(policy.Pool(i), now) // it never holds a permit
			c.notify()
		}
	}
}

// withdraw drops the request of a pool, and gives back its permit.
func (c *Client) withdraw(p *pool) {
	if p.request != nil && p.request.sent {
		c.gone = append(c.gone, p.request.target)
		c.notify()
	}
	p.request = nil
}

// Warnings returns why the agent does not answer, for the status.
func (c *Client) Warnings() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return nil
	}
	return []string{"the fleet's agent does not answer: " + c.err.Error()}
}

func (c *Client) notify() {
	select {
	case c.wake <- struct{}{}:
	default: // one pending element is enough
	}
}
