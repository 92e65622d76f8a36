package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
)

// ErrNoRuntime says that no container runtime answers.
var ErrNoRuntime = errors.New("no container runtime answers")

// Conn is the way to the container runtime. The runtime may come late, go away
// and come back; with an endpoint that was found rather than given, it may even
// come back elsewhere. Of several on a node, the one with the pods is the node's; where
// none or more than one has pods, the first of the candidates.
type Conn struct {
	given   string   // the configured endpoint; "" = find one
	known   []string // where to find one, in the order to try them
	crictl  string   // path of crictl's configuration
	timeout time.Duration
	// fileWait is how long crictl's configuration is waited for.
	fileWait time.Duration
	now      func() time.Duration
	pods     func() int // how many the runtime at hand had when it was listed last

	// For Connect alone.
	named aside[string]            // what crictl's configuration names
	found string                   // the client's endpoint, as the candidates name it
	mute  map[string]time.Duration // endpoints that are not worth asking, and since when
	lost  time.Duration            // since when the runtime at hand is not reachable; 0 = it is

	mu      sync.Mutex
	client  *cri.Client
	version cri.Version
	err     error
	gone    bool          // it may be another process that answers next
	since   time.Duration // when it began to answer again after it was gone; 0 = it never was
}

// awayTime is how long a runtime that went away is waited for before another one without
// pods either is taken for the node's: one that restarts comes back where it was. As long, an
// endpoint that has no runtime to offer is not asked again.
const awayTime = time.Minute

// NewConn prepares the way; nothing is dialed yet.
func NewConn(cfg RuntimeConfig) *Conn {
	return &Conn{
		given: cfg.Endpoint, known: cri.KnownEndpoints(), crictl: crictlConfig, timeout: cfg.Timeout, fileWait: fileWait,
		now: cgroup.BootTime, pods: func() int { return 0 }, mute: map[string]time.Duration{}, err: ErrNoRuntime,
	}
}

const crictlConfig = "/etc/crictl.yaml"

// candidates lists the endpoints to try; named is the one of them that crictl's configuration
// names, "" = none. A file that does not answer names what it named last.
func (c *Conn) candidates(ctx context.Context) (named string, all []string) {
	if c.given != "" {
		return "", []string{c.given}
	}
	ctx, cancel := context.WithTimeout(ctx, c.fileWait)
	defer cancel()
	named = c.named.get(ctx, func() string {
		e, _ := cri.CrictlEndpoint(c.crictl) // one that cannot be read names none
		return e
	})
	if named != "" {
		return named, append([]string{named}, c.known...)
	}
	return "", c.known
}

