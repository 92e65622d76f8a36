package reclaim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cgroup/mountinfo"
	"github.com/criguard/criguard/cri"
)

// world is a collector with a fake runtime.
type world struct {
	*Collector
	rt    *fakeRuntime
	clock *fakeClock
}

// logsIn returns log directories below a directory of the test.
func logsIn(dir string) Logs { return Logs{dir, mountinfo.Points} }

func newWorld(o Options) world {
	w := world{rt: newFake(), clock: newClock()}
	o.Clock = w.clock.now
	w.Collector = NewCollector(w.rt, o)
	return w
}

// Notice lists everything and notes it.
func (w world) Notice(ctx context.Context) error { return noticeAll(ctx, w.Collector) }

func noticeAll(ctx context.Context, c *Collector) error {
	inv, err := c.inventory(ctx)
	if err != nil {
		return err
	}
	if err := c.Notice(ctx, cri.Listing(inv)); err != nil {
		return err
	}
	return c.ledger.SaveDue(c.clock().Boot)
}

// withImages adds n unused images of this size, first seen long ago.
func (w world) withImages(t *testing.T, n int, size int64) []cri.Image {
	t.Helper()
	for i := range n {
		w.rt.images = append(w.rt.images, image(i, size))
	}
	if err := w.Notice(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.clock.add(48 * time.Hour)
	return slices.Clone(w.rt.images)
}

// withDead adds n dead containers, all attempts of one container.
func (w world) withDead(n int, size int64) {
	for i := range n {
		c := container(string(rune('a'+i)), "p", "c", epoch.Add(time.Duration(i)*time.Second))
		c.Attempt = uint32(i)
		w.rt.containers = append(w.rt.containers, c)
		w.rt.sizes[c.ID] = size
	}
	w.rt.sandboxes = append(w.rt.sandboxes, sandbox("sb-p", "p", true, epoch))
}

var (
	anyImage     = Plan{Steps: []Step{StepImages}, Images: ImagePolicy{Prune: PruneAuto}}
	anyContainer = Plan{Steps: []Step{StepContainers}, Containers: ContainerPolicy{MaxPerContainer: 0, Max: -1}}
)

func (p Plan) until(target Target) Plan { p.Target = target; return p }

func messages(r Report) string {
	var all []string
	for _, f := range r.Errors {
		all = append(all, f.Message)
	}
	return strings.Join(all, "\n")
}

// The steps run in their order, whatever the order in the plan, and each works on what the previous one
// has left.
func TestCollectRunsStepsInOrder(t *testing.T) {
	t.Parallel()
	logs := filepath.Join(t.TempDir(), "pods")
	write(t, logs+"/default_p_p/c/0.log", 10, epoch)
	write(t, logs+"/default_gone_q/c/0.log", 10, epoch)
	write(t, logs+"/default_alive_r/c/0.log", 10, epoch)
	w := newWorld(Options{Logs: logsIn(logs)})
	c := container("dead", "p", "c", epoch)
	w.rt.containers = []cri.Container{c}
	w.rt.sandboxes = []cri.Sandbox{sandbox("sb-p", "p", false, epoch), sandbox("sb-r", "r", true, epoch)}
	w.rt.details["dead"] = cri.ContainerDetail{LogPath: logs + "/default_p_p/c/0.log"}
	w.withImages(t, 1, 100)

	reports := w.Collect(t.Context(), Plan{
		Steps:      []Step{StepImages, StepLogs, StepSandboxes, StepContainers, StepContainers},
		Containers: ContainerPolicy{MaxPerContainer: 1, Max: -1, Finished: true},
		Images:     ImagePolicy{Prune: PruneAuto},
	})
	var steps []string
	for _, r := range reports {
		steps = append(steps, string(r.Step))
		if len(r.Errors) > 0 {
			t.Errorf("%s: %s", r.Step, messages(r))
		}
	}
	equal(t, "steps", steps, []string{"containers", "sandboxes", "logs", "images"})
	var acts []string
	for _, call := range w.rt.calls {
		if strings.HasPrefix(call, "Remove") || strings.HasPrefix(call, "Stop") {
			acts = append(acts, call)
		}
	}
	equal(t, "acts", acts, []string{"RemoveContainer dead", "StopSandbox sb-p", "RemoveSandbox sb-p", "RemoveImage " + image(0, 1).ID})
	if exists(logs+"/default_p_p") || exists(logs+"/default_gone_q") || !exists(logs+"/default_alive_r/c/0.log") {
		t.Error("wrong logs are left")
	}
}

func TestCollectStopsAtTheTarget(t *testing.T) {
	t.Parallel()
	t.Run("met from the start: not a call", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		w.withDead(3, 10)
		if got := w.Collect(t.Context(), anyContainer.until(w.rt.want(0))); got != nil || len(w.rt.calls) != 0 {
			t.Errorf("reports %v, calls %q", got, w.rt.calls)
		}
	})
	t.Run("images: as many as have to go", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		images := w.withImages(t, 5, 100)
		r := w.Collect(t.Context(), anyImage.until(w.rt.want(201)))[0]
		equal(t, "removed", ids(r.Removed), []string{images[0].ID, images[1].ID, images[2].ID})
		if r.Freed != 300 || !r.Met || r.Took < 0 {
			t.Errorf("report: %+v", r)
		}
		for _, it := range r.Kept {
			if it.Why != whyMet {
				t.Errorf("%s stays: %s", it.Name, it.Why)
			}
		}
		if len(r.Kept) != 2 {
			t.Errorf("kept: %v", r.Kept)
		}
	})
	t.Run("a later step does not run", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		w.withDead(2, 100)
		w.withImages(t, 2, 100)
		p := anyContainer
		p.Steps, p.Images, p.Target = Steps(), anyImage.Images, w.rt.want(100)
		reports := w.Collect(t.Context(), p)
		last := reports[len(reports)-1]
		if last.Step != StepContainers || len(w.rt.called("RemoveImage")) != 0 {
			t.Errorf("last step %s, calls %q", last.Step, w.rt.calls)
		}
		equal(t, "removed", ids(last.Removed), []string{"a"})
		if why(last.Kept, "b") != whyMet {
			t.Errorf("b: %s", why(last.Kept, "b"))
		}
	})
	t.Run("expired images go whatever the target", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		images := w.withImages(t, 2, 100)
		w.rt.images = append(w.rt.images, image(9, 1))
		if err := w.Notice(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.clock.add(time.Hour)
		p := anyImage.until(w.rt.want(0))
		p.Images.MaxAge, p.Expire = 24*time.Hour, true
		r := w.Collect(t.Context(), p)[0]
		equal(t, "removed", ids(r.Removed), []string{images[0].ID, images[1].ID})
		if why(r.Kept, image(9, 1).ID) != whyMet {
			t.Errorf("the young one: %s", why(r.Kept, image(9, 1).ID))
		}
	})
	t.Run("nothing expires without max_age: not a call", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		p := anyImage.until(w.rt.want(0))
		p.Expire = true
		if got := w.Collect(t.Context(), p); got != nil || len(w.rt.calls) != 0 {
			t.Errorf("reports %v, calls %q", got, w.rt.calls)
		}
	})
	t.Run("a target that cannot be measured removes nothing", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		w.withDead(3, 10)
		reports := w.Collect(t.Context(), anyContainer.until(func(context.Context) (Room, error) { return Room{}, errBoom }))
		if len(reports) != 1 || !errors.Is(reports[0].Err(), errBoom) || len(w.rt.called("Remove")) != 0 {
			t.Errorf("reports %+v, calls %q", reports, w.rt.calls)
		}
	})
	t.Run("nor when that begins on the way", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		w.withDead(3, 10)
		w.withImages(t, 3, 10)
		asked := 0
		p := anyContainer.until(func(context.Context) (Room, error) {
			if asked++; asked > 2 { // at the start and before the first removal
				return Room{}, errBoom
			}
			return Room{LackBytes: 1}, nil
		})
		p.Steps, p.Images = Steps(), anyImage.Images
		reports := w.Collect(t.Context(), p)
		if len(w.rt.called("Remove")) != 1 || !errors.Is(reports[len(reports)-1].Err(), errBoom) {
			t.Errorf("reports %+v, calls %q", reports, w.rt.called("Remove"))
		}
	})
}

