package guard

import (
	"context"
	"slices"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/gc"
	"github.com/criguard/criguard/guard/history"
	"github.com/criguard/criguard/guard/hold"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

// How long a look at the node waits for a runtime or a disk that does not answer. At the start, nothing is
// guarded meanwhile.
const (
	lookAtStart  = 2 * time.Second
	lookAtReload = 5 * time.Second
	// How much longer a configuration is held for a reload that was requested: another one may be checked before, with its hooks.
	waitForCheck = 2 * (lookAtReload + 2*time.Second)
)

// metAtOnce returns the hard thresholds that a configuration would meet at once and that were not in force
// before, and those of which that is unknown. It looks at the node only if the configuration has a new threshold, for at
// most a limited time. The node's paths and the runtime are those in use, because new ones take effect at the next start.
func (s *Service) metAtOnce(ctx context.Context, cfg config.Config, limit time.Duration) []api.MetNow {
	known := s.hard.Get()
	if !known.NewIn(cfg.Hard()) {
		return nil
	}
	cfg = cfg.WithoutStalls(known)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cfg.Node, cfg.Runtime = s.opt.Config.Node, s.opt.Config.Runtime
	cfg.Node.RootDir = s.host.kubeletRoot()
	l, err := OpenLook(ctx, cfg)
	if err != nil {
		s.degraded("look", "reload", "new thresholds not checked", err)
		return s.hard.Unchecked(cfg.Hard(), func(policy.Signal) error { return err })
	}
	defer l.Close()
	l.host.lister.Protect(s.host.lister.Protected())
	met := slices.DeleteFunc(l.MetNow(ctx), s.hard.Had)
	return append(met, s.hard.Unchecked(l.guard.Hard(), l.unread)...)
}

// hold makes a configuration wait and raises an alarm. The configuration in force stays.
func (s *Service) hold(h hold.Held, wake string) {
	s.waiting = s.waiting.Next(h, s.host.kernel.Now())
	p := s.record(wake)
	p.Alarm, p.AlarmBy, p.AlarmKind = s.waiting.Alarm(s.host.kernel.Now()), h.Met[0].Signal.String()+":hard", api.AlarmHeld
	s.publish(&p)
}

// holdAtStart returns the configuration to start with: where a hard threshold is met at once, the one that was
// in force before, or none if this node has run with none. A threshold that may be met does not wait: without a runtime,
// as before it starts at a boot, that would be each one of its filesystems.
func (s *Service) holdAtStart(ctx context.Context) config.Config {
	cfg := s.opt.Config
	read, end := context.WithTimeout(ctx, lookAtStart)
	defer end()
	s.hard = hold.Open(read, s.opt.Dir, rundir.Dir(gc.StateDir(&cfg)), s.readers)
	s.hardSaver = history.NewWriter(s.hard.Save, func(err error) {
		s.degraded("thresholds", "reload", "a restart may hold the thresholds in force again", err)
	})
	met := slices.DeleteFunc(s.metAtOnce(ctx, cfg, lookAtStart), func(m api.MetNow) bool { return m.Unknown != "" })
	if len(met) == 0 {
		return cfg
	}
	s.waiting = &hold.Held{Config: cfg, Met: met, AtStart: true}
	return hold.Without(cfg, met, s.hard.Get())
}

// endHold puts a held configuration in force when its time is over. It waits for a correction that was requested in time.
func (s *Service) endHold(now time.Duration) {
	w := s.waiting
	if w == nil || now < w.Until || s.requested.Load() > 0 && now < w.Until+waitForCheck {
		return
	}
	s.waiting = nil
	s.apply(w.Config)
	if err := s.notes.Rejected; err != nil { // a later configuration, which is still what the file has
		s.metrics.Reloaded(err)
	}
	s.notify(s.opt.Notifier.Status(s.statusLine()))
}

// keepHard keeps the hard thresholds in force for the next start: none in observe mode, which stops no pod for them. A held start
// keeps those from before, also if they could not be read.
func (s *Service) keepHard() {
	if s.waiting != nil && s.waiting.AtStart {
		return
	}
	s.hard.Set(s.guard.Hard())
	s.hardSaver.Wake()
}
