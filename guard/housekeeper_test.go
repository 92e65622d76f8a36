package guard

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

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// keeping is a housekeeper beside a runtime that answers, and what it recorded.
type keeping struct {
	*housekeeper
	server   *critest.Server
	recorded []ReclaimView
	log      *lockedText
}

func newKeeping(t *testing.T, lines ...string) *keeping {
	t.Helper()
	k := &keeping{server: critest.New(t, critest.Containerd2), log: &lockedText{}}
	addDeadContainers(k.server)
	addUnusedImage(k.server)
	base := []string{
		fmt.Sprintf("runtime.endpoint = %q", k.server.Endpoint()), fmt.Sprintf("history.dir = %q", t.TempDir()),
		"images = {high = '0.000001%', low = '0%', min_age = '0s', unused_grace = '0s', hold_after_runtime_restart = '0s'}",
	}
	cfg := goodConfig(t, strings.Join(lines, "\n")+"\n"+effectNode(t, base...))
	n := openEffectNode(t, cfg)
	if err := n.conn.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.refresh(t.Context())
	k.housekeeper = newHousekeeper(n, cfg, slog.New(slog.NewTextHandler(k.log, nil)), func(v ReclaimView) { k.recorded = append(k.recorded, v) })
	return k
}

// removed counts what the runtime was told to remove.
func (k *keeping) removed() (containers, images int) {
	return len(k.server.Calls("RemoveContainer")), len(k.server.Calls("RemoveImage"))
}

func (k *keeping) tidy(ctx context.Context) {
	k.tidyContainers(ctx)
	k.tidyImages(ctx)
}

