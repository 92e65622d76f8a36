package cri

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ConnectorOptions configures a Connector.
type ConnectorOptions struct {
	Endpoint string        // the configured endpoint; "" = find one
	Timeout  time.Duration // of each call
	Network  Network
	// Known are the endpoints to search, in order; nil = KnownEndpoints.
	Known []string
	// Crictl returns the endpoint that crictl's configuration names, "" if it names none. It
	// must return by the time ctx ends. nil = none.
	Crictl func(ctx context.Context) string
	Now    func() time.Duration // boot time; required
	// Pods returns how many pods the connected runtime had when it was last listed; nil = none.
	Pods func() int
}

// Connector finds the container runtime and maintains the connection to it. The runtime may
// start late, go away and come back; if its endpoint was found and not configured, it may come
// back at another one. If several runtimes run on a node, the one with pods is the node's; if
// none or more than one has pods, the first of the candidates is.
type Connector struct {
	opt ConnectorOptions
	// serverPID returns the process of a client's runtime; 0 = not visible.
	serverPID func(*Client) int

	// Only Connect uses these.
	found     string                   // the client's endpoint, as written in the candidates
	skipped   map[string]time.Duration // endpoints that do not answer or have no CRI, and since when
	lostSince time.Duration            // when the connected runtime went away; 0 = it is there

	mu      sync.Mutex
	client  *Client
	version Version
	err     error
	gone    bool          // another process may answer next
	since   time.Duration // when it began to answer again after it was gone; 0 = it never was
	// answered is the instance that last answered.
	answered int64
}

// awayTime is how long the connector waits for a runtime that went away before it switches to another
// one that has no pods either: a restarting runtime comes back at its own endpoint. The connector also
// skips an endpoint without a usable runtime for this long.
const awayTime = time.Minute

// NewConnector returns a connector. It does not dial yet.
func NewConnector(opt ConnectorOptions) *Connector {
	if opt.Known == nil {
		opt.Known = KnownEndpoints()
	}
	if opt.Crictl == nil {
		opt.Crictl = func(context.Context) string { return "" }
	}
	if opt.Pods == nil {
		opt.Pods = func() int { return 0 }
	}
	return &Connector{opt: opt, serverPID: serverPID, skipped: map[string]time.Duration{}, err: ErrNoRuntime}
}

// candidates returns the endpoints to try, in order. named is the endpoint that crictl's configuration
// names; "" = none.
func (c *Connector) candidates(ctx context.Context) (named string, all []string) {
	if c.opt.Endpoint != "" {
		return "", []string{c.opt.Endpoint}
	}
	if named = c.opt.Crictl(ctx); named != "" {
		return named, append([]string{named}, c.opt.Known...)
	}
	return "", c.opt.Known
}

// Connect makes sure that a runtime answers. Calls must not overlap. It returns ErrNoRuntime if no
// runtime answers, or none did before ctx ended; the latter does not count as a failure of the runtime.
func (c *Connector) Connect(ctx context.Context) error {
	named, candidates := c.candidates(ctx)
	if _, err := c.Client(); err != nil {
		endpoint, v, err := c.opt.Network.Find(ctx, candidates, c.opt.Timeout)
		if err != nil {
			return c.fail(ctx, nil, err)
		}
		if err := c.use(endpoint, v); err != nil {
			return err
		}
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	v, err := client.Version(ctx)
	if endpoint, v, ok := c.elsewhere(ctx, named, candidates, err); ok {
		return c.use(endpoint, v)
	}
	if err != nil {
		return c.fail(ctx, client, err)
	}
	c.note(client, v, nil)
	return nil
}

// fail records why no runtime answered, unless the caller stopped waiting: the client's own
// timeout bounds each call.
func (c *Connector) fail(ctx context.Context, client *Client, err error) error {
	if Abandoned(ctx) {
		return fmt.Errorf("%w: %w", ErrNoRuntime, err)
	}
	c.note(client, Version{}, err)
	return c.Err()
}

// Abandoned reports whether the caller no longer waits. gRPC sends the caller's deadline with each
// call, so the runtime may report its end before ctx does.
func Abandoned(ctx context.Context) bool {
	at, bounded := ctx.Deadline()
	return ctx.Err() != nil || bounded && !time.Now().Before(at)
}

// elsewhere looks for a runtime that is more likely the node's than the connected one, which answered
// with err. If a node has two, the wrong one may be up first or rank first. A runtime without pods
// never replaces one with pods, however long that one is away, unless crictl's configuration names it:
// the pods live on, and criguard knows them.
func (c *Connector) elsewhere(ctx context.Context, named string, candidates []string, err error) (endpoint string, v Version, ok bool) {
	if c.opt.Endpoint != "" {
		return "", Version{}, false
	}
	rank := slices.Index(candidates, c.found)
	if rank < 0 {
		rank = len(candidates)
	}
	idle, away := c.idle(ctx, err), c.mayLeave(err)
	for i, e := range candidates {
		before := i < rank || away
		if e == c.found || !before && (!idle || c.found == named) {
			continue
		}
		ev, pods, answers := c.probe(ctx, e)
		switch {
		case answers && (pods || e == named):
			return e, ev, true
		case answers && before && idle && !ok:
			endpoint, v, ok = e, ev, true
		case ctx.Err() != nil:
			return endpoint, v, ok
		}
	}
	return endpoint, v, ok
}

// idle reports whether the connected runtime, which answered with err, has no pods.
func (c *Connector) idle(ctx context.Context, err error) bool {
	if c.opt.Pods() > 0 {
		return false
	}
	client, none := c.Client()
	if none != nil || err != nil {
		return c.mayLeave(err)
	}
	pods, err := client.HasPods(ctx) // some may have started since the listing
	return err == nil && !pods
}

// probe queries an endpoint. It then skips an endpoint that does not answer, or has no CRI, for
// awayTime: waiting for it would use up the time of a listing.
func (c *Connector) probe(ctx context.Context, endpoint string) (v Version, pods, answers bool) {
	if since, skip := c.skipped[endpoint]; skip && c.opt.Now()-since < awayTime {
		return Version{}, false, false
	}
	v, pods, err := c.opt.Network.Probe(ctx, endpoint, c.opt.Timeout)
	switch {
	case err == nil:
		delete(c.skipped, endpoint)
	case Abandoned(ctx): // there was no time to find out
	case errors.Is(err, ErrTimeout) || errors.Is(err, ErrUnsupported):
		c.skipped[endpoint] = c.opt.Now()
	}
	return v, pods, err == nil
}

// mayLeave reports whether the connected runtime, which answered with err, has been away for so long
// that it may not come back.
func (c *Connector) mayLeave(err error) bool {
	return isAway(err) && c.lostSince != 0 && c.opt.Now()-c.lostSince >= awayTime
}

// isAway reports whether a runtime that answered with err may not come back. containerd without its CRI plugin still answers,
// but for others.
func isAway(err error) bool { return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnsupported) }

