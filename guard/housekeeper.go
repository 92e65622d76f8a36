package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// How often the housekeeper looks at dead containers, at images, and at what pods
// with a storage limit use.
const (
	containersEvery = time.Minute
	imagesEvery     = 5 * time.Minute
	limitsEvery     = 20 * time.Second
)

// ledgerFile is the image ledger's name, and stateDir where it is kept over
// reboots unless the history has a directory of its own.
const (
	ledgerFile = "images.json"
	stateDir   = "/var/lib/criguard"
)

// ledgerPath is where the image ledger is: beside the history, or, when that is in
// memory as by default, in the state directory where the package made one.
func (c *Config) ledgerPath() string {
	dir := c.History.Dir
	if dir == string(DefaultRunDir) {
		if st, err := os.Stat(stateDir); err == nil && st.IsDir() {
			dir = stateDir
		}
	}
	return filepath.Join(dir, ledgerFile)
}

// housekeeper frees what nobody needs: in quiet times by itself, under pressure
// when it is asked to.
type housekeeper struct {
	node     *node
	log      *slog.Logger
	ledger   *reclaim.Ledger
	record   func(ReclaimView)
	stops    chan struct{}            // holds one element while stops are noted that the ledger's file does not have
	would    map[policy.Signal]string // in observe mode: what was recorded last
	failures map[policy.Signal]teller // of what went wrong since the last collection that did not

	mu        sync.Mutex
	cfg       Config
	client    *cri.Client        // the one that collector is for
	collector *reclaim.Collector // nil before the first runtime
	told      bool
	notes     teller          // which air-gap files were not read
	acts      context.Context //nolint:containedctx // ends what is under way when a pause begins; nil = paused
	stopActs  context.CancelFunc
}

func newHousekeeper(n *node, cfg Config, log *slog.Logger, record func(ReclaimView)) *housekeeper {
	h := &housekeeper{
		node: n, log: log, cfg: cfg, record: record, stops: make(chan struct{}, 1),
		would: map[policy.Signal]string{}, failures: map[policy.Signal]teller{},
	}
	h.setPaused(false)
	var err error
	h.ledger, err = reclaim.OpenLedger(cfg.ledgerPath(), n.bootID, n.kernel.Now())
	if err != nil {
		h.complain(err)
	}
	return h
}

func (h *housekeeper) setConfig(cfg Config) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cfg = cfg
}

// setPaused ends every removal that is under way and begins no other, or lets them
// begin again. One that is under way goes on when nothing changes.
func (h *housekeeper) setPaused(paused bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case paused && h.acts != nil:
		h.stopActs()
		h.acts, h.stopActs = nil, nil
	case !paused && h.acts == nil:
		h.acts, h.stopActs = context.WithCancel(context.Background())
	}
}

