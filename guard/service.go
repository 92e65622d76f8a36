package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/systemd"
)

// ServiceOptions is what a service is made of.
type ServiceOptions struct {
	Config   Config
	RunDir   RunDir
	Version  string
	Log      *slog.Logger
	Notifier *systemd.Notifier
	// Reload gives a new configuration, or why there is none, when asked to.
	Reload <-chan func() (Config, error)
}

// Service is the guard as a daemon: the loop, what feeds it and what it feeds.
type Service struct {
	opt        ServiceOptions
	log        *slog.Logger
	node       *node
	guard      *Guard
	history    *History
	samples    *Samples
	saver      *saver // of both
	metrics    *Metrics
	journal    *Journal
	keeper     *housekeeper
	hooks      *hooks
	conditions conditionsWriter
	started    time.Time
	stops      *stopper
	// endStops gives the stops up that are under way.
	endStops context.CancelFunc

	calls    chan func()
	turn     chan struct{} // holds one element while somebody calls
	wakes    chan string
	kick     chan struct{} // re-list now
	repace   chan struct{} // what the pause until the next listing goes by has changed
	lastPass *Pass
	held     hold
	note     string // why a reload was refused
	lastInv  error  // of the lister
	lastAt   string // endpoint of the runtime that was listed last
	freed    time.Time
	warned   sync.Map    // complaints made already
	lost     atomic.Bool // what happens is lost with the service
}

// shutdownTime bounds how long a service that was told to end waits for stops
// under way, and then for what else runs.
const shutdownTime = 3 * time.Second

// Serve guards until ctx ends. It returns ErrRunning when another criguard has
// the runtime directory, and other errors only for what cannot be done without:
// a runtime that is away, a disk that is full or a kernel without some feature
// are lived with and told.
func Serve(ctx context.Context, opt ServiceOptions) error {
	release, err := opt.RunDir.Lock()
	if err != nil {
		return err
	}
	defer release()
	s := &Service{
		opt: opt, log: opt.Log, started: time.Now(), journal: NewJournal(opt.Log), metrics: NewMetrics(opt.Version),
		calls: make(chan func()), turn: make(chan struct{}, 1), wakes: make(chan string, 1), kick: make(chan struct{}, 1),
		repace: make(chan struct{}, 1),
	}
	if err := cgroup.LockMemory(); err != nil {
		s.log.Warn("memory is not locked: a node that swaps may slow the guard down", systemd.EventKey, systemd.EventDegraded,
			"action", "lock", "reason", err.Error())
	}
	// A stop that has begun goes on for a while when the service is told to end.
	stops, endStops := context.WithCancel(context.WithoutCancel(ctx))
	defer endStops()
	if err := s.assemble(ctx, stops); err != nil {
		return err
	}
	s.endStops = endStops
	defer s.node.Close()
	return s.serve(ctx)
}

// assemble opens the node and puts the guard together.
func (s *Service) assemble(ctx, stops context.Context) error {
	n, err := openNode(s.opt.Config)
	if err != nil {
		return err
	}
	s.node = n
	n.lister.publish = s.listed
	n.wake = s.wake
	if err := n.kernel.startWaker(); err != nil {
		s.log.Warn("nothing but the timer wakes the loop", systemd.EventKey, systemd.EventDegraded, "action", "wake", "reason", err.Error())
	}
	restraint := s.loadBudget()
	s.history = OpenHistory(s.opt.Config.History.Dir, s.opt.Config.History.Passes)
	s.samples = NewSamples(s.opt.Config.History.Dir)
	s.saver = newSaver(func() error { return errors.Join(s.history.Save(), s.samples.Save()) }, s.toldHistory)
	s.keeper = newHousekeeper(n, s.opt.Config, s.log, func(v ReclaimView) { s.reclaimed(ctx, v) })
	s.stops = &stopper{node: n, ctx: stops, stopped: s.keeper.stopped}
	s.guard = New(s.opt.Config, n.kernel, n, &reclaimer{node: n, keeper: s.keeper}, s.stops, restraint)
	s.guard.seq = s.history.LastID()
	s.hooks = newHooks(s.log, s.metrics)
	s.conditions.dir = s.opt.RunDir
	s.resumeOrders()
	return nil
}

func (s *Service) serve(ctx context.Context) error {
	var wg sync.WaitGroup
	background, cancel := context.WithCancel(ctx)
	defer cancel()
	closeServers, err := s.answer(background, &wg)
	if err != nil {
		return err
	}
	s.hooks.start(background, s.opt.Config.Hooks)
	wg.Go(s.saver.run)
	s.saver.wake() // what is torn is mended, and a directory that cannot be written is told
	wg.Go(func() { s.node.lister.Run(background, s.listPause, s.kick, s.repace) })
	wg.Go(func() { s.node.watchEvents(background, s.relist) })
	wg.Go(func() { s.keeper.Run(background) })
	wg.Go(func() { s.node.forwardWakes(background, s.wake, s.relist) })

	s.log.Info("guarding", systemd.EventKey, systemd.EventStart, "action", "start", "version", s.opt.Version, "mode", s.opt.Config.Mode.String(),
		"cgroup", s.node.kernel.Cgroup(), "wakes", s.node.kernel.Wakes())
	s.notify(s.opt.Notifier.Ready(s.statusLine()))
	loop := Loop{Guard: s.guard, Wakes: s.wakes, Calls: s.callsOrReload(background, &wg), After: s.after}
	loop.Run(ctx)

	s.notify(s.opt.Notifier.Stopping("ending"))
	s.log.Info("ending", systemd.EventKey, systemd.EventShutdown, "action", "end", "in_flight", len(s.guard.flights))
	cancel()
	s.awaitStops()
	s.told("conditions", s.conditions.remove())
	closeServers()
	s.samples.Close()
	s.saver.finish()
	if !within(shutdownTime, func() { wg.Wait(); s.hooks.wait() }) {
		s.log.Warn("ending without the last of the history", systemd.EventKey, systemd.EventDegraded, "action", "end", "reason", "a disk or a hook does not answer")
		return nil
	}
	if err := s.history.Close(); err != nil {
		s.toldHistory(err)
	}
	return nil
}