func TestHousekeeperRecordsWhatItRemoved(t *testing.T) {
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

// Logs of pods that the runtime does not list go under pressure, and not before.
func TestHousekeeperLeavesOrphanedLogs(t *testing.T) {
	k := newKeeping(t)
	pod := k.server.AddPod(critest.PodSpec{})
	orphan := filepath.Join(k.node.podLogs, "default_job_gone")
	for _, dir := range []string{orphan, filepath.Join(k.node.podLogs, "default_"+pod.Name+"_"+pod.UID)} {
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
	p.Steps = k.cfg.steps(policy.NodeFSAvailable, policy.SingleFS)
	c, err := k.collect()
	if err != nil {
		t.Fatal(err)
	}
	c.Collect(t.Context(), p)
	if _, err := os.Stat(orphan); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("under pressure: %v", err)
	}
}

// In observe mode nothing is removed, and what would be is told once, and again when it is
// something else.
func TestHousekeeperObserves(t *testing.T) {
	k := newKeeping(t)
	cfg := k.config()
	mode := cfg.Mode
	cfg.Mode = ModeObserve
	k.setConfig(cfg)
	for range 2 {
		k.tidy(t.Context())
	}
	if containers, images := k.removed(); containers != 0 || images != 0 {
		t.Errorf("%d containers and %d images removed", containers, images)
	}
	if len(k.recorded) != 2 || !k.recorded[0].DryRun() || k.recorded[0].Removed() != 2 || k.recorded[1].Removed() != 1 {
		t.Fatalf("recorded %+v", k.recorded)
	}
	addDeadContainers(k.server)
	k.tidy(t.Context())
	if len(k.recorded) != 3 || k.recorded[2].Signal != policy.ContainerFSAvailable || k.recorded[2].Removed() != 4 {
		t.Fatalf("two containers more: recorded %+v", k.recorded)
	}
	cfg.Mode = mode
	k.setConfig(cfg)
	k.tidy(t.Context())
	if containers, images := k.removed(); containers != 4 || images != 1 || len(k.recorded) != 5 || k.recorded[3].DryRun() {
		t.Errorf("enforced: %d containers and %d images removed, recorded %+v", containers, images, k.recorded)
	}
}

// During a pause and without a runtime nothing is removed.
func TestHousekeeperRemovesNothing(t *testing.T) {
	for name, setup := range map[string]func(*keeping){
		"paused":     func(k *keeping) { k.setPaused(true) },
		"no runtime": func(k *keeping) { k.node.conn.Close() },
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

// A pause ends what is under way, and its end lets more begin.
func TestHousekeeperPause(t *testing.T) {
	k := newKeeping(t)
	acting, end, ok := k.acting(t.Context())
	if !ok || acting.Err() != nil {
		t.Fatal("it may act")
	}
	k.setPaused(false) // as with any command that is none for a pause
	if acting.Err() != nil {
		t.Error("what is under way was ended without a pause")
	}
	k.setPaused(true)
	<-acting.Done()
	end()
	if _, end, ok := k.acting(t.Context()); ok {
		end()
		t.Error("it may act during a pause")
	}
	k.setPaused(false)
	k.tidy(t.Context())
	if containers, images := k.removed(); containers != 2 || images != 1 {
		t.Errorf("after the pause: %d containers and %d images removed", containers, images)
	}
}

// The images of a pod that was stopped stay.
func TestHousekeeperKeepsImagesOfTheStopped(t *testing.T) {
	k := newKeeping(t)
	k.stopped(Pod{Containers: []PodContainer{{Images: []string{"", "registry.example.com/app:1"}}}})
	k.tidy(t.Context())
	if _, images := k.removed(); images != 0 {
		t.Errorf("%d images removed", images)
	}
}

// So do those of its init containers, which have ended: as the runtime lists them.
func TestHousekeeperKeepsImagesOfInitContainers(t *testing.T) {
	k := newKeeping(t)
	pod := k.server.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{
		{Name: "init", State: cri.Exited, Image: "registry.example.com/app:1"}, {Name: "main"},
	}})
	k.stopped(*podByID(k.node.lister.List(t.Context()).Pods, pod.ID))
	k.server.Forget(pod.ID)
	k.tidy(t.Context())
	if !slices.ContainsFunc(k.images(t), func(img cri.Image) bool { return slices.Contains(img.Tags, "registry.example.com/app:1") }) {
		t.Error("the init container's image was removed")
	}
}

// images lists what the runtime has.
func (k *keeping) images(t *testing.T) []cri.Image {
	t.Helper()
	client, err := k.node.conn.Client()
	if err != nil {
		t.Fatal(err)
	}
	images, err := client.Images(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return images
}

// A stop is in the ledger's file at once, not within the hour: a node under pressure may
// be restarted, and criguard prune knows what the file says.
func TestHousekeeperSavesStopsAtOnce(t *testing.T) {
	cfg := goodConfig(t, effectNode(t, fmt.Sprintf("history.dir = %q", t.TempDir())))
	n := openEffectNode(t, cfg)
	synctest.Test(t, func(t *testing.T) {
		h := newHousekeeper(n, cfg, slog.New(slog.DiscardHandler), func(ReclaimView) {})
		ctx, end := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { h.Run(ctx) })
		for _, image := range []string{"registry.example.com/a:1", "registry.example.com/b:1"} {
			h.stopped(Pod{Containers: []PodContainer{{Images: []string{image}}}})
			synctest.Wait()
			saved, err := os.ReadFile(cfg.ledgerPath())
			if err != nil || !strings.Contains(string(saved), image) {
				t.Errorf("saved without %s: %s, %v", image, saved, err)
			}
		}
		end()
		wg.Wait()
	})
}

// Pods are measured on a timer only where one has a limit: nothing else needs it.
func TestHousekeeperMeasuresWhereThereIsALimit(t *testing.T) {
	for _, limited := range []bool{false, true} {
		lines := []string{}
		if limited {
			lines = append(lines, "limit = [{name = '*', ephemeral_storage = '1Gi'}]")
		}
		k := newKeeping(t, lines...)
		k.server.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{Name: "main", State: cri.Running}}})
		if inv := k.node.lister.List(t.Context()); inv.Err != nil || len(inv.Pods) == 0 {
			t.Fatalf("no pod runs: %+v", inv)
		}
		k.measureLimited(t.Context())
		k.node.meter.mu.Lock()
		measured := len(k.node.meter.last)
		k.node.meter.mu.Unlock()
		if (measured > 0) != limited {
			t.Errorf("limit %t: %d pods measured", limited, measured)
		}
	}
}

