package live_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	guarddisk "github.com/criguard/criguard/guard/disk"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

const (
	// imageFS is the size of the filesystem for images and writable layers: half a GiB of memory.
	imageFS = 512 * mib
	// An image takes its size twice, packed and unpacked.
	imageSize, imageTakes = 20 * mib, 2 * imageSize
	// Pressure begins below 40 % and ends at 45 %.
	diskLow, diskTarget = "40%", 45
)

// When the image filesystem is full, criguard removes just enough images, and none that is in use.
// If a pod's writable layer takes more than that frees, criguard stops this pod and no other.
func TestDisk(t *testing.T) {
	for _, runtime := range lab.Runtimes() {
		t.Run("containerd-"+runtime, func(t *testing.T) {
			n := newDisk(t, runtime)
			used, prunable := n.images(runtime)
			user := n.pod(lab.PodSpec{Name: "user", Containers: []lab.ContainerSpec{{Name: "main", Image: used}}})
			writer := n.pod(lab.PodSpec{Name: "writer", Containers: one("fill", "-mib", "24")})
			n.until("what the writer wrote to be known", func() bool {
				u, err := n.client.WritableLayer(context.Background(), writer.Containers[0].ID)
				return err == nil && u.Known && u.UsedBytes >= 24*mib
			})
			n.configure(config{
				hard:    thresholds{policy.ImageFSAvailable: diskLow},
				reclaim: thresholds{policy.ImageFSAvailable: "5%"},
				more:    "[images]\nhigh = \"99%\"\nlow = \"98%\"\nmin_age = \"0s\"\nunused_grace = \"0s\"\nhold_after_runtime_restart = \"0s\"\n",
			})
			s := n.startWith(2)
			gone := n.pruned(s, prunable)
			if len(gone) == 0 || len(gone) == len(prunable) {
				n.Errorf("%d of %d prunable images went", len(gone), len(prunable))
			}
			if room := n.room(); room < imageFS*diskTarget/100 || room-2*imageTakes >= imageFS*diskTarget/100 {
				n.Errorf("%d MiB are available after %d images went, want what is needed and one image more at most", room/mib, len(gone))
			}
			if stops := s.stops(); len(stops) > 0 {
				n.Fatalf("a pod was stopped for what pruning relieves: %+v", stops[0].Stop)
			}

			filler := n.pod(lab.PodSpec{Name: "filler", Containers: one("fill", "-mib", "220")})
			stop := s.stopped("default/filler")
			// On a single filesystem both signals mean the same; the stop names the signal that
			// reclaimed first.
			if stop.Signal != policy.ImageFSAvailable.String() && stop.Signal != policy.ContainerFSAvailable.String() {
				n.Errorf("stopped for %s", stop.Signal)
			}
			n.ended(filler)
			n.until("the filesystem to be relieved", func() bool { return n.room() >= imageFS*diskTarget/100 })
			n.until("the threshold to be met no more", func() bool { return len(s.met()) == 0 })
			s.stopped("default/filler") // checks that this was the only stop
			n.alive(user, writer)
			n.pruned(s, prunable)
			// What the filler wrote meanwhile is not counted against what was removed.
			n.until("the log of a reclaim", func() bool { return slices.ContainsFunc(s.events(systemd.EventReclaim), reclaimedImages.MatchString) })
			for _, line := range s.events(systemd.EventReclaim) {
				if strings.Contains(line, " freed=-") {
					n.Errorf("freed less than nothing: %s", line)
				}
			}
		})
	}
}

