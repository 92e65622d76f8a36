package guard

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
)

// connUnderTest finds its runtime among the servers, in this order, by a clock that the
// test sets.
func connUnderTest(t *testing.T, servers ...*critest.Server) (c *Conn, clock *time.Duration) {
	t.Helper()
	now := time.Hour
	c = NewConn(RuntimeConfig{Timeout: time.Minute})
	c.fileWait = time.Minute
	c.crictl, c.known, c.now = filepath.Join(t.TempDir(), "none"), nil, func() time.Duration { return now }
	for _, s := range servers {
		c.known = append(c.known, s.Endpoint())
	}
	t.Cleanup(c.Close)
	return c, &now
}

// wantAt connects, as soon as gRPC dials again where it was refused, and checks where.
func wantAt(t *testing.T, c *Conn, want *critest.Server) {
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

// Of two runtimes the first one is the node's, whenever it comes; while it restarts, the
// other one is not taken for it.
func TestConnKeepsToTheNodesRuntime(t *testing.T) {
	first, second := critest.New(t, critest.Containerd2), critest.New(t, critest.Containerd2)
	c, clock := connUnderTest(t, first, second)
	away := func() {
		t.Helper()
		first.Stop()
		for range 3 {
			if err := c.Connect(t.Context()); !errors.Is(err, ErrNoRuntime) {
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
	*clock += awayTime - 1
	first.Start()
	wantAt(t, c, first)
	away() // anew: it had come back
	*clock += awayTime
	wantAt(t, c, second)
	first.Start()
	wantAt(t, c, first)
}

// Of two runtimes the one with pods is the node's, whichever ranks first, and with pods in
// both the first one; one without pods is not gone to, however long the one with them is away.
func TestConnKeepsToThePods(t *testing.T) {
	first, second := critest.New(t, critest.Containerd2), critest.New(t, critest.Containerd2)
	c, clock := connUnderTest(t, first, second)
	listed := 0
	c.pods = func() int { return listed }
	pod := func(s *critest.Server) string { return s.AddPod(critest.PodSpec{}).ID }
	first.AddPod(critest.PodSpec{NotReady: true})

	wantAt(t, c, first)
	inSecond := pod(second)
	wantAt(t, c, second)
	other := NewConn(RuntimeConfig{Timeout: time.Minute})
	other.crictl, other.known = c.crictl, c.known
	defer other.Close()
	wantAt(t, other, second) // at once

	listed = 1
	second.Stop()
	for range 3 {
		*clock += awayTime
		if err := c.Connect(t.Context()); !errors.Is(err, ErrNoRuntime) {
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
	if err := c.Connect(t.Context()); !errors.Is(err, ErrNoRuntime) {
		t.Fatalf("the runtime is away: %v", err)
	}
	pod(second)
	*clock += awayTime
	wantAt(t, c, second) // whose pods are there for sure
	first.Start()
	wantAt(t, c, first)

	// A pod that has come since the listing counts, and one in the other has been there.
	listed = 0
	wantAt(t, c, first)
	first.Forget(inFirst)
	wantAt(t, c, second)
}

// The endpoint that crictl's configuration names is somebody's word for it: pods elsewhere do
// not outweigh it.
func TestConnKeepsToCrictls(t *testing.T) {
	named, known := critest.New(t, critest.CRIO), critest.New(t, critest.Containerd2)
	c, clock := connUnderTest(t, known)
	c.crictl = filepath.Join(t.TempDir(), "crictl.yaml")
	if err := os.WriteFile(c.crictl, []byte("runtime-endpoint: "+named.Endpoint()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	known.AddPod(critest.PodSpec{})
	wantAt(t, c, named)
	wantAt(t, c, named)
	named.Stop()
	if err := c.Connect(t.Context()); !errors.Is(err, ErrNoRuntime) {
		t.Fatalf("the runtime is away: %v", err)
	}
	*clock += awayTime
	wantAt(t, c, known)
	c.pods = func() int { return 1 }
	named.Start()
	wantAt(t, c, named)
}

// A socket before the runtime's that says nothing takes the time of one listing a minute.
func TestConnLeavesTheSilentAlone(t *testing.T) {
	t.Parallel()
	silent, second := critest.New(t, critest.Containerd2), critest.New(t, critest.Containerd2)
	c, clock := connUnderTest(t, silent, second)
	silent.Stop()
	wantAt(t, c, second)
	silent.Start()
	c.timeout = time.Second // of the silent one
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
	*clock += awayTime
	asked(2)
	release()
	c.timeout = time.Minute
	*clock += awayTime
	wantAt(t, c, silent)
}

// lateContext is one whose time is over, which it does not know yet.
type lateContext struct{}

func (lateContext) Deadline() (time.Time, bool) { return time.Now(), true }
func (lateContext) Done() <-chan struct{}       { return nil }
func (lateContext) Err() error                  { return nil }
func (lateContext) Value(any) any               { return nil }

// Who does not wait for an answer cannot tell that none would have come: neither of the runtime
// at hand, nor of one that may be the node's.
func TestConnLeftByItsCaller(t *testing.T) {
	srv, other := critest.New(t, critest.Containerd2), critest.New(t, critest.Containerd2)
	c, _ := connUnderTest(t, other, srv)
	other.Stop()
	wantAt(t, c, srv)
	other.Start()
	for name, hang := range map[string]func() (release func()){"of the one at hand": srv.Hang, "of another one": other.Hang} {
		release := hang()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		err := c.Connect(ctx)
		if !hasLeft(ctx) {
			t.Errorf("%s: the call ended before its caller left", name)
		}
		cancel()
		if name == "of the one at hand" && !errors.Is(err, ErrNoRuntime) {
			t.Errorf("%s: told %v", name, err)
		}
		if c.Err() != nil || c.lost != 0 || c.gone || len(c.mute) != 0 {
			t.Errorf("%s: held against it: %v, lost at %s, gone %t, mute %v", name, c.Err(), c.lost, c.gone, c.mute)
		}
		release()
	}
	if err := c.Connect(lateContext{}); !errors.Is(err, cri.ErrTimeout) || c.Err() != nil {
		t.Errorf("told by the runtime: %v, noted %v", err, c.Err())
	}
	unknown := NewConn(RuntimeConfig{Endpoint: srv.Endpoint(), Timeout: time.Minute})
	defer unknown.Close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := unknown.Connect(ended); !errors.Is(err, ErrNoRuntime) || !errors.Is(unknown.Err(), ErrNoRuntime) || errors.Is(unknown.Err(), context.Canceled) {
		t.Errorf("before any answered: %v, noted %v", err, unknown.Err())
	}
}

// An answer that is late is no restart of the runtime, which would keep the unused images
// of a node that is short of memory; that nobody answers is one.
func TestConnSince(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	c, clock := connUnderTest(t, srv)
	wantAt(t, c, srv)
	client, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Version(t.Context()); err != nil || client.ServerPID() == 0 {
		t.Fatalf("who listens is not known: %v", err)
	}
	release := srv.Inject(critest.Fault{Method: "Version", Err: critest.Code(codes.DeadlineExceeded, "late")})
	if err := c.Connect(t.Context()); !errors.Is(err, ErrNoRuntime) || !errors.Is(c.Err(), cri.ErrTimeout) {
		t.Fatalf("no answer came: %v", err)
	}
	release()
	wantAt(t, c, srv)
	if since := c.Since(); since != 0 {
		t.Errorf("a late answer: since %v", since)
	}
	const never = 1e6 * time.Hour // no process was started then
	*clock = never
	srv.Stop()
	if err := c.Connect(t.Context()); !errors.Is(err, ErrNoRuntime) {
		t.Fatalf("nobody listens: %v", err)
	}
	srv.Start()
	wantAt(t, c, srv)
	if since := c.Since(); since != never {
		t.Errorf("after a restart: since %v", since)
	}
	// The process, where it is known, tells by itself: it is this test's.
	n := &node{conn: c, proc: defaultProc}
	start, err := cgroup.ProcessStart(defaultProc, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if since := n.runtimeSince(); since != start {
		t.Errorf("the process started at %v, the runtime at %v", start, since)
	}
}
