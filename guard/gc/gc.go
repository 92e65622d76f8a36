package gc

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/disk"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/lastgood"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// How often the Manager collects dead containers, collects images, and measures pods that have a storage
// limit, at least as often as it does the others.
const (
	containersEvery = time.Minute
	imagesEvery     = 5 * time.Minute
	limitsEvery     = 20 * time.Second
)

// stateDir keeps state across reboots, unless the history has its own directory. If its disk does not answer for stateDirWait, it is
// assumed to exist.
const (
	stateDir     = "/var/lib/criguard"
	stateDirWait = time.Second
)

// StateDir returns the directory of the state that is worth keeping across reboots, "" if there is none: that of the
// history. If that is the default run directory, which is in memory, and the package has created stateDir, it is
// stateDir.
func StateDir(c *config.Config) string {
	dir := c.HistoryDir()
	if dir == string(rundir.Default) {
		exists := lastgood.Within(stateDirWait, func() bool { st, err := os.Stat(stateDir); return err == nil && st.IsDir() }, true)
		if exists {
			dir = stateDir
		}
	}
	return dir
}

// ledgerPath returns the path of the image ledger, "" if the ledger stays in memory.
func ledgerPath(c *config.Config) string {
	dir := StateDir(c)
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, "images.json")
}

// Options configures a Manager.
type Options struct {
	Config   config.Config
	BootID   string
	ReadOnly bool // leave the file of the image ledger as it is
	Log      *slog.Logger
	// Record receives what a collection removed, and the operator for whom, if any; it may block.
	Record func(v api.ReclaimView, by *api.Peer)
	// Collected receives the reports of every collection but a dry run, also if nothing was removed; nil = not called.
	Collected func([]reclaim.Report)
	Wake      func() // requests a pass
	Client    func() (*cri.Client, error)
	// RuntimeSince returns since when the runtime has answered (boot clock); 0 = always.
	RuntimeSince func() time.Duration
	Now          func() time.Duration // the time since boot
	Memory       reclaim.MemoryReclaimer
	Logs         reclaim.Logs // the pods' logs
	Disks        *disk.Watcher
	Meter        *disk.Meter
	Lister       *inventory.Lister
	Node         Node
	Ended        map[string]time.Duration // sandboxes that earlier runs have stopped, and when
}

// Node is what garbage collection has to know of the node's cgroups and processes.
type Node interface {
	// Measure sets what each candidate uses.
	Measure([]policy.Candidate)
	// QuietFor returns the pod cgroups that have been empty and unchanged for at least age, and since when.
	QuietFor(age time.Duration) map[string]time.Duration
	// RemoveQuiet removes a pod cgroup. It returns cgroup.ErrGone if it has changed since then.
	RemoveQuiet(rel string, since time.Duration) error
	// KubeletSign returns why a kubelet may manage this node's pods; "" = there is no sign of one.
	KubeletSign(context.Context, []cri.Sandbox) string
}

// Manager removes dead containers, sandboxes, logs and unused images: periodically by itself, and under
// pressure and for operators on request. It implements eviction.Reclaimer.
type Manager struct {
	opt      Options
	ledger   *reclaim.Ledger
	stops    chan struct{}              // holds one element while the ledger has stops that its file lacks
	begin    chan struct{}              // holds one element after Begin
	would    map[policy.Signal]string   // observe mode: what the last collection would have removed
	failures map[policy.Signal]warnOnce // logged errors since the last successful collection
	overdue  atomic.Int32               // disk reclaims that exceeded their timeout and still run
	cfg      atomic.Pointer[config.Config]
	warned   atomic.Bool // of the ledger, which has failed since it was last saved

	mu        sync.Mutex
	client    *cri.Client              // the client that collector uses
	collector *reclaim.Collector       // nil until a runtime has answered
	notes     warnOnce                 // air-gap files and containers in doubt
	ended     map[string]time.Duration // sandboxes that were stopped; a reclaim of a disk need not wait until they count as finished
	yield     chan struct{}            // closed when a reclaim under pressure needs the collector
	acts      context.Context          //nolint:containedctx // ends when a pause begins or the configuration changes; nil = paused
	stopActs  context.CancelFunc
}