// What keeps the ledger from being kept is told once.
func TestHousekeeperComplainsOnce(t *testing.T) {
	k := newKeeping(t)
	for range 3 {
		k.complain(context.DeadlineExceeded)
	}
	if n := strings.Count(k.log.String(), "image ledger"); n != 1 {
		t.Errorf("told %d times:\n%s", n, k.log)
	}
}

// A collection that removes nothing and goes wrong is in no record: the log tells of each error
// once, and again after one that went well. Of a runtime that is away the lister tells.
func TestHousekeeperComplainsOfCollections(t *testing.T) {
	k := newKeeping(t)
	told := func(what string, tidy func(context.Context), want int) {
		t.Helper()
		tidy(t.Context())
		if n := strings.Count(k.log.String(), "what nobody needs is not removed"); n != want || len(k.recorded) != 0 {
			t.Errorf("%s: told %d times, want %d; recorded %+v\n%s", what, n, want, k.recorded, k.log)
		}
	}
	for _, method := range []string{"RemoveContainer", "RemoveImage"} {
		t.Cleanup(k.server.Inject(critest.Fault{Method: method, Err: errors.New("device or resource busy")}))
	}
	told("images fail", k.tidyImages, 1)
	told("and are not tried again yet", k.tidyImages, 1)
	if len(k.failures[policy.ImageFSAvailable]) != 1 {
		t.Error("an image that is not tried again yet counts as one that is gone")
	}
	told("containers fail", k.tidyContainers, 2)
	if text := k.log.String(); !strings.Contains(text, "device or resource busy; and 1 more") || !strings.Contains(text, "action=collect") {
		t.Errorf("told without the reason:\n%s", text)
	}
	told("again", k.tidyContainers, 2)
	none := k.server.Inject(critest.Fault{Method: "ListContainers", Edit: func(m any) {
		m.(*runtimeapi.ListContainersResponse).Containers = nil
	}})
	told("all goes well", k.tidyContainers, 2)
	none()
	told("they fail anew", k.tidyContainers, 3)
	addDeadContainers(k.server)
	k.server.Stop()
	told("the runtime is away", k.tidy, 3)
}

// One that hangs is told of once, however long it was waited for each time, and one that was not
// tried, as the disk has room, is none that goes well.
func TestHousekeeperComplainsOfWhatHangsOnce(t *testing.T) {
	k := newKeeping(t)
	hung := func(id, after string) []reclaim.Report {
		return []reclaim.Report{{Errors: []reclaim.Failure{{Kind: reclaim.KindContainer, ID: id, Message: "gave up after " + after, Err: cri.ErrTimeout}}}}
	}
	for _, reports := range [][]reclaim.Report{hung("a", "30s"), hung("a", "30.01s"), nil, hung("a", "30.02s"), hung("b", "30s")} {
		k.complainOf(policy.ContainerFSAvailable, reports)
	}
	unmeasured := []reclaim.Report{{Errors: []reclaim.Failure{{Message: "measure target: it hangs", Err: errDiskHangs}}}}
	for i, want := range []int{3, 3, 4} {
		if i == 2 {
			k.complainOf(policy.ContainerFSAvailable, nil) // it was measured that there is room
		}
		k.complainOf(policy.ContainerFSAvailable, unmeasured)
		if n := strings.Count(k.log.String(), "what nobody needs is not removed"); n != want {
			t.Errorf("a disk that cannot be measured, %d: told %d times, want %d:\n%s", i, n, want, k.log)
		}
	}
}

// A file that is not read is told of once, whether the collection under pressure or the periodic
// one comes upon it.
func TestHousekeeperTellsOfAirGapFiles(t *testing.T) {
	dir := t.TempDir()
	k := newKeeping(t)
	cfg := k.config()
	cfg.Images.AirgapDirs = []string{dir}
	k.setConfig(cfg)
	file := filepath.Join(dir, "release.tar.lz4")
	if err := os.WriteFile(file, []byte{0x04, 0x22, 0x4d, 0x18}, 0o600); err != nil {
		t.Fatal(err)
	}
	told := func() int { return strings.Count(k.log.String(), "air-gap file is not read") }
	r := &reclaimer{node: k.node, keeper: k.housekeeper}
	relieve := func() {
		j := r.Reclaim(t.Context(), policy.Met{Threshold: policy.Threshold{Signal: policy.ImageFSAvailable}, Target: math.MaxInt64}, policy.DedicatedImageFS, nil)
		<-j.Done()
	}
	relieve()
	if text := k.log.String(); told() != 1 || !strings.Contains(text, file) || !strings.Contains(text, ".txt file") || !strings.Contains(text, "action=airgap") {
		t.Errorf("under pressure: %s", text)
	}
	k.tidyImages(t.Context())
	if relieve(); told() != 1 {
		t.Errorf("told again: %s", k.log)
	}
	if err := os.Rename(file, filepath.Join(dir, "other.tar.lz4")); err != nil {
		t.Fatal(err)
	}
	if k.tidyImages(t.Context()); told() != 2 {
		t.Errorf("of another file: %s", k.log)
	}
}

