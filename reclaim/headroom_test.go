package reclaim

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// containerd answers a removal before it frees the space. A collector that did not wait would remove
// too much.
func TestCollectWaitsForTheSpace(t *testing.T) {
	t.Parallel()
	t.Run("space that comes late is waited for", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Options{})
			w.withDead(6, 100)
			w.rt.lag = 300 * time.Millisecond
			started := time.Now()
			r := w.Collect(t.Context(), anyContainer.until(w.rt.want(100)))[0]
			equal(t, "removed", ids(r.Removed), []string{"a"})
			if took := time.Since(started); !r.Met || took < 300*time.Millisecond || took > 400*time.Millisecond {
				t.Errorf("met %v after %v", r.Met, took)
			}
		})
	})
	t.Run("also on a filesystem that frees it with a transaction", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Options{})
			images := w.withImages(t, 20, 100)
			w.rt.lag = 4 * time.Second
			late := func(ctx context.Context) (Room, error) {
				room, err := w.rt.want(150)(ctx)
				room.Lag = 5 * time.Second
				return room, err
			}
			r := w.Collect(t.Context(), anyImage.until(late))[0]
			if equal(t, "removed", ids(r.Removed), []string{images[0].ID, images[1].ID}); !r.Met {
				t.Errorf("not met: %+v", r)
			}
		})
	})
	t.Run("where nothing comes, not for long", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Options{})
			w.withDead(20, 0)
			started := time.Now()
			r := w.Collect(t.Context(), anyContainer.until(w.rt.want(1)))[0]
			if len(r.Removed) != 20 || r.Met {
				t.Errorf("removed %d", len(r.Removed))
			}
			// It waits after removals 1, 2, 4, 8 and 16, and at the end.
			if took := time.Since(started); took < 3*time.Second || took > 4*time.Second {
				t.Errorf("took %v", took)
			}
		})
	})
	t.Run("space that never stops coming is waited for 2 s", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Options{})
			w.withDead(1, 0)
			started := time.Now()
			drip := func(context.Context) (Room, error) {
				return Room{Bytes: int64(time.Since(started)), LackBytes: 1}, nil
			}
			w.Collect(t.Context(), anyContainer.until(drip))
			if took := time.Since(started); took < settleAtMost || took > settleAtMost+200*time.Millisecond {
				t.Errorf("took %v", took)
			}
		})
	})
	t.Run("inodes that come late are waited for", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Options{})
			w.withDead(6, 0)
			started := time.Now()
			r := w.Collect(t.Context(), anyContainer.until(func(context.Context) (Room, error) {
				inodes := int64(time.Since(started) / (10 * time.Millisecond))
				return Room{Inodes: inodes, LackInodes: 100 - inodes}, nil
			}))[0]
			if took := time.Since(started); len(r.Removed) != 1 || !r.Met || took > 1100*time.Millisecond {
				t.Errorf("removed %d, met %v after %v", len(r.Removed), r.Met, took)
			}
		})
	})
	t.Run("another writer is not waited for", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Options{})
			w.withDead(1, 0)
			started := time.Now()
			w.Collect(t.Context(), anyContainer.until(func(context.Context) (Room, error) {
				return Room{Bytes: int64(time.Hour - time.Since(started)), LackBytes: 1}, nil
			}))
			if took := time.Since(started); took < settleStill || took > settleStill+200*time.Millisecond {
				t.Errorf("took %v", took)
			}
		})
	})
	t.Run("an image that freed what it should is not waited for", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Options{})
			w.withImages(t, 50, 100)
			started := time.Now()
			r := w.Collect(t.Context(), anyImage.until(w.rt.want(1<<40)))[0]
			if took := time.Since(started); len(r.Removed) != 50 || took != 0 {
				t.Errorf("%d images took %v", len(r.Removed), took)
			}
		})
	})
	t.Run("without a limit, only the end is waited for", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Options{})
			w.withImages(t, 50, 100)
			w.rt.lag = 300 * time.Millisecond
			free := w.rt.want(0)
			started := time.Now()
			r := w.Collect(t.Context(), anyImage.until(func(ctx context.Context) (Room, error) {
				room, err := free(ctx)
				return Room{Bytes: room.Bytes, Unlimited: true}, err
			}))[0]
			if took := time.Since(started); len(r.Removed) != 50 || r.Freed != 5000 || r.Met || took > time.Second {
				t.Errorf("%d images, %d freed, met %v after %v", len(r.Removed), r.Freed, r.Met, took)
			}
		})
	})
	t.Run("a context that ends is obeyed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Options{})
			w.withDead(20, 0)
			ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
			defer cancel()
			started := time.Now()
			p := anyContainer.until(w.rt.want(1))
			p.Steps = []Step{StepContainers, StepImages}
			reports := w.Collect(ctx, p)
			if took := time.Since(started); took != 700*time.Millisecond || len(reports) != 1 {
				t.Errorf("%d reports after %v", len(reports), took)
			}
			if !errors.Is(reports[0].Err(), context.DeadlineExceeded) {
				t.Errorf("errors: %v", reports[0].Err())
			}
		})
	})
	t.Run("a second collection waits for its turn", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Options{})
			w.withDead(2, 0)
			go w.Collect(t.Context(), anyContainer.until(w.rt.want(1)))
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if got := w.Collect(ctx, anyContainer); got != nil {
				t.Errorf("ran beside another one: %+v", got)
			}
		})
	})
}

