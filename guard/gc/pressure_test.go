package gc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"google.golang.org/grpc/codes"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/disk"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// deadSandboxes is a runtime with sandboxes of one pod, of which only the newest is ready. A removal takes a
// while.
type deadSandboxes struct {
	reclaim.Runtime
	removal time.Duration

	mu        sync.Mutex
	sandboxes []cri.Sandbox
	asked     int
}

func newDeadSandboxes(n int, removal time.Duration) *deadSandboxes {
	d := &deadSandboxes{removal: removal}
	for i := range n {
		d.sandboxes = append(d.sandboxes, cri.Sandbox{
			ID: fmt.Sprintf("s%d", i), UID: "p", Attempt: uint32(i), Ready: i == n-1, CreatedAt: time.Now().Add(-time.Hour),
		})
	}
	return d
}

func (d *deadSandboxes) left() []cri.Sandbox {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.sandboxes)
}

func (d *deadSandboxes) Containers(context.Context) ([]cri.Container, error) { return nil, nil }
func (d *deadSandboxes) Sandboxes(context.Context) ([]cri.Sandbox, error)    { return d.left(), nil }
func (d *deadSandboxes) StopSandbox(context.Context, string) error           { return nil }
func (d *deadSandboxes) StopDeadSandbox(context.Context, string) error       { return nil }

func (d *deadSandboxes) Sandbox(_ context.Context, id string) (cri.Sandbox, error) {
	sandboxes := d.left()
	i := slices.IndexFunc(sandboxes, func(b cri.Sandbox) bool { return b.ID == id })
	if i < 0 {
		return cri.Sandbox{}, cri.ErrGone
	}
	return sandboxes[i], nil
}

func (d *deadSandboxes) RemoveSandbox(ctx context.Context, id string) error {
	d.mu.Lock()
	d.asked++
	d.mu.Unlock()
	select {
	case <-time.After(d.removal):
	case <-ctx.Done():
		return fmt.Errorf("remove sandbox: %w", cri.ErrTimeout)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sandboxes = slices.DeleteFunc(d.sandboxes, func(b cri.Sandbox) bool { return b.ID == id })
	return nil
}

// A reclaim for PIDs has its place before all that ask for their turn after it was requested, such as a disk's reclaim of the
// same pass.
func TestReclaimForPIDsKeepsItsPlace(t *testing.T) {
	cfg := configtest.Parse(t, nodetest.Config(t, fmt.Sprintf("history.dir = %q", t.TempDir())))
	m := New(optionsOf(t, cfg, nil))
	synctest.Test(t, func(t *testing.T) {
		rt := newDeadSandboxes(4, time.Second/4)
		m.collector = reclaim.NewCollector(rt, reclaim.Options{Clock: m.moment})
		before := m.collector.Ask()
		j := m.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: policy.PIDAvailable}}, policy.SingleFS, nil)
		after := m.collector.Ask()
		before.Leave()
		m.collector.Collect(t.Context(), reclaim.Plan{Turn: after, Steps: []reclaim.Step{reclaim.StepImages}, Target: func(context.Context) (reclaim.Room, error) {
			if len(rt.left()) != 1 {
				t.Errorf("left when the next run begins: %+v", rt.left())
			}
			return reclaim.Room{}, nil
		}})
		<-j.Done()
	})
}

// A run that is paused before it begins keeps no other one waiting.
func TestPausedReclaimForPIDsLeaves(t *testing.T) {
	cfg := configtest.Parse(t, nodetest.Config(t, fmt.Sprintf("history.dir = %q", t.TempDir())))
	m := New(optionsOf(t, cfg, nil))
	synctest.Test(t, func(t *testing.T) {
		rt := newDeadSandboxes(4, 0)
		m.collector = reclaim.NewCollector(rt, reclaim.Options{Clock: m.moment})
		reclaimPIDs := func() {
			<-m.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: policy.PIDAvailable}}, policy.SingleFS, nil).Done()
		}
		m.SetPaused(true)
		reclaimPIDs()
		m.SetPaused(false)
		if reclaimPIDs(); len(rt.left()) != 1 {
			t.Errorf("left after the pause: %+v", rt.left())
		}
	})
}

