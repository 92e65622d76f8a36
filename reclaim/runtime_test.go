package reclaim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
)

// eachDialect runs a test over a socket against every dialect of the runtimes.
func eachDialect(t *testing.T, test func(t *testing.T, s *critest.Server, c *cri.Client)) {
	t.Parallel()
	for _, d := range critest.Dialects() {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			s := critest.New(t, d)
			c, err := cri.Dial(s.Endpoint(), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			test(t, s, c)
		})
	}
}

// aged returns a collector that has known everything for two days.
func aged(t *testing.T, c *cri.Client, o Options) (*Collector, *fakeClock) {
	t.Helper()
	clock := &fakeClock{boot: time.Hour, wall: time.Now()}
	o.Clock = clock.now
	col := NewCollector(c, o)
	if err := noticeAll(t.Context(), col); err != nil {
		t.Fatal(err)
	}
	clock.add(48 * time.Hour)
	return col, clock
}

var everything = Plan{
	Steps:      Steps(),
	Containers: ContainerPolicy{MinAge: time.Minute, MaxPerContainer: 1, Max: -1, Finished: true},
	Images:     ImagePolicy{Prune: PruneAuto, MinAge: 2 * time.Minute, UnusedGrace: 24 * time.Hour, Hold: 5 * time.Minute},
}

