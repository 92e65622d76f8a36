package gc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cgroup/mountinfo"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/disk"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// keeping is a Manager with a runtime that answers, and the reclaims that it recorded.
type keeping struct {
	*Manager
	server   *critest.Server
	recorded []api.ReclaimView
	log      *strings.Builder
}

func newKeeping(t *testing.T, lines ...string) *keeping {
	t.Helper()
	k := &keeping{server: critest.New(t, critest.Containerd2), log: &strings.Builder{}}
	nodetest.AddDeadContainers(k.server)
	nodetest.AddUnusedImage(k.server)
	client, err := cri.Dial(k.server.Endpoint(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	images, _, err := client.ImageFilesystems(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lines = append(lines, nodetest.Config(t, fmt.Sprintf("history.dir = %q", t.TempDir()),
		"images = {high = '0.000001%', low = '0%', min_age = '0s', unused_grace = '0s', hold_after_runtime_restart = '0s'}"))
	opt := optionsOf(t, configtest.Parse(t, strings.Join(lines, "\n")), client)
	opt.Log = slog.New(slog.NewTextHandler(k.log, nil))
	opt.Record = func(v api.ReclaimView, _ *api.Peer) { k.recorded = append(k.recorded, v) }
	opt.Disks.UpdatePaths(func(p *disk.Paths) { p.Image = images[0].Mountpoint })
	k.Manager = New(opt)
	return k
}

// optionsOf configures a Manager for a fake node without cgroups.
func optionsOf(t *testing.T, cfg config.Config, client *cri.Client) Options {
	disks := disk.NewWatcher(cfg.Node.RootDir, nil)
	t.Cleanup(disks.Close)
	return Options{
		Config: cfg, BootID: "boot", Log: slog.New(slog.DiscardHandler), Record: func(api.ReclaimView, *api.Peer) {}, Wake: func() {},
		Client: func() (*cri.Client, error) { return client, nil }, Now: cgroup.BootTime,
		Logs: reclaim.Logs{Dir: cfg.Node.PodLogDir, Mounts: mountinfo.Points}, Disks: disks, Node: bareNode{},
		Meter: disk.NewMeter(disk.MeterOptions{
			Source: func() (disk.LayerSource, error) { return client, nil }, Logs: cfg.Node.PodLogDir,
			Paths: disks.Paths, Now: cgroup.BootTime,
		}),
		Lister: inventory.New(inventory.Options{
			Config: cfg, Source: func(context.Context) (inventory.Source, error) { return client, nil },
			Capacity: func() int64 { return 16 << 30 }, Now: cgroup.BootTime, Clock: time.Now,
		}),
	}
}

// bareNode is a node without cgroups and without a kubelet.
type bareNode struct{}

func (bareNode) Measure([]policy.Candidate)                        {}
func (bareNode) QuietFor(time.Duration) map[string]time.Duration   { return nil }
func (bareNode) RemoveQuiet(string, time.Duration) error           { return cgroup.ErrGone }
func (bareNode) KubeletSign(context.Context, []cri.Sandbox) string { return "" }

// removed counts the removals that the runtime was asked for.
func (k *keeping) removed() (containers, images int) {
	return len(k.server.Calls("RemoveContainer")), len(k.server.Calls("RemoveImage"))
}

func (k *keeping) tidy(ctx context.Context) {
	k.CollectContainers(ctx)
	k.CollectImages(ctx)
}

// A high watermark of 100 % is never reached, even on a full disk.
func TestWatermark(t *testing.T) {
	for high, lacks := range map[string]int64{"90%": 20, "100%": 0} {
		k := newKeeping(t)
		readDisks(k.Manager, func(string) (cgroup.Space, error) { return cgroup.Space{Total: 100, Available: 0}, nil })
		c := configtest.Parse(t, "images = {high = '"+high+"', low = '80%'}")
		if room, err := k.watermark(c.Images)(t.Context()); err != nil || max(room.LackBytes, 0) != lacks {
			t.Errorf("%s: %+v, %v", high, room, err)
		}
	}
}

func TestRecordsRemovals(t *testing.T) {
	k := newKeeping(t)
	k.tidy(t.Context())
	if containers, images := k.removed(); containers != 2 || images != 1 {
		t.Errorf("%d containers and %d images removed", containers, images)
	}
	if len(k.recorded) != 2 || k.recorded[0].Removed() != 2 || k.recorded[0].Signal != policy.ContainerFSAvailable ||
		k.recorded[1].Removed() != 1 || k.recorded[1].Signal != policy.ImageFSAvailable {
		t.Errorf("recorded %+v", k.recorded)
	}
	k.tidy(t.Context())
	if containers, images := k.removed(); containers != 2 || images != 1 || len(k.recorded) != 2 {
		t.Errorf("the second time: %d containers, %d images, %d records", containers, images, len(k.recorded))
	}
}

// A collection that finds nothing to remove lists once, and thereby updates the pods.
func TestListsOnceForAll(t *testing.T) {
	server := critest.New(t, critest.Containerd2)
	pod := server.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{Name: "main", State: cri.Running}}})
	client, err := cri.Dial(server.Endpoint(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	m := New(optionsOf(t, configtest.Parse(t, nodetest.Config(t, "")), client))
	m.CollectContainers(t.Context())
	for _, method := range []string{"ListContainers", "ListPodSandbox"} {
		if n := len(server.Calls(method)); n != 1 {
			t.Errorf("%s: called %d times", method, n)
		}
	}
	if inventory.ByID(m.opt.Lister.Current().Pods, pod.ID) == nil {
		t.Error("the lister does not have the pod")
	}
}

// A listing that fails, or for which there is no time, removes nothing and forgets no age.
func TestFailedListing(t *testing.T) {
	k := newKeeping(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	k.CollectContainers(ended)
	end := k.server.Inject(critest.Fault{Method: "ListPodSandbox", Err: errors.New("out of order")})
	k.CollectContainers(t.Context())
	end()
	if containers, _ := k.removed(); containers != 0 || k.log.Len() != 0 || len(k.recorded) != 0 {
		t.Errorf("%d containers removed, logged %s", containers, k.log)
	}
	k.CollectContainers(t.Context())
	if containers, _ := k.removed(); containers != 2 {
		t.Errorf("%d containers removed once it succeeds, want 2", containers)
	}
}

// Logs of pods that the runtime does not list are removed only under pressure.
func TestLeavesOrphanedLogs(t *testing.T) {
	k := newKeeping(t)
	pod := k.server.AddPod(critest.PodSpec{})
	orphan := filepath.Join(k.opt.Logs.Dir, "default_job_gone")
	for _, dir := range []string{orphan, filepath.Join(k.opt.Logs.Dir, "default_"+pod.Name+"_"+pod.UID)} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	k.tidy(t.Context())
	if _, err := os.Stat(orphan); err != nil {
		t.Errorf("in quiet times: %v", err)
	}
	p := k.plan(k.config())
	p.Steps = eviction.Steps(&k.opt.Config, policy.NodeFSAvailable, policy.SingleFS, policy.LogsPlace{})
	c, err := k.current()
	if err != nil {
		t.Fatal(err)
	}
	c.Collect(t.Context(), p)
	if _, err := os.Stat(orphan); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("under pressure: %v", err)
	}
}

// In observe mode nothing is removed. Each set of would-be removals is recorded once.
func TestObserveMode(t *testing.T) {
	k := newKeeping(t)
	cfg := k.config()
	mode := cfg.Mode
	cfg.Mode = config.ModeObserve
	k.SetConfig(cfg)
	for range 2 {
		k.tidy(t.Context())
	}
	if containers, images := k.removed(); containers != 0 || images != 0 {
		t.Errorf("%d containers and %d images removed", containers, images)
	}
	if len(k.recorded) != 2 || !k.recorded[0].DryRun() || k.recorded[0].Removed() != 2 || k.recorded[1].Removed() != 1 {
		t.Fatalf("recorded %+v", k.recorded)
	}
	nodetest.AddDeadContainers(k.server)
	k.tidy(t.Context())
	if len(k.recorded) != 3 || k.recorded[2].Signal != policy.ContainerFSAvailable || k.recorded[2].Removed() != 4 {
		t.Fatalf("two containers more: recorded %+v", k.recorded)
	}
	cfg.Mode = mode
	k.SetConfig(cfg)
	k.tidy(t.Context())
	if containers, images := k.removed(); containers != 4 || images != 1 || len(k.recorded) != 5 || k.recorded[3].DryRun() {
		t.Errorf("enforced: %d containers and %d images removed, recorded %+v", containers, images, k.recorded)
	}
}

// During a pause, or without a runtime, nothing is removed.
func TestRemovesNothing(t *testing.T) {
	for name, setup := range map[string]func(*keeping){
		"paused":     func(k *keeping) { k.SetPaused(true) },
		"no runtime": func(k *keeping) { k.opt.Client = func() (*cri.Client, error) { return nil, cri.ErrNoRuntime } },
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeping(t)
			setup(k)
			k.tidy(t.Context())
			if containers, images := k.removed(); containers != 0 || images != 0 || len(k.recorded) != 0 {
				t.Errorf("%d containers and %d images removed, recorded %v", containers, images, k.recorded)
			}
		})
	}
}

