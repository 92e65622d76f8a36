package reclaim

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cri"
)

// However the removal of one image fails, the other images are unaffected.
func TestCollectImagesFailures(t *testing.T) {
	t.Parallel()
	first := "RemoveImage " + image(0, 1).ID
	removeThen := func(w world, then func(context.Context) (bool, error)) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			w.rt.mu.Lock()
			w.rt.dropImage(image(0, 1).ID)
			w.rt.mu.Unlock()
			return then(ctx)
		}
	}
	nothing := func(context.Context) (bool, error) { return true, nil }
	tests := []struct {
		name    string
		fault   func(world) func(context.Context) (bool, error)
		removed bool // the first image counts as removed
		err     error
		took    time.Duration
	}{
		{"refused", func(world) func(context.Context) (bool, error) { return refuse }, false, cri.ErrRefused, 0},
		{"silently nothing", func(world) func(context.Context) (bool, error) { return nothing }, false, errNothing, 0},
		{"not found, and gone from the list", func(w world) func(context.Context) (bool, error) { return removeThen(w, gone) }, true, nil, 0},
		{"not found, and still listed", func(world) func(context.Context) (bool, error) { return gone }, false, errNothing, 0},
		{"interrupted, nothing done", func(world) func(context.Context) (bool, error) { return hang }, false, cri.ErrTimeout, removeImageFor},
		{"interrupted, yet done", func(w world) func(context.Context) (bool, error) { return removeThen(w, hang) }, true, nil, removeImageFor},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Options{})
				images := w.withImages(t, 3, 10)
				w.rt.faults[first] = tt.fault(w)
				started := time.Now()
				r := w.Collect(t.Context(), anyImage)[0]
				want := []string{images[0].ID, images[1].ID, images[2].ID}
				if !tt.removed {
					want = want[1:]
				}
				equal(t, "removed", ids(r.Removed), want)
				if !errors.Is(r.Err(), tt.err) || (tt.err == nil) != (r.Err() == nil) {
					t.Errorf("errors: %v", r.Err())
				}
				if took := time.Since(started); took != tt.took {
					t.Errorf("took %v", took)
				}
				if len(w.rt.called(first)) != 1 {
					t.Errorf("asked %d times", len(w.rt.called(first)))
				}
				if tt.removed {
					return
				}
				if got := why(r.Kept, images[0].ID); got != "its last removal failed" {
					t.Errorf("kept: %s", got)
				}
				// No retry at once, but after a while.
				w.clock.add(stuckFor - 1)
				w.Collect(t.Context(), anyImage)
				if len(w.rt.called(first)) != 1 {
					t.Error("asked again at once")
				}
				w.clock.add(1)
				delete(w.rt.faults, first)
				r = w.Collect(t.Context(), anyImage)[0]
				equal(t, "removed later", ids(r.Removed), []string{images[0].ID})
			})
		})
	}
	t.Run("on a full disk, the next run tries again", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		images := w.withImages(t, 2, 10)
		w.rt.faults["RemoveImage"] = func(context.Context) (bool, error) {
			return true, fmt.Errorf("%w: open /var/lib/containers/storage/overlay-images/.tmp-images.json: no space left on device", cri.ErrRefused)
		}
		if r := w.Collect(t.Context(), anyImage)[0]; len(r.Removed) != 0 || len(r.Errors) != 2 {
			t.Errorf("%+v", r)
		}
		delete(w.rt.faults, "RemoveImage")
		equal(t, "removed", ids(w.Collect(t.Context(), anyImage)[0].Removed), []string{images[0].ID, images[1].ID})
	})
	t.Run("two in a row that hang end the step", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Options{})
			w.withImages(t, 4, 10)
			w.rt.faults["RemoveImage"] = hang
			r := w.Collect(t.Context(), anyImage)[0]
			if n := len(w.rt.called("RemoveImage")); n != 2 || len(r.Removed) != 0 {
				t.Errorf("asked %d times: %+v", n, r)
			}
		})
	})
	t.Run("what an interrupted removal strands goes later", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		images := w.withImages(t, 1, 10)
		w.rt.faults[first] = func(context.Context) (bool, error) {
			w.rt.mu.Lock()
			defer w.rt.mu.Unlock()
			w.rt.images[0].Tags, w.rt.images[0].Digests = nil, nil
			return true, cri.ErrTimeout
		}
		w.Collect(t.Context(), anyImage)
		delete(w.rt.faults, first)
		w.clock.add(stuckFor)
		r := w.Collect(t.Context(), anyImage)[0]
		equal(t, "removed", ids(r.Removed), []string{images[0].ID})
	})
	t.Run("the list cannot be had after a removal", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		w.withImages(t, 3, 10)
		w.rt.faults[first] = func(context.Context) (bool, error) {
			w.rt.mu.Lock()
			defer w.rt.mu.Unlock()
			w.rt.faults["Images"] = unavailable
			return false, nil
		}
		r := w.Collect(t.Context(), anyImage)[0]
		if len(r.Removed) != 1 || len(w.rt.called("RemoveImage")) != 1 || !errors.Is(r.Err(), cri.ErrUnavailable) {
			t.Errorf("report: %+v", r)
		}
	})
	for name, done := range map[string]bool{"one listing after a removal is late": true, "one listing before a removal is late": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(Options{})
			images := w.withImages(t, 3, 10)
			late, call, lists := false, "Containers", 0
			if done {
				call = "Images"
			}
			w.rt.faults[call] = func(context.Context) (bool, error) {
				if lists++; lists == 2 { // the first is that of the judgement
					late = true
					return true, cri.ErrTimeout
				}
				return false, nil
			}
			r := w.Collect(t.Context(), anyImage)[0]
			want := []string{images[1].ID, images[2].ID}
			if done {
				want = slices.Insert(want, 0, images[0].ID)
			}
			equal(t, "removed", ids(r.Removed), want)
			if !late || len(r.Errors) != 1 || r.Errors[0].Kind != "" || !r.Errors[0].TimedOut() {
				t.Errorf("errors: %+v", r.Errors)
			}
		})
	}
}

