package guard

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/criguard/criguard/cri/critest"
)

// connUnderTest finds its runtime among the servers, in this order, by a clock that the
// test sets.
func connUnderTest(t *testing.T, servers ...*critest.Server) (c *Conn, clock *time.Duration) {
	t.Helper()
	now := time.Hour
	c = NewConn(RuntimeConfig{Timeout: time.Second})
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
	deadline := time.Now().Add(10 * time.Second)
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

// A socket before the runtime's that says nothing takes the time of one listing a minute.
func TestConnLeavesTheSilentAlone(t *testing.T) {
	t.Parallel()
	silent, second := critest.New(t, critest.Containerd2), critest.New(t, critest.Containerd2)
	c, clock := connUnderTest(t, silent, second)
	silent.Stop()
	wantAt(t, c, second)
	silent.Start()
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
	*clock += awayTime
	wantAt(t, c, silent)
}
