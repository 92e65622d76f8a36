package cri_test

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
)

// testConnector searches the servers in this order. The test sets its clock and its other inputs.
type testConnector struct {
	*cri.Connector
	clock  time.Duration
	crictl string
	pods   int
}

func newConnector(t *testing.T, opt cri.ConnectorOptions, servers ...*critest.Server) *testConnector {
	t.Helper()
	c := &testConnector{clock: time.Hour}
	opt.Known = []string{}
	for _, s := range servers {
		opt.Known = append(opt.Known, s.Endpoint())
	}
	opt.Timeout = cmp.Or(opt.Timeout, patience)
	opt.Now = func() time.Duration { return c.clock }
	opt.Crictl = func(context.Context) string { return c.crictl }
	opt.Pods = func() int { return c.pods }
	c.Connector = cri.NewConnector(opt)
	t.Cleanup(c.Close)
	return c
}

// wantAt connects and checks the endpoint. It retries, because gRPC backs off after a refused
// connection.
func wantAt(t *testing.T, c *testConnector, want *critest.Server) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for c.Connect(t.Context()) != nil {
		if time.Now().After(deadline) {
			t.Fatal(c.Err())
		}
	}
	if at, _ := c.Version(); at != want.Endpoint() {
		t.Fatalf("connected to %s, want %s", at, want.Endpoint())
	}
}

// If a node has two runtimes, the first is the node's, even if it comes up later. The connector does
// not switch to the other one while the first restarts.
func TestConnKeepsToTheNodesRuntime(t *testing.T) {
	first, second := critest.New(t, critest.Containerd2), critest.New(t, critest.Containerd2)
	c := newConnector(t, cri.ConnectorOptions{}, first, second)
	away := func() {
		t.Helper()
		first.Stop()
		for range 3 {
			if err := c.Connect(t.Context()); !errors.Is(err, cri.ErrNoRuntime) {
				t.Fatalf("the runtime is away: %v", err)
			}
		}
		if at, _ := c.Version(); at != first.Endpoint() {
			t.Fatalf("went to %s", at)
		}
	}
	first.Stop()
	wantAt(t, c, second)
	first.Start()
	wantAt(t, c, first)
	away()
	c.clock += cri.AwayTime - 1
	first.Start()
	wantAt(t, c, first)
	away() // the wait starts over, because it had come back
	c.clock += cri.AwayTime
	wantAt(t, c, second)
	first.Start()
	wantAt(t, c, first)
}

// If a node has two runtimes, the one with pods is the node's, whatever their order; if both have pods,
// the first is. The connector never switches to a runtime without pods, however long the one with pods
// is away.
func TestConnKeepsToThePods(t *testing.T) {
	first, second := critest.New(t, critest.Containerd2), critest.New(t, critest.Containerd2)
	c := newConnector(t, cri.ConnectorOptions{}, first, second)
	pod := func(s *critest.Server) string { return s.AddPod(critest.PodSpec{}).ID }
	first.AddPod(critest.PodSpec{NotReady: true})

	wantAt(t, c, first)
	inSecond := pod(second)
	wantAt(t, c, second)
	wantAt(t, newConnector(t, cri.ConnectorOptions{}, first, second), second) // at once

	c.pods = 1
	second.Stop()
	for range 3 {
		c.clock += cri.AwayTime
		if err := c.Connect(t.Context()); !errors.Is(err, cri.ErrNoRuntime) {
			t.Fatalf("the runtime with the pods is away: %v", err)
		}
	}
	second.Start()
	wantAt(t, c, second)

	inFirst := pod(first)
	wantAt(t, c, first)
	second.Forget(inSecond)
	wantAt(t, c, first)
	first.Stop()
	if err := c.Connect(t.Context()); !errors.Is(err, cri.ErrNoRuntime) {
		t.Fatalf("the runtime is away: %v", err)
	}
	pod(second)
	c.clock += cri.AwayTime
	wantAt(t, c, second) // a listing shows that it has pods
	first.Start()
	wantAt(t, c, first)

	// A pod that started since the listing counts, and the other runtime had its pod before.
	c.pods = 0
	wantAt(t, c, first)
	first.Forget(inFirst)
	wantAt(t, c, second)
}