// A container that is created between the listing and a removal keeps its image.
func TestCollectImagesListsBeforeEach(t *testing.T) {
	t.Parallel()
	w := newWorld(Options{})
	images := w.withImages(t, 3, 10)
	w.rt.faults["RemoveImage "+images[0].ID] = func(context.Context) (bool, error) {
		w.rt.mu.Lock()
		defer w.rt.mu.Unlock()
		w.rt.containers = []cri.Container{{ID: "new", State: cri.Created, Image: images[1].Tags[0]}}
		return false, nil
	}
	r := w.Collect(t.Context(), anyImage)[0]
	equal(t, "removed", ids(r.Removed), []string{images[0].ID, images[2].ID})
	if got := why(r.Kept, images[1].ID); got != "in use: container new" {
		t.Errorf("kept: %s", got)
	}
	if n, removals := len(w.rt.called("Containers")), len(w.rt.called("RemoveImage")); n < 1+removals {
		t.Errorf("containers listed %d times for %d removals", n, removals)
	}
}

// A container that begins to need an image during the judgement and the write of the ledger keeps it.
func TestCollectImagesLooksBeforeEach(t *testing.T) {
	t.Parallel()
	for name, comes := range map[string]func(*fakeRuntime, cri.Image) (why string){
		"a container": func(rt *fakeRuntime, img cri.Image) string {
			rt.containers = []cri.Container{{ID: "new", State: cri.Created, Image: img.Tags[0]}}
			return "in use: container new"
		},
		"an image volume": func(rt *fakeRuntime, img cri.Image) string {
			rt.containers = []cri.Container{{ID: "new", State: cri.Created}}
			rt.details["new"] = cri.ContainerDetail{Mounts: []cri.Mount{{Image: img.Digests[0]}}}
			return "in use: image volume of container new"
		},
		"a sandbox": func(rt *fakeRuntime, img cri.Image) string {
			rt.sandboxes, rt.pause["new"] = []cri.Sandbox{sandbox("new", "p", true, epoch)}, img.ID
			return "in use: sandbox image"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(Options{})
			images := w.withImages(t, 2, 10)
			var want string
			w.rt.faults["Images"] = func(context.Context) (bool, error) {
				w.rt.mu.Lock()
				defer w.rt.mu.Unlock()
				if want == "" {
					want = comes(w.rt, images[0])
				}
				return false, nil
			}
			r := w.Collect(t.Context(), anyImage)[0]
			equal(t, "asked", w.rt.called("RemoveImage"), []string{"RemoveImage " + images[1].ID})
			equal(t, "removed", ids(r.Removed), []string{images[1].ID})
			if got := why(r.Kept, images[0].ID); got != want || len(r.Errors) > 0 {
				t.Errorf("kept: %s, want %s; errors: %s", got, want, messages(r))
			}
			if w.ledger.history(images[0].ID, w.clock.now().Boot).removing {
				t.Error("it counts as half removed")
			}
		})
	}
	t.Run("a container that starts meanwhile", func(t *testing.T) {
		t.Parallel()
		for name, fault := range map[string]string{"while another is asked for its volumes": "ContainerStatus other", "while the disk is measured": ""} {
			w := newWorld(Options{})
			images := w.withImages(t, 1, 10)
			start := func(id string) {
				w.rt.mu.Lock()
				defer w.rt.mu.Unlock()
				w.rt.containers = append(w.rt.containers, cri.Container{ID: id, State: cri.Created, Image: map[string]string{"late": images[0].Tags[0]}[id]})
			}
			p := anyImage
			listed := 0
			w.rt.faults["Images"] = func(context.Context) (bool, error) {
				if listed++; listed == 1 && fault != "" {
					start("other")
				}
				return false, nil
			}
			w.rt.faults[fault] = func(context.Context) (bool, error) {
				start("late")
				return false, nil
			}
			measured := 0
			p.Target = func(ctx context.Context) (Room, error) {
				if measured++; measured == 2 && fault == "" {
					start("late")
				}
				return w.rt.want(100)(ctx)
			}
			r := w.Collect(t.Context(), p)[0]
			equal(t, name, w.rt.called("RemoveImage"), nil)
			if len(r.Errors) > 0 {
				t.Errorf("%s: %s", name, messages(r))
			}
		}
	})
	t.Run("without that look nothing goes", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		w.withImages(t, 2, 10)
		w.rt.faults["Images"] = func(context.Context) (bool, error) {
			w.rt.mu.Lock()
			defer w.rt.mu.Unlock()
			w.rt.faults["Containers"] = refuse
			return false, nil
		}
		r := w.Collect(t.Context(), anyImage)[0]
		if len(w.rt.called("RemoveImage")) != 0 || !errors.Is(r.Err(), cri.ErrRefused) {
			t.Errorf("calls %q, errors: %v", w.rt.called("RemoveImage"), r.Err())
		}
	})
}

