package guard

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/policy"
)

func TestListPause(t *testing.T) {
	const interval = 10 * time.Second
	for _, c := range []struct {
		name    string
		err     error
		near    bool
		streams time.Duration // for how long the runtime's events were listened to
		want    time.Duration
	}{
		{"idle", nil, false, 0, interval},
		{"idle, and the runtime's events will tell", nil, false, eventsPause, hintedPauses * interval},
		{"a stream that may end at once", nil, false, eventsPause / 2, interval},
		{"near a threshold", nil, true, eventsPause, nearPause},
		{"no runtime", errors.New("down"), true, eventsPause, downPause},
	} {
		n := &node{lister: &lister{}, kernel: &nodeKernel{}, cfg: Config{}}
		n.cfg.Eviction.Interval = interval
		n.lister.current.Store(&Inventory{Err: c.err})
		n.kernel.near.Store(c.near)
		if c.streams > 0 {
			n.subscribed.Store(int64(cgroup.BootTime() - c.streams))
		}
		if got := (&Service{node: n}).listPause(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// The log tells of the runtime that is listed, and of another one that is listed in its place.
func TestListedTellsOfAnotherRuntime(t *testing.T) {
	first, second := critest.New(t, critest.Containerd2), critest.New(t, critest.Containerd2)
	second.AddPod(critest.PodSpec{})
	s := effectService(t, goodConfig(t, effectNode(t, "")))
	var text strings.Builder
	s.log = slog.New(slog.NewTextHandler(&text, nil))
	s.node.conn.crictl, s.node.conn.known = filepath.Join(t.TempDir(), "none"), []string{first.Endpoint(), second.Endpoint()}
	told := func(want ...string) {
		t.Helper()
		text.Reset()
		for range 2 {
			if inv := s.node.lister.List(t.Context()); inv.Err != nil {
				t.Fatal(inv.Err)
			}
		}
		if got := strings.Count(text.String(), "\n"); got != len(want) {
			t.Errorf("%d lines, want %d:\n%s", got, len(want), text.String())
		}
		for _, w := range want {
			if !strings.Contains(text.String(), w) {
				t.Errorf("told %q, want %s", text.String(), w)
			}
		}
	}
	told("endpoint=" + second.Endpoint() + " ")
	told()
	first.AddPod(critest.PodSpec{})
	told("endpoint=" + first.Endpoint() + " ")
}

// The pods of a runtime that is away stay known, whatever runtime without pods stands beside it.
func TestListingKeepsThePodsOfARuntimeAway(t *testing.T) {
	first, second := critest.New(t, critest.Containerd2), critest.New(t, critest.Containerd2)
	first.AddPod(critest.PodSpec{})
	s := effectService(t, goodConfig(t, effectNode(t, "")))
	now := time.Hour
	conn := s.node.conn
	conn.now = func() time.Duration { return now }
	conn.crictl, conn.known = filepath.Join(t.TempDir(), "none"), []string{first.Endpoint(), second.Endpoint()}
	if inv := s.node.lister.List(t.Context()); inv.Err != nil || len(inv.Pods) != 1 {
		t.Fatalf("%d pods, %v", len(inv.Pods), inv.Err)
	}
	first.Stop()
	for range 3 {
		now += awayTime
		if inv := s.node.lister.List(t.Context()); !errors.Is(inv.Err, ErrNoRuntime) || len(inv.Pods) != 1 {
			t.Errorf("%d pods, %v", len(inv.Pods), inv.Err)
		}
	}
}

// A threshold that is not watched is told of once, each time that it begins; and when it is watched
// again. Which disk a runtime's is cannot be known while that is away, and it is told of anyway.
func TestServiceTellsWhatIsNotWatched(t *testing.T) {
	s := effectService(t, goodConfig(t, effectNode(t, "[eviction.hard]\n\"imagefs.available\" = \"1Gi\"\n")))
	var text strings.Builder
	s.log, s.started = slog.New(slog.NewTextHandler(&text, nil)), time.Now().Add(-time.Hour)
	for sig := range policy.SignalCount {
		s.guard.obs[sig].Status = policy.OK
	}
	const gone, back = "cannot be observed", "can be observed again"
	for i, c := range []struct {
		status policy.Status
		why    error
		want   string
	}{
		{policy.Absent, errNoPath, ""}, {policy.Failed, errDiskHangs, gone}, {policy.Failed, errDiskHangs, ""}, {policy.OK, nil, back}, {policy.OK, nil, ""},
		{policy.Failed, errDiskHangs, gone},
	} {
		text.Reset()
		s.guard.obs[policy.ImageFSAvailable].Status, s.node.kernel.reasons[policy.ImageFSAvailable] = c.status, c.why
		s.warnAbsent()
		if got := text.String(); c.want == "" && got != "" || !strings.Contains(got, c.want) || c.want == gone && !strings.Contains(got, c.why.Error()) {
			t.Errorf("%d: told %q, want %q", i, got, c.want)
		}
	}
}

// A stream of events is counted on for as long as it is open.
func TestWatchEvents(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	n := connectedNode(t, srv)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	hints := make(chan bool, 100) // whether a stream was open
	go func() {
		defer close(ended)
		n.watchEvents(ctx, func() { hints <- n.subscribed.Load() != 0 })
	}()
	defer func() {
		cancel()
		<-ended
	}()
	srv.WaitCalls(t, "GetContainerEvents", 1)
	if open := <-hints; !open || len(hints) != 0 {
		t.Errorf("a stream that is open: counted on %t, and %d hints more", open, len(hints))
	}
	srv.AddPod(critest.PodSpec{Name: "new"})
	if open := <-hints; !open {
		t.Error("a stream that is open is not counted on")
	}
	srv.Stop()
	for open := true; open; {
		select {
		case open = <-hints: // of the pod there may be more than one
		case <-time.After(time.Minute):
			t.Fatal("that a stream has ended is no hint")
		}
	}
}

// The pause between two listings is that of the signals as they are by now, also of those that
// come near a threshold while it lasts, and that of the configuration.
func TestRepace(t *testing.T) {
	s := effectService(t, goodConfig(t, effectNode(t, "")))
	s.repace = make(chan struct{}, 1)
	for _, c := range []struct {
		available int64
		want      int
	}{{900, 0}, {100, 1}, {90, 0}, {900, 0}, {100, 1}} {
		s.guard.obs[policy.PIDAvailable] = policy.Observation{Available: c.available, Capacity: 1000, Status: policy.OK}
		s.guard.thresholds = []policy.Threshold{{Signal: policy.PIDAvailable, Value: policy.Bytes(100)}}
		s.after(&Pass{})
		if len(s.repace) != c.want {
			t.Errorf("%d available: %d hints, want %d", c.available, len(s.repace), c.want)
		}
		for range len(s.repace) {
			<-s.repace
		}
	}
	if s.reload(s.opt.Config, nil); len(s.repace) != 1 {
		t.Error("another interval is not in force with the reload")
	}
}
