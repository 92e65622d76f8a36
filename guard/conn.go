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
// come back elsewhere.
type Conn struct {
	given   string   // the configured endpoint; "" = find one
	known   []string // where to find one, in the order to try them
	crictl  string   // path of crictl's configuration
	timeout time.Duration
	now     func() time.Duration

	// For Connect alone.
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

// awayTime is how long a runtime that went away is waited for before another one is
// taken for the node's: one that restarts comes back where it was, and one that stands
// beside it knows none of its pods. As long, an endpoint that has no runtime to offer is
// not asked again.
const awayTime = time.Minute

// NewConn prepares the way; nothing is dialed yet.
func NewConn(cfg RuntimeConfig) *Conn {
	return &Conn{
		given: cfg.Endpoint, known: cri.KnownEndpoints(), crictl: crictlConfig, timeout: cfg.Timeout,
		now: cgroup.BootTime, mute: map[string]time.Duration{}, err: ErrNoRuntime,
	}
}

const crictlConfig = "/etc/crictl.yaml"

// candidates lists the endpoints to try.
func (c *Conn) candidates() []string {
	if c.given != "" {
		return []string{c.given}
	}
	if e, err := cri.CrictlEndpoint(c.crictl); err == nil && e != "" {
		return append([]string{e}, c.known...)
	}
	return c.known
}

// Connect makes sure that a runtime answers, one call at a time. ErrNoRuntime when none
// does.
func (c *Conn) Connect(ctx context.Context) error {
	candidates := c.candidates()
	client, err := c.Client()
	if err == nil {
		if endpoint, v, ok := c.ahead(ctx, candidates); ok {
			return c.use(endpoint, v)
		}
		v, err := client.Version(ctx)
		if err == nil || !c.mayLeave(err) {
			c.note(client, v, err)
			return c.Err()
		}
	}
	endpoint, v, err := cri.Find(ctx, candidates, c.timeout)
	if err != nil {
		c.note(client, cri.Version{}, err)
		return c.Err()
	}
	return c.use(endpoint, v)
}

// ahead looks for a runtime that ranks before the one at hand: of two on a node, the one
// that is not the node's may be up first. An endpoint that says nothing, or is none of a
// runtime, is left alone for a while: asking it takes the time that a listing has.
func (c *Conn) ahead(ctx context.Context, candidates []string) (string, cri.Version, bool) {
	if at := slices.Index(candidates, c.found); at >= 0 {
		candidates = candidates[:at]
	}
	for _, e := range candidates {
		if since, muted := c.mute[e]; muted && c.now()-since < awayTime {
			continue
		}
		endpoint, v, err := cri.Find(ctx, []string{e}, c.timeout)
		switch {
		case err == nil:
			delete(c.mute, e)
			return endpoint, v, true
		case errors.Is(err, cri.ErrTimeout) || errors.Is(err, cri.ErrUnsupported):
			c.mute[e] = c.now()
		}
		if ctx.Err() != nil {
			break
		}
	}
	return "", cri.Version{}, false
}

// mayLeave reports whether another runtime may be taken after the one at hand answered
// with an error.
func (c *Conn) mayLeave(err error) bool {
	if c.given != "" || !errors.Is(err, cri.ErrUnavailable) {
		return false
	}
	return c.lost != 0 && c.now()-c.lost >= awayTime
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
