package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// DefaultTimeout is a client's timeout unless Dial is given another one.
const DefaultTimeout = 2 * time.Second

// Deadlines that differ from the client's timeout, which is meant for answers
// from the runtime's memory. Where the client's timeout is longer, it counts.
const (
	// stopMargin comes on top of a grace period: containerd never kills a container
	// when the call that stops it ends before the grace period does.
	stopMargin = 10 * time.Second
	// stopSandboxTimeout is, less 2 s, the grace period CRI-O gives the containers
	// of a sandbox that is stopped.
	stopSandboxTimeout = 5 * time.Second
	removeTimeout      = 30 * time.Second
	// lookUpTimeout is above the 4 s for which CRI-O waits, each time it is asked, for the
	// exit file of a container that ended after its monitor did: nobody writes that any more.
	lookUpTimeout      = 15 * time.Second
	removeImageTimeout = 2 * time.Minute
)

const (
	// maxMessage is above what containerd sends (16 MiB). CRI-O's own cap of 80 MiB
	// is out of reach of any real node.
	maxMessage = 64 << 20
	// bufferSize of the connection: the default of 32 KiB each way stays resident.
	bufferSize = 16 << 10
	// connectTimeout bounds one attempt to connect to a socket behind which nobody
	// answers.
	connectTimeout = 5 * time.Second
)

// reconnect finds a restarted runtime again within a second.
func reconnect() grpc.ConnectParams {
	return grpc.ConnectParams{
		Backoff: backoff.Config{
			BaseDelay:  100 * time.Millisecond,
			Multiplier: 1.6,
			Jitter:     0.2,
			MaxDelay:   800 * time.Millisecond,
		},
		MinConnectTimeout: connectTimeout,
	}
}

// Client talks to one runtime. It may be used from several goroutines.
type Client struct {
	endpoint    string
	timeout     time.Duration
	stopSandbox time.Duration
	conn        *grpc.ClientConn
	runtime     runtimeapi.RuntimeServiceClient
	images      runtimeapi.ImageServiceClient
	serverPID   atomic.Int32
}

// Option changes what a client does by default.
type Option func(*Client)

// WithStopSandboxTimeout sets the deadline of StopSandbox, 5 s by default. CRI-O
// takes it, less 2 s, for the grace period of containers that still run. 0 changes
// nothing.
func WithStopSandboxTimeout(d time.Duration) Option {
	return func(c *Client) {
		if d > 0 {
			c.stopSandbox = d
		}
	}
}

// Dial prepares a client for the runtime at endpoint, a unix socket given as
// "unix:///path" or as a plain absolute path. It does not connect: a call does,
// and fails at once with ErrUnavailable while nobody listens. The timeout bounds
// each call that has no longer deadline of its own (stops and removals); 0 is
// DefaultTimeout. A call ends earlier when its context does.
func Dial(endpoint string, timeout time.Duration, opts ...Option) (*Client, error) {
	path, err := socketPath(endpoint)
	if err != nil {
		return nil, fmt.Errorf("dial runtime %q: %w", clean(endpoint), err)
	}
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	c := &Client{endpoint: "unix://" + path, timeout: timeout, stopSandbox: stopSandboxTimeout}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", path)
		if err == nil {
			c.serverPID.Store(peerPID(conn))
		}
		return conn, err
	}
	conn, err := grpc.NewClient("passthrough:///runtime",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(dial),
		grpc.WithConnectParams(reconnect()),
		grpc.WithReadBufferSize(bufferSize),
		grpc.WithWriteBufferSize(bufferSize),
		experimental.WithBufferPool(newBuffers()),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	)
	if err != nil {
		return nil, fmt.Errorf("dial runtime %q: %s", clean(endpoint), clean(err.Error()))
	}
	c.conn = conn
	c.runtime = runtimeapi.NewRuntimeServiceClient(conn)
	c.images = runtimeapi.NewImageServiceClient(conn)
	for _, o := range opts {
		o(c)
	}
	return c, nil
}

// pooledSize is the largest buffer that is kept for the next message.
const pooledSize = 32 << 10

// buffers is the pool for messages. The list of a hundred pods, once a minute, is in none: a
// pool would keep the room for it over two garbage collections, which is to say for ever.
type buffers struct{ small mem.BufferPool }

func newBuffers() buffers {
	var sizes []int
	for size := 256; size <= pooledSize; size *= 2 {
		sizes = append(sizes, size)
	}
	return buffers{mem.NewTieredBufferPool(sizes...)}
}

// Get implements [mem.BufferPool].
func (b buffers) Get(length int) *[]byte {
	if length > pooledSize {
		buf := make([]byte, length)
		return &buf
	}
	return b.small.Get(length)
}

// Put implements [mem.BufferPool].
func (b buffers) Put(buf *[]byte) {
	if cap(*buf) <= pooledSize {
		b.small.Put(buf)
	}
}

// Endpoint is where the runtime is, as "unix:///path".
func (c *Client) Endpoint() string { return c.endpoint }

// ServerPID is the process that listened at the endpoint when the client connected
// last: another one after a restart of the runtime, however quick. 0 before the first
// call, and where that process is not in this one's PID namespace.
func (c *Client) ServerPID() int { return int(c.serverPID.Load()) }

// peerPID is who listens at the other end (unix(7), SO_PEERCRED); 0 = unknown.
func peerPID(conn net.Conn) (pid int32) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			pid = cred.Pid
		}
	})
	return pid
}

// Close ends the connection and every call under way. Its error is always nil.
func (c *Client) Close() error {
	_ = c.conn.Close() // tells only that it was closed before
	return nil
}

// call makes one unary call under a deadline.
func call[Req, Resp any](
	ctx context.Context, limit time.Duration, op string,
	method func(context.Context, *Req, ...grpc.CallOption) (*Resp, error), req *Req,
) (*Resp, error) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	resp, err := method(ctx, req)
	if err != nil {
		return nil, callError(ctx, op, time.Since(start), err)
	}
	return resp, nil
}

// socketPath is the absolute path an endpoint names.
func socketPath(endpoint string) (string, error) {
	path := endpoint
	if rest, ok := strings.CutPrefix(endpoint, "unix:"); ok {
		path = rest
		if rest, ok := strings.CutPrefix(rest, "//"); ok {
			path = rest
		}
	}
	switch {
	case endpoint == "":
		return "", errors.New("endpoint is empty")
	case !strings.HasPrefix(path, "/"):
		return "", errors.New("endpoint is no unix socket: want unix:///path or an absolute path")
	case strings.ContainsRune(path, 0):
		return "", errors.New("endpoint has a NUL byte")
	}
	return path, nil
}