// A runtime that comes back without the CRI is away like one that does not come back, as containerd after a node has moved to
// CRI-O: it may still run for Docker.
func TestConnLeavesARuntimeWithoutCRI(t *testing.T) {
	first, second := critest.New(t, critest.Containerd2), critest.New(t, critest.CRIO)
	c := newConnector(t, cri.ConnectorOptions{}, first, second)
	first.AddPod(critest.PodSpec{})
	wantAt(t, c, first)
	c.pods = 1
	release := first.Inject(critest.Fault{Err: critest.Code(codes.Unimplemented, "unknown service runtime.v1.RuntimeService")})
	away := func() {
		t.Helper()
		if err := c.Connect(t.Context()); !errors.Is(err, cri.ErrNoRuntime) || !errors.Is(err, cri.ErrUnsupported) {
			t.Fatalf("the CRI is off: %v", err)
		}
	}
	away()
	c.clock += cri.AwayTime
	away() // the other one has no pods
	second.AddPod(critest.PodSpec{})
	wantAt(t, c, second)
	release()
	c.clock += cri.AwayTime
	wantAt(t, c, first) // both have pods
}

// An administrator chose the endpoint in crictl's configuration, so pods at another endpoint do not
// outweigh it.
func TestConnKeepsToCrictls(t *testing.T) {
	named, known := critest.New(t, critest.CRIO), critest.New(t, critest.Containerd2)
	c := newConnector(t, cri.ConnectorOptions{}, known)
	c.crictl = named.Endpoint()
	known.AddPod(critest.PodSpec{})
	wantAt(t, c, named)
	wantAt(t, c, named)
	named.Stop()
	if err := c.Connect(t.Context()); !errors.Is(err, cri.ErrNoRuntime) {
		t.Fatalf("the runtime is away: %v", err)
	}
	c.clock += cri.AwayTime
	wantAt(t, c, known)
	c.pods = 1
	named.Start()
	wantAt(t, c, named)
}

// A silent socket that ranks before the runtime's costs at most one timeout a minute.
func TestConnLeavesTheSilentAlone(t *testing.T) {
	t.Parallel()
	silent, second := critest.New(t, critest.Containerd2), critest.New(t, critest.Containerd2)
	c := newConnector(t, cri.ConnectorOptions{}, silent, second)
	silent.Stop()
	wantAt(t, c, second)
	silent.Start()
	c.SetTimeout(5 * time.Second) // of the silent one
	release := silent.Hang()
	asked := func(want int) {
		t.Helper()
		for range 3 {
			wantAt(t, c, second)
		}
		if got := len(silent.Calls("Version")); got != want {
			t.Errorf("asked %d times, want %d", got, want)
		}
	}
	asked(1)
	c.clock += cri.AwayTime
	asked(2)
	release()
	c.SetTimeout(patience)
	c.clock += cri.AwayTime
	wantAt(t, c, silent)
}

// lateContext is a context whose deadline has passed, but whose Err is still nil.
type lateContext struct{}

func (lateContext) Deadline() (time.Time, bool) { return time.Now(), true }
func (lateContext) Done() <-chan struct{}       { return nil }
func (lateContext) Err() error                  { return nil }
func (lateContext) Value(any) any               { return nil }

