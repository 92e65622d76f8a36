package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/policy"
)

// newTestLister returns a Lister for a test server, with the default configuration.
func newTestLister(t *testing.T, s *critest.Server, layout cgroup.Layout) *Lister {
	t.Helper()
	client, err := cri.Dial(s.Endpoint(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	l := New(Options{
		Config: config.Default(), Source: func(context.Context) (Source, error) { return client, nil }, Layout: layout,
		Capacity: func() int64 { return 16 << 30 }, Now: func() time.Duration { return time.Hour }, Clock: time.Now,
	})
	l.facts.memoryMin, l.facts.memoryLimit = noAmount, noAmount
	return l
}

// Every dialect yields the same pods. Details that do not change are requested once. If the runtime stops
// answering, the last pods stay and the inventory carries the error.
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
			if !errors.Is(inv.Err, cri.ErrUnavailable) || !errors.Is(inv.Err, cri.ErrNoRuntime) || len(inv.Pods) != 1 {
				t.Errorf("without a runtime: %d pods, %v", len(inv.Pods), inv.Err)
			}
		})
	}
}

// A pod's age is taken from the wall clock once: setting the clock later does not change it.
func TestListerAgesInBootTime(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	boot := time.Hour
	l := New(Options{Now: func() time.Duration { return boot }, Clock: func() time.Time { return now }})
	l.last = map[string]listed{}
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

// A priority rule does not remove the protection of a critical pod.
func TestRulesLeaveCriticalPodsAlone(t *testing.T) {
	s := critest.New(t, critest.Containerd2)
	pod := s.AddPod(critest.PodSpec{Namespace: "monitoring"})
	s.AddContainer(pod.ID, critest.ContainerSpec{OOMScoreAdj: adjGuaranteed})
	l := newTestLister(t, s, cgroup.Layout{})
	l.cfg = configtest.Parse(t, "[[priority]]\nnamespace = 'monitoring'\nvalue = -10\n")
	pods := l.List(t.Context()).Pods
	if len(pods) != 1 || pods[0].Priority != -10 || pods[0].Protection != "critical priority" || !pods[0].Critical {
		t.Fatalf("%+v", pods)
	}
	if own := pods[0].OwnPriority; own == nil || *own != systemNodeCritical {
		t.Errorf("its own priority is %v", own)
	}
}

// hangingSource is a runtime that never answers; its calls time out after two seconds.
type hangingSource struct{ fixedSource }

func (hangingSource) Sandboxes(ctx context.Context) ([]cri.Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	<-ctx.Done()
	return nil, cri.ErrTimeout
}

// A hanging runtime counts as down after its own timeout, not after the shorter timeout of a stop that waits
// for a listing. The listing goes on when the stop does not wait any more.
func TestListerLeftByItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan error, 2)
		l := New(Options{
			Source: func(context.Context) (Source, error) { return hangingSource{}, nil },
			Now:    func() time.Duration { return time.Hour }, Clock: time.Now,
			Publish: func(inv Inventory) { told <- inv.Err },
		})
		l.current.Store(&Inventory{At: time.Minute, Pods: make([]Pod, 1)})
		if inv := l.Fresh(t.Context()); inv.Err != nil || len(inv.Pods) != 1 {
			t.Errorf("%d pods, %v", len(inv.Pods), inv.Err)
		}
		synctest.Wait()
		if len(told) != 0 {
			t.Errorf("after %s: told %v", FreshTimeout, <-told)
		}
		time.Sleep(2*time.Second - FreshTimeout)
		synctest.Wait()
		if len(told) != 1 {
			t.Fatalf("after the runtime's timeout: told %d times", len(told))
		}
		if err := <-told; !errors.Is(err, cri.ErrTimeout) {
			t.Errorf("after the runtime's timeout: told %v", err)
		}
		if inv := l.List(t.Context()); !errors.Is(inv.Err, cri.ErrTimeout) || len(inv.Pods) != 1 || len(told) != 1 {
			t.Errorf("the lister's own listing: %d pods, %v, told %d times", len(inv.Pods), inv.Err, len(told))
		}
		l.opt.Source = func(context.Context) (Source, error) { return nil, cri.ErrNoRuntime }
		if l.List(lateContext{}); len(told) != 1 {
			t.Errorf("when the time is over: told %d times", len(told))
		}
	})
}