// What was freed is what the removals brought, although a pod writes more than that meanwhile.
func TestCollectFreedBesideAWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Options{})
		w.withImages(t, 5, 100)
		w.withDead(4, 100)
		free, written := w.rt.want(1<<40), int64(0)
		p := anyImage.until(func(ctx context.Context) (Room, error) {
			room, err := free(ctx)
			written += 30 // with each measurement
			room.Bytes, room.LackBytes = room.Bytes-written, room.LackBytes+written
			return room, err
		})
		p.Steps, p.Containers = []Step{StepContainers, StepImages}, anyContainer.Containers
		for _, r := range w.Collect(t.Context(), p) {
			if n := int64(len(r.Removed)); n < 4 || r.Freed != n*70 {
				t.Errorf("%s: %d removed, %d freed, want 70 for each", r.Step, n, r.Freed)
			}
		}
		if written < 1000 {
			t.Errorf("only %d was written", written)
		}
	})
}

// A container has filled a disk and exited, and its next attempt runs: no pod's usage includes its
// data. It is removed before other pods are stopped for it, but after everything that is no longer
// needed.
func TestCollectReplacedContainers(t *testing.T) {
	t.Parallel()
	attempt := func(id, name string, n uint32, state cri.State) cri.Container {
		c := container(id, "p", name, epoch)
		c.Attempt, c.State = n, state
		return c
	}
	for name, c := range map[string]struct {
		lack     int64
		finished bool
		want     []string
	}{
		"in quiet times":               {300, false, []string{"a"}},
		"what nobody misses is enough": {10, true, []string{"a"}},
		"all is needed":                {300, true, []string{"a", "b"}},
	} {
		w := newWorld(Options{})
		w.rt.containers = []cri.Container{
			attempt("a", "full", 0, cri.Exited), attempt("b", "full", 1, cri.Exited), attempt("c", "full", 2, cri.Running),
			attempt("d", "waits", 3, cri.Exited), // a kubelet may restart it, or its owner inspect it
		}
		w.rt.sandboxes = []cri.Sandbox{sandbox("sb-p", "p", true, epoch)}
		w.rt.sizes = map[string]int64{"a": 10, "b": 100, "d": 100}
		p := Plan{Steps: []Step{StepContainers}, Containers: ContainerPolicy{MinAge: time.Minute, MaxPerContainer: 1, Max: -1, Finished: c.finished}}
		var removed []string
		for _, r := range w.Collect(t.Context(), p.until(w.rt.want(c.lack))) {
			removed = append(removed, ids(r.Removed)...)
		}
		equal(t, name, removed, c.want)
	}
}