// A reclaim for PIDs waits neither for a run that prunes images nor for the removal of all dead sandboxes.
// The next reclaim removes the rest.
func TestReclaimForPIDsIsBounded(t *testing.T) {
	cfg := configtest.Parse(t, nodetest.Config(t, fmt.Sprintf("history.dir = %q", t.TempDir())))
	m := New(optionsOf(t, cfg, nil))
	synctest.Test(t, func(t *testing.T) {
		rt := newDeadSandboxes(4, 1500*time.Millisecond)
		m.collector = reclaim.NewCollector(rt, reclaim.Options{Clock: m.moment})
		relieve := func() eviction.Relief {
			started := time.Now()
			j := m.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: policy.PIDAvailable}}, policy.SingleFS, nil)
			<-j.Done()
			if took := time.Since(started); took > reliefAtMost {
				t.Errorf("took %v", took)
			}
			return j.Relief()
		}

		prune, end := context.WithCancel(t.Context())
		pruned := make(chan []reclaim.Report)
		go func() {
			pruned <- m.collector.Collect(prune, reclaim.Plan{Steps: []reclaim.Step{reclaim.StepImages}, Target: func(ctx context.Context) (reclaim.Room, error) {
				<-ctx.Done()
				return reclaim.Room{}, ctx.Err()
			}})
		}()
		synctest.Wait()
		if got := relieve(); len(got.Reports) != 0 || rt.asked != 0 {
			t.Errorf("beside another run: %+v, %d removals", got, rt.asked)
		}
		end()
		<-pruned

		if got := relieve(); len(got.Reports) != 1 || len(got.Reports[0].Removed) != 1 || rt.asked != 2 {
			t.Errorf("in one reclaim: %+v, %d removals", got, rt.asked)
		}
		rt.removal = 0
		if relieve(); len(rt.left()) != 1 {
			t.Errorf("left after the next one: %+v", rt.left())
		}
	})
}

// A reclaim that gives up because the disk hangs reports that: everything eligible is still there.
func TestReclaimOfADiskThatHangs(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{"it hangs": {disk.ErrHangs, true}, "it answers": {nil, false}} {
		k := newKeeping(t)
		readDisks(k.Manager, func(string) (cgroup.Space, error) { return spaceOn(1, 5), c.err })
		j := k.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: policy.NodeFSAvailable}, Target: math.MaxInt64}, policy.SingleFS, nil)
		<-j.Done()
		if got := j.Relief().Late; got != c.want || j.Relief().Inconclusive {
			t.Errorf("%s: late: %t, inconclusive: %t", name, got, j.Relief().Inconclusive)
		}
	}
}

// A disk reclaim that a listing cut short reports that, too, and so does one whose listing after a removal timed out. One
// removal that times out cuts no step short, and a reclaim for PIDs is always short of time.
func TestReclaimOfASlowRuntime(t *testing.T) {
	for name, c := range map[string]struct {
		signal policy.Signal
		method string
		want   bool
	}{
		"the images are not listed":     {policy.ImageFSAvailable, "ListImages", true},
		"the containers are not listed": {policy.NodeFSAvailable, "ListContainers", true},
		"a removal times out":           {policy.ImageFSAvailable, "RemoveImage", false},
		"for PIDs":                      {policy.PIDAvailable, "ListContainers", false},
		"all goes well":                 {policy.ImageFSAvailable, "", false},
	} {
		k := newKeeping(t)
		readDisks(k.Manager, func(string) (cgroup.Space, error) { return spaceOn(1, 5), nil })
		if c.method != "" {
			k.server.Inject(critest.Fault{Method: c.method, Err: errors.New("slow: context deadline exceeded")})
		}
		j := k.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: c.signal}, Target: math.MaxInt64}, policy.DedicatedImageFS, nil)
		<-j.Done()
		if got := j.Relief(); got.Late != c.want || len(got.Reports) == 0 {
			t.Errorf("%s: late: %t; %+v", name, got.Late, got.Reports)
		}
	}
}