func begin(ctx context.Context, m *Manager) (acting context.Context, end func(), ok bool) {
	w := m.mandate()
	return w.begin(ctx)
}

// A pause cancels the removals in progress. After it, new ones may begin.
func TestPause(t *testing.T) {
	k := newKeeping(t)
	acting, end, ok := begin(t.Context(), k.Manager)
	if !ok || acting.Err() != nil {
		t.Fatal("it may act")
	}
	k.SetPaused(false) // as after any command other than pause
	if acting.Err() != nil {
		t.Error("what is under way was ended without a pause")
	}
	k.SetPaused(true)
	<-acting.Done()
	end()
	if _, end, ok := begin(t.Context(), k.Manager); ok {
		end()
		t.Error("it may act during a pause")
	}
	k.SetPaused(false)
	k.tidy(t.Context())
	if containers, images := k.removed(); containers != 2 || images != 1 {
		t.Errorf("after the pause: %d containers and %d images removed", containers, images)
	}
}

// Another configuration for what may be removed cancels the removals in progress. Any other one does not.
func TestReloadDuringACollection(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*config.Config)
		ends   bool
	}{
		"observe":           {func(c *config.Config) { c.Mode = config.ModeObserve }, true},
		"no containers":     {func(c *config.Config) { c.Containers.GC = false }, true},
		"an image to keep":  {func(c *config.Config) { c.Images.Keep = []string{"x"} }, true},
		"another threshold": {func(c *config.Config) { c.Eviction.Thresholds, c.History.Passes = nil, 1 }, false},
	} {
		m := newHung(t, func(api.ReclaimView, *api.Peer) {})
		synctest.Test(t, func(t *testing.T) {
			rt := hang(m, 100)
			done := make(chan struct{})
			go func() {
				defer close(done)
				w := m.mandate()
				p := m.plan(w.cfg)
				p.Steps = []reclaim.Step{reclaim.StepSandboxes}
				m.run(t.Context(), m.collector, &w, p, policy.ContainerFSAvailable)
			}()
			synctest.Wait() // the first removals hang
			cfg := m.config()
			c.change(&cfg)
			m.SetConfig(cfg)
			close(rt.release)
			<-done
			if left := len(rt.left()); left > 50 != c.ends || left == 100 {
				t.Errorf("%s: %d of 100 sandboxes left", name, left)
			}
			m.SetPaused(true)
			m.SetConfig(m.opt.Config)
			if _, end, ok := begin(t.Context(), m); ok {
				end()
				t.Errorf("%s: the next configuration ends a pause", name)
			}
		})
	}
}

