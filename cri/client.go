package cri

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/criguard/criguard/cri/socket"
)

// DefaultTimeout is the timeout of a client if Dial gets none.
const DefaultTimeout = 2 * time.Second

// Deadlines of calls that take longer than the client's timeout, which suits answers from the runtime's
// memory. If the client's timeout is longer, it applies instead, except to StopSandbox.
const (
	// stopMargin is added to the grace period: containerd never kills a container if the StopContainer
	// call ends before the grace period does.
	stopMargin = 10 * time.Second
	// stopSandboxTimeout also sets a grace period: CRI-O subtracts 2 s from the deadline and gives the
	// sandbox's containers the rest.
	stopSandboxTimeout = 5 * time.Second
	// stopDeadSandboxTimeout is the kubelet's. Nothing runs in the sandbox, so it is no grace period.
	stopDeadSandboxTimeout = 2 * time.Minute
	removeTimeout          = 30 * time.Second
	// lookUpTimeout exceeds the 4 s that CRI-O spends on each request waiting for an exit file that
	// will never be written: the container's monitor exited before the container.
	lookUpTimeout      = 15 * time.Second
	removeImageTimeout = 2 * time.Minute
	// listImagesTimeout: CRI-O reads its images from the disk, which is slow when that is full or busy.
	listImagesTimeout = 10 * time.Second
)

const (
	// maxMessage exceeds the 16 MiB that containerd sends at most. No real node gets near CRI-O's own
	// limit of 80 MiB.
	maxMessage = 64 << 20
	// bufferSize is the size of each connection buffer. The default of 32 KiB each way would stay
	// resident.
	bufferSize = 16 << 10
	// connectTimeout limits one attempt to connect to a socket that does not answer.
	connectTimeout = 5 * time.Second
)

// reconnect returns parameters that find a restarted runtime within a second. There is no crowd of clients that jitter would
// have to spread.
func reconnect() grpc.ConnectParams {
	return grpc.ConnectParams{
		Backoff: backoff.Config{
			BaseDelay:  100 * time.Millisecond,
			Multiplier: 1.6,
			MaxDelay:   800 * time.Millisecond,
		},
		MinConnectTimeout: connectTimeout,
	}
}

// detectDead returns parameters that drop a connection on which nothing has come for minutes, not even the answer to a ping, as from
// a runtime that was suspended with SIGSTOP: gRPC queues each call, also those that have timed out, until it is written. A slow
// runtime answers pings, whatever its calls wait for. It closes the connection if they come more often than every five minutes.
func detectDead() keepalive.ClientParameters {
	return keepalive.ClientParameters{Time: 6 * time.Minute, Timeout: time.Minute}
}

// Client talks to one runtime. It is safe for concurrent use.
type Client struct {
	endpoint    string
	timeout     time.Duration
	stopSandbox time.Duration
	conn        *grpc.ClientConn
	runtime     runtimeapi.RuntimeServiceClient
	images      runtimeapi.ImageServiceClient
	serverPID   atomic.Int32
	connections atomic.Int64
}

// Network connects to the sockets of runtimes. The zero value connects to real ones.
type Network struct {
	// DialSocket connects to the socket at a path; nil = the socket in the filesystem.
	DialSocket func(ctx context.Context, path string) (net.Conn, error)
}

func (n Network) dial(ctx context.Context, path string) (net.Conn, error) {
	if n.DialSocket != nil {
		return n.DialSocket(ctx, path)
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", path)
}

// Dial prepares a client for the runtime at endpoint over the real network. See [Network.Dial].
func Dial(endpoint string, timeout time.Duration) (*Client, error) {
	return Network{}.Dial(endpoint, timeout)
}

// Dial prepares a client for the runtime at endpoint, a unix socket given as "unix:///path" or as an
// absolute path. It does not connect: the first call does, and fails at once with ErrUnavailable if
// nothing listens. The timeout limits each call, except stops and removals, which have longer deadlines
// of their own; 0 means DefaultTimeout. A call also ends when its context does.
func (n Network) Dial(endpoint string, timeout time.Duration) (*Client, error) {
	path, err := socket.Path(endpoint)
	if err != nil {
		return nil, fmt.Errorf("dial runtime %q: %w", clean(endpoint), err)
	}
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	c := &Client{endpoint: "unix://" + path, timeout: timeout, stopSandbox: stopSandboxTimeout}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := n.dial(ctx, path)
		if err == nil {
			c.serverPID.Store(peerPID(conn))
			c.connections.Add(1)
		}
		return conn, err
	}
	conn, err := grpc.NewClient("passthrough:///runtime",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(dial),
		grpc.WithConnectParams(reconnect()),
		grpc.WithKeepaliveParams(detectDead()),
		grpc.WithReadBufferSize(bufferSize),
		grpc.WithWriteBufferSize(bufferSize),
		experimental.WithBufferPool(newBuffers()),
		grpc.WithIdleTimeout(0), // a new connection means that the last one was lost
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
	return c, nil
}

// pooledSize is the size of the largest buffer to keep for later messages, in bytes.
const pooledSize = 32 << 10

// buffers is the pool for messages. It does not keep large ones, such as the list of a hundred pods
// once a minute: a pool holds a buffer for two garbage collections, in effect for ever.
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

// Endpoint returns the runtime's endpoint as "unix:///path".
func (c *Client) Endpoint() string { return c.endpoint }

// ServerPID returns the process that listened at the endpoint when the client last connected. It
// changes with every restart of the runtime, however quick. 0 means that the client has not connected
// yet, or that the process is not visible in this PID namespace.
func (c *Client) ServerPID() int { return int(c.serverPID.Load()) }

// Connections returns how many connections the client has made so far. It makes a new one only after
// the runtime ended, dropped the last one, or was dead to it for minutes.
func (c *Client) Connections() int64 { return c.connections.Load() }

// peerPID returns the process at the other end of conn (unix(7), SO_PEERCRED); 0 = unknown.
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

// Close closes the connection and ends every call in flight. Its error is always nil.
func (c *Client) Close() error {
	_ = c.conn.Close() // the only error is that it was closed before
	return nil
}

// call makes one unary call with a deadline.
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
