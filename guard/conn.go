package guard

import (
	"context"
	"errors"
	"fmt"
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
	given   string // the configured endpoint; "" = find one
	crictl  string // path of crictl's configuration
	timeout time.Duration

	mu      sync.Mutex
	client  *cri.Client
	version cri.Version
	err     error
	since   time.Duration // when it began to answer again after it had not; 0 = it always did
}

// NewConn prepares the way; nothing is dialed yet.
func NewConn(cfg RuntimeConfig) *Conn {
	return &Conn{given: cfg.Endpoint, crictl: crictlConfig, timeout: cfg.Timeout, err: ErrNoRuntime}
}

const crictlConfig = "/etc/crictl.yaml"

// candidates lists the endpoints to try.
func (c *Conn) candidates() []string {
	if c.given != "" {
		return []string{c.given}
	}
	if e, err := cri.CrictlEndpoint(c.crictl); err == nil && e != "" {
		return append([]string{e}, cri.KnownEndpoints()...)
	}
	return cri.KnownEndpoints()
}

// Connect makes sure that a runtime answers. ErrNoRuntime when none does.
func (c *Conn) Connect(ctx context.Context) error {
	c.mu.Lock()
	client := c.client
	c.mu.Unlock()
	if client != nil {
		v, err := client.Version(ctx)
		if err == nil || c.given != "" || !errors.Is(err, cri.ErrUnavailable) {
			c.note(client, v, err)
			return c.Err()
		}
	}
	endpoint, v, err := cri.Find(ctx, c.candidates(), c.timeout)
	if err != nil {
		c.note(client, cri.Version{}, err)
		return c.Err()
	}
	if client == nil || client.Endpoint() != endpoint {
		fresh, err := cri.Dial(endpoint, c.timeout)
		if err != nil {
			c.note(client, cri.Version{}, err)
			return c.Err()
		}
		if client != nil {
			_ = client.Close()
		}
		client = fresh
	}
	c.note(client, v, nil)
	return nil
}

func (c *Conn) note(client *cri.Client, v cri.Version, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client = client
	if err != nil {
		c.err = fmt.Errorf("%w: %w", ErrNoRuntime, err)
		return
	}
	if c.err != nil && c.version != (cri.Version{}) {
		c.since = cgroup.BootTime()
	}
	c.version, c.err = v, nil
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

// Since is when the runtime began to answer again after a time in which it did
// not, in boot time; 0 when it has always answered.
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