// A reload between the plan of a reclaim and its first removal ends it, too: a slow disk takes seconds to say where the logs are.
func TestReloadBeforeAReclaim(t *testing.T) {
	for _, observe := range []bool{false, true} {
		m := newHung(t, func(api.ReclaimView, *api.Peer) {})
		synctest.Test(t, func(t *testing.T) {
			rt := hang(m, 3)
			close(rt.release)
			readDisks(m, func(string) (cgroup.Space, error) {
				time.Sleep(10 * time.Millisecond)
				return spaceOn(1, 5), nil
			})
			j := m.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: policy.NodeFSAvailable}, Target: math.MaxInt64}, policy.SingleFS, nil)
			time.Sleep(5 * time.Millisecond)
			cfg := m.config()
			if observe {
				cfg.Mode = config.ModeObserve
			}
			m.SetConfig(cfg)
			<-j.Done()
			if left := len(rt.left()); left == 3 != observe || j.Relief().Inconclusive != observe {
				t.Errorf("observe mode %t: %d of 3 sandboxes left, %+v", observe, left, j.Relief())
			}
		})
	}
}

// Of the collections that are due at the same time, that of dead containers goes first: their images are unused then.
func TestCollectsContainersBeforeImages(t *testing.T) {
	for range 10 {
		synctest.Test(t, func(t *testing.T) {
			var done []string
			opt := optionsOf(t, configtest.Parse(t, nodetest.Config(t, fmt.Sprintf("history.dir = %q", t.TempDir()))), nil)
			opt.Client = func() (*cri.Client, error) {
				done = append(done, "images")
				return nil, cri.ErrNoRuntime
			}
			opt.Lister = inventory.New(inventory.Options{
				Config: opt.Config, Capacity: func() int64 { return 16 << 30 }, Now: cgroup.BootTime, Clock: time.Now,
				Source: func(context.Context) (inventory.Source, error) {
					done = append(done, "containers")
					return nil, cri.ErrNoRuntime
				},
			})
			ctx, cancel := context.WithTimeout(t.Context(), imagesEvery+time.Second)
			defer cancel()
			New(opt).Run(ctx)
			if want := append(slices.Repeat([]string{"containers"}, int(imagesEvery/containersEvery)), "images"); !slices.Equal(done, want) {
				t.Errorf("collected %q, want %q", done, want)
			}
		})
	}
}