// A reclaim of a disk removes the containers of a pod that was just stopped, whatever for: no other pod is stopped for what these
// hold. Without pressure, and for another resource, they stay, because their logs may still be wanted.
func TestReclaimRemovesWhatIsLeftOfTheStopped(t *testing.T) {
	k := newKeeping(t)
	readDisks(k.Manager, func(string) (cgroup.Space, error) { return spaceOn(1, 5), nil })
	client, err := k.opt.Client()
	if err != nil {
		t.Fatal(err)
	}
	var pods []critest.Pod
	for range 2 {
		pods = append(pods, k.server.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{Name: "main"}}}))
	}
	k.Stopped(*inventory.ByID(k.opt.Lister.List(t.Context()).Pods, pods[0].ID))
	for _, p := range pods {
		if err := client.StopSandbox(t.Context(), p.ID); err != nil {
			t.Fatal(err)
		}
	}
	reclaimed := func(s policy.Signal) {
		<-k.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: s}, Target: math.MaxInt64}, policy.SingleFS, nil).Done()
	}
	k.CollectContainers(t.Context())
	reclaimed(policy.PIDAvailable)
	for _, p := range pods {
		if !k.server.Has(p.Containers[0].ID) {
			t.Error("removed without a disk that is short")
		}
	}
	opt := k.opt
	opt.Ended = k.stopped()
	k.Manager = New(opt) // the service has been restarted
	if reclaimed(policy.NodeFSAvailable); k.server.Has(pods[0].Containers[0].ID) || !k.server.Has(pods[1].Containers[0].ID) {
		t.Errorf("left of the stopped pod: %t; of one that ended by itself: %t", k.server.Has(pods[0].Containers[0].ID), k.server.Has(pods[1].Containers[0].ID))
	}
	k.CollectContainers(t.Context())
	if _, left := k.stopped()[pods[0].ID]; !left {
		t.Error("forgotten while the sandbox exists")
	}
	k.server.Forget(pods[0].ID)
	if k.CollectContainers(t.Context()); len(k.stopped()) != 0 {
		t.Error("remembered although the sandbox is gone")
	}
}

// What has ended before the service started counts as finished a minute after its first look, which comes at once, also if the ledger
// of images is known.
func TestReclaimOfFinishedPodsAfterAStart(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		gone  bool
	}{{50 * time.Second, false}, {time.Minute, true}} {
		k := newKeeping(t)
		client, err := k.opt.Client()
		if err != nil {
			t.Fatal(err)
		}
		pod := k.server.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{Name: "main"}}})
		if err := client.StopSandbox(t.Context(), pod.ID); err != nil {
			t.Fatal(err)
		}
		k.notice(t.Context())
		if err := k.ledger.Save(k.opt.Now()); err != nil {
			t.Fatal(err)
		}
		opt, later := k.opt, time.Duration(0)
		opt.Now = func() time.Duration { return cgroup.BootTime() + later }
		m := New(opt)
		readDisks(m, func(string) (cgroup.Space, error) { return spaceOn(1, 5), nil })
		m.start(t.Context())
		later = c.after
		<-m.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: policy.NodeFSAvailable}, Target: math.MaxInt64}, policy.SingleFS, nil).Done()
		if gone := !k.server.Has(pod.Containers[0].ID); gone != c.gone {
			t.Errorf("after %s: removed %t", c.after, gone)
		}
	}
}

// A runtime needs a while to stop the sandbox of a pod that has ended by a stop. A reclaim of a disk waits for that, unless it takes
// unusually long, and removes the containers then.
func TestReclaimWaitsForTheSandboxOfTheStopped(t *testing.T) {
	for _, old := range []bool{false, true} {
		k := newKeeping(t)
		readDisks(k.Manager, func(string) (cgroup.Space, error) { return spaceOn(1, 5), nil })
		client, err := k.opt.Client()
		if err != nil {
			t.Fatal(err)
		}
		p := k.server.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{Name: "main"}}})
		k.Stopped(*inventory.ByID(k.opt.Lister.List(t.Context()).Pods, p.ID))
		if old {
			k.ended[p.ID] -= 2 * time.Minute
		}
		k.server.Exit(p.Containers[0].ID, 137)
		k.server.ForgetCalls()
		j := k.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: policy.NodeFSAvailable}, Target: math.MaxInt64}, policy.SingleFS, nil)
		if old {
			<-j.Done()
		} else {
			k.server.WaitCalls(t, "ListPodSandbox", 2)
			if err := client.StopSandbox(t.Context(), p.ID); err != nil {
				t.Fatal(err)
			}
			<-j.Done()
		}
		if k.server.Has(p.Containers[0].ID) != old {
			t.Errorf("stopped long ago: %t; its container is there: %t", old, !old)
		}
	}
}

