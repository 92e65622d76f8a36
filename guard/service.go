package guard

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/conditions"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/fleet/client"
	"github.com/criguard/criguard/guard/gc"
	"github.com/criguard/criguard/guard/history"
	"github.com/criguard/criguard/guard/hold"
	"github.com/criguard/criguard/guard/hook"
	"github.com/criguard/criguard/guard/journal"
	"github.com/criguard/criguard/guard/lastgood"
	"github.com/criguard/criguard/guard/machine"
	"github.com/criguard/criguard/guard/metrics"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/guard/stop"
	"github.com/criguard/criguard/systemd"
)

// ServiceOptions configures a Service.
type ServiceOptions struct {
	Config   config.Config
	Dir      rundir.Dir
	Version  string
	Log      *slog.Logger
	Notifier *systemd.Notifier
	// Load loads the configuration, or returns why it is invalid, for a reload on the control socket.
	Load func() (config.Config, error)
	// Reload requests a reload with a function like Load.
	Reload  <-chan func() (config.Config, error)
	Machine machine.Machine
}

// Service is what `criguard run` runs: the loop, its inputs and its outputs.
type Service struct {
	opt        ServiceOptions
	lock       *rundir.Lock
	log        *slog.Logger
	host       *host
	guard      *eviction.Manager
	history    *history.History
	samples    *history.Samples
	saver      *history.Writer // of history and samples
	hardSaver  *history.Writer // of the hard thresholds in force, which may be on another disk
	metrics    *metrics.Metrics
	journal    *journal.Journal
	gc         *gc.Manager
	hooks      *hook.Dispatcher
	conditions conditions.Writer
	readers    rundir.Access // of the orders, budget and samples files
	states     rundir.States
	started    time.Time
	stops      *stop.Stopper
	fleet      *client.Client
	processors machine.Processors
	// endStops cancels the stops in flight.
	endStops context.CancelFunc

	waiting   *hold.Held    // waits to be in force; nil = none
	requested atomic.Int32  // reloads without a verdict, which may correct what waits
	hard      *hold.InForce // the thresholds that were in force last

	calls    chan func()
	reloads  chan reloadRequest
	turn     chan struct{} // holds one element during a call
	wakes    chan string
	kick     chan struct{} // re-list now
	repace   chan struct{} // recompute the pause until the next listing
	look     chan struct{} // look at the mounts
	lastPass *api.Pass
	held     api.Hold      // what status shows
	holds    api.Holds     // that have a record
	nextStop time.Duration // when the budget or a back-off allows the held stop, since boot
	notes    hold.Notes    // on reloads
	lastInv  error         // error of the last listing
	lastAt   string        // endpoint of the runtime that was listed last
	freeing  atomic.Bool   // freeSoon is about to
	settled  atomic.Bool   // freeSoon has returned what only the start has used
	warned   sync.Map      // warnings that were logged
	lost     atomic.Bool   // the history cannot be saved and would be lost with the service
}

// shutdownTime limits how long a service that is shutting down waits for stops in flight, and then for
// everything else that runs.
const shutdownTime = 3 * time.Second

// Serve guards the node until ctx ends. It returns rundir.ErrRunning if another criguard uses the runtime
// directory. It returns other errors only for what it cannot work without. If the runtime is unavailable, a
// disk is full or the kernel lacks a feature, it logs a warning and continues.
func Serve(ctx context.Context, opt ServiceOptions) error {
	lock, err := opt.Dir.Lock()
	if err != nil {
		return err
	}
	defer lock.Release()
	unlock, missed, err := lockNode(opt)
	if err != nil {
		return err
	}
	defer unlock()
	s := &Service{
		opt: opt, lock: lock, log: opt.Log, started: time.Now(), journal: journal.New(opt.Log), metrics: metrics.New(opt.Version, opt.Machine.BootTime),
		calls: make(chan func()), reloads: make(chan reloadRequest), turn: make(chan struct{}, 1), wakes: make(chan string, 1), kick: make(chan struct{}, 1),
		repace: make(chan struct{}, 1), look: make(chan struct{}, 1),
	}
	s.sweep()
	if len(missed) > 0 {
		s.log.Warn("node not locked, another criguard would not be noticed", systemd.EventKey, systemd.EventDegraded,
			"action", "lock", "reason", "address of "+strings.Join(missed, ", ")+" used by another program")
	}
	s.lockMemory()
	// A stop in flight continues for a while after ctx ends.
	stops, endStops := context.WithCancel(context.WithoutCancel(ctx))
	defer endStops()
	if err := s.assemble(ctx, stops); err != nil {
		return err
	}
	s.endStops = endStops
	defer s.host.Close()
	return s.serve(ctx)
}