// New returns a Manager. If the image ledger cannot be read, all ages are unknown, which protects the images.
func New(opt Options) *Manager {
	m := &Manager{
		opt: opt, stops: make(chan struct{}, 1), begin: make(chan struct{}, 1),
		would: map[policy.Signal]string{}, failures: map[policy.Signal]warnOnce{}, yield: make(chan struct{}), ended: map[string]time.Duration{},
	}
	maps.Copy(m.ended, opt.Ended)
	m.cfg.Store(&opt.Config)
	m.SetPaused(false)
	open := reclaim.OpenLedger
	if opt.ReadOnly {
		open = reclaim.ReadLedger
	}
	var err error
	m.ledger, err = open(ledgerPath(&opt.Config), opt.BootID, opt.Now())
	m.warnLedger(err)
	return m
}

// SetConfig applies a configuration. If it changes which images and containers may be removed, or whether any may, it cancels the
// removals that were planned before, but for those that an operator asked for. The next ones follow the new configuration.
func (m *Manager) SetConfig(cfg config.Config) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.cfg.Swap(&cfg)
	if m.acts != nil && !was.RemovesLike(&cfg) {
		m.stopActs()
		m.acts, m.stopActs = context.WithCancel(context.Background())
	}
}

// SetPaused cancels all removals in progress and prevents new ones, or allows them again. A call that changes
// nothing does not interrupt removals.
func (m *Manager) SetPaused(paused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case paused && m.acts != nil:
		m.stopActs()
		m.acts, m.stopActs = nil, nil
	case !paused && m.acts == nil:
		m.acts, m.stopActs = context.WithCancel(context.Background())
	}
}

// mandate is what removals are planned by, and for how long that holds.
type mandate struct {
	cfg  config.Config
	acts context.Context //nolint:containedctx // as in Manager
}

func (m *Manager) mandate() mandate {
	m.mu.Lock()
	defer m.mu.Unlock()
	return mandate{m.config(), m.acts}
}

// begin returns a context that ends when ctx ends, a pause begins or what may be removed changes. ok is false if one of these has
// happened since.
func (w *mandate) begin(ctx context.Context) (acting context.Context, end func(), ok bool) {
	if w.acts == nil || w.acts.Err() != nil {
		return ctx, func() {}, false
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(w.acts, cancel)
	return ctx, func() { stop(); cancel() }, true
}

func (m *Manager) config() config.Config { return *m.cfg.Load() }

// current returns the collector for the runtime that answers now.
func (m *Manager) current() (*reclaim.Collector, error) {
	client, err := m.opt.Client()
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.collector == nil || m.client != client {
		m.client = client
		m.collector = reclaim.NewCollector(client, reclaim.Options{
			Ledger: m.ledger, Logs: m.opt.Logs, Clock: m.moment, Memory: m.opt.Memory,
		})
	}
	return m.collector, nil
}

// moment returns the time on both clocks.
func (m *Manager) moment() reclaim.Moment {
	return reclaim.Moment{Boot: m.opt.Now(), Wall: time.Now()}
}

// Unsaved returns why the image ledger is not in its file, nil if it is.
func (m *Manager) Unsaved() error { return m.ledger.Unsaved() }

// Run collects garbage until ctx ends. A collection may take minutes: the rest does not wait for it.
func (m *Manager) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { m.collect(ctx) })
	wg.Go(func() { m.measure(ctx) })
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-m.stops:
			m.warnLedger(m.ledger.SaveDue(m.opt.Now()))
		}
	}
	wg.Wait()
	m.warnLedger(m.ledger.SaveEnd(m.opt.Now()))
}

// collect collects garbage until ctx ends, one collection at a time.
func (m *Manager) collect(ctx context.Context) {
	tick := time.Tick(limitsEvery)
	containers, images := time.Now().Add(containersEvery), time.Now().Add(imagesEvery)
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.begin:
			m.start(ctx)
		case <-tick:
			// With a ticker for each, chance would decide which of those goes first that are due at once.
			if isDue(&containers, containersEvery) {
				m.CollectContainers(ctx)
			}
			if isDue(&images, imagesEvery) {
				m.CollectImages(ctx)
			}
		}
	}
}