// Connect makes sure that a runtime answers, one call at a time. ErrNoRuntime when none
// does, or none did before ctx ended, which is not held against it.
func (c *Conn) Connect(ctx context.Context) error {
	named, candidates := c.candidates(ctx)
	if _, err := c.Client(); err != nil {
		endpoint, v, err := cri.Find(ctx, candidates, c.timeout)
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

// fail notes why no runtime answered, unless it was the caller who did not wait for it: the
// runtime's own time goes with the client's calls.
func (c *Conn) fail(ctx context.Context, client *cri.Client, err error) error {
	if hasLeft(ctx) {
		return fmt.Errorf("%w: %w", ErrNoRuntime, err)
	}
	c.note(client, cri.Version{}, err)
	return c.Err()
}

// hasLeft tells whether the caller waits no longer. The runtime is told with a call how long he
// does, and may be the first to say that it is over.
func hasLeft(ctx context.Context) bool {
	at, bounded := ctx.Deadline()
	return ctx.Err() != nil || bounded && !time.Now().Before(at)
}

// elsewhere looks for a runtime that is the node's rather than the one at hand, which
// answered with err. Of two on a node, the one that is not the node's may be up first, or rank
// first. Unless crictl's configuration names it, one without pods is never taken in place of one
// with pods, however long that one is away: its pods live on, and they are known.
func (c *Conn) elsewhere(ctx context.Context, named string, candidates []string, err error) (endpoint string, v cri.Version, ok bool) {
	if c.given != "" {
		return "", cri.Version{}, false
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

// idle reports whether the runtime at hand, which answered with err, has no pods.
func (c *Conn) idle(ctx context.Context, err error) bool {
	if c.pods() > 0 {
		return false
	}
	client, none := c.Client()
	if none != nil || err != nil {
		return c.mayLeave(err)
	}
	pods, err := client.HasPods(ctx) // some may have come since
	return err == nil && !pods
}

// probe asks an endpoint. One that says nothing, or is none of a runtime, is left alone for a
// while: asking it takes the time that a listing has.
func (c *Conn) probe(ctx context.Context, endpoint string) (v cri.Version, pods, answers bool) {
	if since, muted := c.mute[endpoint]; muted && c.now()-since < awayTime {
		return cri.Version{}, false, false
	}
	v, pods, err := cri.Probe(ctx, endpoint, c.timeout)
	switch {
	case err == nil:
		delete(c.mute, endpoint)
	case hasLeft(ctx): // there was not the time to tell
	case errors.Is(err, cri.ErrTimeout) || errors.Is(err, cri.ErrUnsupported):
		c.mute[endpoint] = c.now()
	}
	return v, pods, err == nil
}

// mayLeave reports whether the runtime at hand, which answered with this error, is away for
// so long that it may not come back.
func (c *Conn) mayLeave(err error) bool {
	return errors.Is(err, cri.ErrUnavailable) && c.lost != 0 && c.now()-c.lost >= awayTime
}

// use takes the runtime that answered at an endpoint.
func (c *Conn) use(endpoint string, v cri.Version) error {
	client, err := c.Client()
	if err == nil && c.found == endpoint {
		c.note(client, v, nil)
		return nil
	}
	fresh, err := cri.Dial(endpoint, c.timeout)
	if err != nil {
		c.note(client, cri.Version{}, err)
		return c.Err()
	}
	c.found = endpoint
	c.note(fresh, v, nil)
	if client != nil {
		_ = client.Close()
	}
	return nil
}

func (c *Conn) note(client *cri.Client, v cri.Version, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.client
	c.client = client
	if err != nil {
		c.err = fmt.Errorf("%w: %w", ErrNoRuntime, err)
		if c.lost == 0 && errors.Is(err, cri.ErrUnavailable) {
			c.lost = c.now()
		}
		// On a node that is short of memory a runtime is slow without being restarted.
		known := client != nil && serverPID(client) != 0
		c.gone = c.gone || errors.Is(err, cri.ErrUnavailable) || errors.Is(err, cri.ErrTimeout) && !known
		return
	}
	if c.version != (cri.Version{}) && (c.gone || client != before) {
		c.since = c.now()
	}
	c.version, c.err, c.lost, c.gone = v, nil, 0, false
}

// serverPID is the runtime's process; 0 = it cannot be told. Where a socket unit listens
// for the runtime, the other end is the service manager's.
func serverPID(client *cri.Client) int {
	if pid := client.ServerPID(); pid != 1 {
		return pid
	}
	return 0
}

// Client is the client of the runtime that was found last; ErrNoRuntime when
// there never was one. Its calls fail for themselves while the runtime is away.
func (c *Conn) Client() (*cri.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == nil {
		return nil, c.err
	}
	return c.client, nil
}

// noRuntime makes of a call that failed what ErrNoRuntime is: the runtime was there a moment ago.
func noRuntime(err error) error {
	if err == nil || errors.Is(err, ErrNoRuntime) {
		return err
	}
	return unanswered{err}
}

// unanswered is an error of a runtime that answers no more, or nothing of use.
type unanswered struct{ error }

func (u unanswered) Unwrap() []error { return []error{ErrNoRuntime, u.error} }

// Err says why the runtime could not be reached last; nil when it could.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Version is what the runtime last said of itself.
func (c *Conn) Version() (endpoint string, v cri.Version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		endpoint = c.client.Endpoint()
	} else {
		endpoint = c.given
	}
	return endpoint, c.version
}

// Since is when the runtime began to answer again after it was gone, in boot time; 0 when
// it never was. Where its process is known, that is gone only when nobody answers, not
// when an answer is late.
func (c *Conn) Since() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.since
}

// Close ends the connection.
func (c *Conn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		_ = c.client.Close()
	}
}
