package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/policy"
)

// newOperated returns a service on a node whose runtime answers, and a function that starts it again in the
// same directory.
func newOperated(t *testing.T, more string) (s *Service, again func() *Service) {
	t.Helper()
	return newOperatedOn(t, critest.New(t, critest.Containerd2), more)
}

// newOperatedOn is newOperated on a runtime that the test has.
func newOperatedOn(t *testing.T, srv *critest.Server, more string) (s *Service, again func() *Service) {
	t.Helper()
	srv.AddPod(critest.PodSpec{Namespace: "d", Name: "a", Containers: []critest.ContainerSpec{{Name: "main"}}})
	srv.AddPod(critest.PodSpec{Namespace: "kube-system", Name: "k", Containers: []critest.ContainerSpec{{Name: "main"}}})
	text := more + nodetest.Config(t, "runtime.endpoint = '"+srv.Endpoint()+"'", "history.dir = '"+t.TempDir()+"'")
	cfg := configtest.Parse(t, text)
	s = effectService(t, cfg)
	s.host.lister.List(t.Context())
	return s, func() *Service {
		next := effectService(t, cfg)
		next.opt.Dir, next.states.Dir = s.opt.Dir, s.opt.Dir
		next.resumeOrders()
		return next
	}
}

// reclaimPIDs makes a service reclaim for PIDs.
func reclaimPIDs(t *testing.T, s *Service) eviction.ReliefJob {
	return s.gc.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: policy.PIDAvailable}}, policy.SingleFS, nil)
}

// isPaused reports whether a service reclaims nothing.
func isPaused(t *testing.T, s *Service) bool {
	j := reclaimPIDs(t, s)
	<-j.Done()
	return j.Relief().Inconclusive
}

// A drain and a stop know the pods that have started since the last listing.
func TestCommandsListThePods(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	s, _ := newOperatedOn(t, srv, "")
	go func() {
		for {
			select {
			case call := <-s.calls:
				call()
			case <-t.Context().Done():
				return
			}
		}
	}()
	knows := func(pod string, c api.Command) {
		t.Helper()
		srv.AddPod(critest.PodSpec{Namespace: "d", Name: pod, Containers: []critest.ContainerSpec{{Name: "main"}}})
		var a api.CommandAnswer
		for range 20 { // a slow machine may not list them in time
			a, _ = s.Command(t.Context(), c, api.Peer{})
			if a.Plan != nil && slices.ContainsFunc(a.Plan.Pods, func(p api.DrainPod) bool { return p.Pod == "d/"+pod }) || strings.HasPrefix(a.Message, "protected d/"+pod) {
				return
			}
		}
		t.Errorf("%s does not know d/%s: %+v", c.Command, pod, a)
	}
	knows("drained", api.Command{Command: api.CommandDrain, DryRun: true})
	knows("stopped", api.Command{Command: api.CommandStop, Pod: "d/stopped", DryRun: true})
	knows("protected", api.Command{Command: api.CommandProtect, Pod: "d/protected", For: api.Duration(time.Hour)})
}