func TestCollectWithoutTheRuntime(t *testing.T) {
	t.Parallel()
	logs := filepath.Join(t.TempDir(), "pods")
	write(t, logs+"/n_q_q/c/0.log", 1, epoch)
	for _, call := range []string{"Containers", "Sandboxes"} {
		w := newWorld(Options{Logs: logsIn(logs)})
		w.withDead(3, 1)
		w.withImages(t, 3, 1)
		w.rt.faults[call] = unavailable
		p := anyContainer
		p.Steps, p.Images = Steps(), anyImage.Images
		for _, r := range w.Collect(t.Context(), p) {
			if r.Step != StepMemory && !errors.Is(r.Err(), cri.ErrUnavailable) || len(r.Removed) != 0 {
				t.Errorf("%s without %s: %+v", r.Step, call, r)
			}
		}
		if len(w.rt.called("Remove")) != 0 || !exists(logs+"/n_q_q") {
			t.Errorf("something was removed without %s", call)
		}
	}
	t.Run("gone on the way: the step ends", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		w.withDead(5, 1)
		w.rt.faults["RemoveContainer b"] = unavailable
		r := w.Collect(t.Context(), anyContainer)[0]
		equal(t, "removed", ids(r.Removed), []string{"a"})
		equal(t, "asked", w.rt.called("RemoveContainer"), []string{"RemoveContainer a", "RemoveContainer b"})
	})
	t.Run("gone for one object alone, such as one whose shim has died: it comes last in the next run", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		w.withDead(3, 1)
		w.rt.faults["RemoveContainer a"] = unavailable
		equal(t, "removed", ids(w.Collect(t.Context(), anyContainer)[0].Removed), nil)
		r := w.Collect(t.Context(), anyContainer)[0]
		equal(t, "removed in the next run", ids(r.Removed), []string{"b", "c"})
		if !errors.Is(r.Err(), cri.ErrUnavailable) {
			t.Errorf("errors: %v", r.Err())
		}
	})
	t.Run("one that hangs is left behind, two end the step", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Options{})
			w.withDead(8, 1)
			for _, id := range []string{"b", "d", "e"} {
				w.rt.faults["RemoveContainer "+id] = hang
			}
			started := time.Now()
			r := w.Collect(t.Context(), anyContainer)[0]
			equal(t, "removed", ids(r.Removed), []string{"a", "c"})
			if took := time.Since(started); took != 3*removeFor || len(r.Errors) != 3 {
				t.Errorf("%d errors after %v", len(r.Errors), took)
			}
		})
	})
}