// measure measures pods that have a storage limit until ctx ends.
func (m *Manager) measure(ctx context.Context) {
	tick := time.Tick(limitsEvery)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			m.measureLimited(ctx)
		}
	}
}

// isDue reports at a tick whether something is due by the next one, and sets when it is due again. A collection that takes long
// costs ticks.
func isDue(next *time.Time, every time.Duration) bool {
	if time.Until(*next) > limitsEvery/2 {
		return false
	}
	*next = time.Now().Add(every)
	return true
}

// Begin makes Run look at the containers and sandboxes as soon as the runtime answers: pods that have ended count as finished a minute
// after the first look. It also starts an image ledger that is still empty: until an image is in the ledger, its age is unknown. A
// ledger that knows images waits for the next collection, because a runtime that has just started may not list them all yet.
func (m *Manager) Begin() {
	select {
	case m.begin <- struct{}{}:
	default:
	}
}

func (m *Manager) start(ctx context.Context) {
	if m.ledger.Empty() {
		m.notice(ctx)
	} else if c, all := m.list(ctx); c != nil {
		c.See(all)
	}
}

// list lists everything. It returns the collector, or nil if no runtime answers.
func (m *Manager) list(ctx context.Context) (*reclaim.Collector, cri.Listing) {
	_, all, err := m.opt.Lister.ListAll(ctx)
	if err != nil {
		return nil, all // the lister logs that no runtime answers
	}
	c, err := m.current() // after the listing, which may have found another runtime
	if err != nil {
		return nil, all
	}
	return c, all
}

// notice records which images exist and which are in use. It returns the collector, or nil if no runtime
// answers.
func (m *Manager) notice(ctx context.Context) *reclaim.Collector {
	c, all := m.list(ctx)
	if c == nil {
		return nil
	}
	m.forgetEnded(all.Sandboxes)
	noticed := reclaim.Report{Step: reclaim.StepImages}
	if err := c.Notice(ctx, all); err != nil {
		noticed.Errors = []reclaim.Failure{{Message: err.Error(), Err: err}}
	} else {
		m.warnLedger(m.ledger.SaveDue(m.opt.Now()))
	}
	if ctx.Err() == nil {
		m.warnFailures(noSignal, []reclaim.Report{noticed})
	}
	return c
}

// measureLimited measures all pods if one of them has a storage limit. Nothing else needs these measurements
// while no disk is under pressure.
func (m *Manager) measureLimited(ctx context.Context) {
	pods := m.opt.Lister.Current().Pods
	if slices.ContainsFunc(pods, func(p inventory.Pod) bool { return p.StorageLimit > 0 }) {
		m.opt.Meter.Measure(ctx, pods)
	}
}

// CollectContainers removes dead containers and sandboxes by the kubelet's rules, and records which images are
// in use. It leaves the logs of unlisted pods until there is pressure: CRI-O forgets all pods at a reboot but
// leaves their logs, which an operator may still want to read.
func (m *Manager) CollectContainers(ctx context.Context) {
	c, w := m.notice(ctx), m.mandate()
	if c == nil || !w.cfg.Containers.GC {
		return
	}
	p := m.plan(w.cfg)
	p.Steps = []reclaim.Step{reclaim.StepContainers, reclaim.StepSandboxes}
	m.run(ctx, c, &w, p, policy.ContainerFSAvailable)
	m.collectCgroups(ctx)
}

// CollectImages removes unused images once usage of the image filesystem reaches the high watermark, until it is
// below the low one. It removes images past their maximum age at any time.
func (m *Manager) CollectImages(ctx context.Context) {
	c, err := m.current()
	w := m.mandate()
	if err != nil || w.cfg.Images.Prune == config.PruneNever {
		return
	}
	p := m.plan(w.cfg)
	p.Steps, p.Expire = []reclaim.Step{reclaim.StepImages}, true
	p.Target = m.watermark(w.cfg.Images)
	m.run(ctx, c, &w, p, policy.ImageFSAvailable)
}