// use switches to the runtime that answered at an endpoint.
func (c *Connector) use(endpoint string, v Version) error {
	client, err := c.Client()
	if err == nil && c.found == endpoint {
		c.note(client, v, nil)
		return nil
	}
	fresh, err := c.opt.Network.Dial(endpoint, c.opt.Timeout)
	if err != nil {
		c.note(client, Version{}, err)
		return c.Err()
	}
	c.found = endpoint
	c.note(fresh, v, nil)
	if client != nil {
		_ = client.Close()
	}
	return nil
}

func (c *Connector) note(client *Client, v Version, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.client
	c.client = client
	if err != nil {
		c.err = fmt.Errorf("%w: %w", ErrNoRuntime, err)
		if c.lostSince == 0 && isAway(err) {
			c.lostSince = c.opt.Now()
		}
		// On a node that is short of memory, a runtime may be slow without having restarted.
		known := client != nil && c.serverPID(client) != 0
		c.gone = c.gone || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrTimeout) && !known
		return
	}
	instance := c.instance(client)
	restarted := c.gone || client != before || c.answered != 0 && instance != c.answered
	if c.version != (Version{}) && restarted {
		c.since = c.opt.Now()
	}
	c.version, c.err, c.lostSince, c.gone, c.answered = v, nil, 0, false, instance
}

// instance identifies one run of the runtime: its PID or, if that is not visible, the number of
// the connection to it, negated. 0 = not connected yet.
func (c *Connector) instance(client *Client) int64 {
	if pid := c.serverPID(client); pid != 0 {
		return int64(pid)
	}
	return -client.Connections()
}

// serverPID returns the runtime's process; 0 = not visible. If a socket unit listens for the
// runtime, the socket's owner is the service manager, PID 1.
func serverPID(client *Client) int {
	if pid := client.ServerPID(); pid != 1 {
		return pid
	}
	return 0
}

// PID returns the connected runtime's process; 0 = not connected, or not visible.
func (c *Connector) PID() int {
	client, err := c.Client()
	if err != nil {
		return 0
	}
	return c.serverPID(client)
}

// Client returns the client of the runtime that was found last, or ErrNoRuntime if none ever was. While
// that runtime is away, the client's calls fail.
func (c *Connector) Client() (*Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == nil {
		return nil, c.err
	}
	return c.client, nil
}

// Err returns why the last Connect found no runtime; nil if it found one.
func (c *Connector) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Version returns the endpoint, connected or configured, and the version that the runtime last
// reported.
func (c *Connector) Version() (endpoint string, v Version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		endpoint = c.client.Endpoint()
	} else {
		endpoint = c.opt.Endpoint
	}
	return endpoint, c.version
}

// Since returns when the runtime began to answer again after it was gone, in boot time; 0 = it never
// was gone. If its process is visible, a late answer does not count as gone. If it is not visible, a
// new connection counts as a restart, because a runtime that restarts between two listings answers
// both.
func (c *Connector) Since() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.since
}

// Close ends the connection.
func (c *Connector) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		_ = c.client.Close()
	}
}