// Reading air-gap files takes long, so nothing is listed before.
func TestJudgeReadsFilesFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(Options{})
	w.withImages(t, 1, 10)
	dir := t.TempDir()
	list := filepath.Join(dir, "list.txt")
	w.rt.faults["Containers"] = func(context.Context) (bool, error) {
		writeFile(t, list, w.rt.images[0].Tags[0])
		return false, nil
	}
	p := anyImage
	p.Images.AirGapDirs = []string{dir}
	for _, want := range []int{1, 0} {
		got, err := w.Images(t.Context(), p)
		if err != nil || len(removable(got.Verdicts)) != want {
			t.Errorf("want %d that may go: %+v, %v", want, got, err)
		}
	}
}

func TestCollectImagesUses(t *testing.T) {
	t.Parallel()
	t.Run("image volumes, asked for once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		images := w.withImages(t, 2, 10)
		w.rt.containers = []cri.Container{{ID: "c", Image: "x:1"}, {ID: "d", Image: "x:1"}}
		w.rt.details["c"] = cri.ContainerDetail{Mounts: []cri.Mount{{Image: images[0].Tags[0]}}}
		r := w.Collect(t.Context(), anyImage)[0]
		equal(t, "removed", ids(r.Removed), []string{images[1].ID})
		equal(t, "asked", w.rt.called("ContainerStatus"), []string{"ContainerStatus c", "ContainerStatus d"})
	})
	t.Run("sandbox images of every sandbox, asked for once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		images := w.withImages(t, 3, 10)
		w.rt.status.SandboxImage = ""
		w.rt.sandboxes = []cri.Sandbox{sandbox("s1", "p", true, epoch), sandbox("s2", "q", false, epoch)}
		w.rt.pause["s1"], w.rt.pause["s2"] = images[0].Tags[0], images[1].ID
		for range 2 {
			r := w.Collect(t.Context(), anyImage)[0]
			if len(r.Kept) != 2 {
				t.Errorf("kept: %+v", r.Kept)
			}
		}
		equal(t, "asked", w.rt.called("SandboxDetail"), []string{"SandboxDetail s1", "SandboxDetail s2"})
	})
	t.Run("a sandbox with a hung shim", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Options{})
			images := w.withImages(t, 2, 10)
			w.rt.status.SandboxImage = ""
			w.rt.sandboxes = []cri.Sandbox{sandbox("s1", "p", true, epoch), sandbox("s2", "q", true, epoch)}
			w.rt.pause["s2"] = images[0].Tags[0]
			w.rt.faults["SandboxDetail s1"] = func(context.Context) (bool, error) { return true, cri.ErrTimeout }
			r := w.Collect(t.Context(), anyImage)[0]
			equal(t, "removed", ids(r.Removed), []string{images[1].ID})
			if n := len(w.rt.called("SandboxDetail s1")); n != 1 {
				t.Errorf("asked %d times", n)
			}
			w.clock.add(askSandboxAgain)
			w.Collect(t.Context(), anyImage)
			if n := len(w.rt.called("SandboxDetail s1")); n != 2 {
				t.Errorf("after a while asked %d times", n)
			}
		})
	})
	t.Run("sandboxes that the runtime refuses to describe hide no other", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		images := w.withImages(t, 2, 10)
		w.rt.status.SandboxImage = ""
		w.rt.sandboxes = []cri.Sandbox{
			sandbox("s1", "p", true, epoch), sandbox("s2", "q", true, epoch), sandbox("s3", "r", true, epoch),
		}
		w.rt.pause["s3"] = images[0].Tags[0]
		w.rt.faults["SandboxDetail s1"], w.rt.faults["SandboxDetail s2"] = refuse, refuse
		r := w.Collect(t.Context(), anyImage)[0]
		equal(t, "removed", ids(r.Removed), []string{images[1].ID})
	})
	t.Run("a runtime that goes away is asked again at once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		images := w.withImages(t, 2, 10)
		w.rt.status.SandboxImage = ""
		w.rt.sandboxes = []cri.Sandbox{
			sandbox("s1", "p", true, epoch), sandbox("s2", "q", true, epoch), sandbox("s3", "r", true, epoch),
		}
		w.rt.pause["s1"], w.rt.pause["s3"] = images[0].Tags[0], images[1].Tags[0]
		w.rt.faults["SandboxDetail"] = func(context.Context) (bool, error) { return true, cri.ErrUnavailable }
		dry := anyImage
		dry.DryRun = true
		w.Collect(t.Context(), dry)
		if n := len(w.rt.called("SandboxDetail")); n != 1 {
			t.Errorf("asked %d times while it is away", n)
		}
		delete(w.rt.faults, "SandboxDetail")
		r := w.Collect(t.Context(), anyImage)[0]
		equal(t, "removed", ids(r.Removed), nil)
	})
	t.Run("no source tells the sandbox image: all stay", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		w.withImages(t, 2, 10)
		w.rt.status.SandboxImage = ""
		w.rt.sandboxes = []cri.Sandbox{sandbox("s1", "p", true, epoch)}
		w.rt.faults["SandboxDetail"] = refuse
		r := w.Collect(t.Context(), anyImage)[0]
		if len(r.Removed) != 0 || !strings.Contains(r.Kept[0].Why, "not known") {
			t.Errorf("report: %+v", r)
		}
		// A pinned image shows that the runtime can pin.
		w.rt.images = append(w.rt.images, cri.Image{ID: "sha256:ff", Pinned: true})
		if r = w.Collect(t.Context(), anyImage)[0]; len(r.Removed) != 2 {
			t.Errorf("with a pin: %+v", r)
		}
	})
	t.Run("air-gap files, with notes", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		images := w.withImages(t, 2, 10)
		dir := t.TempDir()
		write(t, filepath.Join(dir, "x.tar.zst"), 0, epoch)
		p := anyImage
		p.Images.AirGapDirs = []string{dir}
		list, err := w.Images(t.Context(), p)
		if err != nil || len(list.Notes) != 1 || len(removable(list.Verdicts)) != 2 || list.PinsSeen {
			t.Errorf("list: %+v, %v", list, err)
		}
		writeFile(t, filepath.Join(dir, "list.txt"), images[0].Tags[0])
		r := w.Collect(t.Context(), p)[0]
		equal(t, "removed", ids(r.Removed), []string{images[1].ID})
		if len(r.Notes) != 1 || why(r.Kept, images[0].ID) != "cannot be pulled again: it came from an air-gap file" {
			t.Errorf("report: %+v", r)
		}
		p.Images.Prune = PruneAlways
		if list, err = w.Images(t.Context(), p); err != nil || len(list.Notes) != 0 || len(removable(list.Verdicts)) != 1 {
			t.Errorf("always: %+v, %v", list, err)
		}
	})
}