// watermark returns a target: once usage has reached the high watermark, it measures how far usage exceeds
// the low one. One of 100 % is never reached, as for a kubelet.
func (m *Manager) watermark(c config.Images) reclaim.Target {
	above := false
	return func(context.Context) (reclaim.Room, error) {
		s, err := m.opt.Disks.Read(m.opt.Disks.Paths().Image)
		if err != nil {
			return reclaim.Room{}, err
		}
		used := s.Total - s.Available
		high := c.High.Of(s.Total)
		above = above || used >= high && high < s.Total
		room := reclaim.Room{Bytes: s.Available + s.Reserved, Inodes: s.InodesFree, Lag: s.Lag}
		if above {
			room.LackBytes = used - c.Low.Of(s.Total)
		}
		return room, nil
	}
}

// plan returns the settings that all collections share.
func (m *Manager) plan(cfg config.Config) reclaim.Plan {
	return reclaim.Plan{
		DryRun: cfg.Mode == config.ModeObserve,
		Containers: reclaim.ContainerPolicy{
			MinAge: cfg.Containers.MinAge, MaxPerContainer: cfg.Containers.MaxPerContainer, Max: cfg.Containers.Max,
		},
		Images:       *eviction.ImagePolicy(&cfg.Images),
		RuntimeSince: m.opt.RuntimeSince,
		Enough:       m.enough(),
	}
}

// enough returns a channel that the next reclaim under pressure closes.
func (m *Manager) enough() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.yield
}

// preempt ends collections that no threshold has asked for. One that removes many images takes minutes, but a
// stop waits for its reclaim only for eviction.ReclaimTimeout.
func (m *Manager) preempt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.yield)
	m.yield = make(chan struct{})
}

// run collects and records the removals. In observe mode it records what it would have removed, if that has
// changed. If it removed nothing, it logs the errors.
func (m *Manager) run(ctx context.Context, c *reclaim.Collector, w *mandate, p reclaim.Plan, s policy.Signal) {
	ctx, end, ok := w.begin(ctx)
	defer end()
	if !ok {
		return
	}
	started := time.Now()
	reports := c.Collect(ctx, p)
	m.collected(reports)
	m.record(ctx, s, reports, time.Since(started))
}

// record records what a collection removed, or logs its errors if it removed nothing.
func (m *Manager) record(ctx context.Context, s policy.Signal, reports []reclaim.Report, took time.Duration) {
	v := view(s, reports, took)
	before := m.would[s]
	if m.would[s] = removals(&v); v.Removed() > 0 && (!v.DryRun() || m.would[s] != before) {
		m.opt.Record(v, nil)
	}
	if v.Removed() == 0 && ctx.Err() == nil {
		m.warnFailures(s, reports)
	}
}

// removals lists what a dry run would remove, "" if it was not a dry run.
func removals(r *api.ReclaimView) string {
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

func view(s policy.Signal, reports []reclaim.Report, took time.Duration) api.ReclaimView {
	v := api.ReclaimView{Signal: s, Took: api.Duration(took)}
	for i := range reports {
		v.Reports = append(v.Reports, reports[i].Digest())
		v.Steps = append(v.Steps, string(reports[i].Step))
		v.Freed += reports[i].Freed
	}
	return v
}

// forgetEnded forgets the stopped sandboxes that do not exist any more.
func (m *Manager) forgetEnded(left []cri.Sandbox) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.ended, func(id string, _ time.Duration) bool {
		return !slices.ContainsFunc(left, func(b cri.Sandbox) bool { return b.ID == id })
	})
}

// stopped returns the stopped sandboxes, and when their stops began.
func (m *Manager) stopped() map[string]time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.ended)
}

// Stopped protects the images of a pod that is being stopped: the pod needs them when it comes back. It does
// not wait for a disk; Run writes the ledger.
func (m *Manager) Stopped(p inventory.Pod) {
	m.mu.Lock()
	m.ended[p.ID] = m.opt.Now()
	m.mu.Unlock()
	refs := slices.Clone(p.EndedImages)
	for i := range p.Containers {
		refs = append(refs, p.Containers[i].Images...)
	}
	m.ledger.NoteStopped(refs, m.opt.Now())
	select {
	case m.stops <- struct{}{}:
	default:
	}
}
