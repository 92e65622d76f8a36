package guard

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cri/critest"
)

// newOperated is a service on a node whose runtime answers, and a way to start it
// anew in the same directory.
func newOperated(t *testing.T, more string) (s *Service, again func() *Service) {
	t.Helper()
	srv := critest.New(t, critest.Containerd2)
	srv.AddPod(critest.PodSpec{Namespace: "d", Name: "a", Containers: []critest.ContainerSpec{{Name: "main"}}})
	srv.AddPod(critest.PodSpec{Namespace: "kube-system", Name: "k", Containers: []critest.ContainerSpec{{Name: "main"}}})
	text := more + effectNode(t, "runtime.endpoint = '"+srv.Endpoint()+"'", "history.dir = '"+t.TempDir()+"'")
	cfg, err := ParseConfig("test", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	s = effectService(t, cfg)
	s.node.lister.List(t.Context())
	return s, func() *Service {
		next := effectService(t, cfg)
		next.opt.RunDir = s.opt.RunDir
		next.resumeOrders()
		return next
	}
}

func TestPauseOutlivesTheService(t *testing.T) {
	s, again := newOperated(t, "")
	a, err := s.carryOut(Command{Command: CommandPause, For: TraceDuration(time.Hour), Reason: "new disk"}, Peer{UID: 7, PID: 8})
	if err != nil || !strings.Contains(a.Message, "paused for 1h") || time.Until(a.Until) > time.Hour {
		t.Fatalf("%+v, %v", a, err)
	}
	if p := s.history.Last(1)[0]; p.Command == nil || p.Command.By.UID != 7 || p.Command.For != time.Hour || p.ID == 0 {
		t.Errorf("recorded as %+v", p)
	}
	if _, _, ok := s.keeper.acting(t.Context()); ok {
		t.Error("the housekeeper is not paused")
	}
	next := again()
	if p := next.guard.orders.Pause; p == nil || p.Reason != "new disk" || p.By != (Peer{UID: 7, PID: 8}) {
		t.Fatalf("after a restart: %+v", p)
	}
	if _, _, ok := next.keeper.acting(t.Context()); ok {
		t.Error("the housekeeper is not paused after a restart")
	}
	if line := next.statusLine(); !strings.HasPrefix(line, "PAUSED until ") || !strings.Contains(line, "(new disk)") {
		t.Errorf("status line %q", line)
	}
	if _, err := next.carryOut(Command{Command: CommandResume}, Peer{}); err != nil || next.guard.orders.Pause != nil {
		t.Errorf("resume: %v", err)
	}
	if _, end, ok := next.keeper.acting(t.Context()); !ok {
		t.Error("the housekeeper is still paused")
	} else {
		end()
	}
	if a, err := next.carryOut(Command{Command: CommandResume}, Peer{}); err != nil || a.Message != "not paused" {
		t.Errorf("resume again: %+v, %v", a, err)
	}
	if again().guard.orders != (Orders{}) {
		t.Error("the pause is back after a restart")
	}
	// Not after a reboot.
	if _, err := s.carryOut(Command{Command: CommandDrain, Grace: 1}, Peer{}); !errors.Is(err, ErrRefused) {
		t.Errorf("drain while paused: %v", err)
	}
	b, err := json.Marshal(savedOrders{"another boot", s.guard.orders})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.opt.RunDir.path(ordersFile), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if again().guard.orders != (Orders{}) {
		t.Error("paused after a reboot")
	}
}

// A removal that is under way ends with the beginning of a pause.
func TestPauseEndsReclaiming(t *testing.T) {
	s, _ := newOperated(t, "")
	ctx, end, ok := s.keeper.acting(t.Context())
	defer end()
	if !ok || ctx.Err() != nil {
		t.Fatal("paused from the start")
	}
	if _, err := s.carryOut(Command{Command: CommandPause, For: TraceDuration(time.Minute)}, Peer{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Error("it goes on")
	}
}

func TestDrainIsOrdered(t *testing.T) {
	s, again := newOperated(t, "")
	dry, err := s.carryOut(Command{Command: CommandDrain, Grace: TraceDuration(time.Second), DryRun: true}, Peer{})
	if err != nil || dry.Plan.Left != 1 || dry.Plan.Pods[0].Pod != "d/a" || dry.Plan.Pods[1].Stays != "namespace kube-system" || s.guard.orders.Drain != nil {
		t.Fatalf("dry run: %+v, %v", dry.Plan, err)
	}
	if _, err := s.carryOut(Command{Command: CommandDrain, Grace: TraceDuration(time.Second), Reason: "kernel"}, Peer{UID: 7}); err != nil {
		t.Fatal(err)
	}
	if d := again().guard.orders.Drain; d == nil || d.Grace != time.Second || d.By.UID != 7 || d.Reason != "kernel" {
		t.Errorf("after a restart: %+v", d)
	}
	if line := s.statusLine(); !strings.HasPrefix(line, "DRAINED (kernel)") {
		t.Errorf("status line %q", line)
	}
	if _, err := s.carryOut(Command{Command: CommandUndrain}, Peer{}); err != nil || again().guard.orders.Drain != nil {
		t.Errorf("undrain: %v", err)
	}
}

func TestDrainIsRefused(t *testing.T) {
	s, _ := newOperated(t, "mode = 'observe'\n")
	c := Command{Command: CommandDrain, Grace: TraceDuration(time.Second)}
	if _, err := s.carryOut(c, Peer{}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "observe") {
		t.Errorf("in observe mode: %v", err)
	}
	c.DryRun = true
	if a, err := s.carryOut(c, Peer{}); err != nil || a.Plan.Left != 1 {
		t.Errorf("a dry run in observe mode: %+v, %v", a, err)
	}
	c.DryRun = false
	blind := effectService(t, s.opt.Config)
	if _, err := blind.carryOut(c, Peer{}); !errors.Is(err, ErrRefused) {
		t.Errorf("before the first listing: %v", err)
	}
	c.DryRun = true
	if _, err := blind.carryOut(c, Peer{}); !errors.Is(err, ErrNoRuntime) {
		t.Errorf("a dry run before the first listing: %v", err)
	}
}
