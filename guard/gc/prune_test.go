package gc

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/disk"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// A manual prune also reports an error for an unknown filesystem or one without a size. Otherwise any share
// of it would count as available, and the prune would silently remove nothing.
func TestPruneUntil(t *testing.T) {
	for name, c := range map[string]struct {
		image  func(k *keeping) string
		signal policy.Signal
		want   error
	}{
		"known":              {func(k *keeping) string { return k.opt.Logs.Dir }, policy.ImageFSAvailable, nil},
		"of the layers":      {func(k *keeping) string { return k.opt.Logs.Dir }, policy.ContainerFSAvailable, nil},
		"not known":          {func(*keeping) string { return "" }, policy.ImageFSAvailable, disk.ErrNoPath},
		"layers not known":   {func(*keeping) string { return "" }, policy.ContainerFSInodesFree, disk.ErrNoPath},
		"without size":       {func(*keeping) string { return "/proc" }, policy.ImageFSAvailable, errNoTotal},
		"counting no inodes": {func(*keeping) string { return "/proc" }, policy.ImageFSInodesFree, errNoTotal},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeping(t)
			k.opt.Disks.UpdatePaths(func(p *disk.Paths) { p.Image, p.Container = c.image(k), "" })
			reports, err := k.Prune(t.Context(), api.PruneOptions{Images: true, Signal: c.signal, Until: policy.Percent(100)}, api.Peer{})
			if err != nil || len(reports) != 1 || !errors.Is(reports[0].Err(), c.want) || c.want == nil && reports[0].Err() != nil {
				t.Fatalf("%+v, %v", reports, err)
			}
			if _, images := k.removed(); images > 0 != (c.want == nil) {
				t.Errorf("%d images removed", images)
			}
		})
	}
}

// A prune whose target is met says which steps it had to make.
func TestPruneUntilWhatIsMet(t *testing.T) {
	views := make(chan api.ReclaimView, 1)
	k := newKeeping(t)
	k.opt.Record = func(v api.ReclaimView, _ *api.Peer) { views <- v }
	k.opt.Disks.UpdatePaths(func(p *disk.Paths) { p.Image, p.Container = k.opt.Logs.Dir, "" })
	if reports, err := k.Prune(t.Context(), api.PruneOptions{Images: true, Signal: policy.ContainerFSAvailable, Until: policy.Percent(1)}, api.Peer{}); err != nil || len(reports) > 0 {
		t.Fatalf("%+v, %v", reports, err)
	}
	if v := <-views; !slices.Equal(v.Steps, []string{"images"}) {
		t.Errorf("recorded %+v", v)
	}
}