// In observe mode, images that may free enough inodes count as enough, as those that free enough bytes do.
func TestReclaimForInodesInObserveMode(t *testing.T) {
	for signal, want := range map[policy.Signal]bool{policy.ImageFSInodesFree: true, policy.ImageFSAvailable: false} {
		for _, images := range []bool{true, false} {
			k := newKeeping(t, "mode = 'observe'")
			readDisks(k.Manager, func(string) (cgroup.Space, error) { return spaceOn(1, 5), nil })
			if !images {
				k.server.Inject(critest.Fault{Method: "ListImages", Edit: func(m any) { m.(*runtimeapi.ListImagesResponse).Images = nil }})
			}
			j := k.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: signal}, Target: math.MaxInt64}, policy.DedicatedImageFS, nil)
			<-j.Done()
			if got := j.Relief(); got.WouldRelieve != (want && images) || len(got.Reports) == 0 {
				t.Errorf("%s, images: %t: would relieve: %t; %+v", signal, images, got.WouldRelieve, got.Reports)
			}
		}
	}
}

// A prune that removed something has an answer, even if a later listing timed out.
func TestPruneWithALateListing(t *testing.T) {
	late := reclaim.Failure{Message: "late", Err: cri.ErrTimeout}
	for removed, want := range map[int]bool{0: false, 1: true} {
		r := reclaim.Report{Step: reclaim.StepImages, Removed: make([]reclaim.Item, removed), Errors: []reclaim.Failure{late}}
		if err := unanswered([]reclaim.Report{r}); (err == nil) != want {
			t.Errorf("%d removed: %v", removed, err)
		}
	}
}

// A reclaim for nodefs does not remove logs on a disk of their own, because that would not free a byte of
// nodefs.
func TestReclaimLeavesLogsThatAreApart(t *testing.T) {
	for device, want := range map[uint64]bool{1: true, 2: false} {
		k := newKeeping(t)
		readDisks(k.Manager, func(path string) (cgroup.Space, error) {
			if path == k.opt.Logs.Dir {
				return spaceOn(device, 5), nil
			}
			return spaceOn(1, 5), nil
		})
		j := k.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: policy.NodeFSAvailable}, Target: math.MaxInt64}, policy.SingleFS, nil)
		<-j.Done()
		if got := j.Relief().Steps; slices.Contains(got, "logs") != want || !slices.Contains(got, "images") {
			t.Errorf("logs on device %d: steps %q", device, got)
		}
	}
}

// A reclaim for the disk of the images removes the logs that are on it, also while nodefs cannot be read.
func TestReclaimRemovesLogsBesideImages(t *testing.T) {
	for _, nodefs := range []error{nil, disk.ErrHangs} {
		for device, want := range map[uint64]bool{1: false, 2: true} {
			k := newKeeping(t)
			readDisks(k.Manager, func(path string) (cgroup.Space, error) {
				switch path {
				case k.opt.Logs.Dir:
					return spaceOn(device, 5), nil
				case k.opt.Disks.Paths().Image:
					return spaceOn(2, 5), nil
				default:
					return spaceOn(1, 5), nodefs
				}
			})
			j := k.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: policy.ImageFSAvailable}, Target: math.MaxInt64}, policy.DedicatedImageFS, nil)
			<-j.Done()
			if got := j.Relief().Steps; slices.Contains(got, "logs") != want || !slices.Contains(got, "images") {
				t.Errorf("nodefs: %v, logs on device %d: steps %q", nodefs, device, got)
			}
		}
	}
}

// hungRuntime is a runtime whose removals hang, whatever their deadline.
type hungRuntime struct {
	*deadSandboxes
	release chan struct{}
}