// Slow collections are not rarer than they have to be.
func TestCollectsAtASlowRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		containers := 0
		opt := optionsOf(t, configtest.Parse(t, nodetest.Config(t, fmt.Sprintf("history.dir = %q", t.TempDir()))), nil)
		opt.Client = func() (*cri.Client, error) { return nil, cri.ErrNoRuntime }
		opt.Lister = inventory.New(inventory.Options{
			Config: opt.Config, Capacity: func() int64 { return 16 << 30 }, Now: cgroup.BootTime, Clock: time.Now,
			Source: func(context.Context) (inventory.Source, error) {
				containers++
				time.Sleep(50 * time.Second)
				return nil, cri.ErrNoRuntime
			},
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour+time.Second)
		defer cancel()
		New(opt).Run(ctx)
		if containers < 58 {
			t.Errorf("%d collections in an hour", containers)
		}
	})
}

// onePod is a runtime with one pod.
type onePod struct{ inventory.Source }

func (onePod) Sandboxes(context.Context) ([]cri.Sandbox, error) {
	return []cri.Sandbox{{ID: "s", Name: "app", Namespace: "default", UID: "uid", Ready: true}}, nil
}

func (onePod) Containers(context.Context) ([]cri.Container, error) {
	return []cri.Container{{ID: "c", SandboxID: "s", Name: "main", State: cri.Running}}, nil
}

func (onePod) ContainerDetail(context.Context, string) (cri.ContainerDetail, error) {
	return cri.ContainerDetail{PID: 1}, nil
}

