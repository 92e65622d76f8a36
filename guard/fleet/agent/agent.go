package agent

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/etcd"
	"github.com/criguard/criguard/policy"
)

// Client is the fleet in etcd. Calls do not overlap.
type Client interface {
	// Report reports the node's state, or renews it.
	Report(ctx context.Context, s etcd.State) error
	// Survey reads the node's zone and the operators' policy.
	Survey(ctx context.Context, r fleet.Rates) (etcd.Survey, error)
	// Acquire requests a permit. A denial is an *etcd.DeniedError.
	Acquire(ctx context.Context, r fleet.Rates, workload, id string) (etcd.Permit, error)
	// Shared reads the configurations of the zone's nodes that want a soft stop.
	Shared(ctx context.Context) ([]etcd.Shared, error)
	// Release gives a permit back.
	Release(ctx context.Context, p etcd.Permit) error
}

// Options configures an Agent.
type Options struct {
	Fleet      string // names, for status and metrics
	Zone       string
	Node       string
	Client     Client
	Disconnect func() // closes the client's connection until its next call
	Rates      fleet.Rates
	Soft       policy.Bucket // the node's budget of soft stops, until the guard has sent one
	Saved      Saved         // of an agent before a restart; zero = none
	Save       func(Saved)   // keeps the state for the next agent; nil = none. Calls do not overlap
	// ContactPeriod is in which time the node contacts the fleet once; 0 = 30 s. A shorter one is for small fleets, as in tests.
	ContactPeriod time.Duration
	Rand          *rand.Rand
	Now           func() time.Duration // the time since boot (CLOCK_BOOTTIME)
}

// How often a node reports. The leases are three times as long.
const (
	wantInterval  = 3 * time.Minute
	idleInterval  = 50 * time.Minute // the shortest; 20 minutes more are random
	idleSpread    = 20 * time.Minute
	pauseInterval = 15 * time.Second // the shortest while paused; 30 seconds more are random
	pauseSpread   = 30 * time.Second
)

const (
	// tokenValid is how long the guard may use a token.
	tokenValid = 10 * time.Second
	// keepConnected is for how long the agent keeps a connection that it does not use.
	keepConnected = 10 * time.Second
	// requestTimeout is how long the agent asks for a permit that the guard does not fetch: each takes a slot.
	requestTimeout = 30 * time.Second
	// idleAfter is how long the guard asks for no permit until a request that failed before does not matter any more.
	idleAfter = 2 * time.Minute
	// sharedInterval limits how often the agent reads the configurations of other nodes while the fleet is full.
	sharedInterval = 10 * time.Minute
	// guardTimeout is how long the agent speaks for a guard that does not repeat its state.
	guardTimeout = 3 * time.Minute
)

// Agent waits for the permits of one node. Its methods are safe for concurrent use and return at once.
type Agent struct {
	opt   Options
	begun time.Duration // when the agent was made
	wake  chan struct{} // has an element after a request changed something

	mu       sync.Mutex
	waiter   *fleet.Waiter
	state    State
	soft     policy.Bucket // the node's budget of soft stops
	heard    time.Duration // when the guard last sent its state; 0 = never
	reported bool          // etcd has the state
	contact  time.Duration
	requests [policy.PoolCount]*request
	taken    [policy.PoolCount]string // the workload because of which the pool's last request was denied; "" = another reason
	asked    time.Duration            // when the guard last asked for a permit
	unused   []etcd.Permit            // to release
	err      error                    // of the last contact
	seen     etcd.Survey              // by the last report
	reached  bool                     // there was one
	paused   time.Duration            // until then
	lost     bool                     // a pause ended before its time, and no operator resumed
	full     bool                     // the fleet is full, by the last answer that shows it
	fullAt   time.Duration            // of that answer
	shared   []etcd.Shared            // configurations of the nodes that want a soft stop; nil = not read
	sharedAt time.Duration            // when they were read
	metrics  *metrics
}

// request is a pool's request for a pod.
type request struct {
	sandbox string
	Request
	asked  time.Duration // when the guard last asked
	id     string        // of the permit; "" = etcd does not know one, or the guard was given it
	permit etcd.Permit   // of the fleet
	given  Answer        // to the guard; zero = nothing granted
	lost   bool          // etcd had lost the node's state at the last request
}

