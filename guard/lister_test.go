package guard

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/policy"
)

// newTestLister lists a test server, with the pods judged by the defaults.
func newTestLister(t *testing.T, s *critest.Server, layout cgroup.Layout) *lister {
	t.Helper()
	client, err := cri.Dial(s.Endpoint(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	cfg := DefaultConfig()
	facts := &nodeFacts{capacity: 16 << 30, resolve: layout.Resolve, memoryMin: func(string) (int64, bool) { return 0, false }}
	return &lister{
		source:  func(context.Context) (podSource, error) { return client, nil },
		build:   func(s listed) Pod { return cfg.derivePod(s, facts) },
		refresh: func(context.Context) {}, publish: func(Inventory) {}, turn: make(chan struct{}, 1),
		now: func() time.Duration { return time.Hour }, clock: time.Now,
	}
}

// Every dialect gives the same pods; what does not change is asked for once; a
// runtime that goes away leaves the last pods, with the reason.
func TestListerKeepsTheInventoryWarm(t *testing.T) {
	for _, dialect := range []critest.Dialect{critest.Containerd16, critest.Containerd2, critest.CRIO} {
		t.Run(dialect.String(), func(t *testing.T) {
			s := critest.New(t, dialect)
			pod := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{}, {}}})
			l := newTestLister(t, s, cgroup.Layout{})
			inv := l.List(t.Context())
			if inv.Err != nil || len(inv.Pods) != 1 || inv.Pods[0].ID != pod.ID || len(inv.Pods[0].Containers) != 2 {
				t.Fatalf("listed %+v", inv)
			}
			for _, c := range inv.Pods[0].Containers {
				if c.Cgroup == "" || !c.Running {
					t.Errorf("container %+v: no cgroup, or not running", c)
				}
			}
			asked := len(s.Calls("ContainerStatus"))
			l.List(t.Context())
			if again := len(s.Calls("ContainerStatus")); asked != 2 || again != asked {
				t.Errorf("asked %d times for two containers, and %d more for the second listing", asked, again-asked)
			}
			s.Stop()
			inv = l.List(t.Context())
			if !errors.Is(inv.Err, cri.ErrUnavailable) || !errors.Is(inv.Err, ErrNoRuntime) || len(inv.Pods) != 1 {
				t.Errorf("without a runtime: %d pods, %v", len(inv.Pods), inv.Err)
			}
		})
	}
}

// A pod's age is taken from the wall clock once: a clock that is set later makes
// no pod older or younger.
func TestListerAgesInBootTime(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	boot := time.Hour
	l := &lister{now: func() time.Duration { return boot }, clock: func() time.Time { return now }, last: map[string]listed{}}
	sandbox := &cri.Sandbox{ID: "a", CreatedAt: now.Add(-10 * time.Minute)}
	at := l.age(sandbox)
	if at != 50*time.Minute {
		t.Fatalf("created at %s since boot, want 50m", at)
	}
	l.last["a"] = listed{created: at}
	now, boot = now.AddDate(-10, 0, 0), 2*time.Hour
	if got := l.age(sandbox); got != at {
		t.Errorf("after the clock was set back: %s, want %s", got, at)
	}
	for _, unknown := range []time.Time{now.AddDate(5, 0, 0), now.Add(time.Nanosecond), {}} {
		if got := l.age(&cri.Sandbox{ID: "b", CreatedAt: unknown}); got != 0 {
			t.Errorf("created at %s: %s since boot, want 0, which is not young", unknown, got)
		}
	}
}

// What a rule says of a pod's priority does not take its protection from a critical one.
func TestRulesLeaveCriticalPodsAlone(t *testing.T) {
	s := critest.New(t, critest.Containerd2)
	pod := s.AddPod(critest.PodSpec{Namespace: "monitoring"})
	s.AddContainer(pod.ID, critest.ContainerSpec{OOMScoreAdj: adjGuaranteed})
	l := newTestLister(t, s, cgroup.Layout{})
	cfg := goodConfig(t, "[[priority]]\nnamespace = 'monitoring'\nvalue = -10\n")
	l.build = func(pod listed) Pod { return cfg.derivePod(pod, &nodeFacts{resolve: cgroup.Layout{}.Resolve}) }
	pods := l.List(t.Context()).Pods
	if len(pods) != 1 || pods[0].Priority != -10 || pods[0].Protection != "critical priority" || !pods[0].Critical {
		t.Fatalf("%+v", pods)
	}
	if line := tracePod(&pods[0], &pods[0].Candidate, 0); line.Priority == nil || *line.Priority != systemNodeCritical {
		t.Errorf("a trace of it: %+v", line)
	}
}

