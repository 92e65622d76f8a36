package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/criguard/criguard/guard/fleet"
)

// DefaultTimeout is the timeout of each call.
const DefaultTimeout = 5 * time.Second

// Options configures a Client.
type Options struct {
	Fleet, Zone string
	Node        string   // as NodeName returns it; "" for an operator's commands
	Endpoints   []string // URLs, tried in turn
	TLS         fleet.TLS
	Rates       fleet.Rates          // of the node: an empty fleet settles at least as long as their longest slot
	Timeout     time.Duration        // of each call, to all endpoints together; 0 = DefaultTimeout
	Now         func() time.Duration // the time since boot (CLOCK_BOOTTIME)
}

// Client reads and writes the state of a fleet. It connects with its first call, to one endpoint at a time, and holds the
// connection until Close. It is safe for concurrent use.
type Client struct {
	opt       Options
	keys      keys
	endpoints []endpoint

	mu      sync.Mutex
	conn    *grpc.ClientConn
	current int                     // the endpoint of conn, or of the next connection
	ends    map[int64]time.Duration // when leases end at the latest, as they were seen first
	list    time.Duration           // when lists allows the next list; 0 = not known yet
	orphans []int64                 // leases that etcd may have and that are not needed
	// The history of etcd; see history.go.
	seen      position
	back      bool          // etcd has gone back to an earlier position
	longest   time.Duration // the longest slot by rates that were in force
	longestAt time.Duration // when they were last
	reported  time.Duration // when the last report to this history began that succeeded; 0 = none yet

	instance string        // marks this client's reports
	other    time.Duration // when another's report was in the place of this client's; 0 = never
}

// New returns a client. It checks the options, and reads and connects to nothing yet.
func New(opt Options) (*Client, error) {
	if len(opt.Endpoints) == 0 {
		return nil, errors.New("connect to etcd: no endpoints")
	}
	if opt.Timeout <= 0 {
		opt.Timeout = DefaultTimeout
	}
	c := &Client{opt: opt, keys: keysOf(opt.Fleet), ends: map[int64]time.Duration{}, instance: rand.Text()[:8]}
	for _, text := range opt.Endpoints {
		e, err := parseEndpoint(text, opt.TLS.Insecure)
		if err != nil {
			return nil, fmt.Errorf("connect to etcd %q: %w", text, err)
		}
		c.endpoints = append(c.endpoints, e)
	}
	return c, nil
}

// Close closes the connection, and ends every call in flight. The next call opens another one, with the files of [TLS]
// as they are then. Nodes close their connections when they want nothing: 10,000 idle ones cost etcd more than a gigabyte.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeLocked()
}

func (c *Client) closeLocked() {
	if c.conn != nil {
		_ = c.conn.Close() // the only error is that it was closed before
		c.conn = nil
	}
}

// connection returns the connection and its endpoint.
func (c *Client) connection() (*grpc.ClientConn, endpoint, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.endpoints[c.current]
	if c.conn != nil {
		return c.conn, e, nil
	}
	conn, err := e.connect(c.opt.TLS)
	c.conn = conn
	return conn, e, err
}

// leave closes a connection on which a call failed, and makes the next endpoint the current one. If another call has
// already left it, it does nothing.
func (c *Client) leave(conn *grpc.ClientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != conn {
		return
	}
	c.closeLocked()
	c.current = (c.current + 1) % len(c.endpoints)
}

// do calls f with a connection, and with the next endpoint's if the first fails, until all have been tried or the
// timeout has passed. f must be safe to repeat: etcd may have performed a call that failed.
func (c *Client) do(ctx context.Context, op string, f func(context.Context, *grpc.ClientConn) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.opt.Timeout)
	defer cancel()
	var err error
	for range c.endpoints {
		if err = c.once(ctx, op, f); err == nil || !isEndpoints(err) || ctx.Err() != nil {
			break
		}
	}
	return err
}

// once calls f with a connection. After a failure that another endpoint might not have, the next call uses the next
// endpoint.
func (c *Client) once(ctx context.Context, op string, f func(context.Context, *grpc.ClientConn) error) error {
	conn, e, err := c.connection()
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	// A member without a leader would otherwise let the call wait for one.
	err = f(metadata.AppendToOutgoingContext(ctx, "hasleader", "true"), conn)
	if err == nil {
		return nil
	}
	if err = callError(ctx, op, e.url, err); isEndpoints(err) {
		c.leave(conn)
	}
	return err
}