func TestPauseOutlivesTheService(t *testing.T) {
	s, again := newOperated(t, "")
	a, err := s.execute(t.Context(), api.Command{Command: api.CommandPause, For: api.Duration(time.Hour), Reason: "new disk"}, api.Peer{UID: 7, PID: 8})
	if err != nil || !strings.Contains(a.Message, "paused for 1h") || time.Until(a.Until) > time.Hour {
		t.Fatalf("%+v, %v", a, err)
	}
	if all := passesOf(t, s); len(all) == 0 {
		t.Error("not recorded")
	} else if p := all[len(all)-1]; p.Command == nil || p.Command.By.UID != 7 || time.Duration(p.Command.For) != time.Hour || p.ID == 0 {
		t.Errorf("recorded as %+v", p)
	}
	if !isPaused(t, s) {
		t.Error("garbage collection is not paused")
	}
	paused := s.guard.Orders.Pause
	s.held, s.guard.Orders.Pause = api.Hold{Threshold: "memory.available:soft", Reason: api.HeldPaused}, nil
	if s.after(&api.Pass{Held: api.HeldGrace, HeldBy: "memory.available:soft"}); s.held.Reason == api.HeldPaused {
		t.Error("after the pause, it still holds a stop back")
	}
	s.guard.Orders.Pause = paused
	next := again()
	if p := next.guard.Orders.Pause; p == nil || p.Reason != "new disk" || p.By != (api.Peer{UID: 7, PID: 8}) {
		t.Fatalf("after a restart: %+v", p)
	}
	if !isPaused(t, next) {
		t.Error("garbage collection is not paused after a restart")
	}
	if line := next.statusLine(); !strings.HasPrefix(line, "PAUSED until ") || !strings.Contains(line, "(new disk)") {
		t.Errorf("status line %q", line)
	}
	if a, err := next.execute(t.Context(), api.Command{Command: api.CommandPause, For: api.Duration(time.Minute)}, api.Peer{}); err != nil || !strings.Contains(a.Message, "replaces the pause by uid 7, which would have lasted for 59m") {
		t.Errorf("another pause: %+v, %v", a, err)
	}
	if _, err := next.execute(t.Context(), api.Command{Command: api.CommandResume}, api.Peer{}); err != nil || next.guard.Orders.Pause != nil {
		t.Errorf("resume: %v", err)
	}
	if isPaused(t, next) {
		t.Error("garbage collection is still paused")
	}
	if a, err := next.execute(t.Context(), api.Command{Command: api.CommandResume}, api.Peer{}); err != nil || a.Message != "not paused" {
		t.Errorf("resume again: %+v, %v", a, err)
	}
	if again().guard.Orders.String() != "none" {
		t.Error("the pause is back after a restart")
	}
	// A drain is refused during a pause, and orders of another boot are dropped.
	if _, err := s.execute(t.Context(), api.Command{Command: api.CommandDrain, Grace: 1}, api.Peer{}); !errors.Is(err, api.ErrRefused) {
		t.Errorf("drain while paused: %v", err)
	}
	b, err := json.Marshal(api.SavedOrders{BootID: "another boot", Orders: s.guard.Orders})
	if err != nil {
		t.Fatal(err)
	}
	nodetest.Write(t, string(s.opt.Dir), map[string]string{ordersFile: string(b)})
	if again().guard.Orders.String() != "none" {
		t.Error("paused after a reboot")
	}
}

// A resume says what follows from it: it holds nothing back.
func TestResumeSaysWhatFollows(t *testing.T) {
	for name, c := range map[string]struct {
		config, want string
		drain        bool
		met          int
	}{
		"nothing":      {"eviction.hard.'memory.available' = '1Mi'\n", "resumed", false, 0},
		"hard":         {"eviction.hard.'memory.available' = '2Mi'\n", "resumed; hard memory.available is met NOW, 1.5Mi < 2Mi: criguard would act at once, but stop no pod (outside pods)", false, 1},
		"soft":         {"eviction.hard.'memory.available' = '1Mi'\neviction.soft.'memory.available' = '2Gi'\neviction.soft_grace_period.'memory.available' = '0s'\n", "resumed; memory.available:soft is met: see `criguard status`", false, 0},
		"a drain":      {"eviction.hard.'memory.available' = '1Mi'\n", "resumed; the drain continues", true, 0},
		"observe mode": {"mode = 'observe'\neviction.hard.'memory.available' = '2Mi'\n", "resumed", true, 0},
	} {
		s, _ := newOperated(t, c.config+nodetest.AnyDisk)
		if c.drain {
			s.guard.Orders.Drain = &api.Drain{}
		}
		s.guard.Orders.Pause = &api.Pause{}
		s.guard.Observe()
		a, err := s.execute(t.Context(), api.Command{Command: api.CommandResume}, api.Peer{})
		if err != nil || a.Message != c.want || len(a.MetNow) != c.met {
			t.Errorf("%s: %q, %+v, %v; want %q", name, a.Message, a.MetNow, err, c.want)
		}
	}
}