// What is remembered of it is bounded.
func TestTellerForgets(t *testing.T) {
	var told teller
	for i := range 3 * maxTold {
		if text := fmt.Sprint(i); !told.first(text) || told.first(text) || len(told) > maxTold {
			t.Fatalf("%d: %d remembered", i, len(told))
		}
	}
}

func TestLedgerPath(t *testing.T) {
	cfg := DefaultConfig()
	cfg.History.Dir = "/data/criguard"
	if got := cfg.ledgerPath(); got != "/data/criguard/images.json" {
		t.Errorf("beside the history: %s", got)
	}
	cfg.History.Dir = string(DefaultRunDir)
	if dir := filepath.Dir(cfg.ledgerPath()); dir != stateDir && dir != string(DefaultRunDir) {
		t.Errorf("by default: %s", dir)
	}
}

// The loop ends when it is told to, and saves the ledger that was saved some minutes ago.
func TestHousekeeperEnds(t *testing.T) {
	k := newKeeping(t)
	path, earlier := k.cfg.ledgerPath(), k.node.kernel.Now()-10*time.Minute
	k.ledger.NoteStopped([]string{"app:1"}, earlier)
	if err := k.ledger.Save(earlier); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	k.tidyContainers(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { k.Run(ctx); close(ended) }()
	cancel()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}
	if after, err := os.ReadFile(path); err != nil || bytes.Equal(before, after) {
		t.Errorf("the ledger is as it was: %s, %v", after, err)
	}
}

// The record of a reclaim is small, whatever was listed for it, and counts everything.
func TestReclaimRecordIsSmall(t *testing.T) {
	const items = 1000
	item := reclaim.Item{Kind: reclaim.KindContainer, ID: strings.Repeat("a", 64), Name: "default/pod/container", Why: "dead"}
	full := []reclaim.Report{{
		Step: reclaim.StepContainers, Removed: slices.Repeat([]reclaim.Item{item}, items), Kept: slices.Repeat([]reclaim.Item{item}, items),
		Errors: slices.Repeat([]reclaim.Failure{{ID: item.ID, Message: "in use"}}, items), Freed: 7,
	}}
	for _, v := range []ReclaimView{view(policy.ContainerFSAvailable, full, time.Second), {Reports: relieved(full).Reports}} {
		b, err := json.Marshal(v)
		if err != nil || len(b) > 10_000 {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		var read ReclaimView
		if err := json.Unmarshal(b, &read); err != nil || read.Removed() != items || len(read.Reports[0].Removed) == 0 || len(read.Reports[0].Kept) != 0 {
			t.Errorf("%d removed as recorded, %d listed; %v", read.Removed(), len(read.Reports[0].Removed), err)
		}
		m, p := NewMetrics("test"), Pass{Reclaimed: []ReclaimView{v}}
		m.Record(&p)
		wantMetrics(t, m, map[string]string{`reclaimed_total{step="containers"}`: "1000", `reclaim_errors_total{step="containers"}`: "1000"})
		lines := strings.Join(journalLines(t, []Pass{p}, "removed", "reason"), "\n")
		if !strings.Contains(lines, "removed=1000\n") || !strings.HasSuffix(lines, `reason="980 more errors"`) {
			t.Errorf("journal:\n%s", lines)
		}
	}
	if len(full[0].Removed) != items || len(full[0].Kept) != items {
		t.Error("the report itself was cut")
	}
}