// A caller that gives up proves nothing about a runtime, neither the connected one nor another
// candidate.
func TestConnLeftByItsCaller(t *testing.T) {
	srv, other := critest.New(t, critest.Containerd2), critest.New(t, critest.Containerd2)
	c := newConnector(t, cri.ConnectorOptions{}, other, srv)
	other.Stop()
	wantAt(t, c, srv)
	other.Start()
	for name, hang := range map[string]func() (release func()){"of the one at hand": srv.Hang, "of another one": other.Hang} {
		release := hang()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		err := c.Connect(ctx)
		if !cri.Abandoned(ctx) {
			t.Errorf("%s: the call ended before its caller left", name)
		}
		cancel()
		if name == "of the one at hand" && !errors.Is(err, cri.ErrNoRuntime) {
			t.Errorf("%s: told %v", name, err)
		}
		if failures := c.Failures(); c.Err() != nil || failures != "" {
			t.Errorf("%s: counted as a failure: %v, %s", name, c.Err(), failures)
		}
		release()
	}
	if err := c.Connect(lateContext{}); !errors.Is(err, cri.ErrTimeout) || c.Err() != nil {
		t.Errorf("told by the runtime: %v, noted %v", err, c.Err())
	}
	unknown := newConnector(t, cri.ConnectorOptions{Endpoint: srv.Endpoint()})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := unknown.Connect(ended); !errors.Is(err, cri.ErrNoRuntime) || !errors.Is(unknown.Err(), cri.ErrNoRuntime) || errors.Is(unknown.Err(), context.Canceled) {
		t.Errorf("before any answered: %v, noted %v", err, unknown.Err())
	}
}

// connectAgain waits until the current client has reconnected to its runtime.
func connectAgain(t *testing.T, c *testConnector) {
	t.Helper()
	client, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		_, err := client.Version(t.Context())
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// A runtime that restarts between two listings answers both. If its process is not visible, a new
// connection counts as a restart; if it is visible, only a new process does.
func TestConnSeesRestartBetweenListings(t *testing.T) {
	for name, visible := range map[string]bool{"process not visible": false, "process visible": true} {
		t.Run(name, func(t *testing.T) {
			srv := critest.New(t, critest.Containerd2)
			c := newConnector(t, cri.ConnectorOptions{}, srv)
			if !visible {
				c.HideProcess()
			}
			for range 3 {
				wantAt(t, c, srv)
			}
			if since := c.Since(); since != 0 {
				t.Fatalf("before any restart: since %s", since)
			}
			var want time.Duration
			for range 2 {
				c.clock += time.Minute
				srv.Stop()
				srv.Start()
				connectAgain(t, c) // another user of the connection gets the error
				if err := c.Connect(t.Context()); err != nil {
					t.Fatalf("the listing after the restart: %v", err)
				}
				if !visible {
					want = c.clock
				}
				if since := c.Since(); since != want {
					t.Errorf("since %s, want %s", since, want)
				}
				c.clock += time.Minute
				wantAt(t, c, srv)
				if since := c.Since(); since != want {
					t.Errorf("a minute after the restart: since %s, want %s", since, want)
				}
			}
		})
	}
}

// A late answer does not count as a restart, which would protect the unused images of a node that is
// short of memory. A socket where nothing answers does.
func TestConnSince(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	c := newConnector(t, cri.ConnectorOptions{}, srv)
	wantAt(t, c, srv)
	client, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Version(t.Context()); err != nil || client.ServerPID() == 0 {
		t.Fatalf("who listens is not known: %v", err)
	}
	release := srv.Inject(critest.Fault{Method: "Version", Err: critest.Code(codes.DeadlineExceeded, "late")})
	if err := c.Connect(t.Context()); !errors.Is(err, cri.ErrNoRuntime) || !errors.Is(c.Err(), cri.ErrTimeout) {
		t.Fatalf("no answer came: %v", err)
	}
	release()
	wantAt(t, c, srv)
	if since := c.Since(); since != 0 {
		t.Errorf("a late answer: since %v", since)
	}
	const never = 1e6 * time.Hour // a boot time that no process can have as its start
	c.clock = never
	srv.Stop()
	if err := c.Connect(t.Context()); !errors.Is(err, cri.ErrNoRuntime) {
		t.Fatalf("nobody listens: %v", err)
	}
	srv.Start()
	wantAt(t, c, srv)
	if since := c.Since(); since != never {
		t.Errorf("after a restart: since %v", since)
	}
}