// A pause cancels a removal in progress.
func TestPauseEndsReclaiming(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	srv.AddPod(critest.PodSpec{Name: "p", UID: "u", NotReady: true, CreatedAt: time.Now().Add(-time.Hour)})
	srv.AddPod(critest.PodSpec{Name: "p", UID: "u", Attempt: 1})
	srv.Inject(critest.Fault{Method: "RemovePodSandbox", Hang: true})
	s := effectService(t, configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '"+srv.Endpoint()+"'")))
	s.host.lister.List(t.Context())
	j := reclaimPIDs(t, s)
	srv.WaitCalls(t, "RemovePodSandbox", 1)
	if _, err := s.execute(t.Context(), api.Command{Command: api.CommandPause, For: api.Duration(time.Minute)}, api.Peer{}); err != nil {
		t.Fatal(err)
	}
	<-j.Done()
	if !j.Relief().Inconclusive {
		t.Error("it ended by itself")
	}
}

func TestDrainIsOrdered(t *testing.T) {
	s, again := newOperated(t, "")
	dry, err := s.execute(t.Context(), api.Command{Command: api.CommandDrain, Grace: api.Duration(time.Second), DryRun: true}, api.Peer{})
	if err != nil || dry.Plan.Left != 1 || dry.Message != "would stop 1 pod" || dry.Refused != "" || dry.Plan.Pods[0].Pod != "d/a" || dry.Plan.Pods[1].Stays != "namespace kube-system" || s.guard.Orders.Drain != nil {
		t.Fatalf("dry run: %+v, %v", dry.Plan, err)
	}
	if _, err := s.execute(t.Context(), api.Command{Command: api.CommandDrain, Grace: api.Duration(time.Second), Reason: "kernel"}, api.Peer{UID: 7}); err != nil {
		t.Fatal(err)
	}
	if d := again().guard.Orders.Drain; d == nil || time.Duration(d.Grace) != time.Second || d.By.UID != 7 || d.Reason != "kernel" {
		t.Errorf("after a restart: %+v", d)
	}
	if line := s.statusLine(); !strings.HasPrefix(line, "DRAINED (kernel)") {
		t.Errorf("status line %q", line)
	}
	if _, err := s.execute(t.Context(), api.Command{Command: api.CommandUndrain}, api.Peer{}); err != nil || again().guard.Orders.Drain != nil {
		t.Errorf("undrain: %v", err)
	}
}

func TestDrainIsRefused(t *testing.T) {
	s, _ := newOperated(t, "mode = 'observe'\n")
	c := api.Command{Command: api.CommandDrain, Grace: api.Duration(time.Second)}
	if _, err := s.execute(t.Context(), c, api.Peer{}); !errors.Is(err, api.ErrRefused) || !strings.Contains(err.Error(), "observe") {
		t.Errorf("in observe mode: %v", err)
	}
	c.DryRun = true
	if a, err := s.execute(t.Context(), c, api.Peer{}); err != nil || a.Plan.Left != 1 || !strings.Contains(a.Refused, "observe") {
		t.Errorf("a dry run in observe mode: %+v, %v", a, err)
	}
	stop := api.Command{Command: api.CommandStop, Pod: "d/a", DryRun: true}
	if a, err := s.execute(t.Context(), stop, api.Peer{}); err != nil || a.Plan.Left != 1 || !strings.Contains(a.Refused, "what a stop would do") {
		t.Errorf("a dry stop in observe mode: %+v, %v", a, err)
	}
	c.DryRun = false
	blind := effectService(t, s.opt.Config)
	cfg := blind.opt.Config
	cfg.Mode = config.ModeEnforce
	blind.guard.SetConfig(cfg)
	if _, err := blind.execute(t.Context(), c, api.Peer{}); !errors.Is(err, cri.ErrNoRuntime) {
		t.Errorf("before the first listing: %v", err)
	}
	c.DryRun = true
	if _, err := blind.execute(t.Context(), c, api.Peer{}); !errors.Is(err, cri.ErrNoRuntime) {
		t.Errorf("a dry run before the first listing: %v", err)
	}
}

// A protected pod is no candidate and is not stopped, whatever the service does, until the protection ends.
// Once the runtime is away, a ranking says that its pods are those of an earlier listing, and a dry run fails as
// the stop would.
func TestStalePods(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	srv.AddPod(critest.PodSpec{Namespace: "d", Name: "a", Containers: []critest.ContainerSpec{{Name: "main"}}})
	s := effectService(t, configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '"+srv.Endpoint()+"'", "history.dir = '"+t.TempDir()+"'")))
	s.host.lister.List(t.Context())
	r := rank(t.Context(), s.guard, s.host, policy.MemoryAvailable)
	if len(r.Pods) != 1 || r.Stale != "" || r.ListedAt == nil {
		t.Errorf("%+v", r)
	}
	srv.Stop()
	s.host.lister.List(t.Context())
	r = rank(t.Context(), s.guard, s.host, policy.MemoryAvailable)
	if len(r.Pods) != 1 || r.Stale == "" || r.ListedAt == nil {
		t.Errorf("without the runtime: %+v", r)
	}
	for _, c := range []api.Command{{Command: api.CommandDrain, DryRun: true}, {Command: api.CommandStop, Pod: "d/a", DryRun: true}} {
		if _, err := s.execute(t.Context(), c, api.Peer{}); !errors.Is(err, cri.ErrNoRuntime) {
			t.Errorf("dry %s: %v", c.Command, err)
		}
	}
}

func TestProtectOutlivesTheService(t *testing.T) {
	s, again := newOperated(t, "")
	protect := api.Command{Command: api.CommandProtect, Pod: "d/a", For: api.Duration(time.Hour), Reason: "batch job"}
	a, err := s.execute(t.Context(), protect, api.Peer{})
	if err != nil || !strings.Contains(a.Message, "protected d/a for 1h") || time.Until(a.Until) > time.Hour {
		t.Fatalf("%+v, %v", a, err)
	}
	all := passesOf(t, s)
	if c := all[len(all)-1].Command; c == nil || c.Pod != "d/a" || c.Reason != "batch job" || c.For != api.Duration(time.Hour) {
		t.Errorf("recorded as %+v", c)
	}
	for name, service := range map[string]func() *Service{
		"before a restart": func() *Service { return s },
		"after a reload": func() *Service {
			_, _ = s.reload(*s.guard.Config(), nil, nil, false)
			return s
		},
		"after a restart": func() *Service {
			next := again()
			next.host.lister.List(t.Context())
			return next
		},
	} {
		s := service()
		if why := excluded(t, s); !strings.HasPrefix(why, "protected by root until ") {
			t.Errorf("%s: excluded for %q", name, why)
		}
		if st := s.status(); len(st.Orders.Protected) != 1 || st.Orders.Protected[0].Left <= 0 || st.Protected != 2 {
			t.Errorf("%s: status %+v, %d protected", name, st.Orders, st.Protected)
		}
		stop := api.Command{Command: api.CommandStop, Pod: "d/a"}
		if _, err := s.execute(t.Context(), stop, api.Peer{}); !errors.Is(err, api.ErrRefused) || !strings.Contains(err.Error(), "protected by root") {
			t.Errorf("%s: stop: %v", name, err)
		}
	}
	protect.For = api.Duration(2 * time.Hour)
	if _, err := s.execute(t.Context(), protect, api.Peer{}); err != nil || len(s.guard.Orders.Protected) != 1 {
		t.Errorf("protect again: %+v, %v", s.guard.Orders, err)
	}
	unprotect := api.Command{Command: api.CommandUnprotect, Pod: "d/a"}
	if a, err := s.execute(t.Context(), unprotect, api.Peer{}); err != nil || a.Message != "unprotected d/a" {
		t.Errorf("unprotect: %+v, %v", a, err)
	}
	if a, err := s.execute(t.Context(), unprotect, api.Peer{}); err != nil || !strings.HasPrefix(a.Message, "no operator protects") {
		t.Errorf("unprotect again: %+v, %v", a, err)
	}
	if why := excluded(t, s); strings.HasPrefix(why, "protected") {
		t.Errorf("still excluded: %s", why)
	}
}

// A protection ends under every name that protects a pod, and under its own when the pod has gone. A name that means
// no pod is refused, not taken for a pod without a protection.
func TestUnprotectNames(t *testing.T) {
	s, _ := newOperated(t, "")
	pods, err := s.findPods("d/a", (*inventory.Pod).FullName)
	if err != nil {
		t.Fatal(err)
	}
	pod := pods[0]
	protect := func(name string) {
		s.guard.Orders.Protect(api.Protection{Pod: name, Until: api.Duration(s.host.kernel.Now() + time.Hour)})
	}
	unprotect := func(name string) (string, error) {
		a, err := s.execute(t.Context(), api.Command{Command: api.CommandUnprotect, Pod: name}, api.Peer{})
		return a.Message, err
	}
	for _, name := range []string{"d/a", pod.UID, pod.ID, pod.ID[:minSandboxID]} {
		protect("d/a")
		if a, err := unprotect(name); err != nil || a != "unprotected d/a" || len(s.guard.Orders.Protected) != 0 {
			t.Errorf("%s: %q, %v", name, a, err)
		}
	}
	protect("d/a")
	protect("d/gone")
	if a, err := unprotect("d/gone"); err != nil || a != "unprotected d/gone" {
		t.Errorf("a pod that has gone: %q, %v", a, err)
	}
	for _, name := range []string{"a", "d/gone"} {
		if a, err := unprotect(name); !errors.Is(err, api.ErrNoPod) || len(s.guard.Orders.Protected) != 1 {
			t.Errorf("%s: %q, %v", name, a, err)
		}
	}
}

// A command for one of several sandboxes names all of them.
func TestSandboxesOfOneName(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	var ids []string
	for range 3 {
		ids = append(ids, srv.AddPod(critest.PodSpec{Namespace: "d", Name: "a", Containers: []critest.ContainerSpec{{Name: "main"}}}).ID)
	}
	s := effectService(t, configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '"+srv.Endpoint()+"'", "history.dir = '"+t.TempDir()+"'")))
	s.host.lister.List(t.Context())
	_, err := s.execute(t.Context(), api.Command{Command: api.CommandStop, Pod: "d/a"}, api.Peer{})
	for _, id := range ids {
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%.13s", id)) {
			t.Errorf("%s is not named: %v", id, err)
		}
	}
}

// While a pod is being replaced, its name has two sandboxes. A protection covers both; a stop has to name one.
func TestProtectWhileReplaced(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	old := srv.AddPod(critest.PodSpec{Namespace: "d", Name: "a", Containers: []critest.ContainerSpec{{Name: "main"}}})
	srv.AddPod(critest.PodSpec{Namespace: "d", Name: "a", Containers: []critest.ContainerSpec{{Name: "main"}}})
	s := effectService(t, configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '"+srv.Endpoint()+"'", "history.dir = '"+t.TempDir()+"'")))
	s.host.lister.List(t.Context())
	if _, err := s.execute(t.Context(), api.Command{Command: api.CommandStop, Pod: "d/a"}, api.Peer{}); !errors.Is(err, api.ErrBadCommand) {
		t.Errorf("stop of two sandboxes: %v", err)
	}
	protect := api.Command{Command: api.CommandProtect, Pod: "d/a", For: api.Duration(time.Hour)}
	const continues = "; the stop in flight continues"
	if a, err := s.execute(t.Context(), protect, api.Peer{}); err != nil || strings.Contains(a.Message, continues) {
		t.Errorf("protect: %+v, %v", a, err)
	}
	if _, err := s.execute(t.Context(), api.Command{Command: api.CommandUnprotect, Pod: old.UID}, api.Peer{}); err != nil || len(s.guard.Orders.Protected) != 0 {
		t.Errorf("unprotect: %+v, %v", s.guard.Orders, err)
	}
	if _, err := s.execute(t.Context(), api.Command{Command: api.CommandStop, Pod: old.ID}, api.Peer{}); err != nil {
		t.Fatal(err)
	}
	if a, err := s.execute(t.Context(), protect, api.Peer{}); err != nil || !strings.HasSuffix(a.Message, continues) {
		t.Errorf("protect while it is stopped: %+v, %v", a, err)
	}
	s.guard.AwaitJobs()
}

// excluded returns why d/a is no candidate.
func excluded(t *testing.T, s *Service) string {
	t.Helper()
	for _, p := range s.guard.RankNow(t.Context(), policy.MemoryAvailable).Pods {
		if p.Pod == "d/a" {
			return p.Excluded
		}
	}
	t.Fatal("d/a is not ranked")
	return ""
}

// A protection ends by itself, and that is recorded.
func TestProtectionEnds(t *testing.T) {
	s, again := newOperated(t, "")
	if _, err := s.execute(t.Context(), api.Command{Command: api.CommandProtect, Pod: "d/a", For: 1}, api.Peer{}); err != nil {
		t.Fatal(err)
	}
	p := s.guard.Pass(t.Context(), "timer")
	s.after(&p)
	if p.Command == nil || p.Command.Command != api.CommandUnprotect || p.Command.Pod != "d/a" || p.Command.By != nil {
		t.Errorf("recorded as %+v", p.Command)
	}
	if why := excluded(t, s); strings.HasPrefix(why, "protected") || again().guard.Orders.String() != "none" {
		t.Errorf("still protected: %q", why)
	}
}

// A stop by an operator follows the service's rules, and the record names the operator.
func TestStopIsOrdered(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	s, _ := newOperatedOn(t, srv, "")
	// A new listing does not come in the middle of the test: the stopped pod remains listed.
	srv.Inject(critest.Fault{Method: "ListPodSandbox", Err: critest.Code(codes.Unavailable, "busy")})
	stop := func(pod string) (api.CommandAnswer, error) {
		return s.execute(t.Context(), api.Command{Command: api.CommandStop, Pod: pod, Grace: api.Duration(time.Second), Reason: "runs amok"}, api.Peer{UID: 7})
	}
	for pod, want := range map[string]error{"kube-system/k": api.ErrRefused, "d/b": api.ErrNoPod, "": api.ErrNoPod} {
		if _, err := stop(pod); !errors.Is(err, want) || errors.Is(err, api.ErrBadCommand) {
			t.Errorf("stop %q: %v", pod, err)
		}
	}
	pods, err := s.findPods("d/a", (*inventory.Pod).FullName)
	if err != nil {
		t.Fatal(err)
	}
	pod := pods[0]
	dry, err := s.execute(t.Context(), api.Command{Command: api.CommandStop, Pod: pod.ID[:minSandboxID], DryRun: true}, api.Peer{})
	if err != nil || dry.Plan.Left != 1 || dry.Plan.Pods[0].Pod != "d/a" || s.guard.Snapshot().InFlight != 0 {
		t.Fatalf("dry run: %+v, %v", dry, err)
	}
	a, err := stop("d/a")
	if err != nil || a.Pass == 0 || s.guard.Snapshot().InFlight != 1 {
		t.Fatalf("%+v, %v", a, err)
	}
	if _, err := os.Stat(s.opt.Dir.Path(ordersFile)); err == nil {
		t.Error("a stop changes no order, but the orders were saved")
	}
	all := passesOf(t, s)
	if p := all[len(all)-1]; p.ID != a.Pass || p.Command.Pod != "d/a" || p.Stop.Kind != api.KindCommand || p.Stop.Reason != "stopped by uid 7: runs amok" {
		t.Errorf("recorded as %+v, %+v", p.Command, p.Stop)
	}
	if b := s.guard.Enforced().Status(s.host.kernel.Now()); b.Soft.LastHour+b.Hard.LastHour != 0 {
		t.Errorf("it took budget: %+v", b)
	}
	if b, err := os.ReadFile(s.opt.Dir.Path(budgetFile)); err != nil || !strings.Contains(string(b), pod.ID) {
		t.Errorf("a restart would not know of the stop: %s, %v", b, err)
	}
	if _, err := stop("d/a"); !errors.Is(err, api.ErrRefused) || !strings.Contains(err.Error(), "already") {
		t.Errorf("again: %v", err)
	}
	s.guard.AwaitJobs()
	if p := s.guard.Pass(t.Context(), "timer"); len(p.Settled) != 1 || !p.Settled[0].Result.Emptied {
		t.Fatalf("settled %+v", p.Settled)
	}
	if _, err := stop("d/a"); !errors.Is(err, api.ErrRefused) || !strings.Contains(err.Error(), "has already been stopped") {
		t.Errorf("while it is still listed: %v", err)
	}
}

// A service that has just started does not know which pods run: a drain of the last run is not complete.
func TestPlanAwaitsTheFirstListing(t *testing.T) {
	s, again := newOperated(t, "")
	if _, err := s.execute(t.Context(), api.Command{Command: api.CommandDrain}, api.Peer{}); err != nil {
		t.Fatal(err)
	}
	next := again()
	go func() {
		for {
			select {
			case call := <-next.calls:
				call()
			case <-t.Context().Done():
				return
			}
		}
	}()
	if p, err := next.Plan(t.Context()); !errors.Is(err, cri.ErrNoRuntime) {
		t.Errorf("before the first listing: %+v, %v", p, err)
	}
	next.host.lister.List(t.Context())
	if p, err := next.Plan(t.Context()); err != nil || !p.Draining || p.Left != 1 {
		t.Errorf("after the first listing: %+v, %v", p, err)
	}
}