// The ledger is on disk before the first removal and after the last one. A dry run does not touch it.
func TestCollectImagesSavesLedger(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	l, err := OpenLedger(path, "boot", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(Options{Ledger: l})
	images := w.withImages(t, 2, 10)
	onDisk := func() []string {
		saved, err := OpenLedger(path, "boot", w.clock.now().Boot)
		if err != nil {
			t.Fatal(err)
		}
		return saved.known()
	}
	equal(t, "noticed", onDisk(), []string{cri.TrimID(images[0].ID), cri.TrimID(images[1].ID)})

	w.rt.images = append(w.rt.images, cri.Image{ID: "sha256:aa", Pinned: true})
	p := anyImage
	p.DryRun = true
	w.Collect(t.Context(), p)
	if got := onDisk(); slices.Contains(got, "aa") {
		t.Error("a dry run saved the ledger")
	}
	w.rt.faults["RemoveImage "+images[0].ID] = func(context.Context) (bool, error) {
		if got := onDisk(); !slices.Contains(got, "aa") {
			t.Errorf("before the first removal: %q", got)
		}
		return false, nil
	}
	p.DryRun = false
	w.Collect(t.Context(), p)
	equal(t, "after the last removal", onDisk(), []string{"aa"})
}

func TestNotice(t *testing.T) {
	t.Parallel()
	w := newWorld(Options{})
	w.rt.faults["Images"] = unavailable
	if err := w.Notice(t.Context()); !errors.Is(err, cri.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	delete(w.rt.faults, "Images")
	w.rt.faults["Containers"] = unavailable
	if err := w.Notice(t.Context()); !errors.Is(err, cri.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	delete(w.rt.faults, "Containers")
	w.rt.images = []cri.Image{image(0, 1)}
	w.rt.containers = []cri.Container{{ID: "c", Image: image(0, 1).Tags[0]}}
	if err := w.Notice(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h := w.ledger.history(image(0, 1).ID, w.clock.now().Boot); !h.used {
		t.Errorf("not noticed: %+v", h)
	}
}

// A listing without a pod and without an image of before is of another runtime of the node, or of a directory whose disk is not
// mounted yet. The images of before keep their age.
func TestImagesOfAnotherRuntime(t *testing.T) {
	t.Parallel()
	w := newWorld(Options{})
	own := w.withImages(t, 1, 1)
	age := func() time.Duration { return w.ledger.history(own[0].ID, w.clock.now().Boot).age }
	for _, listed := range [][]cri.Image{nil, {image(7, 1)}} {
		w.rt.images = listed
		if listed != nil {
			w.rt.status.SandboxImage = listed[0].Tags[0]
		}
		for range 2 {
			w.clock.add(time.Minute)
			if err := w.Notice(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if age() < 48*time.Hour {
			t.Errorf("after two listings of %v: %s old", listed, age())
		}
	}
	w.rt.sandboxes = []cri.Sandbox{sandbox("s1", "p", true, epoch)}
	if err := w.Notice(t.Context()); err != nil || age() != 0 {
		t.Errorf("after a listing with a pod: %s old, %v", age(), err)
	}
}