func (h *hungRuntime) RemoveSandbox(ctx context.Context, id string) error {
	<-h.release
	return h.deadSandboxes.RemoveSandbox(context.WithoutCancel(ctx), id)
}

func (h *hungRuntime) Status(context.Context) (cri.Status, error) {
	return cri.Status{}, cri.ErrUnavailable
}

// freshLayers reports the writable layer of each container as sampled just now.
type freshLayers struct{ disk.LayerSource }

func (freshLayers) WritableLayer(context.Context, string) (cri.FsUsage, error) {
	return cri.FsUsage{UsedBytes: 7, At: time.Now(), Known: true}, nil
}

// newMeter returns a meter that asks freshLayers.
func newMeter() *disk.Meter {
	return disk.NewMeter(disk.MeterOptions{Source: func() (disk.LayerSource, error) { return freshLayers{}, nil }, Paths: func() disk.Paths { return disk.Paths{} }, Now: cgroup.BootTime})
}

// A reclaim tells that the runtime did not take part in it: that it was away, or refused all calls because it was just starting.
func TestReclaimWithoutARuntime(t *testing.T) {
	for name, c := range map[string]struct {
		fault critest.Fault
		away  bool
	}{
		"there":         {critest.Fault{Method: "RemoveImage", Err: errors.New("busy")}, false},
		"away":          {critest.Fault{Err: critest.Code(codes.Unavailable, "connection refused")}, true},
		"not ready yet": {critest.Fault{Err: errors.New("server is not initialized yet")}, true},
	} {
		k := newKeeping(t)
		readDisks(k.Manager, func(string) (cgroup.Space, error) { return spaceOn(1, 5), nil })
		t.Cleanup(k.server.Inject(c.fault))
		j := k.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: policy.NodeFSAvailable}, Target: math.MaxInt64}, policy.SingleFS, nil)
		<-j.Done()
		if got := j.Relief(); got.Away != c.away || len(got.Reports) == 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// readDisks replaces the function that reads the node's filesystems.
func readDisks(m *Manager, read func(dir string) (cgroup.Space, error)) {
	paths := m.opt.Disks.Paths()
	m.opt.Disks = disk.NewWatcher("", read)
	m.opt.Disks.UpdatePaths(func(p *disk.Paths) { *p = paths })
}

// spaceOn is a filesystem on a device with this many bytes available, of 1,000 bytes and 100 inodes.
func spaceOn(device uint64, available int64) cgroup.Space {
	return cgroup.Space{Device: device, Total: 1000, Available: available, Inodes: 100, InodesFree: 50}
}

// fakeSource is a runtime with these sandboxes. The container of sandbox "a" is "ca".
type fakeSource []string

func (f fakeSource) Sandboxes(context.Context) (list []cri.Sandbox, _ error) {
	for _, id := range f {
		list = append(list, cri.Sandbox{ID: id, Ready: true})
	}
	return list, nil
}

func (f fakeSource) Containers(context.Context) (list []cri.Container, _ error) {
	for _, id := range f {
		list = append(list, cri.Container{ID: "c" + id, SandboxID: id, State: cri.Running})
	}
	return list, nil
}

func (f fakeSource) ContainerDetail(context.Context, string) (cri.ContainerDetail, error) {
	return cri.ContainerDetail{}, nil
}

// newHung returns a Manager on a node whose filesystems are nearly full.
func newHung(t *testing.T, record func(api.ReclaimView, *api.Peer)) *Manager {
	t.Helper()
	opt := optionsOf(t, configtest.Parse(t, nodetest.Config(t, fmt.Sprintf("history.dir = %q", t.TempDir()))), nil)
	opt.Record, opt.Meter = record, newMeter()
	m := New(opt)
	readDisks(m, func(string) (cgroup.Space, error) { return spaceOn(1, 5), nil })
	return m
}