// New returns an agent, which continues where another one stopped.
func New(opt Options) *Agent {
	now := opt.Now()
	a := &Agent{
		opt: opt, begun: now, wake: make(chan struct{}, 1), paused: opt.Saved.Paused, soft: cmp.Or(opt.Saved.Soft, opt.Soft),
	}
	a.waiter = fleet.NewWaiter(opt.Rates.Patience, a.soft, opt.Rand)
	if opt.ContactPeriod > 0 {
		a.waiter.SetContactPeriod(opt.ContactPeriod)
	}
	a.waiter.Restore(opt.Saved.Saved, now)
	for p, r := range opt.Saved.Requests {
		// It is asked again when the guard repeats it.
		a.requests[p] = &request{sandbox: r.Sandbox, Request: r.Request, id: r.ID, asked: now - requestTimeout - 1}
	}
	a.metrics = newMetrics()
	return a
}

// Save saves the state for the agent after a restart.
func (a *Agent) Save() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.save()
}

// save saves the state. It holds the lock, so that an older state never replaces a newer one.
func (a *Agent) save() {
	if a.opt.Save == nil {
		return
	}
	s := Saved{Fleet: a.opt.Fleet, Saved: a.waiter.Save(), Soft: a.soft, Requests: map[policy.Pool]SavedRequest{}}
	for p, r := range a.requests {
		if r != nil && r.id != "" {
			s.Requests[policy.Pool(p)] = SavedRequest{r.sandbox, r.Request, r.id}
		}
	}
	a.opt.Save(s)
}

// SetState begins and ends episodes of pools. A permit that the guard was not given is released when its episode ends.
func (a *Agent) SetState(s State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.opt.Now()
	s.Wants = slices.Clone(s.Wants)
	slices.Sort(s.Wants)
	s.Wants = slices.Compact(s.Wants)
	changed := a.heard == 0 || s.Digest != a.state.Digest || s.Version != a.state.Version || !slices.Equal(s.Wants, a.state.Wants)
	a.heard, a.state = now, s
	if s.Soft != (Soft{}) {
		a.soft = policy.Bucket{Burst: s.Soft.Burst, Every: time.Duration(s.Soft.Every)}
		a.waiter.SetSoft(a.soft)
	}
	for p := range policy.PoolCount {
		if slices.Contains(s.Wants, p) {
			a.waiter.Begin(p, now)
		} else {
			a.end(p, now)
		}
	}
	if changed {
		a.changed(now)
	}
	if len(s.Wants) == 0 {
		a.full = false // as this node wants no stop
	}
	a.notify()
}

// end ends a pool's episode.
func (a *Agent) end(p policy.Pool, now time.Duration) {
	a.withdraw(p, now)
	_, _ = a.waiter.End(p, now) // withdraw has taken its permit
	a.taken[p] = ""
}

// changed makes the agent report with its next contact: a change may come to all nodes at once.
func (a *Agent) changed(now time.Duration) {
	if a.reported || a.contact <= now {
		a.contact = a.waiter.NextContact(now)
	}
	a.reported = false
}

// Request requests a permit for the stop of a pod, in place of the pool's earlier request for another pod.
func (a *Agent) Request(p policy.Pool, sandbox string, q Request) Answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.opt.Now()
	if !slices.Contains(a.state.Wants, p) {
		a.state.Wants = append(slices.Clone(a.state.Wants), p)
		slices.Sort(a.state.Wants)
		a.waiter.Begin(p, now)
		a.heard = now
		a.changed(now)
	}
	if r := a.requests[p]; r == nil || r.sandbox != sandbox || r.Request != q {
		if w := a.taken[p]; w != "" && w != q.Workload {
			a.waiter.Changed(p, now)
			a.taken[p] = ""
		}
		a.withdraw(p, now)
		a.requests[p] = &request{sandbox: sandbox, Request: q}
	}
	a.asked, a.requests[p].asked = now, now
	a.notify()
	return a.answer(p, now)
}