// A collection that takes long delays neither the measurements of pods with a limit nor the save of a stop.
func TestSlowCollectionDelaysNothingElse(t *testing.T) {
	cfg := configtest.Parse(t, nodetest.Config(t, fmt.Sprintf("history.dir = %q", t.TempDir()), "limit = [{name = '*', ephemeral_storage = '1Gi'}]"))
	synctest.Test(t, func(t *testing.T) {
		opt := optionsOf(t, cfg, nil)
		listed, measured := false, 0
		opt.Lister = inventory.New(inventory.Options{
			Config: cfg, Capacity: func() int64 { return 16 << 30 }, Now: cgroup.BootTime, Clock: time.Now,
			Source: func(ctx context.Context) (inventory.Source, error) {
				if listed {
					<-ctx.Done()
				}
				listed = true
				return onePod{}, ctx.Err()
			},
		})
		opt.Meter = disk.NewMeter(disk.MeterOptions{
			Logs: cfg.Node.PodLogDir, Paths: opt.Disks.Paths, Now: cgroup.BootTime,
			Source: func() (disk.LayerSource, error) {
				measured++
				return nil, cri.ErrNoRuntime
			},
		})
		if pods := opt.Lister.List(t.Context()).Pods; len(pods) != 1 || pods[0].StorageLimit == 0 {
			t.Fatalf("listed %+v", pods)
		}
		m := New(opt)
		ctx, end := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { m.Run(ctx) })
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		if want := int(10 * time.Minute / limitsEvery); measured < want {
			t.Errorf("measured %d times in ten minutes, want %d", measured, want)
		}
		m.Stopped(inventory.Pod{EndedImages: []string{"registry.example.com/a:1"}})
		synctest.Wait()
		if saved, err := os.ReadFile(ledgerPath(&cfg)); err != nil || !strings.Contains(string(saved), "registry.example.com/a:1") {
			t.Errorf("saved %s, %v", saved, err)
		}
		end()
		wg.Wait()
	})
}

// The images of a stopped pod are kept.
func TestKeepsImagesOfTheStopped(t *testing.T) {
	k := newKeeping(t)
	k.Stopped(inventory.Pod{Containers: []inventory.Container{{Images: []string{"", "registry.example.com/app:1"}}}})
	k.tidy(t.Context())
	if _, images := k.removed(); images != 0 {
		t.Errorf("%d images removed", images)
	}
}

// The images of its exited init containers are kept, too: the runtime lists these containers.
func TestKeepsImagesOfInitContainers(t *testing.T) {
	k := newKeeping(t)
	pod := k.server.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{
		{Name: "init", State: cri.Exited, Image: "registry.example.com/app:1"}, {Name: "main"},
	}})
	k.Stopped(*inventory.ByID(k.opt.Lister.List(t.Context()).Pods, pod.ID))
	k.server.Forget(pod.ID)
	k.tidy(t.Context())
	if !slices.ContainsFunc(k.images(t), func(img cri.Image) bool { return slices.Contains(img.Tags, "registry.example.com/app:1") }) {
		t.Error("the init container's image was removed")
	}
}

// So are its image volumes, also those of a container that has exited since it was listed.
func TestKeepsImageVolumesOfTheStopped(t *testing.T) {
	const image = "registry.example.com/app:1"
	for _, exited := range []bool{false, true} {
		k := newKeeping(t)
		pod := k.server.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{
			{Name: "other"}, {Name: "main", Mounts: []cri.Mount{{ContainerPath: "/etc/data", HostPath: "/data"}, {ContainerPath: "/models", Image: image}}},
		}})
		k.opt.Lister.List(t.Context())
		if exited {
			k.server.Exit(pod.Containers[1].ID, 1)
			k.opt.Lister.List(t.Context())
		}
		k.Stopped(*inventory.ByID(k.opt.Lister.List(t.Context()).Pods, pod.ID))
		k.server.Forget(pod.ID)
		k.tidy(t.Context())
		if !slices.ContainsFunc(k.images(t), func(img cri.Image) bool { return slices.Contains(img.Tags, image) }) {
			t.Errorf("exited: %t: the image volume was removed", exited)
		}
	}
}