func TestCollectOverTheSocket(t *testing.T) {
	eachDialect(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
		live := s.AddPod(critest.PodSpec{Name: "live", Containers: []critest.ContainerSpec{
			{Name: "app", Attempt: 2, Image: "registry.local/live:1"},
			{Name: "app", Attempt: 1, State: cri.Exited, Image: "registry.local/live:0"},
			{Name: "app", Attempt: 0, State: cri.Exited, Image: "registry.local/live:0"},
		}})
		ended := s.AddPod(critest.PodSpec{Name: "ended", NotReady: true, Containers: []critest.ContainerSpec{{Name: "job", Image: "registry.local/job:1"}}})
		free := s.AddImage(critest.ImageSpec{Tags: []string{"registry.local/free:1"}})
		imported := s.AddImage(critest.ImageSpec{Tags: []string{"registry.local/imported:1"}, Imported: true})
		named := s.AddImage(critest.ImageSpec{Tags: []string{"registry.local/named:1"}, Imported: true})
		pinned := s.AddImage(critest.ImageSpec{Tags: []string{"registry.local/pinned:1"}, Pinned: true})
		col, _ := aged(t, c, Options{})
		v, err := c.Version(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		plan := everything
		plan.Images.Keep = []string{"registry.local/named:*"}
		for _, r := range col.Collect(t.Context(), plan) {
			if err := r.Err(); err != nil {
				t.Errorf("%s: %v", r.Step, err)
			}
		}
		for what, id := range map[string]string{
			"live sandbox": live.ID, "running container": live.Containers[0].ID, "newest dead container": live.Containers[1].ID,
			"image of a running container": live.Containers[0].ImageID, "image of a dead container": live.Containers[1].ImageID,
			"imported image that is to be kept": named, "pinned image": pinned,
		} {
			if !s.Has(id) {
				t.Errorf("%s was removed", what)
			}
		}
		for what, id := range map[string]string{
			"older dead container": live.Containers[2].ID, "finished pod's container": ended.Containers[0].ID, "finished pod's sandbox": ended.ID,
			"finished pod's image": ended.Containers[0].ImageID, "free image": free,
		} {
			if s.Has(id) {
				t.Errorf("%s is left", what)
			}
		}
		// CRI-O gives it a digest, like the images that it pulled.
		if s.Has(imported) != v.IsContainerd() {
			t.Errorf("imported image is there: %v", s.Has(imported))
		}
		images, err := c.Images(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(images, func(i cri.Image) bool { return slices.Contains(i.Tags, "registry.local/pause:1") }) {
			t.Error("the sandbox image was removed")
		}
		for _, call := range s.Calls("RemoveImage") {
			if call.Left < time.Minute {
				t.Errorf("an image's removal had %v", call.Left)
			}
		}
	})
}

func TestCollectImagesOverTheSocket(t *testing.T) {
	for name, fault := range map[string]struct {
		fault   critest.Fault
		removed bool
		err     error
	}{
		"refused":          {critest.Fault{Err: errors.New("image is in use by a container")}, false, cri.ErrRefused},
		"silently nothing": {critest.Fault{DoNothing: true}, false, errNothing},
		"not found":        {critest.Fault{Vanish: true}, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			eachDialect(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
				first := s.AddImage(critest.ImageSpec{Tags: []string{"registry.local/a:1"}})
				second := s.AddImage(critest.ImageSpec{Tags: []string{"registry.local/b:1"}})
				col, _ := aged(t, c, Options{})
				f := fault.fault
				f.Method, f.ID = "RemoveImage", first
				defer s.Inject(f)()
				p := everything
				p.Steps = []Step{StepImages}
				r := col.Collect(t.Context(), p)[0]
				if s.Has(second) || s.Has(first) == fault.removed {
					t.Errorf("first is there: %v, second: %v", s.Has(first), s.Has(second))
				}
				if !errors.Is(r.Err(), fault.err) || (fault.err == nil) != (r.Err() == nil) {
					t.Errorf("errors: %v", r.Err())
				}
				if n := len(s.Calls("RemoveImage")); n != 2 {
					t.Errorf("asked %d times", n)
				}
			})
		})
	}
	t.Run("the runtime ends meanwhile", func(t *testing.T) {
		eachDialect(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
			first := s.AddImage(critest.ImageSpec{Tags: []string{"registry.local/a:1"}})
			s.AddImage(critest.ImageSpec{Tags: []string{"registry.local/b:1"}})
			col, clock := aged(t, c, Options{})
			release := s.Inject(critest.Fault{Method: "RemoveImage", Hang: true})
			done := make(chan []Report)
			p := everything
			p.Steps = []Step{StepImages}
			go func() { done <- col.Collect(t.Context(), p) }()
			s.WaitCalls(t, "RemoveImage", 1)
			s.Stop()
			r := (<-done)[0]
			if !errors.Is(r.Err(), cri.ErrUnavailable) || len(r.Removed) != 0 {
				t.Errorf("report: %+v", r)
			}
			release()
			s.Start()
			started := clock.now().Boot
			p.RuntimeSince = func() time.Duration { return started }
			for _, err := c.Version(t.Context()); err != nil; _, err = c.Version(t.Context()) {
				time.Sleep(10 * time.Millisecond) // the client reconnects to the runtime within a second
			}
			if r = col.Collect(t.Context(), p)[0]; len(r.Removed) != 0 || r.Err() != nil || !s.Has(first) {
				t.Errorf("right after the restart: %+v", r)
			}
			clock.add(5 * time.Minute)
			if r = col.Collect(t.Context(), p)[0]; len(r.Removed) != 2 || r.Err() != nil {
				t.Errorf("after a while: %+v", r)
			}
		})
	})
	t.Run("given up on by the caller", func(t *testing.T) {
		eachDialect(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
			s.AddImage(critest.ImageSpec{Tags: []string{"registry.local/a:1"}})
			col, _ := aged(t, c, Options{})
			defer s.Inject(critest.Fault{Method: "RemoveImage", Hang: true})()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan []Report)
			p := everything
			p.Steps = []Step{StepImages}
			go func() { done <- col.Collect(ctx, p) }()
			s.WaitCalls(t, "RemoveImage", 1)
			cancel()
			if r := (<-done)[0]; !errors.Is(r.Err(), context.Canceled) || len(r.Removed) != 0 {
				t.Errorf("report: %+v", r)
			}
		})
	})
}

// CRI-O lists a container that its storage no longer has, and refuses its verbose status. The container
// is removed like any other, and holds back no image.
func TestCollectWithoutVerboseStatus(t *testing.T) {
	eachDialect(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
		logs := t.TempDir()
		log := logs + "/default_live_u/app/0.log"
		write(t, log, 1, epoch)
		pod := s.AddPod(critest.PodSpec{Name: "live", Containers: []critest.ContainerSpec{
			{Name: "app", Attempt: 1},
			{Name: "app", State: cri.Exited, LogPath: log},
		}})
		volume := s.AddImage(critest.ImageSpec{Tags: []string{"registry.local/volume:1"}})
		s.AddContainer(pod.ID, critest.ContainerSpec{Name: "mounts", Mounts: []cri.Mount{{ContainerPath: "/v", Image: "registry.local/volume:1"}}})
		free := s.AddImage(critest.ImageSpec{Tags: []string{"registry.local/free:1"}})
		defer s.Inject(critest.Fault{Method: "ContainerStatus", Verbose: true, Err: errors.New("error getting container metadata: container not known")})()
		col, _ := aged(t, c, Options{Logs: logsIn(logs)})
		p := everything
		p.Steps = []Step{StepContainers, StepImages}
		p.Containers.MaxPerContainer = 0
		for _, r := range col.Collect(t.Context(), p) {
			if err := r.Err(); err != nil {
				t.Errorf("%s: %v", r.Step, err)
			}
		}
		if s.Has(pod.Containers[1].ID) || s.Has(free) || exists(log) {
			t.Error("the dead container, its log or the unused image is left")
		}
		if !s.Has(volume) {
			t.Error("an image volume in use was removed")
		}
	})
}