// Withdraw withdraws a request, and releases its permit.
func (a *Agent) Withdraw(p policy.Pool, sandbox string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.opt.Now()
	if r := a.requests[p]; r != nil && r.sandbox == sandbox {
		if r.given.Source == Fleet && now < r.permit.Deadline {
			a.unused = append(a.unused, r.permit)
		}
		a.withdraw(p, now)
		a.notify()
	}
}

// withdraw removes a pool's request. A permit that the guard was given may have been used, so it is left to expire. One that it
// did not fetch in time still has the workload's slot.
func (a *Agent) withdraw(p policy.Pool, now time.Duration) {
	_, _ = a.waiter.Release(p, now)
	if r := a.requests[p]; r != nil && r.id != "" && r.permit.ID == r.id {
		a.unused = append(a.unused, r.permit)
	}
	a.requests[p] = nil
}

// answer answers a pool's request. A permit or a token that it returns is taken.
func (a *Agent) answer(p policy.Pool, now time.Duration) Answer {
	r := a.requests[p]
	if r.granted(now) {
		return r.given
	}
	turn := a.waiter.Turn(p, now)
	switch turn.Verdict {
	case fleet.Ask:
		return Answer{State: Pending}
	case fleet.Hold:
		return Answer{State: Denied, Reason: turn.Reason, RetryAfter: api.Duration(max(turn.Until-now, 0))}
	}
	switch a.waiter.Stop(p, now) {
	case fleet.Permit:
		r.id = ""
		r.given = Answer{State: Granted, Source: Fleet, ID: r.permit.ID, Deadline: api.Duration(r.permit.Deadline)}
	case fleet.Trickle:
		a.metrics.given(Trickle)
		r.given = Answer{State: Granted, Source: Trickle, Deadline: api.Duration(now + tokenValid)}
	case fleet.Local:
		a.metrics.given(Local)
		r.given = Answer{State: Granted, Source: Local, Deadline: api.Duration(now + tokenValid)}
	}
	a.save() // before the guard has the answer: an agent that is killed after it gives nothing twice
	return r.given
}

// granted reports whether the request was answered with a permit or a token that is still valid.
func (r *request) granted(now time.Duration) bool {
	return r != nil && r.given.State == Granted && now < time.Duration(r.given.Deadline)
}

// answered reports whether the guard was given a permit or a token, and has not asked again since that became void: it has
// used it.
func (r *request) answered() bool {
	return r.given.State == Granted && r.asked < time.Duration(r.given.Deadline)
}

// Status returns what the agent knows. It takes no permit.
func (a *Agent) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.opt.Now()
	s := Status{
		Fleet: a.opt.Fleet, Node: a.opt.Node, NameTaken: a.seen.NameTaken, PauseLost: a.lost, PausedFor: api.Duration(max(a.paused-now, 0)), Full: a.full,
		Wants: append([]policy.Pool{}, a.state.Wants...), Requests: []Waiting{}, Counts: a.waiter.Counts(),
	}
	if a.reached {
		s.Zone = &Zone{Name: a.opt.Zone, Zone: a.seen.Zone, State: a.seen.State}
	}
	if a.full {
		s.Pressured = slices.Clone(a.shared)
	}
	if d, alone := a.waiter.Alone(now); alone {
		s.AloneFor = api.Duration(d)
	}
	if a.err != nil {
		s.Error, s.Cause = a.err.Error(), etcd.Reason(a.err)
	}
	for p, r := range a.requests {
		if r == nil {
			continue
		}
		w := Waiting{Pool: policy.Pool(p), Sandbox: r.sandbox, Request: r.Request, Answer: Answer{State: Pending}}
		if r.granted(now) {
			w.Answer = r.given
		} else if turn := a.waiter.Turn(w.Pool, now); turn.Verdict == fleet.Hold {
			w.Answer = Answer{State: Denied, Reason: turn.Reason, RetryAfter: api.Duration(max(turn.Until-now, 0))}
		}
		s.Requests = append(s.Requests, w)
	}
	return s
}

func (a *Agent) notify() {
	select {
	case a.wake <- struct{}{}:
	default: // one pending element is enough
	}
}

func (a *Agent) random(most time.Duration) time.Duration {
	return time.Duration(a.opt.Rand.Int64N(int64(most) + 1))
}