// images lists the runtime's images.
func (k *keeping) images(t *testing.T) []cri.Image {
	t.Helper()
	client, err := k.opt.Client()
	if err != nil {
		t.Fatal(err)
	}
	images, err := client.Images(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return images
}

// A stop is saved to the ledger's file at once rather than within the hour: a node under pressure may be
// restarted, and criguard prune knows only what the file says.
func TestSavesStopsAtOnce(t *testing.T) {
	cfg := configtest.Parse(t, nodetest.Config(t, fmt.Sprintf("history.dir = %q", t.TempDir())))
	opt := optionsOf(t, cfg, nil)
	synctest.Test(t, func(t *testing.T) {
		m := New(opt)
		ctx, end := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { m.Run(ctx) })
		for _, image := range []string{"registry.example.com/a:1", "registry.example.com/b:1"} {
			m.Stopped(inventory.Pod{Containers: []inventory.Container{{Images: []string{image}}}})
			synctest.Wait()
			saved, err := os.ReadFile(ledgerPath(&cfg))
			if err != nil || !strings.Contains(string(saved), image) {
				t.Errorf("saved without %s: %s, %v", image, saved, err)
			}
		}
		end()
		wg.Wait()
	})
}

// A timer measures the pods only if one has a storage limit: nothing else needs the measurement.
func TestMeasuresWhereThereIsALimit(t *testing.T) {
	for _, limited := range []bool{false, true} {
		lines := []string{}
		if limited {
			lines = append(lines, "limit = [{name = '*', ephemeral_storage = '1Gi'}]")
		}
		k := newKeeping(t, lines...)
		k.server.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{Name: "main", State: cri.Running}}})
		if inv := k.opt.Lister.List(t.Context()); inv.Err != nil || len(inv.Pods) == 0 {
			t.Fatalf("no pod runs: %+v", inv)
		}
		k.measureLimited(t.Context())
		if _, measured := k.opt.Meter.Usage(k.opt.Lister.Current().Pods[0].ID); measured != limited {
			t.Errorf("limit %t: measured %t", limited, measured)
		}
	}
}

// Ledger errors are logged once.
func TestWarnsOfTheLedgerOnce(t *testing.T) {
	k := newKeeping(t)
	for range 3 {
		k.warnLedger(context.DeadlineExceeded)
	}
	if n := strings.Count(k.log.String(), "image ledger"); n != 1 {
		t.Errorf("told %d times:\n%s", n, k.log)
	}
}

// A ledger that could be saved in between, and then fails again, is logged again.
func TestWarnsOfTheLedgerAgain(t *testing.T) {
	k := newKeeping(t)
	lock := ledgerPath(&k.opt.Config) + ".lock"
	for i, want := range []int{0, 1, 1, 1, 2, 2} {
		var err error
		switch i {
		case 1, 4:
			err = errors.Join(os.Remove(lock), os.Mkdir(lock, 0o700))
		case 3:
			err = os.Remove(lock)
		}
		if err != nil {
			t.Fatal(err)
		}
		k.Stopped(inventory.Pod{Containers: []inventory.Container{{Images: []string{"app:1"}}}})
		k.warnLedger(k.ledger.SaveDue(k.opt.Now()))
		if n := strings.Count(k.log.String(), "image ledger not read or saved"); n != want {
			t.Fatalf("save %d: told %d times, want %d:\n%s", i, n, want, k.log)
		}
	}
}

// A runtime that does not list its images is no fault of the ledger. It is logged once, until it does.
func TestWarnsOfImagesThatAreNotListed(t *testing.T) {
	k := newKeeping(t)
	for i, want := range []int{1, 1, 1, 2} {
		end := func() {}
		if i != 2 {
			end = k.server.Inject(critest.Fault{Method: "ListImages", Err: errors.New("slow: context deadline exceeded")})
		}
		k.notice(t.Context())
		end()
		if text := k.log.String(); strings.Count(text, "garbage collection failed") != want || strings.Contains(text, "ledger") {
			t.Errorf("%d: want %d errors:\n%s", i, want, text)
		}
	}
}