// hang gives a Manager a runtime that removes nothing until it is released. All its sandboxes but the last
// are dead. Call it in the test's bubble: what goroutines wait for must be created there.
func hang(m *Manager, sandboxes int) *hungRuntime {
	// Created in the bubble. The pods stay known while the runtime cannot be listed.
	var away error
	m.opt.Lister = inventory.New(inventory.Options{
		Source: func(context.Context) (inventory.Source, error) { return fakeSource{"p"}, away },
		Now:    func() time.Duration { return time.Hour }, Clock: time.Now,
	})
	m.opt.Lister.List(context.Background())
	away = cri.ErrNoRuntime
	rt := &hungRuntime{newDeadSandboxes(sandboxes, 0), make(chan struct{})}
	m.collector = reclaim.NewCollector(rt, reclaim.Options{Clock: m.moment})
	return rt
}

// pruneHangs begins a manual prune that hangs in its first removal, and returns how it ends.
func pruneHangs(t *testing.T, m *Manager) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := m.Prune(t.Context(), api.PruneOptions{Containers: true}, api.Peer{})
		ended <- err
	}()
	synctest.Wait()
	return ended
}

// A manual prune gives way to a reclaim for a threshold: it ends after the removal in flight, and the reclaim
// does the rest.
func TestPruneGivesWayToReclaim(t *testing.T) {
	m := newHung(t, func(api.ReclaimView, *api.Peer) {})
	synctest.Test(t, func(t *testing.T) {
		rt := hang(m, 4)
		ended := pruneHangs(t, m)
		met := policy.Met{Threshold: policy.Threshold{Signal: policy.ContainerFSAvailable}, Target: math.MaxInt64}
		j := m.Reclaim(t.Context(), met, policy.DedicatedImageFS, nil)
		synctest.Wait()
		close(rt.release)
		if pruned := <-ended; !errors.Is(pruned, errPreempted) {
			t.Errorf("the prune ended with %v", pruned)
		}
		<-j.Done()
		if len(rt.sandboxes) != 1 || j.Overdue() || len(j.Relief().Reports) == 0 {
			t.Errorf("left %+v, overdue: %t, %+v", rt.sandboxes, j.Overdue(), j.Relief())
		}
	})
}

// In observe mode, a reclaim only finds out what it would remove: it neither ends a manual prune nor waits for it.
func TestPruneBesideAReclaimInObserveMode(t *testing.T) {
	for name, c := range map[string]struct {
		signal policy.Signal
		layout policy.Layout
	}{"of a disk": {policy.ContainerFSAvailable, policy.DedicatedImageFS}, "of PIDs": {policy.PIDAvailable, policy.SingleFS}} {
		m := newHung(t, func(api.ReclaimView, *api.Peer) {})
		cfg := m.config()
		cfg.Mode = config.ModeObserve
		m.SetConfig(cfg)
		synctest.Test(t, func(t *testing.T) {
			rt := hang(m, 4)
			ended := pruneHangs(t, m)
			started := time.Now()
			j := m.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: c.signal}, Target: math.MaxInt64}, c.layout, nil)
			<-j.Done()
			if took := time.Since(started); took > 0 || j.Overdue() || len(j.Relief().Reports) == 0 {
				t.Errorf("%s: took %s, overdue: %t, %+v", name, took, j.Overdue(), j.Relief())
			}
			close(rt.release)
			pruned := <-ended
			if left := rt.left(); pruned != nil || len(left) != 1 {
				t.Errorf("%s: the prune ended with %v, left %+v", name, pruned, left)
			}
			m.collector.Collect(t.Context(), reclaim.Plan{Steps: []reclaim.Step{reclaim.StepSandboxes}}) // the reclaim has left the queue
		})
	}
}

// A reclaim of memory needs no turn: a manual prune beside it continues.
func TestPruneBesideAReclaimOfMemory(t *testing.T) {
	m := newHung(t, func(api.ReclaimView, *api.Peer) {})
	cfg := m.config()
	cfg.Eviction.MemoryReclaim = true
	m.SetConfig(cfg)
	synctest.Test(t, func(t *testing.T) {
		rt := hang(m, 4)
		ended := pruneHangs(t, m)
		j := m.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: policy.MemoryAvailable}}, policy.SingleFS, nil)
		<-j.Done()
		close(rt.release)
		if pruned, left := <-ended, rt.left(); pruned != nil || len(left) != 1 || len(j.Relief().Reports) != 1 {
			t.Errorf("the prune ended with %v, left %+v; %+v", pruned, left, j.Relief())
		}
	})
}

