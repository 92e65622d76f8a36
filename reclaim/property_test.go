package reclaim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cri"
)

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// randomWorld returns a node with random objects, and a plan.
func randomWorld(t *testing.T, rng *rand.Rand) (world, Plan) {
	t.Helper()
	logs := filepath.Join(t.TempDir(), "pods")
	w := newWorld(Options{Logs: logsIn(logs)})
	inv := randomInventory(rng)
	w.rt.containers, w.rt.sandboxes = inv.Containers, inv.Sandboxes
	for n := range rng.IntN(12) {
		img := image(n, int64(1+rng.IntN(100)))
		img.Pinned = rng.IntN(6) == 0
		if rng.IntN(6) == 0 {
			img.Digests = nil
		}
		if rng.IntN(6) == 0 {
			img.Tags = append(img.Tags, "localhost/x:1")
		}
		w.rt.images = append(w.rt.images, img)
	}
	for i := range w.rt.containers {
		if n := rng.IntN(20); n < len(w.rt.images) {
			w.rt.containers[i].Image = w.rt.images[n].Tags[0]
		}
	}
	for _, b := range w.rt.sandboxes {
		if rng.IntN(2) == 0 {
			write(t, fmt.Sprintf("%s/%s_%s_%s/c/0.log", logs, b.Namespace, b.Name, b.UID), 1, epoch)
		}
	}
	for n := range rng.IntN(3) {
		write(t, fmt.Sprintf("%s/ns_gone_u%d/c/0.log", logs, n), 1, epoch)
	}
	if rng.IntN(4) > 0 {
		if err := w.Notice(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.clock.add(time.Duration(rng.IntN(72)) * time.Hour)
	}
	p := Plan{
		Steps:      Steps(),
		Containers: ContainerPolicy{time.Minute, rng.IntN(3) - 1, rng.IntN(6) - 1, rng.IntN(2) == 0, false},
		Images:     ImagePolicy{Prune: []Prune{PruneAuto, PruneAuto, PruneAlways, PruneNever}[rng.IntN(4)], MinAge: time.Minute, UnusedGrace: 24 * time.Hour},
	}
	if rng.IntN(2) == 0 {
		p.Images.MaxAge, p.Expire = time.Hour, true
	}
	return w, p
}

// Whatever the node and the plan, no protected object is removed.
func TestNothingProtectedIsEverRemoved(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	removals := map[Step]int{}
	for range 400 {
		w, p := randomWorld(t, rng)
		before := struct {
			containers []cri.Container
			sandboxes  []cri.Sandbox
			images     []cri.Image
		}{slices.Clone(w.rt.containers), slices.Clone(w.rt.sandboxes), slices.Clone(w.rt.images)}
		reports := w.Collect(t.Context(), p)
		removed := map[string]bool{}
		for _, r := range reports {
			for _, it := range r.Removed {
				removed[it.ID] = true
				removals[r.Step]++
			}
			if len(r.Errors) > 0 {
				t.Fatalf("%s: %v", r.Step, r.Err())
			}
		}
		for _, c := range before.containers {
			if removed[c.ID] && (c.State == cri.Running || c.CreatedAt.IsZero() && w.clock.now().Boot == time.Hour) {
				t.Fatalf("container %+v was removed", c)
			}
		}
		owners := map[string]bool{}
		for _, c := range w.rt.containers {
			owners[c.SandboxID] = true
		}
		for _, b := range before.sandboxes {
			if removed[b.ID] && (b.Ready || owners[b.ID]) {
				t.Fatalf("sandbox %+v was removed", b)
			}
		}
		for _, c := range w.rt.containers {
			left := slices.ContainsFunc(w.rt.sandboxes, func(b cri.Sandbox) bool { return b.UID == c.Labels[labelPodUID] })
			had := slices.ContainsFunc(before.sandboxes, func(b cri.Sandbox) bool { return b.UID == c.Labels[labelPodUID] })
			if had && !left {
				t.Fatalf("the last sandbox of the pod of container %s was removed", c.ID)
			}
		}
		inUse := cri.InUse(before.images, cri.ImageNeeds(w.rt.containers, nil, nil))
		for _, img := range before.images {
			_, used := inUse[img.ID]
			unpullable := p.Images.Prune == PruneAuto && (len(img.Digests) == 0 || len(img.Tags) > 1)
			if removed[img.ID] && (used || img.Pinned || unpullable || p.Images.Prune == PruneNever || w.clock.now().Boot == time.Hour) {
				t.Fatalf("image %+v was removed under %+v", img, p.Images)
			}
		}
	}
	for _, s := range []Step{StepContainers, StepSandboxes, StepLogs, StepImages} {
		if removals[s] < 20 {
			t.Errorf("only %d removals by %s: the test proves little", removals[s], s)
		}
	}
}

// Once the target is met, the collector makes no further removal.
func TestNoRemovalAfterTheTarget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(9, 10))
		met := 0
		for range 200 {
			w, p := randomWorld(t, rng)
			p.Expire, p.Steps = false, []Step{StepContainers, StepSandboxes, StepImages}
			budget := rng.IntN(5)
			over := false
			for _, call := range []string{"RemoveContainer", "RemoveSandbox", "RemoveImage"} {
				w.rt.faults[call] = func(context.Context) (bool, error) {
					if over {
						t.Error("removed after the target was met")
					}
					return false, nil
				}
			}
			p.Target = func(context.Context) (Room, error) {
				n := len(w.rt.called("Remove"))
				over = n >= budget
				return Room{LackBytes: int64(budget - n)}, nil
			}
			w.Collect(t.Context(), p)
			if over {
				met++
			}
		}
		if met < 50 {
			t.Errorf("the target was met %d times only: the test proves little", met)
		}
	})
}