// A listing that times out says why a step removed nothing, even if the time of the whole reclaim is over then. A removal does not.
func TestCollectSaysOnceThatAListingTimedOut(t *testing.T) {
	t.Parallel()
	for call, want := range map[string]int{"Containers": 1, "RemoveContainer": 2} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Options{})
			w.withDead(1, 1)
			w.rt.faults[call] = hang
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if r := w.Collect(ctx, anyContainer)[0]; len(r.Errors) != want {
				t.Errorf("%s hangs: errors %v, want %d", call, r.Errors, want)
			}
		})
	}
}

// Items that hang come last for a while, so that the oldest ones do not block all others for ever.
func TestCollectTriesTheStuckLast(t *testing.T) {
	t.Parallel()
	late := func(context.Context) (bool, error) { return true, cri.ErrTimeout }
	for name, call := range map[string]string{"removals": "RemoveContainer", "looks": "ContainerStatus"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Options{})
				w.withDead(6, 1)
				for _, id := range []string{"a", "b", "d"} {
					w.rt.faults[call+" "+id] = late
				}
				run := func() (asked []string, removed []Item) {
					before := len(w.rt.called(call))
					removed = w.Collect(t.Context(), anyContainer)[0].Removed
					for _, c := range w.rt.called(call)[before:] {
						asked = append(asked, strings.TrimPrefix(c, call+" "))
					}
					return asked, removed
				}
				asked, removed := run()
				equal(t, "asked first", asked, []string{"a", "b"})
				equal(t, "removed first", ids(removed), nil)
				asked, removed = run()
				equal(t, "asked then", asked, []string{"c", "d", "e", "f", "a", "b"})
				equal(t, "removed then", ids(removed), []string{"c", "e", "f"})
				w.clock.add(stuckFor)
				delete(w.rt.faults, call+" a")
				asked, removed = run()
				equal(t, "asked after a while", asked, []string{"a", "b", "d"})
				equal(t, "removed after a while", ids(removed), []string{"a"})
			})
		})
	}
}

// Reports have ages to the millisecond.
// A container that the kubelet removes meanwhile is no failure, whatever the runtime answers. One that is still listed, or may be, is.
func TestCollectContainersThatAreGone(t *testing.T) {
	t.Parallel()
	w := newWorld(Options{})
	w.withDead(4, 1)
	vanish := func(id string) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			w.rt.mu.Lock()
			defer w.rt.mu.Unlock()
			w.rt.containers = slices.DeleteFunc(w.rt.containers, func(c cri.Container) bool { return c.ID == id })
			return refuse(ctx)
		}
	}
	w.rt.faults["ContainerStatus a"], w.rt.faults["RemoveContainer b"] = vanish("a"), vanish("b")
	w.rt.faults["RemoveContainer c"] = refuse
	w.rt.faults["RemoveContainer d"] = func(ctx context.Context) (bool, error) {
		w.rt.mu.Lock()
		w.rt.faults["Containers"] = refuse
		w.rt.mu.Unlock()
		return vanish("d")(ctx)
	}
	r := w.Collect(t.Context(), anyContainer)[0]
	if len(r.Removed) > 0 || len(r.Errors) != 2 || why(r.Kept, "a") != "gone already" || why(r.Kept, "b") != "gone already" {
		t.Errorf("%+v", r)
	}
}