// acting is a context that ends with ctx and with the beginning of a pause; false
// during one.
func (h *housekeeper) acting(ctx context.Context) (acting context.Context, end func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.acts == nil {
		return ctx, func() {}, false
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(h.acts, cancel)
	return ctx, func() { stop(); cancel() }, true
}

func (h *housekeeper) config() Config {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cfg
}

// collect returns the collector for the runtime that answers now.
func (h *housekeeper) collect() (*reclaim.Collector, error) {
	client, err := h.node.conn.Client()
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.collector == nil || h.client != client {
		h.client = client
		h.collector = reclaim.NewCollector(client, reclaim.Options{
			Ledger: h.ledger, Logs: reclaim.Logs(h.node.podLogs), Clock: h.node.moment, Memory: h.node.kernel.layout,
		})
	}
	return h.collector, nil
}

// Run keeps house until ctx ends.
func (h *housekeeper) Run(ctx context.Context) {
	containers, images, limits := time.NewTicker(containersEvery), time.NewTicker(imagesEvery), time.NewTicker(limitsEvery)
	defer containers.Stop()
	defer limits.Stop()
	defer images.Stop()
	for {
		select {
		case <-ctx.Done():
			h.saveLedger(h.ledger.SaveEnd)
			return
		case <-h.stops:
			h.saveLedger(h.ledger.SaveDue)
			continue
		case <-containers.C:
			h.tidyContainers(ctx)
		case <-images.C:
			h.tidyImages(ctx)
		case <-limits.C:
			h.measureLimited(ctx)
			continue
		}
		debug.FreeOSMemory() // what listing took
	}
}

// saveLedger writes the ledger to its file where that is due.
func (h *housekeeper) saveLedger(save func(now time.Duration) error) {
	if err := save(h.node.kernel.Now()); err != nil {
		h.complain(err)
	}
}

// measureLimited measures the pods that have a storage limit: nothing else asks
// for it while no disk is under pressure.
func (h *housekeeper) measureLimited(ctx context.Context) {
	pods := h.node.lister.Current().Pods
	for i := range pods {
		if pods[i].StorageLimit > 0 {
			h.node.meter.measure(ctx, pods)
			return
		}
	}
}

// tidyContainers removes dead containers and sandboxes by the kubelet's rules, and notes
// which images are in use. Logs of pods that the runtime does not list stay until there is
// pressure: CRI-O forgets all pods at a reboot and leaves their logs, which somebody may
// still want to read.
func (h *housekeeper) tidyContainers(ctx context.Context) {
	c, err := h.collect()
	if err != nil {
		return // the lister tells that no runtime answers
	}
	if err := c.Notice(ctx); err != nil && !errors.Is(err, cri.ErrUnavailable) && ctx.Err() == nil {
		h.complain(err)
	}
	cfg := h.config()
	if !cfg.Containers.GC {
		return
	}
	p := h.plan(cfg)
	p.Steps = []reclaim.Step{reclaim.StepContainers, reclaim.StepSandboxes}
	h.run(ctx, c, p, policy.ContainerFSAvailable)
}

// tidyImages removes unused images when the image filesystem is above its high
// watermark, until it is below the low one; and those past their age at any time.
func (h *housekeeper) tidyImages(ctx context.Context) {
	c, err := h.collect()
	cfg := h.config()
	if err != nil || cfg.Images.Prune == PruneNever {
		return
	}
	p := h.plan(cfg)
	p.Steps, p.Expire = []reclaim.Step{reclaim.StepImages}, true
	p.Target = h.watermark(cfg.Images)
	h.run(ctx, c, p, policy.ImageFSAvailable)
}

// watermark measures what is missing below the low watermark, once the high one
// was reached.
func (h *housekeeper) watermark(c ImagesConfig) reclaim.Target {
	above := false
	return func(context.Context) (reclaim.Room, error) {
		s, err := h.node.kernel.disks.probe(h.node.kernel.disks.getPaths().image)
		if err != nil {
			return reclaim.Room{}, err
		}
		used := s.Total - s.Available
		above = above || used >= c.High.Of(s.Total)
		room := reclaim.Room{Bytes: s.Available, Inodes: s.InodesFree}
		if above {
			room.LackBytes = used - c.Low.Of(s.Total)
		}
		return room, nil
	}
}

// plan is what every run has in common.
func (h *housekeeper) plan(cfg Config) reclaim.Plan {
	return reclaim.Plan{
		DryRun: cfg.Mode == ModeObserve,
		Containers: reclaim.ContainerPolicy{
			MinAge: cfg.Containers.MinAge, MaxPerContainer: cfg.Containers.MaxPerContainer, Max: cfg.Containers.Max,
		},
		Images: reclaim.ImagePolicy{
			Prune: reclaim.Prune(cfg.Images.Prune), MinAge: cfg.Images.MinAge, UnusedGrace: cfg.Images.UnusedGrace,
			MaxAge: cfg.Images.MaxAge, Keep: cfg.Images.Keep, AirGapDirs: cfg.Images.AirgapDirs, Hold: cfg.Images.HoldAfterRuntimeRestart,
		},
		RuntimeSince: h.node.runtimeSince,
	}
}

// run collects, and records what that removed; in observe mode what it would have removed,
// when that is something else than before. Where only something went wrong, the log tells.
func (h *housekeeper) run(ctx context.Context, c *reclaim.Collector, p reclaim.Plan, s policy.Signal) {
	ctx, end, ok := h.acting(ctx)
	defer end()
	if !ok {
		return
	}
	started := time.Now()
	reports := c.Collect(ctx, p)
	h.tellNotes(reports)
	v := view(s, reports, time.Since(started))
	before := h.would[s]
	if h.would[s] = v.would(); v.Removed() > 0 && (!p.DryRun || h.would[s] != before) {
		h.record(v)
	}
	if v.Removed() == 0 && ctx.Err() == nil {
		h.complainOf(s, reports)
	}
}

// would names what a dry run would remove; "" where it was none.
func (r *ReclaimView) would() string {
	var b strings.Builder
	for i := range r.Reports {
		if rep := &r.Reports[i]; rep.DryRun {
			for _, it := range rep.Removed {
				b.WriteString(it.ID + "\n")
			}
			fmt.Fprintln(&b, rep.Step, rep.RemovedMore)
		}
	}
	return b.String()
}

func view(s policy.Signal, reports []reclaim.Report, took time.Duration) ReclaimView {
	v := ReclaimView{Signal: s, Took: took}
	for i := range reports {
		v.Reports = append(v.Reports, reports[i].Digest())
		v.Steps = append(v.Steps, string(reports[i].Step))
		v.Freed += reports[i].Freed
	}
	return v
}

// stopped keeps the images of a pod that is stopped: an evicted pod must find
// them when it comes back. It waits for no disk: Run writes them down.
func (h *housekeeper) stopped(p Pod) {
	refs := slices.Clone(p.EndedImages)
	for i := range p.Containers {
		refs = append(refs, p.Containers[i].Images...)
	}
	h.ledger.NoteStopped(refs, h.node.kernel.Now())
	hint(h.stops)
}