// A pod that others see can be measured, with all of its containers: otherwise it would seem to use nothing.
func TestPodsAreTrackedBeforeTheyAreSeen(t *testing.T) {
	src := fixedSource{sandboxes: []cri.Sandbox{{ID: "s", Ready: true}}}
	var l *Lister
	var tracked, seen []int
	containers := func(pods []Pod) (n int) {
		for i := range pods {
			n += len(pods[i].Containers)
		}
		return n
	}
	l = New(Options{
		Source: func(context.Context) (Source, error) { return src, nil },
		Track: func(pods []Pod) {
			tracked, seen = append(tracked, containers(pods)), append(seen, containers(l.Current().Pods))
		},
		Now: func() time.Duration { return time.Hour }, Clock: time.Now,
	})
	for n := range 3 {
		if got := containers(l.List(t.Context()).Pods); got != n {
			t.Errorf("%d containers listed, want %d", got, n)
		}
		src.containers = append(src.containers, cri.Container{ID: fmt.Sprint(n), SandboxID: "s", State: cri.Running})
	}
	if !slices.Equal(tracked, []int{0, 1, 2}) || !slices.Equal(seen, []int{0, 0, 1}) {
		t.Errorf("tracked %d containers while %d were seen", tracked, seen)
	}
}

// lateContext is past its deadline, but not done yet.
type lateContext struct{}

func (lateContext) Deadline() (time.Time, bool) { return time.Now(), true }
func (lateContext) Done() <-chan struct{}       { return nil }
func (lateContext) Err() error                  { return nil }
func (lateContext) Value(any) any               { return nil }

// A pause that is shortened while it runs ends sooner. A signal that crosses back and forth near a threshold
// does not cause a listing each time.
func TestListerRepaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var listings atomic.Int32
		l := New(Options{
			Source:  func(context.Context) (Source, error) { return fixedSource{}, nil },
			Publish: func(Inventory) { listings.Add(1) },
			Now:     func() time.Duration { return time.Hour }, Clock: time.Now,
		})
		const nearPause = 2 * time.Second
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
		time.Sleep(30 * time.Second)
		l.List(t.Context())
		want(5, "by another caller")
		time.Sleep(time.Minute - time.Second)
		want(5, "within a minute after that")
		time.Sleep(time.Second)
		want(6, "when that minute is over")
	})
}

// A listing that hangs without a deadline blocks the loop only once, and for no longer than a stop may wait.
func TestInventoryThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := make(chan struct{})
		var asked atomic.Int32
		l := New(Options{
			Source: func(context.Context) (Source, error) {
				asked.Add(1)
				<-disk
				return fixedSource{sandboxes: []cri.Sandbox{{ID: "s", Ready: true}}}, nil
			},
			Now: func() time.Duration { return time.Hour }, Clock: time.Now,
		})
		l.current.Store(&Inventory{At: time.Minute})
		began := time.Now()
		for range 3 {
			if inv := l.Fresh(t.Context()); inv.At != time.Minute {
				t.Errorf("listed at %s", inv.At)
			}
		}
		if took := time.Since(began); took != FreshTimeout || asked.Load() != 1 {
			t.Errorf("waited for %s and asked %d times, want %s and once", took, asked.Load(), FreshTimeout)
		}
		close(disk)
		synctest.Wait()
		if inv := l.Fresh(t.Context()); inv.At != time.Hour || len(inv.Pods) != 1 || asked.Load() != 2 {
			t.Errorf("once it answers: %+v, asked %d times", inv, asked.Load())
		}
	})
}

// slowSource is a runtime that takes that long to list its sandboxes.
type slowSource struct {
	fixedSource
	takes time.Duration
}

func (s slowSource) Sandboxes(ctx context.Context) ([]cri.Sandbox, error) {
	select {
	case <-ctx.Done():
		return nil, cri.ErrTimeout
	case <-time.After(s.takes):
		return s.sandboxes, nil
	}
}