// within tells whether f returns within a time. If not, it is left behind.
func within(d time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

// awaitStops waits, bounded, for the stops that were under way, and records what
// became of them.
func (s *Service) awaitStops() {
	deadline := time.AfterFunc(shutdownTime, s.endStops)
	defer deadline.Stop()
	for _, f := range s.guard.flights {
		<-f.job.Done()
	}
	s.stops.wait() // a sandbox that was not told to stop stays ready, with nothing in it
	if len(s.guard.flights) == 0 {
		return
	}
	p := s.guard.conclude()
	s.after(&p)
}

// after is told of every pass, in the loop's goroutine.
func (s *Service) after(p *Pass) {
	s.metrics.Observe(p, s.guard)
	if s.samples.Add(&s.guard.obs, p.At) {
		s.saver.wake()
	}
	s.hooks.look(s.guard)
	s.notify(s.opt.Notifier.Watchdog(p.At))
	if s.node.kernel.Arm(s.guard.thresholds, &s.guard.obs) {
		hint(s.repace) // the pause under way may be as long as those of an idle node
	}
	s.told("conditions", s.conditions.write(s.guard.pressure, time.Now()))
	s.warnAbsent()
	s.warnSwap()
	if s.guard.eased || p.Stop != nil || len(p.Settled) > 0 {
		s.saveBudget()
	}
	if !p.Notable() {
		return
	}
	p.Time = time.Now()
	if p.Stop != nil {
		s.samples.Stop(p, s.guard.thresholds)
	}
	if len(p.Settled) > 0 {
		s.relist() // not before: what listing takes, the victim needs for its end
	}
	if p.Command != nil {
		s.inForce()
	}
	s.metrics.Record(p)
	s.journal.Record(p)
	s.hooks.post(p, s.guard.cfg.Mode)
	if s.repeats(p) {
		s.guard.seq-- // nothing new: no record of its own
		return
	}
	s.lastPass = p
	s.keep(p)
	s.notify(s.opt.Notifier.Status(s.statusLine()))
}

// repeats tells whether a pass only finds again what those before it found.
func (s *Service) repeats(p *Pass) bool {
	return !s.held.news(p) && !p.Changed && p.Stop == nil && p.Escalated == "" && p.Alarm == "" && p.Command == nil &&
		len(p.Settled) == 0 && len(p.Reclaimed) == 0
}

// wake asks for a pass. One wake waiting is enough.
func (s *Service) wake(why string) {
	select {
	case s.wakes <- why:
	default:
	}
}

// relist asks for a listing.
func (s *Service) relist() { hint(s.kick) }

// hint passes a hint on. One waiting is enough.
func hint(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

func (s *Service) notify(err error) {
	if err != nil && s.once("notify") {
		s.log.Warn("service manager cannot be told", systemd.EventKey, systemd.EventDegraded, "action", "notify", "reason", err.Error())
	}
}

// told says once that a small file cannot be kept as it should be.
func (s *Service) told(what string, err error) {
	if err != nil && s.once(what) {
		s.log.Warn(what+" file is not as it should be", systemd.EventKey, systemd.EventDegraded, "action", what, "reason", err.Error())
	}
}

// keep takes a pass into the history.
func (s *Service) keep(p *Pass) {
	s.history.Add(*p)
	s.saver.wake()
}

// toldHistory says when what happened begins to be lost with the service, and when it ends.
func (s *Service) toldHistory(err error) {
	switch lost := err != nil; {
	case lost == s.lost.Swap(lost):
	case lost:
		s.log.Warn("history stays in memory", systemd.EventKey, systemd.EventDegraded, "action", "history", "reason", err.Error())
	default:
		s.log.Info("history is in its file again", "action", "history")
	}
}

// reclaimed records what the housekeeper removed by itself.
func (s *Service) reclaimed(ctx context.Context, v ReclaimView) {
	select {
	case s.calls <- func() {
		s.guard.seq++
		p := Pass{ID: s.guard.seq, At: s.node.kernel.Now(), Time: time.Now(), Wake: "housekeeping",
			Conditions: s.guard.pressure.Conditions, Reclaimed: []ReclaimView{v}}
		s.metrics.Record(&p)
		s.journal.Record(&p)
		s.lastPass = &p
		s.keep(&p)
	}:
	case <-ctx.Done():
	}
}

// once reports true the first time that it is asked about something.
func (s *Service) once(what string) bool {
	_, again := s.warned.LoadOrStore(what, true)
	return !again
}

// resident is the service's own resident memory, in bytes.
func resident() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, rss int64
	if _, err := fmt.Sscan(string(b), &size, &rss); err != nil {
		return 0
	}
	return rss * int64(os.Getpagesize())
}
