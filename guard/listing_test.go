package guard

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/disk"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/machine"
	"github.com/criguard/criguard/guard/node"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/policy"
)

func TestListPause(t *testing.T) {
	const interval = 10 * time.Second
	up := critest.New(t, critest.Containerd2).Endpoint()
	for _, c := range []struct {
		name     string
		endpoint string
		near     bool
		streams  time.Duration // how long a stream of the runtime's events has been open
		want     time.Duration
	}{
		{"idle", up, false, 0, interval},
		{"idle, and the runtime's events will tell", up, false, eventsPause, hintedPauses * interval},
		{"a stream that may end at once", up, false, eventsPause / 2, interval},
		{"near a threshold", up, true, eventsPause, nearPause},
		{"no runtime", "/none", true, eventsPause, downPause},
	} {
		n := openEffectNode(t, configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '"+c.endpoint+"'")))
		n.cfg.Load().Eviction.Interval = interval
		n.lister.List(t.Context())
		if c.near {
			n.kernel.Arm([]policy.Threshold{{Signal: policy.PIDAvailable, Value: policy.Percent(50)}}, &policy.Observations{policy.PIDAvailable: {Capacity: 1000, Status: policy.OK}})
		}
		if c.streams > 0 {
			n.subscribed.Store(int64(cgroup.BootTime() - c.streams))
		}
		if got := (&Service{host: n}).listPause(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// searchAmong makes a node search for its runtime among the servers.
func searchAmong(t *testing.T, n *host, now func() time.Duration, servers ...*critest.Server) {
	t.Helper()
	n.conn.Close()
	opt := n.connectorOptions(n.config().Runtime, machine.Real())
	opt.Endpoint, opt.Now, opt.Crictl = "", now, nil
	for _, s := range servers {
		opt.Known = append(opt.Known, s.Endpoint())
	}
	n.conn = cri.NewConnector(opt)
	t.Cleanup(n.conn.Close)
}

// The log names the runtime that is listed, and another one that later takes its place.
func TestListedTellsOfAnotherRuntime(t *testing.T) {
	first, second := critest.New(t, critest.Containerd2), critest.New(t, critest.Containerd2)
	second.AddPod(critest.PodSpec{})
	s := effectService(t, configtest.Parse(t, nodetest.Config(t, "")))
	var text strings.Builder
	s.log = slog.New(slog.NewTextHandler(&text, nil))
	searchAmong(t, s.host, cgroup.BootTime, first, second)
	told := func(want ...string) {
		t.Helper()
		text.Reset()
		for range 2 {
			if inv := s.host.lister.List(t.Context()); inv.Err != nil {
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

// The pods of an unavailable runtime stay known, even if another runtime without pods answers.
func TestListingKeepsThePodsOfARuntimeAway(t *testing.T) {
	first, second := critest.New(t, critest.Containerd2), critest.New(t, critest.Containerd2)
	first.AddPod(critest.PodSpec{})
	s := effectService(t, configtest.Parse(t, nodetest.Config(t, "")))
	now := time.Hour
	searchAmong(t, s.host, func() time.Duration { return now }, first, second)
	if inv := s.host.lister.List(t.Context()); inv.Err != nil || len(inv.Pods) != 1 {
		t.Fatalf("%d pods, %v", len(inv.Pods), inv.Err)
	}
	first.Stop()
	for range 3 {
		now += time.Minute
		if inv := s.host.lister.List(t.Context()); !errors.Is(inv.Err, cri.ErrNoRuntime) || len(inv.Pods) != 1 {
			t.Errorf("%d pods, %v", len(inv.Pods), inv.Err)
		}
	}
}

// An unwatched threshold is logged once whenever it begins, and when it is watched again. It is logged even
// while the runtime is away, when it is unknown which disk the runtime uses.
func TestServiceTellsWhatIsNotWatched(t *testing.T) {
	s := effectService(t, configtest.Parse(t, nodetest.Config(t, "[eviction.hard]\n\"imagefs.available\" = \"1Gi\"\n")))
	var text strings.Builder
	s.log, s.started = slog.New(slog.NewTextHandler(&text, nil)), time.Now().Add(-time.Hour)
	for sig := range policy.SignalCount {
		s.guard.Snapshot().Observations[sig].Status = policy.OK
	}
	const gone, back = "signal unavailable", "signal available again"
	for i, c := range []struct {
		status policy.Status
		why    error
		want   string
	}{
		{policy.Absent, disk.ErrNoPath, ""}, {policy.Absent, node.ErrNotYet, ""}, {policy.Failed, disk.ErrHangs, gone}, {policy.Failed, disk.ErrHangs, ""}, {policy.OK, nil, back}, {policy.OK, nil, ""},
		{policy.Failed, disk.ErrHangs, gone},
	} {
		text.Reset()
		s.guard.Snapshot().Observations[policy.ImageFSAvailable].Status = c.status
		s.warnAbsent(s.guard.Snapshot().Observations, func(policy.Signal) error { return c.why })
		if got := text.String(); c.want == "" && got != "" || !strings.Contains(got, c.want) || c.want == gone && !strings.Contains(got, c.why.Error()) {
			t.Errorf("%d: told %q, want %q", i, got, c.want)
		}
	}
}

// A stream of events counts as open only while it is open.
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
		case open = <-hints: // the pod may have more than one event
		case <-time.After(time.Minute):
			t.Fatal("that a stream has ended is no hint")
		}
	}
}

// The pause between two listings follows the current signals, even if they come near a threshold during the
// pause, and the current configuration.
func TestRepace(t *testing.T) {
	s := effectService(t, configtest.Parse(t, nodetest.Config(t, "[eviction.hard]\n\"pid.available\" = \"100\"\n")))
	s.repace = make(chan struct{}, 1)
	s.guard.Observe()
	*s.guard.Snapshot().Observations = policy.Observations{} // only this signal
	for _, c := range []struct {
		available int64
		want      int
	}{{900, 0}, {100, 1}, {90, 0}, {900, 0}, {100, 1}} {
		s.guard.Snapshot().Observations[policy.PIDAvailable] = policy.Observation{Available: c.available, Capacity: 1000, Status: policy.OK}
		s.after(&api.Pass{})
		if len(s.repace) != c.want {
			t.Errorf("%d available: %d hints, want %d", c.available, len(s.repace), c.want)
		}
		for range len(s.repace) {
			<-s.repace
		}
	}
	if _, _ = s.reload(s.opt.Config, nil, nil, false); len(s.repace) != 1 {
		t.Error("another interval is not in force with the reload")
	}
}

// Unaccounted swap gives a warning in status and one line in the log.
func TestServiceWarnsOfUnaccountedSwap(t *testing.T) {
	for _, unaccounted := range []bool{true, false} {
		s := effectService(t, configtest.Parse(t, nodetest.Config(t, "[eviction.hard]\n\"swap.available\" = \"1Gi\"\n")))
		var text strings.Builder
		s.log = slog.New(slog.NewTextHandler(&text, nil))
		s.guard.Observe()
		s.guard.Snapshot().Observations[policy.SwapAvailable] = policy.ObserveSpace(1, 2, 0)
		if unaccounted { // the fake node's cgroups count no swap
			s.host.kernel.Track([]inventory.Pod{{Cgroup: "/other", Containers: make([]inventory.Container, 1)}})
			s.host.kernel.Measure(make([]policy.Candidate, 1))
		}
		for range 2 {
			s.warnSwap()
		}
		if got := strings.Count(text.String(), "the swap of pods is unknown"); (got == 1) != unaccounted || got > 1 {
			t.Errorf("unaccounted %t: logged %d times", unaccounted, got)
		}
		if got := s.status().Warnings; slices.ContainsFunc(got, func(w string) bool { return strings.Contains(w, "swapaccount=1") }) != unaccounted {
			t.Errorf("unaccounted %t: warnings %q", unaccounted, got)
		}
	}
}