// Next takes the listing in progress, and Fresh another one. A listing goes on when its caller has stopped waiting.
func TestListerNext(t *testing.T) {
	const takes, later = 100 * time.Millisecond, 40 * time.Millisecond
	for name, c := range map[string]struct {
		get  func(context.Context, *Lister) Inventory
		took time.Duration
		at   time.Duration // when the listing began
	}{
		"next":                    {func(ctx context.Context, l *Lister) Inventory { return l.Next(ctx, FreshTimeout) }, takes - later, 0},
		"next, but not for long":  {func(ctx context.Context, l *Lister) Inventory { return l.Next(ctx, later) }, later, -1},
		"fresh":                   {func(ctx context.Context, l *Lister) Inventory { return l.Fresh(ctx) }, 2*takes - later, takes},
		"next, without another":   {func(ctx context.Context, l *Lister) Inventory { time.Sleep(takes); return l.Next(ctx, FreshTimeout) }, 2 * takes, takes + later},
		"none in that short time": {func(ctx context.Context, l *Lister) Inventory { time.Sleep(takes); return l.Next(ctx, later) }, takes + later, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			l := New(Options{
				Source: func(context.Context) (Source, error) { return slowSource{takes: takes}, nil },
				Now:    func() time.Duration { return time.Since(began) }, Clock: time.Now,
			})
			go l.List(t.Context())
			time.Sleep(later)
			asked := time.Now()
			inv := c.get(t.Context(), l)
			if took := time.Since(asked); took != c.took || inv.At != c.at {
				t.Errorf("%s: after %s one that began at %s, want %s and %s", name, took, inv.At, c.took, c.at)
			}
			time.Sleep(2 * takes)
			synctest.Wait()
			if last := l.Current().At; last < inv.At || last == c.at && name == "none in that short time" {
				t.Errorf("%s: the last listing began at %s", name, last)
			}
		})
	}
}

// The loop waits for a listing that a command has begun, and lists by itself if that command's client has gone.
func TestNextBesideFresh(t *testing.T) {
	const takes, later = 100 * time.Millisecond, 40 * time.Millisecond
	for goes, want := range map[bool][2]time.Duration{false: {takes - later, 0}, true: {takes, later}} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			l := New(Options{
				Source: func(context.Context) (Source, error) { return slowSource{takes: takes}, nil },
				Now:    func() time.Duration { return time.Since(began) }, Clock: time.Now,
			})
			client, leave := context.WithCancel(t.Context())
			defer leave()
			go l.Fresh(client)
			time.Sleep(later)
			if goes {
				leave()
			}
			asked := time.Now()
			if inv := l.Next(t.Context(), FreshTimeout); time.Since(asked) != want[0] || inv.At != want[1] || inv.Err != nil {
				t.Errorf("the client goes %t: after %s one that began at %s, want %s", goes, time.Since(asked), inv.At, want)
			}
		})
	}
}

// A stop's listing does not wait for what the runtime says of its disks, which may take long on a busy one.
func TestFreshWaitsForNoDisk(t *testing.T) {
	s := critest.New(t, critest.Containerd2)
	l := newTestLister(t, s, cgroup.Layout{})
	refreshed := 0
	l.opt.Refresh = func(context.Context) { refreshed++ }
	l.List(t.Context())
	if refreshed == 0 {
		t.Error("the first listing does not ask for the disks")
	}
	l.opt.Refresh = func(ctx context.Context) { <-ctx.Done() }
	s.AddPod(critest.PodSpec{})
	if pods := l.Fresh(t.Context()).Pods; len(pods) != 1 {
		t.Errorf("listed %+v, want the new pod", pods)
	}
}

// A pod's containers show whether it is critical. Until details of one are known, the pod is protected. A
// pod without running containers keeps its class.
func TestListerKnowsTheClass(t *testing.T) {
	for _, c := range []struct {
		name string
		adj  int64
		want string // protection once the class is known
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
			look("without a container", ProtectedUnclassified)
			release := s.Inject(critest.Fault{Method: "ContainerStatus", Err: errors.New("runtime is busy")})
			main := s.AddContainer(pod.ID, critest.ContainerSpec{OOMScoreAdj: c.adj})
			look("while its container tells nothing", ProtectedUnclassified)
			release()
			look("once it does", c.want)
			s.Exit(main.ID, 1)
			look("between two attempts", c.want)
			if got := l.Current().Pods[0]; got.QoS != policy.BestEffort || got.Cgroup != "" {
				t.Errorf("between two attempts: class %s, cgroup %q", got.QoS, got.Cgroup)
			}
			l = newTestLister(t, s, cgroup.Layout{})
			release = s.Inject(critest.Fault{Method: "ContainerStatus", Err: errors.New("runtime is busy")})
			look("between two attempts, at a start, while the last container tells nothing", ProtectedUnclassified)
			release()
			look("right after that", ProtectedUnclassified)
			now := l.opt.Now
			l.opt.Now = func() time.Duration { return now() + askSilentAgain }
			look("a minute later", c.want)
			look("once more", c.want)
			defer s.Inject(critest.Fault{Method: "ContainerStatus", Err: errors.New("runtime is busy")})()
			s.AddContainer(pod.ID, critest.ContainerSpec{OOMScoreAdj: c.adj, Attempt: 1})
			look("while its next container tells nothing", c.want)
		})
	}
}