// The job of a hung reclaim ends after a minute, and other disk reclaims end at once. Each has measured the
// pods. What the hung reclaim removes in the end is recorded. After that, reclaiming works as before.
func TestReclaimThatHangs(t *testing.T) {
	var recorded []api.ReclaimView
	m := newHung(t, func(v api.ReclaimView, _ *api.Peer) { recorded = append(recorded, v) })
	synctest.Test(t, func(t *testing.T) {
		rt := hang(m, 3)
		relieve := func(s policy.Signal) (job eviction.ReliefJob, took time.Duration) {
			t.Helper()
			started := time.Now()
			j := m.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: s}, Target: math.MaxInt64}, policy.DedicatedImageFS, nil)
			time.Sleep(measureAfter + disk.SampleTimeout)
			if u, _ := m.opt.Meter.Usage("p"); !u.Bytes.Known() { // a stop need not wait until the job ends
				t.Errorf("%s: the pods are not measured beside the reclaim: %+v", s, u)
			}
			select {
			case <-j.Done():
			case <-time.After(time.Hour):
				t.Fatalf("%s: the job never ends", s)
			}
			if u, _ := m.opt.Meter.Usage("p"); !u.Bytes.Known() || j.Relief().Inconclusive {
				t.Errorf("%s: the pods were not measured: %+v", s, u)
			}
			m.opt.Meter = newMeter()
			return j, time.Since(started)
		}
		if j, took := relieve(policy.ContainerFSAvailable); took < eviction.ReclaimTimeout || took > eviction.ReclaimTimeout+disk.SampleTimeout || !j.Overdue() {
			t.Errorf("the one that hangs: took %s, overdue: %t", took, j.Overdue())
		}
		for _, s := range []policy.Signal{policy.ContainerFSAvailable, policy.NodeFSAvailable} {
			if j, took := relieve(s); took > measureAfter+disk.SampleTimeout || !j.Overdue() {
				t.Errorf("beside it, for %s: took %s, overdue: %t", s, took, j.Overdue())
			}
		}
		close(rt.release)
		time.Sleep(time.Minute) // the removal ends, and the target is measured
		synctest.Wait()
		if len(recorded) != 1 || recorded[0].Removed() != 1 || recorded[0].Signal != policy.ContainerFSAvailable {
			t.Errorf("recorded %+v", recorded)
		}
		if j, _ := relieve(policy.ContainerFSAvailable); j.Overdue() || len(j.Relief().Reports) == 0 || len(rt.left()) != 1 {
			t.Errorf("afterwards: %+v, overdue: %t, left %+v", j.Relief(), j.Overdue(), rt.left())
		}
	})
}

// criguard does not reclaim memory for swap.available, because that would fill swap. For a stall it asks a
// pod only for what the pod has in memory.
func TestSwapReclaimsNoMemory(t *testing.T) {
	cfg := configtest.Parse(t, "eviction.memory_reclaim = true")
	for s, want := range map[policy.Signal]int{policy.SwapAvailable: 0, policy.MemoryAvailable: 1, policy.MemoryStall: 1} {
		if got := eviction.Steps(&cfg, s, policy.SingleFS, policy.LogsPlace{}); len(got) != want {
			t.Errorf("%s reclaims by %v", s, got)
		}
	}
	m := New(optionsOf(t, cfg, nil))
	m.opt.Node = swapped{}
	pods := []inventory.Pod{{Candidate: policy.Candidate{ID: "a"}, Cgroup: "/kubepods/poda"}, {Candidate: policy.Candidate{ID: "of an unknown cgroup"}}}
	met := policy.Met{Threshold: policy.Threshold{Signal: policy.MemoryStall}, Deficit: math.MaxInt64}
	if got := m.memoryTargets(cfg, met, pods); len(got) != 1 || got[0].Bytes != 10<<20 {
		t.Errorf("targets %+v", got)
	}
}

// swapped is a node whose pods have most of their memory in swap.
type swapped struct{ bareNode }