// No record holds a collection that removes nothing and fails. Each error is logged once, and again after a
// successful collection. The lister logs that a runtime is away.
func TestWarnsOfFailedCollections(t *testing.T) {
	k := newKeeping(t)
	told := func(what string, tidy func(context.Context), want int) {
		t.Helper()
		tidy(t.Context())
		if n := strings.Count(k.log.String(), "garbage collection failed"); n != want || len(k.recorded) != 0 {
			t.Errorf("%s: told %d times, want %d; recorded %+v\n%s", what, n, want, k.recorded, k.log)
		}
	}
	for _, method := range []string{"RemoveContainer", "RemoveImage"} {
		t.Cleanup(k.server.Inject(critest.Fault{Method: method, Err: errors.New("device or resource busy")}))
	}
	told("images fail", k.CollectImages, 1)
	told("and are not tried again yet", k.CollectImages, 1)
	if len(k.failures[policy.ImageFSAvailable]) != 1 {
		t.Error("an image that is not tried again yet counts as one that is gone")
	}
	told("containers fail", k.CollectContainers, 2)
	if text := k.log.String(); !strings.Contains(text, "device or resource busy; and 1 more") || !strings.Contains(text, "action=collect") {
		t.Errorf("told without the reason:\n%s", text)
	}
	told("again", k.CollectContainers, 2)
	none := k.server.Inject(critest.Fault{Method: "ListContainers", Edit: func(m any) {
		m.(*runtimeapi.ListContainersResponse).Containers = nil
	}})
	told("all goes well", k.CollectContainers, 2)
	none()
	told("they fail anew", k.CollectContainers, 3)
	nodetest.AddDeadContainers(k.server)
	k.server.Stop()
	told("the runtime is away", k.tidy, 3)
}

// The lister does not log that the runtime reports a container as unavailable. Each run ends with one of the two.
func TestWarnsOfAnUnavailableContainer(t *testing.T) {
	k := newKeeping(t)
	t.Cleanup(k.server.Inject(critest.Fault{Method: "RemoveContainer", Err: critest.Code(codes.Unavailable, "dial unix shim.sock: connection refused")}))
	for run, want := range []int{1, 2, 2} {
		k.CollectContainers(t.Context())
		if n := strings.Count(k.log.String(), "shim.sock"); n != want || !strings.Contains(k.log.String(), "garbage collection failed") {
			t.Errorf("run %d: told %d times, want %d\n%s", run, n, want, k.log)
		}
	}
}

// A repeated timeout is logged once, even if the wait differs. A collection that did not run because the disk
// has room does not count as a success.
func TestWarnsOfAHangOnce(t *testing.T) {
	k := newKeeping(t)
	hung := func(id, after string) []reclaim.Report {
		return []reclaim.Report{{Errors: []reclaim.Failure{{Kind: reclaim.KindContainer, ID: id, Message: "gave up after " + after, Err: cri.ErrTimeout}}}}
	}
	for _, reports := range [][]reclaim.Report{hung("a", "30s"), hung("a", "30.01s"), nil, hung("a", "30.02s"), hung("b", "30s")} {
		k.warnFailures(policy.ContainerFSAvailable, reports)
	}
	unmeasured := []reclaim.Report{{Errors: []reclaim.Failure{{Message: "measure target: it hangs", Err: disk.ErrHangs}}}}
	for i, want := range []int{3, 3, 4} {
		if i == 2 {
			k.warnFailures(policy.ContainerFSAvailable, nil) // the measurement found that the disk has room
		}
		k.warnFailures(policy.ContainerFSAvailable, unmeasured)
		if n := strings.Count(k.log.String(), "garbage collection failed"); n != want {
			t.Errorf("a disk that cannot be measured, %d: told %d times, want %d:\n%s", i, n, want, k.log)
		}
	}
}