func TestAgesAreRounded(t *testing.T) {
	t.Parallel()
	w := newWorld(Options{})
	w.withDead(2, 2)
	images := w.withImages(t, 2, 1)
	w.rt.images[0].Pinned = true
	w.clock.add(1_234_567)
	p := anyContainer
	p.Steps, p.Images = Steps(), ImagePolicy{Prune: PruneAuto}
	list, err := w.Images(t.Context(), p)
	if err != nil || len(list.Verdicts) != len(images) {
		t.Fatalf("%+v, %v", list, err)
	}
	var items []Item
	for _, v := range list.Verdicts {
		items = append(items, v.Item)
	}
	for _, r := range w.Collect(t.Context(), p) {
		items = append(append(items, r.Removed...), r.Kept...)
	}
	kinds := map[Kind]bool{}
	for _, it := range items {
		if kinds[it.Kind] = true; it.Age < Duration(time.Hour) || it.Age%Duration(time.Millisecond) != 0 || it.LastUsed%Duration(time.Millisecond) != 0 {
			t.Errorf("%s %s: age %s, last used %s ago", it.Kind, it.ID, it.Age, it.LastUsed)
		}
	}
	if !kinds[KindContainer] || !kinds[KindImage] {
		t.Errorf("reported %v", kinds)
	}
}

// After a start of the runtime, its listing may be incomplete.
func TestCollectHoldsAfterRuntimeStart(t *testing.T) {
	t.Parallel()
	logs := filepath.Join(t.TempDir(), "pods")
	write(t, logs+"/n_p_p/c/0.log", 1, epoch)
	write(t, logs+"/n_q_q/c/0.log", 1, epoch)
	w := newWorld(Options{Logs: logsIn(logs)})
	w.withDead(1, 1)
	w.withImages(t, 1, 1)
	p := anyContainer
	p.Steps, p.Images = Steps(), ImagePolicy{Prune: PruneAuto, Hold: 5 * time.Minute}
	started := w.clock.now().Boot
	p.RuntimeSince = func() time.Duration { return started }
	w.clock.add(5*time.Minute - 1)
	const why = "the runtime started less than hold_after_runtime_restart ago, for another 1s"
	for _, r := range w.Collect(t.Context(), p) {
		if (r.Step == StepImages || r.Step == StepLogs) && (len(r.Removed) != 0 || len(r.Kept) != 1 || r.Kept[0].Why != why) {
			t.Errorf("%s: %+v", r.Step, r)
		}
	}
	if !exists(logs + "/n_q_q") {
		t.Error("the logs are gone")
	}
	w.clock.add(1)
	for _, r := range w.Collect(t.Context(), p) {
		if (r.Step == StepImages || r.Step == StepLogs) && len(r.Removed) != 1 {
			t.Errorf("%s after the hold: %+v", r.Step, r)
		}
	}
}