// assemble opens the node and creates the parts of the service.
func (s *Service) assemble(ctx, stops context.Context) error {
	s.opt.Config.Dir = s.opt.Dir
	n, err := openHost(s.opt.Config, s.opt.Machine)
	if err != nil {
		return err
	}
	s.host = n
	s.processors = machine.NewProcessors(s.opt.Machine.Processors, n.kernel.Now())
	if err := n.checkCgroups(s.opt.Config.Mode); err != nil {
		n.Close()
		return err
	}
	n.listed = s.listed
	n.wake = s.wake
	if err := n.kernel.Watch(); err != nil {
		s.log.Warn("kernel notifications unavailable, polling only", systemd.EventKey, systemd.EventDegraded, "action", "wake", "reason", err.Error())
	}
	s.readers = rundir.ForOperators()
	s.states = rundir.States{Dir: s.opt.Dir, Access: s.readers}
	restraint := s.loadBudget()
	s.history = history.Open(s.opt.Config.HistoryDir(), s.opt.Config.History.Passes)
	s.samples = history.NewSamples(s.opt.Config.HistoryDir())
	s.saver = history.NewWriter(func() error { return errors.Join(s.history.Save(), s.samples.Save()) }, s.historySaved)
	collections := n.gcOptions(s.log, func(v api.ReclaimView, by *api.Peer) { s.reclaimed(ctx, v, by) })
	collections.Collected, collections.Ended = s.metrics.ReclaimErrors, restraint.Sandboxes()
	s.gc = gc.New(collections)
	s.stops = stop.New(stops, n.stopOptions(s.gc.Stopped))
	cfg := s.holdAtStart(ctx)
	s.fleet = client.New(client.Options{Config: cfg, Dir: s.opt.Dir, Access: s.readers, BootID: n.bootID, Version: s.opt.Version, Log: s.log, Now: n.kernel.Now})
	s.guard = eviction.New(cfg, n.kernel, n, s.gc, s.stops, s.fleet, restraint)
	s.guard.Linger = s.opt.Machine.Linger
	s.guard.Continue(s.history.LastID(), s.history.RuntimeDown(), s.history.Conditions())
	s.loadSamples()
	s.hooks = hook.NewDispatcher(s.log, s.metrics.Hook)
	s.conditions.Dir = s.opt.Dir
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
	s.hooks.Start(background, s.opt.Config.Hooks)
	wg.Go(func() { s.hooks.Check(background, s.opt.Config.Hooks) })
	wg.Go(s.saver.Run)
	wg.Go(s.hardSaver.Run)
	s.saver.Wake() // repair a torn file, and report a directory that cannot be written
	wg.Go(func() { s.host.lister.Run(background, s.listPause, s.kick, s.repace) })
	wg.Go(func() { s.watchMounts(background) })
	wg.Go(func() { s.host.watchEvents(background, s.relist) })
	wg.Go(func() { s.gc.Run(background) })
	wg.Go(func() { s.fleet.Run(background) })
	wg.Go(func() { s.host.kernel.ForwardWakes(background, s.wake, s.relist) })

	s.log.Info("guarding", systemd.EventKey, systemd.EventStart, "action", "start", "version", s.opt.Version, "mode", s.opt.Config.Mode.String(),
		"cgroup", s.host.kernel.Cgroup(), "wakes", strings.Join(s.host.kernel.Wakes(), ", "), "thresholds", strings.Join(s.guard.Thresholds(), ", "))
	s.warnFiles(s.opt.Config, "start")
	s.notify(s.opt.Notifier.Ready(s.statusLine()))
	if w := s.waiting; w != nil {
		s.hold(*w, "start")
	}
	loop := eviction.Loop{Guard: s.guard, Wakes: s.wakes, Calls: s.callsOrReload(background, &wg), After: s.after, Slept: s.host.kernel.Slept}
	loop.Run(ctx)

	s.notify(s.opt.Notifier.Stopping("ending"))
	s.log.Info("ending", systemd.EventKey, systemd.EventShutdown, "action", "end", "in_flight", s.guard.Snapshot().InFlight)
	cancel()
	s.awaitStops()
	s.degraded("conditions", "conditions", "cannot remove the conditions file", s.conditions.Remove())
	closeServers()
	s.samples.Close()
	s.saver.Close()
	s.hardSaver.Close()
	if !within(shutdownTime, func() { wg.Wait(); s.hooks.Wait() }) {
		s.log.Warn("shutdown timed out, history may be incomplete", systemd.EventKey, systemd.EventDegraded, "action", "end", "reason", "a disk or a hook does not answer")
		return nil
	}
	if err := s.history.Close(); err != nil {
		s.historySaved(err)
	}
	return nil
}

// within reports whether f returns within d. If not, f keeps running.
func within(d time.Duration, f func()) bool {
	return lastgood.Within(d, func() bool { f(); return true }, false)
}

// awaitStops waits a limited time for the stops in flight and records their results.
func (s *Service) awaitStops() {
	deadline := time.AfterFunc(shutdownTime, s.endStops)
	defer deadline.Stop()
	s.guard.AwaitJobs()
	// A sandbox that was not stopped would stay ready, but empty. The wait is limited because a log directory
	// may hang.
	within(2*shutdownTime, s.stops.Wait)
	if s.guard.Snapshot().InFlight == 0 {
		return
	}
	p := s.guard.Conclude()
	s.after(&p)
}