// Artifacts that CRI-O lists among its images are removed, too.
func TestCollectArtifacts(t *testing.T) {
	t.Parallel()
	s := critest.New(t, critest.CRIO)
	c, err := cri.Dial(s.Endpoint(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	digest := "registry.local/nameless@sha256:" + strings.Repeat("5", 64)
	free := []string{
		s.AddImage(critest.ImageSpec{Tags: []string{"registry.local/model:1"}, Artifact: true}),
		s.AddImage(critest.ImageSpec{Digests: []string{digest}, Artifact: true}),
		s.AddImage(critest.ImageSpec{Tags: []string{"registry.local/image:1", "registry.local/image:2"}}),
	}
	col, _ := aged(t, c, Options{})
	p := everything
	p.Steps = []Step{StepImages}
	r := col.Collect(t.Context(), p)[0]
	slices.Sort(free)
	equal(t, "removed", sortedIDs(r.Removed), free)
	if err := r.Err(); err != nil {
		t.Error(err)
	}
}

// An image that was built on this node and lost its tag has no name. Docker may list placeholders in place of its names, which
// are no digest to pull it by.
func TestCollectImagesWithoutANameInDocker(t *testing.T) {
	eachDialect(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
		built := s.AddImage(critest.ImageSpec{Tags: []string{"<none>:<none>"}, Digests: []string{"<none>@<none>"}})
		col, _ := aged(t, c, Options{})
		p := everything
		p.Steps = []Step{StepImages}
		r := col.Collect(t.Context(), p)[0]
		if got := why(r.Kept, built); !s.Has(built) || got != "cannot be pulled again: "+noDigest {
			t.Errorf("%s: removed %+v", got, r.Removed)
		}
	})
}

// request returns the request to stop a pod of the test server.
func request(p critest.Pod) StopRequest {
	req := StopRequest{Victim: Victim{SandboxID: p.ID, Pod: p.Namespace + "/" + p.Name, Cgroup: p.CgroupParent}, Fallback: true, StopTimeout: time.Minute}
	for _, c := range p.Containers {
		req.Containers = append(req.Containers, VictimContainer{ID: c.ID, Name: c.Name, Cgroup: c.Cgroup})
	}
	return req
}

func twoStubborn() critest.PodSpec {
	return critest.PodSpec{Containers: []critest.ContainerSpec{{IgnoreTERM: true, Processes: 3}, {IgnoreTERM: true}}}
}

func TestStopOverTheSocket(t *testing.T) {
	ready := func(t *testing.T, c *cri.Client, id string) bool {
		b, err := c.Sandbox(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return b.Ready
	}
	t.Run("hard", func(t *testing.T) {
		eachDialect(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
			p, other := s.AddPod(twoStubborn()), s.AddPod(twoStubborn())
			stop := NewStops(c, s.Cgroups()).Stop(t.Context(), request(p))
			r := settled(t, stop)
			if !r.Emptied || r.Method != ByRuntime || r.Killed != 0 || r.Nothing {
				t.Errorf("report: %+v", r)
			}
			<-stop.Finished()
			if r := stop.Report(); !r.Confirmed || len(r.Errors) != 0 || ready(t, c, p.ID) {
				t.Errorf("report: %+v", r)
			}
			if !s.Alive(other.Containers[0].ID) || !ready(t, c, other.ID) {
				t.Error("another pod was hit")
			}
		})
	})
	t.Run("direct: dead when it returns, and the runtime follows", func(t *testing.T) {
		eachDialect(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
			p := s.AddPod(twoStubborn())
			req := request(p)
			req.Direct = true
			stop := NewStops(c, s.Cgroups()).Stop(t.Context(), req)
			if s.Alive(p.Containers[0].ID) || s.Alive(p.Containers[1].ID) {
				t.Error("alive when Stop returned")
			}
			if r := settled(t, stop); !r.Emptied || r.Method != ByDirect || r.Killed != 4 {
				t.Errorf("report: %+v", r)
			}
			<-stop.Finished()
			if !stop.Report().Confirmed || ready(t, c, p.ID) {
				t.Errorf("report: %+v", stop.Report())
			}
		})
	})
	t.Run("a frozen shim: emptied, and confirmed once it thaws", func(t *testing.T) {
		eachDialect(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
			p := s.AddPod(twoStubborn())
			thaw := s.FreezeShim(p.ID)
			defer thaw()
			req := request(p)
			req.StopTimeout = 100 * time.Millisecond
			stop := NewStops(c, s.Cgroups()).Stop(t.Context(), req)
			// CRI-O kills without its frozen conmon, containerd needs the shim to kill.
			if r := settled(t, stop); !r.Emptied || r.Confirmed || r.Method != ByFallback && !strings.HasSuffix(t.Name(), "cri-o") {
				t.Errorf("report: %+v", r)
			}
			thaw()
			<-stop.Finished()
			if r := stop.Report(); !r.Confirmed || ready(t, c, p.ID) {
				t.Errorf("report: %+v", r)
			}
		})
	})
	t.Run("the network plugin fails: emptied, and confirmed once it is mended", func(t *testing.T) {
		eachDialect(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
			p := s.AddPod(twoStubborn())
			repair := s.BreakNetwork()
			stop := NewStops(c, s.Cgroups()).Stop(t.Context(), request(p))
			if r := settled(t, stop); !r.Emptied || r.Method != ByRuntime {
				t.Errorf("report: %+v", r)
			}
			s.WaitCalls(t, "StopPodSandbox", 1)
			repair()
			<-stop.Finished()
			if !stop.Report().Confirmed {
				t.Errorf("report: %+v", stop.Report())
			}
		})
	})
	t.Run("the runtime is down: the kernel kills, the runtime hears of it later", func(t *testing.T) {
		eachDialect(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
			p := s.AddPod(twoStubborn())
			s.Stop()
			req := request(p)
			req.StopTimeout = 100 * time.Millisecond
			stop := NewStops(c, s.Cgroups()).Stop(t.Context(), req)
			if r := settled(t, stop); !r.Emptied || r.Method != ByFallback || r.Confirmed || !errors.Is(errors.Join(r.Errors...), cri.ErrUnavailable) {
				t.Errorf("report: %+v", r)
			}
			s.Start()
			<-stop.Finished()
			if !stop.Report().Confirmed || ready(t, c, p.ID) {
				t.Errorf("report: %+v", stop.Report())
			}
		})
	})
	t.Run("escalated", func(t *testing.T) {
		eachDialect(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
			p := s.AddPod(twoStubborn())
			req := request(p)
			req.Grace = time.Hour
			stop := NewStops(c, s.Cgroups()).Stop(t.Context(), req)
			s.WaitCalls(t, "StopContainer", 2)
			stop.Escalate(false, nil)
			r := settled(t, stop)
			if !r.Emptied || r.Method != ByRuntime {
				t.Errorf("report: %+v", r)
			}
			<-stop.Finished()
			for _, call := range s.Calls("StopContainer") {
				if call.Grace > 0 && call.Left < call.Grace {
					t.Errorf("a grace period of %v in a call of %v", call.Grace, call.Left)
				}
			}
		})
	})
	t.Run("gone already", func(t *testing.T) {
		eachDialect(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
			p := s.AddPod(twoStubborn())
			s.Forget(p.ID)
			stop := NewStops(c, s.Cgroups()).Stop(t.Context(), request(p))
			if r := settled(t, stop); !r.Emptied || !r.Nothing {
				t.Errorf("report: %+v", r)
			}
			<-stop.Finished()
			if r := stop.Report(); !r.Confirmed || len(r.Errors) != 0 {
				t.Errorf("report: %+v", r)
			}
		})
	})
}