// The cgroup of a pod stays known while none of its containers runs, unless two sandboxes share it.
func TestListerKnowsTheIdleCgroup(t *testing.T) {
	const uid = "11111111-2222-3333-4444-555555555555"
	const parent = "/kubepods/burstable/pod" + uid
	for _, sandboxes := range []int{1, 2} {
		s := critest.New(t, critest.Containerd2)
		var ids []string
		for range sandboxes {
			pod := s.AddPod(critest.PodSpec{UID: uid, CgroupParent: parent})
			ids = append(ids, s.AddContainer(pod.ID, critest.ContainerSpec{Name: "a"}).ID)
		}
		l := newTestLister(t, s, cgroup.Layout{})
		for _, runs := range []bool{true, false} {
			p := l.List(t.Context()).Pods[0]
			if own, idle := p.Cgroup == parent, p.IdleCgroup == parent; own != (runs && sandboxes == 1) || idle != (!runs && sandboxes == 1) {
				t.Errorf("%d sandboxes, containers run %t: cgroup %q, idle %q", sandboxes, runs, p.Cgroup, p.IdleCgroup)
			}
			for _, id := range ids {
				s.Exit(id, 1)
			}
			if !runs {
				l = newTestLister(t, s, cgroup.Layout{}) // of a service that starts now
				if p := l.List(t.Context()).Pods[0]; (p.IdleCgroup == parent) != (sandboxes == 1) {
					t.Errorf("%d sandboxes, at a start: idle %q", sandboxes, p.IdleCgroup)
				}
			}
		}
	}
}

// A restarted container whose details cannot be had does not change what the pod requests, and is found in the pod's cgroup.
func TestListerWithoutDetailsOfOneContainer(t *testing.T) {
	const uid = "11111111-2222-3333-4444-555555555555"
	const parent = "/kubepods/burstable/pod" + uid
	s := critest.New(t, critest.Containerd2)
	pod := s.AddPod(critest.PodSpec{UID: uid, CgroupParent: parent})
	s.AddContainer(pod.ID, critest.ContainerSpec{Name: "a", OOMScoreAdj: 999})
	b := s.AddContainer(pod.ID, critest.ContainerSpec{Name: "b", OOMScoreAdj: 500})
	l := newTestLister(t, s, cgroup.Layout{})
	before := l.List(t.Context()).Pods[0]
	s.Exit(b.ID, 1)
	defer s.Inject(critest.Fault{Method: "ContainerStatus", Err: errors.New("runtime is busy")})()
	again := s.AddContainer(pod.ID, critest.ContainerSpec{Name: "b", OOMScoreAdj: 500, Attempt: 1})
	l.facts.children = func(string) ([]string, error) { return []string{pod.ID, "cri-containerd-" + again.ID + ".scope"}, nil }
	after := l.List(t.Context()).Pods[0]
	if before.MemoryRequest < 8<<30-64<<20 || after.MemoryRequest != before.MemoryRequest {
		t.Errorf("request %d, and %d before", after.MemoryRequest, before.MemoryRequest)
	}
	if got := after.Containers[slices.IndexFunc(after.Containers, func(c Container) bool { return c.ID == again.ID })]; got.Cgroup != parent+"/cri-containerd-"+again.ID+".scope" {
		t.Errorf("the container's cgroup is %q", got.Cgroup)
	}
}

// fixedSource is a runtime that always returns the same lists. Each container is in a cgroup of its own.
type fixedSource struct {
	sandboxes  []cri.Sandbox
	containers []cri.Container
}

func (f fixedSource) Sandboxes(context.Context) ([]cri.Sandbox, error)    { return f.sandboxes, nil }
func (f fixedSource) Containers(context.Context) ([]cri.Container, error) { return f.containers, nil }
func (f fixedSource) ContainerDetail(_ context.Context, id string) (cri.ContainerDetail, error) {
	return cri.ContainerDetail{CgroupsPath: "/kubepods/pod" + id + "/" + id}, nil
}