// after handles every pass, in the loop's goroutine.
func (s *Service) after(p *api.Pass) {
	state := s.guard.Snapshot()
	if s.held.Reason == api.HeldPaused && s.guard.Orders.Pause == nil {
		s.held, s.holds = api.Hold{}, api.Holds{} // what holds a stop back now may be left out of the record
	}
	if s.guard.Rederived() {
		s.keepHard()
	}
	s.metrics.Observe(p, state)
	if s.samples.Add(state.Observations, time.Duration(p.At)) {
		s.saver.Wake()
	}
	s.hooks.Observe(state)
	s.fleet.Observe(p)
	s.notify(s.opt.Notifier.Watchdog(time.Duration(p.At)))
	if s.host.kernel.Arm(state.Thresholds, state.Observations) {
		hint(s.repace) // the current pause may be as long as on an idle node
	}
	s.processors.See(s.guard.IsCalm(), time.Duration(p.At))
	changed, err := s.conditions.Write(state.Pressure, time.Now())
	s.degraded("conditions", "conditions", "cannot update the conditions file", err)
	s.warnAbsent(state.Observations, s.host.kernel.Reason)
	s.warnSwap()
	if s.guard.Unsaved() {
		s.saveBudget()
	}
	if s.guard.Sampled() {
		s.states.Retry()
		err := s.states.Save(samplesFile, s.guard.Samples().Saved(s.host.bootID))
		s.degraded("samples", "save", "samples not saved: after a restart, it is not known for a second which pod grows", err)
	}
	s.endHold(time.Duration(p.At))
	if p.Held != "" && !api.Transient(p.Held) {
		s.nextStop = time.Duration(p.At + p.NextStopIn)
	}
	if len(p.Settled) > 0 {
		s.relist() // not earlier: the victim needs the resources of a listing for its shutdown
	}
	if p.Command != nil {
		s.inForce() // a pause or a protection has ended
	}
	was := s.held
	if s.held.Changed(p); s.holds.Changed(p) || p.Acts() {
		s.publish(p)
		return
	}
	if p.Notable() {
		s.guard.LastID-- // it only repeats what held a stop back before, and gets no record
	}
	if changed || s.held != was {
		s.notify(s.opt.Notifier.Status(s.statusLine()))
	}
}

// record returns the record of what happens between two passes.
func (s *Service) record(wake string) api.Pass {
	state := s.guard.Snapshot()
	p := api.Pass{ID: s.guard.NextID(), At: api.Duration(s.host.kernel.Now()), Wake: wake, Conditions: state.Pressure.Conditions}
	p.Observe(state.Observations, state.Pressure)
	return p
}

// publish passes a record on to the metrics, the log, the hooks, the history and the status.
func (s *Service) publish(p *api.Pass) {
	p.Time = time.Now()
	if p.Stop != nil {
		s.samples.Stop(p, s.guard.Snapshot().Thresholds)
	}
	s.metrics.Record(p)
	s.journal.Record(p)
	s.hooks.Post(p, s.guard.Config().Mode)
	s.lastPass = p
	s.keep(p)
	s.notify(s.opt.Notifier.Status(s.statusLine()))
}

// wake requests a pass. One pending request is enough.
func (s *Service) wake(why string) {
	select {
	case s.wakes <- why:
	default:
	}
}

// relist requests a listing.
func (s *Service) relist() { hint(s.kick) }

// hint sends a hint. One pending hint is enough.
func hint(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// degraded logs an error, once for each key.
func (s *Service) degraded(key, action, msg string, err error) {
	if err != nil && s.once(key) {
		s.log.Warn(msg, systemd.EventKey, systemd.EventDegraded, "action", action, "reason", err.Error())
	}
}

// lockMemory locks the service's memory, and gives back what is not in use.
func (s *Service) lockMemory() {
	s.degraded("memory", "lock", "memory not locked: swapping may delay stops", s.opt.Machine.LockMemory())
}

func (s *Service) notify(err error) {
	s.degraded("notify", "notify", "sd_notify failed", err)
}

// keep adds a pass to the history.
func (s *Service) keep(p *api.Pass) {
	s.history.Add(*p)
	s.saver.Wake()
}

// historySaved logs when the history can no longer be saved, and when it can be saved again.
func (s *Service) historySaved(err error) {
	switch lost := err != nil; {
	case lost == s.lost.Swap(lost):
	case lost:
		s.log.Warn("history not saved, kept in memory", systemd.EventKey, systemd.EventDegraded, "action", "history", "reason", err.Error())
	default:
		s.log.Info("history saved again", "action", "history")
	}
}

// reclaimed records what garbage collection removed, by itself or for an operator.
func (s *Service) reclaimed(ctx context.Context, v api.ReclaimView, by *api.Peer) {
	select {
	case s.calls <- func() {
		p := s.record("housekeeping")
		p.Reclaimed = []api.ReclaimView{v}
		if by != nil {
			p.Wake, p.Command = "command", &api.CommandView{Command: api.CommandPrune, By: by}
		}
		s.publish(&p)
	}:
	case <-ctx.Done():
	}
}

// once reports whether it is called with this key for the first time.
func (s *Service) once(what string) bool {
	_, again := s.warned.LoadOrStore(what, true)
	return !again
}