// A prune until a filesystem has room leaves images that are on another one: removing all of them would not free a byte there.
func TestPruneUntilAFilesystemWithoutImages(t *testing.T) {
	for name, c := range map[string]struct {
		options            api.PruneOptions
		device             uint64 // of the images
		containers, images int
		want               error
	}{
		"nodefs":                       {api.PruneOptions{Containers: true, Images: true, Signal: policy.NodeFSAvailable}, 2, 2, 0, nil},
		"its inodes, images alone":     {api.PruneOptions{Images: true, Signal: policy.NodeFSInodesFree}, 2, 0, 0, errImagesApart},
		"dry run":                      {api.PruneOptions{Images: true, DryRun: true, Signal: policy.NodeFSAvailable}, 2, 0, 0, errImagesApart},
		"nodefs, which has the images": {api.PruneOptions{Containers: true, Images: true, Signal: policy.NodeFSAvailable}, 1, 2, 1, nil},
		"imagefs":                      {api.PruneOptions{Containers: true, Images: true, Signal: policy.ImageFSAvailable}, 2, 2, 1, nil},
	} {
		k := newKeeping(t)
		images := k.opt.Disks.Paths().Image
		readDisks(k.Manager, func(dir string) (cgroup.Space, error) {
			if dir == images {
				return spaceOn(c.device, 5), nil
			}
			return spaceOn(1, 5), nil
		})
		c.options.Until = policy.Percent(100)
		if _, err := k.Prune(t.Context(), c.options, api.Peer{}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if containers, images := k.removed(); containers != c.containers || images != c.images {
			t.Errorf("%s: %d containers and %d images removed, want %d and %d", name, containers, images, c.containers, c.images)
		}
	}
}

// A prune reports a runtime that has gone away once, instead of one failure for each step, and records nothing.
func TestPruneWithoutRuntime(t *testing.T) {
	k := newKeeping(t)
	k.server.Stop()
	for _, dry := range []bool{false, true} {
		reports, err := k.Prune(t.Context(), api.PruneOptions{Containers: true, Images: true, DryRun: dry}, api.Peer{})
		if !errors.Is(err, cri.ErrNoRuntime) || len(reports) > 0 || len(k.recorded) > 0 {
			t.Errorf("%+v, %v, %d recorded", reports, err, len(k.recorded))
		}
	}
}

// A share refers to the filesystem's current total, of bytes or of inodes. Other resources have no target.
func TestReclaimTargets(t *testing.T) {
	k := newKeeping(t)
	fs, err := cgroup.StatfsNearest(k.opt.Logs.Dir)
	if err != nil {
		t.Fatal(err)
	}
	k.opt.Disks.UpdatePaths(func(p *disk.Paths) { *p = disk.Paths{Node: k.opt.Logs.Dir} })
	room, err := k.until(policy.NodeFSAvailable, policy.Percent(50).Of)(t.Context())
	if err != nil || room.Bytes-fs.Reserved+room.LackBytes != policy.Percent(50).Of(fs.Total) || room.LackInodes != 0 {
		t.Errorf("bytes: %+v of %d, %v", room, fs.Total, err)
	}
	room, err = k.until(policy.NodeFSInodesFree, policy.Percent(50).Of)(t.Context())
	if fs.Inodes == 0 { // as on btrfs
		if !errors.Is(err, errNoTotal) {
			t.Errorf("no inodes: %+v, %v", room, err)
		}
	} else if err != nil || room.Inodes+room.LackInodes != policy.Percent(50).Of(fs.Inodes) || room.LackBytes != 0 {
		t.Errorf("inodes: %+v of %d, %v", room, fs.Inodes, err)
	}
	met := func(s policy.Signal) policy.Met { return policy.Met{Threshold: policy.Threshold{Signal: s}, Target: 7} }
	if k.target(met(policy.PIDAvailable)) != nil || k.target(met(policy.MemoryAvailable)) != nil {
		t.Error("memory and PIDs have a target")
	}
	if room, err := k.target(met(policy.NodeFSAvailable))(t.Context()); err != nil || room.Bytes-fs.Reserved+room.LackBytes != 7 {
		t.Errorf("under pressure: %+v, %v", room, err)
	}
	// Nothing replaces an unknown filesystem, not even that of the working directory.
	if _, err := k.target(met(policy.ImageFSAvailable))(t.Context()); !errors.Is(err, disk.ErrNoPath) {
		t.Errorf("under pressure, not known: %v", err)
	}
	if _, err := k.watermark(k.config().Images)(t.Context()); !errors.Is(err, disk.ErrNoPath) {
		t.Errorf("the watermark, not known: %v", err)
	}
}

// An image of an unknown age stays, unless the operator does not care. Each prune is recorded with the operator and
// starts the ledger.
func TestPruneIgnoresAge(t *testing.T) {
	k := newKeeping(t)
	cfg := k.config()
	cfg.Images.MinAge, cfg.Images.UnusedGrace = time.Minute, time.Hour
	k.SetConfig(cfg)
	recorded := make(chan *api.Peer)
	k.opt.Record = func(_ api.ReclaimView, by *api.Peer) { recorded <- by }
	for _, c := range []struct {
		ignore bool
		images int
	}{{false, 0}, {true, 1}} {
		reports, err := k.Prune(t.Context(), api.PruneOptions{Images: true, IgnoreAge: c.ignore}, api.Peer{UID: 7})
		if by := <-recorded; err != nil || by == nil || by.UID != 7 {
			t.Fatalf("by %v, %v", by, err)
		}
		if _, images := k.removed(); images != c.images {
			t.Errorf("ignore age %t: %d images removed: %+v", c.ignore, images, reports)
		}
		if _, err := os.Stat(ledgerPath(&cfg)); err != nil {
			t.Errorf("no ledger: %v", err)
		}
	}
}

// When its caller gives up, a prune ends the image's removal in flight: cut short, it would leave a record that holds all
// layers of the image. The report has that image, and the next one is not begun.
func TestPruneEndsTheRemovalInFlight(t *testing.T) {
	k := newKeeping(t)
	nodetest.AddUnusedImage(k.server)
	release := k.server.Inject(critest.Fault{Method: "RemoveImage", Hang: true})
	ctx, cancel := context.WithCancel(t.Context())
	var reports []reclaim.Report
	var wg sync.WaitGroup
	wg.Go(func() { reports, _ = k.Prune(ctx, api.PruneOptions{Images: true}, api.Peer{}) })
	k.server.WaitCalls(t, "RemoveImage", 1)
	cancel()
	release()
	wg.Wait()
	if _, images := k.removed(); images != 1 || len(reports) != 1 || len(reports[0].Removed) != 1 || !errors.Is(reports[0].Err(), context.Canceled) {
		t.Errorf("%d removals: %+v", images, reports)
	}
}

// The ledger starts when the runtime answers, not a minute later.
func TestLedgerBegins(t *testing.T) {
	k := newKeeping(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { k.Run(ctx) })
	k.Begin()
	k.server.WaitCalls(t, "ListImages", 1)
	for k.ledger.Empty() {
		runtime.Gosched()
	}
	cancel()
	wg.Wait()
	if containers, images := k.removed(); containers+images != 0 {
		t.Errorf("%d containers and %d images removed at the start", containers, images)
	}
}