// A dry run reports exactly what the next run does, and touches nothing.
func TestDryRunEqualsRun(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(11, 12))
	for range 300 {
		w, p := randomWorld(t, rng)
		if rng.IntN(2) == 0 {
			// Only the size of images is known in advance.
			p.Steps, p.Target = []Step{StepImages}, w.rt.want(int64(rng.IntN(300)))
		}
		p.DryRun = true
		dry := w.Collect(t.Context(), p)
		for _, call := range []string{"Remove", "Stop"} {
			if got := w.rt.called(call); len(got) > 0 {
				t.Fatalf("a dry run made calls: %q", got)
			}
		}
		p.DryRun = false
		run := w.Collect(t.Context(), p)
		if len(dry) != len(run) {
			t.Fatalf("announced %d steps, ran %d", len(dry), len(run))
		}
		for i, d := range dry {
			if r := run[i]; d.Step != r.Step || !reflect.DeepEqual(d.Removed, r.Removed) || !reflect.DeepEqual(d.Kept, r.Kept) {
				t.Fatalf("%s: announced %v\nremoved %v\nannounced to stay %v\nstayed %v", d.Step, d.Removed, r.Removed, d.Kept, r.Kept)
			}
		}
	}
}

// A report survives the encoding to JSON and back.
func TestReportJSON(t *testing.T) {
	t.Parallel()
	w := newWorld(Options{})
	images := w.withImages(t, 2, 10)
	w.rt.faults["RemoveImage "+images[0].ID] = refuse
	want := w.Collect(t.Context(), anyImage)
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got []Report
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if len(got[0].Errors) != 1 || got[0].Errors[0].Message == "" || got[0].Errors[0].ID != images[0].ID {
		t.Errorf("errors: %s", raw)
	}
	again, err := json.Marshal(got)
	if err != nil || !bytes.Equal(again, raw) {
		t.Errorf("%v\ngot  %s\nwant %s", err, again, raw)
	}
	if got[0].Err() == nil || got[0].Err().Error() != want[0].Err().Error() {
		t.Errorf("got %v, want %v", got[0].Err(), want[0].Err())
	}
}
