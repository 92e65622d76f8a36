package reclaim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cri"
)

// While the runtime does not answer one run for the uses of images, another one waits no longer than its caller does.
func TestUsesAreAwaitedAsLongAsAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(Options{})
	w.rt.containers = append(w.rt.containers, cri.Container{ID: "c", State: cri.Running})
	asked, release, done := make(chan struct{}), make(chan struct{}), make(chan error)
	w.rt.faults["ContainerStatus c"] = func(context.Context) (bool, error) {
		close(asked)
		<-release
		return false, nil
	}
	go func() { done <- w.Notice(t.Context()) }()
	<-asked
	ended, cancel := context.WithCancel(t.Context())
	w.rt.mu.Lock()
	w.rt.faults["Status"] = func(context.Context) (bool, error) {
		cancel()
		return false, nil
	}
	w.rt.mu.Unlock()
	if err := w.Notice(ended); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "another run asks the runtime") {
		t.Errorf("the second run: %v", err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Errorf("the first run: %v", err)
	}
}

// A container without a status keeps the image that it runs and the images that it may have mounted.
// All others are removed, and the ledger is still updated.
func TestContainerWithoutStatus(t *testing.T) {
	t.Parallel()
	// Images 0 and 1 are older than the container, 2 is newer; it runs 0.
	world := func(t *testing.T, c cri.Container, fault func(context.Context) (bool, error)) (world, []cri.Image) {
		t.Helper()
		w := newWorld(Options{})
		images := w.withImages(t, 2, 10)
		c.ID, c.Name, c.Image = "c", "app", images[0].Tags[0]
		w.rt.containers = append(w.rt.containers, c)
		w.rt.faults["ContainerStatus c"] = fault
		notice := func() {
			w.clock.add(time.Minute)
			if err := w.Notice(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		notice()
		w.rt.images = append(w.rt.images, image(2, 10))
		notice()
		w.clock.add(48 * time.Hour)
		return w, slices.Clone(w.rt.images)
	}
	const held = "may be an image volume of container app, whose status the runtime does not give"
	t.Run("a running one holds back what it may have mounted", func(t *testing.T) {
		t.Parallel()
		w, images := world(t, cri.Container{State: cri.Running}, refuse)
		dry := anyImage
		dry.DryRun = true
		equal(t, "in a dry run", ids(w.Collect(t.Context(), dry)[0].Removed), []string{images[2].ID})
		r := w.Collect(t.Context(), anyImage)[0]
		equal(t, "removed", ids(r.Removed), []string{images[2].ID})
		if got := why(r.Kept, images[1].ID); got != held {
			t.Errorf("the older image: %s", got)
		}
		if got := why(r.Kept, images[0].ID); got != "in use: container c" {
			t.Errorf("its own image: %s", got)
		}
		if len(r.InDoubt) != 1 || !strings.Contains(r.InDoubt[0], "container app (c): ") || len(r.Errors) > 0 {
			t.Errorf("in doubt %q, errors %v", r.InDoubt, r.Errors)
		}
		if h := w.ledger.history(images[0].ID, w.clock.now().Boot); !h.used {
			t.Errorf("the ledger stands still: %+v", h)
		}
		delete(w.rt.faults, "ContainerStatus c")
		r = w.Collect(t.Context(), anyImage)[0]
		equal(t, "removed once the status is there", ids(r.Removed), []string{images[1].ID})
	})
	t.Run("one that mounts an image keeps it when its status fails again", func(t *testing.T) {
		t.Parallel()
		w, images := world(t, cri.Container{State: cri.Running}, nil)
		w.rt.details["c"] = cri.ContainerDetail{Mounts: []cri.Mount{{Image: images[1].ID}}}
		w.uses.volumes = nil
		w.Collect(t.Context(), Plan{Steps: []Step{StepImages}, DryRun: true, Images: ImagePolicy{Prune: PruneAuto}})
		w.rt.faults["ContainerStatus c"] = refuse
		equal(t, "removed", ids(w.Collect(t.Context(), anyImage)[0].Removed), []string{images[2].ID})
	})
	t.Run("one that comes right before a removal", func(t *testing.T) {
		t.Parallel()
		w, images := world(t, cri.Container{State: cri.Running}, nil)
		w.rt.faults["Images"] = func(context.Context) (bool, error) {
			w.rt.mu.Lock()
			defer w.rt.mu.Unlock()
			if len(w.rt.containers) == 1 {
				w.rt.containers = append(w.rt.containers, cri.Container{ID: "new", State: cri.Created})
				w.rt.faults["ContainerStatus new"] = refuse
			}
			return false, nil
		}
		if r := w.Collect(t.Context(), anyImage)[0]; len(r.Removed) != 0 || len(w.rt.called("RemoveImage")) != 0 {
			t.Errorf("removed %q of %d images", ids(r.Removed), len(images))
		}
	})
	for name, c := range map[string]struct {
		state   cri.State
		version cri.Version
		fault   func(context.Context) (bool, error)
	}{
		"one that has ended mounts nothing":      {cri.Exited, cri.Version{}, refuse},
		"a runtime that cannot mount images":     {cri.Running, cri.Version{RuntimeName: "containerd", RuntimeVersion: "1.6.20~ds1"}, refuse},
		"one that has vanished is not a failure": {cri.Running, cri.Version{}, gone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, images := world(t, cri.Container{State: c.state}, c.fault)
			w.rt.version = c.version
			r := w.Collect(t.Context(), anyImage)[0]
			equal(t, "removed", sortedIDs(r.Removed), []string{images[1].ID, images[2].ID})
			if len(r.InDoubt) > 0 || len(r.Errors) > 0 {
				t.Errorf("in doubt %q, errors %v", r.InDoubt, r.Errors)
			}
		})
	}
	t.Run("a runtime that hangs is asked for two of many", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Options{})
			w.withImages(t, 1, 10)
			for _, id := range []string{"a", "b", "c", "d"} {
				w.rt.containers = append(w.rt.containers, cri.Container{ID: id, State: cri.Running})
			}
			w.rt.faults["ContainerStatus"] = func(context.Context) (bool, error) { return true, cri.ErrTimeout }
			for range 2 {
				if r := w.Collect(t.Context(), anyImage)[0]; len(r.Removed) != 0 || len(r.InDoubt) != 4 {
					t.Errorf("removed %q, in doubt %q", ids(r.Removed), r.InDoubt)
				}
			}
			equal(t, "asked", w.rt.called("ContainerStatus"), []string{"ContainerStatus a", "ContainerStatus b", "ContainerStatus c", "ContainerStatus d"})
		})
	})
	t.Run("without the runtime nothing is said", func(t *testing.T) {
		t.Parallel()
		w, _ := world(t, cri.Container{State: cri.Running}, nil)
		w.uses.volumes = nil
		w.rt.faults["ContainerStatus c"] = unavailable
		if r := w.Collect(t.Context(), anyImage)[0]; len(r.Removed) != 0 || !errors.Is(r.Err(), cri.ErrUnavailable) {
			t.Errorf("report: %+v", r)
		}
	})
}