// criguard finds the writable layers that a real containerd mounts, and needs no runtime to measure them.
func TestLayersAreWalked(t *testing.T) {
	for _, runtime := range lab.Runtimes() {
		t.Run("containerd-"+runtime, func(t *testing.T) {
			n := newDisk(t, runtime)
			writer := n.pod(lab.PodSpec{Name: "writer", Containers: one("fill", "-mib", "24")})
			meter := guarddisk.NewMeter(guarddisk.MeterOptions{
				Source: func() (guarddisk.LayerSource, error) { return nil, cri.ErrNoRuntime }, Paths: func() guarddisk.Paths { return guarddisk.Paths{Node: t.TempDir()} }, Logs: t.TempDir(), Now: cgroup.BootTime,
			})
			pods := []inventory.Pod{{Candidate: policy.Candidate{ID: writer.SandboxID}, Containers: []inventory.Container{{ID: writer.Containers[0].ID}}}}
			n.until("all that the writer wrote to be counted", func() bool {
				meter.MeasureSince(t.Context(), pods, time.Now())
				u, _ := meter.Usage(writer.SandboxID)
				return u.Bytes.Rootfs.Quality == policy.QualityExact && u.Bytes.Rootfs.Value >= 24*mib && u.Bytes.Rootfs.Value < 25*mib
			})
		})
	}
}

// reclaimedImages matches the log line of a reclaim that removed images.
var reclaimedImages = regexp.MustCompile(`msg=reclaimed .* removed=[1-9]\d* freed=[0-9.]+[MG]i `)

// newDisk returns a node of its own with a small image filesystem.
func newDisk(t *testing.T, runtime string) *node {
	t.Helper()
	return onLab(t, harness.StartLab(t, lab.Options{Containerd: runtime, ImageFSBytes: imageFS, Workload: built.workload}))
}

// images imports images of every kind. It returns the one to run and those that may be removed.
// Afterwards the filesystem is below its threshold.
func (n *node) images(runtime string) (used string, prunable []string) {
	n.Helper()
	spec := func(name string) lab.ImageSpec {
		return lab.ImageSpec{Name: "registry.local/" + name + ":1", ExtraBytes: imageSize, RepoDigest: true}
	}
	undated, pinned := spec("undated"), spec("pinned")
	undated.RepoDigest = false
	specs := []lab.ImageSpec{spec("used"), undated}
	if runtime == lab.Containerd2 { // Debian's containerd cannot show pins
		pinned.Pinned = true
		specs = append(specs, pinned)
	}
	for len(specs) < 9 {
		specs = append(specs, spec(fmt.Sprintf("prunable-%d", len(prunable))))
		prunable = append(prunable, specs[len(specs)-1].Name)
	}
	if _, err := n.lab.ImportImages(context.Background(), specs...); err != nil {
		n.Fatal(err)
	}
	return specs[0].Name, prunable
}

// pruned waits until the pressure is over, checks that only prunable images were removed, and
// returns those.
func (n *node) pruned(s *service, prunable []string) []string {
	n.Helper()
	n.until("pruning to end", func() bool {
		removed := 0
		for _, p := range s.history() {
			for i := range p.Reclaimed {
				removed += p.Reclaimed[i].Removed()
			}
		}
		return removed > 0 && len(s.met()) == 0
	})
	kept := []string{"registry.local/used:1", "registry.local/undated:1", lab.PauseImage, lab.WorkloadImage}
	if len(prunable) < 7 {
		kept = append(kept, "registry.local/pinned:1")
	}
	for _, name := range n.missing(kept) {
		n.Errorf("image %s is gone", name)
	}
	return n.missing(prunable)
}

// missing returns the images that no longer exist.
func (n *node) missing(names []string) []string {
	n.Helper()
	images, err := n.client.Images(context.Background())
	if err != nil {
		n.Fatal(err)
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(images, func(img cri.Image) bool { return slices.Contains(img.Tags, name) })
	})
}

// room returns the available space of the image filesystem, in bytes.
func (n *node) room() int64 {
	n.Helper()
	space, err := cgroup.Statfs(n.lab.ContainerdRoot())
	if err != nil {
		n.Fatal(err)
	}
	return space.Available
}

// met returns the thresholds that are met.
func (s *service) met() []api.ThresholdStatus {
	s.Helper()
	var met []api.ThresholdStatus
	for _, v := range s.status().Signals {
		for _, t := range v.Thresholds {
			if t.Met {
				met = append(met, t)
			}
		}
	}
	return met
}