// A container in the state Unknown may still run: containerd reports that state while a shim does not
// answer. Its pod is listed with it, even if the sandbox is not ready.
func TestListerKeepsLostContainers(t *testing.T) {
	src := fixedSource{
		sandboxes: []cri.Sandbox{{ID: "s1", UID: "c1"}, {ID: "s2", UID: "c2"}},
		containers: []cri.Container{
			{ID: "c1", SandboxID: "s1", State: cri.Unknown, Image: "lost"},
			{ID: "c0", SandboxID: "s1", State: cri.Exited, Image: "init", Name: "init", Attempt: 1},
			{ID: "c00", SandboxID: "s1", State: cri.Exited, Image: "init", Name: "init"}, // replaced
			{ID: "c2", SandboxID: "s2", State: cri.Exited},
		},
	}
	l := newTestLister(t, critest.New(t, critest.Containerd2), cgroup.Layout{})
	l.opt.Source = func(context.Context) (Source, error) { return src, nil }
	pods := l.List(t.Context()).Pods
	if len(pods) != 1 || len(pods[0].Containers) != 1 {
		t.Fatalf("listed %+v, want the pod of the lost container alone", pods)
	}
	if c := pods[0].Containers[0]; c.ID != "c1" || c.Cgroup != "/kubepods/podc1/c1" || pods[0].Cgroup != "/kubepods/podc1" || pods[0].Protection != "" {
		t.Errorf("listed %+v", pods[0])
	}
	if p := pods[0]; !slices.Equal(p.EndedImages, []string{"init"}) || !slices.Equal(p.Ended, []string{"c0"}) {
		t.Errorf("what has ended: %q, with the images %q", p.Ended, p.EndedImages)
	}
}

// A pod that no kubelet has made has no grace period of its own: the operator's counts, however long.
func TestDerivePodGrace(t *testing.T) {
	cfg, facts := config.Default(), &nodeFacts{resolve: cgroup.Layout{}.Resolve, memoryMin: noAmount, memoryLimit: noAmount, children: noChildren}
	for told, want := range map[string]time.Duration{"": 24 * time.Hour, "0": 0, "45": 45 * time.Second} {
		c := cri.ContainerDetail{Container: cri.Container{ID: "c1", State: cri.Running}}
		if told != "" {
			c.Annotations = map[string]string{cri.AnnotationGracePeriod: told}
		}
		ctrs := []cri.ContainerDetail{c}
		if p := derivePod(&cfg, listed{Sandbox: cri.Sandbox{ID: "s", UID: "uid", Ready: true}, containers: ctrs, classified: ctrs}, facts); p.Grace != want {
			t.Errorf("told %q: %s, want %s", told, p.Grace, want)
		}
	}
}

// If the runtime reports a cgroup that many containers share, the pod is not charged for all of them.
func TestDerivePodOfMany(t *testing.T) {
	cfg, facts := config.Default(), &nodeFacts{resolve: cgroup.Layout{}.Resolve, memoryMin: noAmount, memoryLimit: noAmount, children: noChildren}
	for at, want := range map[string]string{"/kubepods": "", "/user.slice/other": "", "/": "", "/k8s.io/c1": "/k8s.io/c1"} {
		ctrs := []cri.ContainerDetail{{CgroupsPath: at, Container: cri.Container{ID: "c1", State: cri.Running}}}
		p := derivePod(&cfg, listed{Sandbox: cri.Sandbox{ID: "s", UID: "uid", Ready: true}, containers: ctrs, classified: ctrs}, facts)
		if got := p.Containers[0].Cgroup; got != want {
			t.Errorf("told %s: taken for %q, want %q", at, got, want)
		}
	}
}

// If the runtime reports nothing to classify a pod by except a start time, the pod does not stay protected
// forever.
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

func noChildren(string) ([]string, error) { return nil, cgroup.ErrGone }

func noAmount(string) (int64, bool) { return 0, false }

func number(v int64) cri.Number { return cri.Number{Value: v, Known: true} }

// QoS class, request and priority come from the best available source, and the pod names that source.
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
		{"burstable by the kubelet's state", slice + ":crio:c1", burstable, nil, map[string]allocated{uid: {podMemory: 555}}, 777,
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
		{"without a kubelet, with a limit", "/k8s.io/c1", cri.Resources{MemoryLimit: number(4096)}, nil, nil, 0, policy.Burstable, 0, "unknown", "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := config.Default()
			facts := &nodeFacts{
				capacity: 16000, allocated: tc.allocated, resolve: cgroup.Layout{}.Resolve,
				memoryMin:   func(string) (int64, bool) { return tc.min, tc.min > 0 },
				memoryLimit: noAmount, children: noChildren,
			}
			ctr := cri.ContainerDetail{CgroupsPath: tc.path, Resources: tc.res, Container: cri.Container{ID: "c1", State: cri.Running}}
			s := cri.Sandbox{ID: "s", Namespace: "default", Name: "p", UID: uid, Ready: true, Annotations: tc.annotations}
			ctrs := []cri.ContainerDetail{ctr}
			p := derivePod(&cfg, listed{Sandbox: s, containers: ctrs, classified: ctrs}, facts)
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