func (swapped) Measure(cs []policy.Candidate) {
	for i := range cs {
		cs[i].Memory, cs[i].Swap = policy.Known(10<<20), policy.Known(40<<20)
	}
}

// The record of a reclaim that removed nothing says what each step keeps and why, and nothing of the items.
func TestReclaimRecordsWhatItKeeps(t *testing.T) {
	got := relieved([]reclaim.Report{
		{Step: reclaim.StepContainers, Removed: []reclaim.Item{{}}, Kept: []reclaim.Item{{Why: "younger than min_age"}}},
		{Step: reclaim.StepImages, Kept: []reclaim.Item{
			{Size: 1, Why: "younger than min_age"}, {Size: 2, Why: "in use: sandbox image"}, {Size: 4, Why: "pinned"}, {Size: 8, Why: "in use: container a of d/b"},
		}},
	}).Reports
	want := []reclaim.Kept{{Why: "in use", Items: 2, Size: 10}, {Why: "pinned", Items: 1, Size: 4}, {Why: "younger than min_age", Items: 1, Size: 1}}
	if got[0].KeptFor != nil || !slices.Equal(got[1].KeptFor, want) || got[1].Kept != nil {
		t.Errorf("%+v", got)
	}
}

// The result of a reclaim counts the images that are kept only for their age.
func TestReclaimCountsYoungImages(t *testing.T) {
	got := relieved([]reclaim.Report{{Step: reclaim.StepImages, Kept: []reclaim.Item{
		{Kind: reclaim.KindImage, Size: 1, Why: "younger than min_age"}, {Kind: reclaim.KindImage, Size: 2, Why: reclaim.WhyAgeUnknown},
		{Kind: reclaim.KindImage, Size: 4, Why: "never used and younger than unused_grace"}, {Kind: reclaim.KindImage, Size: 8, Why: "pinned"},
		{Kind: reclaim.KindContainer, Size: 16, Why: "younger than min_age"},
	}}})
	if got.YoungImages != 3 || got.YoungBytes != 7 {
		t.Errorf("%d images, %d bytes", got.YoungImages, got.YoungBytes)
	}
}

// A runtime answers before it deletes the files of what it has removed. They are waited for while they come back.
func TestAwaitFreed(t *testing.T) {
	const lack, halfSecond, freedPoll = 1000, 500 * time.Millisecond, 100 * time.Millisecond
	for name, c := range map[string]struct {
		rises func(after time.Duration) (bytes, inodes int64)
		took  time.Duration
	}{
		"nothing comes":     {func(time.Duration) (int64, int64) { return 0, 0 }, freedStill},
		"all comes":         {func(after time.Duration) (int64, int64) { return int64(after/halfSecond) * 200, lack }, 5 * halfSecond},
		"a part of it":      {func(after time.Duration) (int64, int64) { return min(int64(after/halfSecond), 5) * 100, lack }, 5*halfSecond + freedStill},
		"inodes":            {func(after time.Duration) (int64, int64) { return lack, min(int64(after/halfSecond), 5) * 100 }, 5*halfSecond + freedStill},
		"less than matters": {func(after time.Duration) (int64, int64) { return int64(after/freedPoll) / 2, 0 }, freedStill},
		"another takes it":  {func(after time.Duration) (int64, int64) { return 100 - int64(after/freedPoll), 0 }, freedStill},
		"it never stops": {func(after time.Duration) (int64, int64) {
			return 10 * int64(after/freedPoll), -1e6 + 10*int64(after/freedPoll)
		}, eviction.ReclaimTimeout},
		"it cannot be read": {func(time.Duration) (int64, int64) { return -1, 0 }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				awaitFreed(t.Context(), func(context.Context) (reclaim.Room, error) {
					bytes, inodes := c.rises(time.Since(began))
					if bytes < 0 {
						return reclaim.Room{}, disk.ErrHangs
					}
					return reclaim.Room{Bytes: bytes, Inodes: inodes, LackBytes: lack - bytes, LackInodes: lack - inodes}, nil
				})
				if took := time.Since(began); took < c.took || took > c.took+2*freedPoll {
					t.Errorf("took %s, want %s", took, c.took)
				}
			})
		})
	}
}