// hangingSource is a runtime that answers nothing; whoever asks gives up after two seconds.
type hangingSource struct{ fixedSource }

func (hangingSource) Sandboxes(ctx context.Context) ([]cri.Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	<-ctx.Done()
	return nil, cri.ErrTimeout
}

// A runtime that hangs is one that does not answer when its own time is over, not when the time
// of a stop that waits for a listing is.
func TestListerLeftByItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []error
		l := &lister{
			source: func(context.Context) (podSource, error) { return hangingSource{}, nil },
			now:    func() time.Duration { return time.Hour }, clock: time.Now, turn: make(chan struct{}, 1),
			publish: func(inv Inventory) { told = append(told, inv.Err) },
		}
		l.current.Store(&Inventory{At: time.Minute, Pods: make([]Pod, 1)})
		n := &node{lister: l}
		if inv := n.Inventory(t.Context(), true); inv.Err != nil || len(inv.Pods) != 1 {
			t.Errorf("%d pods, %v", len(inv.Pods), inv.Err)
		}
		synctest.Wait()
		if len(told) != 0 {
			t.Errorf("after %s: told %v", freshWait, told)
		}
		if inv := l.List(t.Context()); !errors.Is(inv.Err, cri.ErrTimeout) || len(inv.Pods) != 1 || len(told) != 1 {
			t.Errorf("the lister's own listing: %d pods, %v, told %v", len(inv.Pods), inv.Err, told)
		}
		l.source = func(context.Context) (podSource, error) { return nil, ErrNoRuntime }
		if l.List(lateContext{}); len(told) != 1 {
			t.Errorf("when the time is over: told %v", told)
		}
	})
}

// A pause that has become shorter while it lasts is over sooner, and a signal that comes near a
// threshold and goes, over and over, is no listing each time.
func TestListerRepaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var listings atomic.Int32
		l := &lister{
			source:  func(context.Context) (podSource, error) { return fixedSource{}, nil },
			refresh: func(context.Context) {}, publish: func(Inventory) { listings.Add(1) },
			now: func() time.Duration { return time.Hour }, clock: time.Now, turn: make(chan struct{}, 1),
		}
		var pause atomic.Int64
		repace := make(chan struct{})
		setPause := func(d time.Duration) {
			pause.Store(int64(d))
			repace <- struct{}{}
			synctest.Wait()
		}
		want := func(n int32, when string) {
			t.Helper()
			synctest.Wait()
			if got := listings.Load(); got != n {
				t.Fatalf("%d listings %s, want %d", got, when, n)
			}
		}
		pause.Store(int64(time.Minute))
		go l.Run(t.Context(), func() time.Duration { return time.Duration(pause.Load()) }, nil, repace)
		time.Sleep(30 * time.Second)
		want(1, "in half a minute")
		setPause(nearPause)
		want(2, "near a threshold")
		time.Sleep(time.Second)
		for range 10 {
			setPause(time.Minute)
			setPause(nearPause)
		}
		want(2, "before the pause there is over")
		time.Sleep(time.Second)
		want(3, "when it is over")
		setPause(time.Minute)
		time.Sleep(time.Minute - time.Second)
		want(3, "within a minute, far from any threshold")
		time.Sleep(time.Second)
		want(4, "after it")
	})
}

// Whether a pod is critical is known by its containers: until one is known it is left alone,
// and it stays what it was while none runs.
func TestListerKnowsTheClass(t *testing.T) {
	for _, c := range []struct {
		name string
		adj  int64
		want string // protection, once the class is known
	}{{"critical", adjGuaranteed, "critical priority"}, {"ordinary", adjBestEffort, ""}} {
		t.Run(c.name, func(t *testing.T) {
			s := critest.New(t, critest.Containerd2)
			pod := s.AddPod(critest.PodSpec{})
			l := newTestLister(t, s, cgroup.Layout{})
			look := func(when, want string) {
				t.Helper()
				pods := l.List(t.Context()).Pods
				if len(pods) != 1 || pods[0].Protection != want || pods[0].Critical != (want == "critical priority") {
					t.Fatalf("%s: %+v, want protection %q", when, pods, want)
				}
			}
			look("without a container", protectedUnclassified)
			release := s.Inject(critest.Fault{Method: "ContainerStatus", Err: errors.New("runtime is busy")})
			main := s.AddContainer(pod.ID, critest.ContainerSpec{OOMScoreAdj: c.adj})
			look("while its container tells nothing", protectedUnclassified)
			release()
			look("once it does", c.want)
			s.Exit(main.ID, 1)
			look("between two attempts", c.want)
			if got := l.Current().Pods[0]; got.QoS != policy.BestEffort || got.Cgroup != "" {
				t.Errorf("between two attempts: class %s, cgroup %q", got.QoS, got.Cgroup)
			}
			defer s.Inject(critest.Fault{Method: "ContainerStatus", Err: errors.New("runtime is busy")})()
			s.AddContainer(pod.ID, critest.ContainerSpec{OOMScoreAdj: c.adj, Attempt: 1})
			look("while its next container tells nothing", c.want)
		})
	}
}