// An unread air-gap file is logged once, whether the periodic collection or the one under pressure finds it.
func TestWarnsOfAirGapFiles(t *testing.T) {
	dir := t.TempDir()
	k := newKeeping(t)
	cfg := k.config()
	cfg.Images.AirgapDirs = []string{dir}
	k.SetConfig(cfg)
	file := filepath.Join(dir, "release.tar.lz4")
	nodetest.Write(t, dir, map[string]string{filepath.Base(file): "\x04\x22\x4d\x18"})
	told := func() int { return strings.Count(k.log.String(), "air-gap file not read") }
	relieve := func() {
		j := k.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: policy.ImageFSAvailable}, Target: math.MaxInt64}, policy.DedicatedImageFS, nil)
		<-j.Done()
	}
	relieve()
	if text := k.log.String(); told() != 1 || !strings.Contains(text, file) || !strings.Contains(text, ".txt file") || !strings.Contains(text, "action=airgap") {
		t.Errorf("under pressure: %s", text)
	}
	k.CollectImages(t.Context())
	if relieve(); told() != 1 {
		t.Errorf("told again: %s", k.log)
	}
	if err := os.Rename(file, filepath.Join(dir, "other.tar.lz4")); err != nil {
		t.Fatal(err)
	}
	if k.CollectImages(t.Context()); told() != 2 {
		t.Errorf("of another file: %s", k.log)
	}
}

// A warnOnce remembers a limited number of messages.
func TestWarnOnceForgets(t *testing.T) {
	var warned warnOnce
	for i := range 3 * maxWarned {
		if text := fmt.Sprint(i); !warned.first(text) || warned.first(text) || len(warned) > maxWarned {
			t.Fatalf("%d: %d remembered", i, len(warned))
		}
	}
}

// The image ledger is beside the history. If that is in the default run directory, the package's state
// directory is used instead.
func TestLedgerPath(t *testing.T) {
	cfg := config.Default()
	if got := ledgerPath(&cfg); got != "" {
		t.Errorf("without a run directory: %q, want none", got)
	}
	cfg.Dir = "/run/other"
	if got := ledgerPath(&cfg); got != "/run/other/images.json" {
		t.Errorf("in another run directory: %s", got)
	}
	cfg.Dir = rundir.Default
	if dir := filepath.Dir(ledgerPath(&cfg)); dir != stateDir && dir != string(rundir.Default) {
		t.Errorf("by default: %s", dir)
	}
	cfg.History.Dir = "/data/criguard"
	if got := ledgerPath(&cfg); got != "/data/criguard/images.json" {
		t.Errorf("beside the history: %s", got)
	}
}

// The loop ends with its context. It then saves a ledger that was last saved more than five minutes ago.
func TestRunEnds(t *testing.T) {
	k := newKeeping(t)
	path, earlier := ledgerPath(&k.opt.Config), cgroup.BootTime()-10*time.Minute
	k.ledger.NoteStopped([]string{"app:1"}, earlier)
	if err := k.ledger.Save(earlier); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	k.CollectContainers(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	k.Run(ctx)
	if after, err := os.ReadFile(path); err != nil || bytes.Equal(before, after) {
		t.Errorf("the ledger is as it was: %s, %v", after, err)
	}
}

// The record of a reclaim is small, however many items it has, and its counts are complete.
func TestReclaimRecordIsSmall(t *testing.T) {
	const items = 1000
	item := reclaim.Item{Kind: reclaim.KindContainer, ID: strings.Repeat("a", 64), Name: "default/pod/container", Why: "dead"}
	full := []reclaim.Report{{
		Step: reclaim.StepContainers, Removed: slices.Repeat([]reclaim.Item{item}, items), Kept: slices.Repeat([]reclaim.Item{item}, items),
		Errors: slices.Repeat([]reclaim.Failure{{ID: item.ID, Message: "in use"}}, items), Freed: 7,
	}}
	for _, v := range []api.ReclaimView{view(policy.ContainerFSAvailable, full, time.Second), {Reports: relieved(full).Reports}} {
		b, err := json.Marshal(v)
		if err != nil || len(b) > 10_000 {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		var read api.ReclaimView
		if err := json.Unmarshal(b, &read); err != nil || read.Removed() != items || len(read.Reports[0].Removed) == 0 || len(read.Reports[0].Kept) != 0 {
			t.Errorf("%d removed as recorded, %d listed; %v", read.Removed(), len(read.Reports[0].Removed), err)
		}
	}
	if len(full[0].Removed) != items || len(full[0].Kept) != items {
		t.Error("the report itself was cut")
	}
}