// A dry run does not know how many inodes an image frees: it lists all images, and says that fewer may be enough.
func TestCollectDryRunForInodes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lack   Room
		dryRun bool
		want   bool
	}{
		"inodes":           {Room{LackInodes: 1}, true, true},
		"bytes":            {Room{LackBytes: 1 << 20}, true, false},
		"inodes, for real": {Room{LackInodes: 1}, false, false},
		"without a target": {Room{Unlimited: true}, true, false},
		"inodes, no image": {Room{LackInodes: 1}, true, false},
		"inodes and bytes": {Room{LackInodes: 1, LackBytes: 1}, true, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Options{})
			n := 3
			if name == "inodes, no image" {
				n = 0
			}
			w.withDead(1, 10)
			w.withImages(t, n, 100)
			p := anyImage.until(func(context.Context) (Room, error) { return c.lack, nil })
			p.Steps, p.DryRun, p.Containers = []Step{StepContainers, StepImages}, c.dryRun, anyContainer.Containers
			for _, r := range w.Collect(t.Context(), p) {
				if want := c.want && r.Step == StepImages; r.AtMost != want || r.Met || r.Step == StepImages && len(r.Removed) != n {
					t.Errorf("%s: %s: at most %t, met %t, %d removed", name, r.Step, r.AtMost, r.Met, len(r.Removed))
				}
			}
		})
	}
}

// Space that another process frees while a step chooses its first item is not credited to the step.
func TestCollectFreedSinceTheFirstRemoval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for step, lists := range map[Step]string{StepContainers: "ContainerStatus", StepImages: "Images"} {
			w := newWorld(Options{})
			w.withImages(t, 1, 100)
			w.withDead(1, 100)
			once := false
			w.rt.faults[lists] = func(context.Context) (bool, error) {
				w.rt.mu.Lock()
				defer w.rt.mu.Unlock()
				if !once {
					once, w.rt.free = true, w.rt.free+1000
				}
				return false, nil
			}
			p := anyImage.until(w.rt.want(1 << 40))
			p.Steps, p.Containers = []Step{step}, anyContainer.Containers
			if r := w.Collect(t.Context(), p)[0]; len(r.Removed) != 1 || r.Freed != 100 {
				t.Errorf("%s: %d removed, %d freed, want 100", step, len(r.Removed), r.Freed)
			}
		}
	})
}

// An image is not to blame for a filesystem that cannot be measured.
func TestCollectUnmeasuredBeforeAnImage(t *testing.T) {
	t.Parallel()
	w := newWorld(Options{})
	w.withImages(t, 2, 100)
	measured := false
	r := w.Collect(t.Context(), anyImage.until(func(context.Context) (Room, error) {
		if measured {
			return Room{}, errBoom
		}
		measured = true
		return Room{LackBytes: 1}, nil
	}))[0]
	if len(r.Errors) != 1 || r.Errors[0].Kind != "" || !errors.Is(r.Err(), errBoom) || len(w.rt.called("RemoveImage")) != 0 {
		t.Errorf("errors %+v, calls %q", r.Errors, w.rt.called("RemoveImage"))
	}
}