// fixedSource is a runtime that always tells the same. Each container is in a cgroup of its own.
type fixedSource struct {
	sandboxes  []cri.Sandbox
	containers []cri.Container
}

func (f fixedSource) Sandboxes(context.Context) ([]cri.Sandbox, error)    { return f.sandboxes, nil }
func (f fixedSource) Containers(context.Context) ([]cri.Container, error) { return f.containers, nil }
func (f fixedSource) ContainerDetail(_ context.Context, id string) (cri.ContainerDetail, error) {
	return cri.ContainerDetail{CgroupsPath: "/kubepods/pod" + id + "/" + id}, nil
}

// A container whose state the runtime has lost, as containerd has while a shim does not answer,
// may well run: its pod is listed with it, whatever is said of the sandbox.
func TestListerKeepsLostContainers(t *testing.T) {
	src := fixedSource{
		sandboxes: []cri.Sandbox{{ID: "s1", UID: "c1"}, {ID: "s2", UID: "c2"}},
		containers: []cri.Container{
			{ID: "c1", SandboxID: "s1", State: cri.Unknown, Image: "lost"},
			{ID: "c0", SandboxID: "s1", State: cri.Exited, Image: "init"},
			{ID: "c2", SandboxID: "s2", State: cri.Exited},
		},
	}
	l := newTestLister(t, critest.New(t, critest.Containerd2), cgroup.Layout{})
	l.source = func(context.Context) (podSource, error) { return src, nil }
	pods := l.List(t.Context()).Pods
	if len(pods) != 1 || len(pods[0].Containers) != 1 {
		t.Fatalf("listed %+v, want the pod of the lost container alone", pods)
	}
	if c := pods[0].Containers[0]; c.ID != "c1" || c.Cgroup != "/kubepods/podc1/c1" || pods[0].Cgroup != "/kubepods/podc1" || pods[0].Protection != "" {
		t.Errorf("listed %+v", pods[0])
	}
	if ended := l.last["s1"].ended; !slices.Equal(ended, []string{"init"}) {
		t.Errorf("images of what has ended: %q", ended)
	}
}

// A runtime that says that a container is in a cgroup of many does not make its pod one that
// uses what all of them use.
func TestDerivePodOfMany(t *testing.T) {
	cfg, facts := DefaultConfig(), &nodeFacts{resolve: cgroup.Layout{}.Resolve, memoryMin: func(string) (int64, bool) { return 0, false }}
	for at, want := range map[string]string{"/kubepods": "", "/user.slice/other": "", "/": "", "/k8s.io/c1": "/k8s.io/c1"} {
		ctrs := []cri.ContainerDetail{{CgroupsPath: at, Container: cri.Container{ID: "c1", State: cri.Running}}}
		p := cfg.derivePod(listed{Sandbox: cri.Sandbox{ID: "s", UID: "uid", Ready: true}, containers: ctrs, classified: ctrs}, facts)
		if got := p.Containers[0].Cgroup; got != want {
			t.Errorf("told %s: taken for %q, want %q", at, got, want)
		}
	}
}

