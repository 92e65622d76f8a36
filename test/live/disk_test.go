package live_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

const (
	// imageFS is the size of the filesystem of images and writable layers: half a GiB
	// of memory.
	imageFS = 512 * mib
	// An image is there twice, packed and unpacked.
	imageSize, imageTakes = 20 * mib, 2 * imageSize
	// Pressure begins below 40 % and ends at 45 %.
	diskLow, diskTarget = "40%", 45
)

// A full image filesystem costs as many images as it takes, one more where the runtime is
// slow to give their space back, and none that is needed; a pod whose writable layer takes more than that frees is stopped, and no
// other.
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
			// On one filesystem both name the same; whichever has reclaimed first stops.
			if stop.Signal != policy.ImageFSAvailable.String() && stop.Signal != policy.ContainerFSAvailable.String() {
				n.Errorf("stopped for %s", stop.Signal)
			}
			n.ended(filler)
			n.until("the filesystem to be relieved", func() bool { return n.room() >= imageFS*diskTarget/100 })
			n.until("the threshold to be met no more", func() bool { return len(s.met()) == 0 })
			s.stopped("default/filler") // and that was the only stop
			n.alive(user, writer)
			n.pruned(s, prunable)
		})
	}
}

// newDisk is a lab of the test's own with a small image filesystem.
func newDisk(t *testing.T, runtime string) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a private containerd with mounts and cgroups")
	}
	l, err := lab.Start(context.Background(), lab.Options{Containerd: runtime, ImageFSBytes: imageFS, Workload: built.workload, Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return onLab(t, l)
}

// images imports images of every kind; it returns the one to run and those that may
// go. The filesystem is below its threshold then.
func (n *node) images(runtime string) (used string, prunable []string) {
	n.Helper()
	spec := func(name string) lab.ImageSpec {
		return lab.ImageSpec{Name: "registry.local/" + name + ":1", ExtraBytes: imageSize, RepoDigest: true}
	}
	undated, pinned := spec("undated"), spec("pinned")
	undated.RepoDigest = false
	specs := []lab.ImageSpec{spec("used"), undated}
	if runtime == lab.Containerd2 { // Debian's cannot pin
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

// pruned waits until the pressure is over, makes sure that nothing went that may
// not, and returns what went.
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

// missing are the images that are not there any more.
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

// room is what is available on the image filesystem.
func (n *node) room() int64 {
	n.Helper()
	space, err := cgroup.Statfs(n.lab.ContainerdRoot())
	if err != nil {
		n.Fatal(err)
	}
	return space.Available
}

// met are the thresholds that are met.
func (s *service) met() []guard.ThresholdStatus {
	s.Helper()
	var met []guard.ThresholdStatus
	for _, v := range s.status().Signals {
		for _, t := range v.Thresholds {
			if t.Met {
				met = append(met, t)
			}
		}
	}
	return met
}