// Under pressure, the hold keeps only images that were in use before the runtime went away, however
// long it was away: no pod is stopped to keep unneeded images.
func TestCollectHoldsLessUnderPressure(t *testing.T) {
	t.Parallel()
	logs := filepath.Join(t.TempDir(), "pods")
	write(t, logs+"/n_q_q/c/0.log", 1, epoch)
	w := newWorld(Options{Logs: logsIn(logs)})
	images := w.withImages(t, 4, 1)
	note := func(in ...cri.Image) {
		w.rt.containers = nil
		for _, img := range in {
			w.rt.containers = append(w.rt.containers, cri.Container{ID: "c-" + img.ID, Image: img.Tags[0], State: cri.Running})
		}
		if err := w.Notice(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	never, before, held, last := images[0], images[1], images[2], images[3]
	note(before)
	w.clock.add(1)
	note(held)
	w.clock.add(heldBefore)
	note(last)
	w.clock.add(10 * time.Hour) // the runtime is away
	started := w.clock.now().Boot
	p := Plan{Steps: []Step{StepLogs, StepImages}, Images: ImagePolicy{Prune: PruneAuto, Hold: 5 * time.Minute}}
	p.RuntimeSince = func() time.Duration { return started }
	note(last) // the containers of the other images are not listed yet
	w.clock.add(time.Minute)
	for _, r := range w.Collect(t.Context(), p) {
		if len(r.Removed) != 0 {
			t.Errorf("in quiet times: %+v", r)
		}
	}
	p.Containers.Finished = true
	reports := w.Collect(t.Context(), p)
	if len(reports[0].Removed) != 0 || !exists(logs+"/n_q_q") {
		t.Errorf("logs under pressure: %+v", reports[0])
	}
	equal(t, "removed", ids(reports[1].Removed), []string{never.ID, before.ID})
	for id, want := range map[string]string{held.ID: "runtime started", last.ID: "in use"} {
		if got := why(reports[1].Kept, id); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
}

func TestCollectRemovesLogsOfContainers(t *testing.T) {
	t.Parallel()
	logs := filepath.Join(t.TempDir(), "pods")
	w := newWorld(Options{Logs: logsIn(logs)})
	w.withDead(2, 1)
	for i, id := range []string{"a", "b"} {
		path := logs + "/default_p_p/c/" + string(rune('0'+i)) + ".log"
		write(t, path, 1, epoch)
		w.rt.details[id] = cri.ContainerDetail{LogPath: path}
	}
	p := anyContainer
	p.Containers.MaxPerContainer = 1
	p.DryRun = true
	w.Collect(t.Context(), p)
	if !exists(logs + "/default_p_p/c/0.log") {
		t.Fatal("a dry run removed a log")
	}
	p.DryRun = false
	w.Collect(t.Context(), p)
	if exists(logs+"/default_p_p/c/0.log") || !exists(logs+"/default_p_p/c/1.log") {
		t.Error("wrong logs are left")
	}
	if err := os.RemoveAll(logs); err != nil {
		t.Fatal(err)
	}
	p.Containers.MaxPerContainer = 0
	if r := w.Collect(t.Context(), p)[0]; len(r.Errors) != 0 || len(r.Removed) != 1 {
		t.Errorf("without the log directory: %+v", r)
	}
}

// If there is nothing to remove, all steps share one listing of the pods. If something is removed, the
// next step lists again.
func TestCollectListsOnce(t *testing.T) {
	plan := Plan{Steps: []Step{StepContainers, StepSandboxes, StepLogs}, Containers: ContainerPolicy{MaxPerContainer: 1, Max: -1}}
	for dead, want := range map[int]int{1: 1, 3: 2} {
		w := newWorld(Options{Logs: logsIn(t.TempDir())})
		w.withDead(dead, 1)
		lists := 0
		w.rt.faults["Containers"] = func(context.Context) (bool, error) { lists++; return false, nil }
		if err := w.Notice(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, r := range w.Collect(t.Context(), plan) {
			if len(r.Errors) > 0 {
				t.Errorf("%+v", r)
			}
		}
		if lists != want {
			t.Errorf("%d dead containers: listed %d times, want %d", dead, lists, want)
		}
		w.clock.add(recentFor)
		if w.Collect(t.Context(), plan); lists != want+1 {
			t.Errorf("%d dead containers, a second later: listed %d times, want %d", dead, lists, want+1)
		}
	}
}

// A dry run changes nothing, so that it lists everything once, however much it would remove.
func TestDryRunListsOnce(t *testing.T) {
	t.Parallel()
	const many = 20
	w := newWorld(Options{Logs: logsIn(t.TempDir())})
	w.withDead(many, 1)
	for i := range many {
		w.rt.sandboxes = append(w.rt.sandboxes, sandbox("dead-"+string(rune('a'+i)), "p", false, epoch.Add(-time.Hour)))
	}
	w.withImages(t, many, 1)
	w.rt.calls = nil
	plan := Plan{Steps: []Step{StepContainers, StepSandboxes, StepImages}, DryRun: true, Images: anyImage.Images, Containers: anyContainer.Containers}
	for _, r := range w.Collect(t.Context(), plan) {
		if len(r.Removed) != many {
			t.Errorf("%s: would remove %d, want %d", r.Step, len(r.Removed), many)
		}
	}
	for _, call := range []string{"Containers", "Sandboxes", "Images"} {
		if n := len(slices.DeleteFunc(w.rt.called(call), func(c string) bool { return c != call })); n != 1 {
			t.Errorf("%s: called %d times", call, n)
		}
	}
}