// A pod is not protected for ever where a runtime tells nothing that it could be classed by.
func TestClassifies(t *testing.T) {
	for name, tt := range map[string]struct {
		detail cri.ContainerDetail
		want   bool
	}{
		"details that could not be had": {cri.ContainerDetail{Container: cri.Container{ID: "c", State: cri.Running}}, false},
		"a start":                       {cri.ContainerDetail{StartedAt: time.Unix(1, 0)}, true},
		"a cgroup":                      {cri.ContainerDetail{CgroupsPath: "/kubepods/podx/c"}, true},
		"an oom_score_adj":              {cri.ContainerDetail{Resources: cri.Resources{OOMScoreAdj: number(1000)}}, true},
	} {
		if got := classifies(tt.detail); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func number(v int64) cri.Number { return cri.Number{Value: v, Known: true} }

// Class, request and priority come from the best source there is, which is named.
func TestDerivePod(t *testing.T) {
	const uid = "11111111-2222-3333-4444-555555555555"
	const slice = "kubepods-burstable-pod11111111_2222_3333_4444_555555555555.slice"
	burstable := cri.Resources{OOMScoreAdj: number(900), CPUShares: number(102)}
	for _, tc := range []struct {
		name        string
		path        string
		res         cri.Resources
		annotations map[string]string
		allocated   map[string]allocated
		min         int64
		qos         policy.QoS
		request     int64
		source      string
		protection  string
		own         bool
	}{
		{"cgroupfs, best effort", "/kubepods/besteffort/pod" + uid + "/c1", cri.Resources{OOMScoreAdj: number(1000)}, nil, nil, 0,
			policy.BestEffort, 0, "BestEffort", "", true},
		{"systemd, burstable by oom_score_adj", slice + ":cri-containerd:c1", burstable, nil, nil, 0,
			policy.Burstable, 1600, "oom_score_adj", "", true},
		{"a sidecar, which bears what the smallest container has", slice + ":cri-containerd:c1",
			cri.Resources{OOMScoreAdj: number(900), CPUShares: number(102), MemoryLimit: number(128)}, nil, nil, 0,
			policy.Burstable, 128, "oom_score_adj", "", true},
		{"burstable by memory.min", slice + ":crio:c1", burstable, nil, nil, 777, policy.Burstable, 777, "memory.min", "", true},
		{"burstable by the kubelet's state", slice + ":crio:c1", burstable, nil, map[string]allocated{uid: {Memory: 555}}, 777,
			policy.Burstable, 555, "kubelet state", "", true},
		{"burstable by its own resources, which the kubelet's state leaves out", slice + ":crio:c1", burstable, nil,
			map[string]allocated{uid: {}}, 0, policy.Burstable, 1600, "oom_score_adj", "", true},
		{"burstable without a request", slice + ":crio:c1", cri.Resources{OOMScoreAdj: number(999), CPUShares: number(102)}, nil,
			map[string]allocated{uid: {}}, 0, policy.Burstable, 0, "oom_score_adj", "", true},
		{"burstable without a request, and nothing else tells", slice + ":crio:c1", cri.Resources{CPUShares: number(102)}, nil,
			map[string]allocated{uid: {}}, 0, policy.Burstable, 0, "kubelet state", "", true},
		{"guaranteed by its limit", "/kubepods/pod" + uid + "/c1", cri.Resources{OOMScoreAdj: number(-997), MemoryLimit: number(4096)}, nil, nil, 0,
			policy.Guaranteed, 4096, "memory limit", "", true},
		{"node critical", "/kubepods/burstable/pod" + uid + "/c1", cri.Resources{OOMScoreAdj: number(-997), CPUShares: number(102)}, nil, nil, 0,
			policy.Burstable, 0, "", "critical priority", true},
		{"static", "/kubepods/burstable/pod" + uid + "/c1", burstable, map[string]string{annotationConfigSource: "file"}, nil, 0,
			policy.Burstable, 1600, "oom_score_adj", "static pod", true},
		{"without a kubelet", "/k8s.io/c1", cri.Resources{}, nil, nil, 0, policy.BestEffort, 0, "BestEffort", "", false},
		{"without a kubelet, with a limit", "/k8s.io/c1", cri.Resources{MemoryLimit: number(4096)}, nil, nil, 0, policy.Burstable, 0, "", "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := DefaultConfig()
			facts := &nodeFacts{
				capacity: 16000, allocated: tc.allocated, resolve: cgroup.Layout{}.Resolve,
				memoryMin: func(string) (int64, bool) { return tc.min, tc.min > 0 },
			}
			ctr := cri.ContainerDetail{CgroupsPath: tc.path, Resources: tc.res, Container: cri.Container{ID: "c1", State: cri.Running}}
			s := cri.Sandbox{ID: "s", Namespace: "default", Name: "p", UID: uid, Ready: true, Annotations: tc.annotations}
			ctrs := []cri.ContainerDetail{ctr}
			p := cfg.derivePod(listed{Sandbox: s, containers: ctrs, classified: ctrs}, facts)
			if p.QoS != tc.qos || p.Protection != tc.protection || (p.Cgroup != "") != tc.own {
				t.Errorf("class %s, protection %q, cgroup %q", p.QoS, p.Protection, p.Cgroup)
			}
			if p.Containers[0].Cgroup == "" {
				t.Error("its container's cgroup is not known")
			}
			if tc.protection != "critical priority" && (p.MemoryRequest != tc.request || p.RequestSource != tc.source) {
				t.Errorf("request %d from %q, want %d from %q", p.MemoryRequest, p.RequestSource, tc.request, tc.source)
			}
		})
	}
}
