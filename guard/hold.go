package guard

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/policy"
)

// A configuration that meets a hard threshold at once would stop a pod before its author sees a mistake.
// It waits for holdTime, unless the threshold was in force before.
const holdTime = 30 * time.Second

// How long a look at the node waits for a runtime or a disk that does not answer. At the start, nothing is
// guarded meanwhile.
const (
	lookAtStart  = 2 * time.Second
	lookAtReload = 5 * time.Second
)

// hardFile keeps the hard thresholds that were in force, so that a restart does not wait.
const hardFile = "thresholds.json"

// heldConfig is a configuration that is held.
type heldConfig struct {
	cfg   config.Config
	met   []api.MetNow
	until time.Duration // boot clock
}

// alarm says in one line what is held, for how long, and what to do.
func (h *heldConfig) alarm(now time.Duration) string {
	texts := make([]string, len(h.met))
	for i, m := range h.met {
		texts[i] = m.String()
	}
	left := max(h.until-now, 0).Round(time.Second)
	return strings.Join(texts, "; ") + "; the configuration is held for " + policy.ShortDuration(left) + " and then put in force (`criguard reload --now`, or a second reload, does not wait)"
}

// wasInForce reports whether a threshold at least as high as a met one was in force before.
func (s *Service) wasInForce(m api.MetNow) bool {
	v, was := s.hard.Load().For(m.Signal, m.Capacity)
	return was && v.Of(m.Capacity) >= m.Amount
}

// metAtOnce returns the hard thresholds that a configuration would meet at once and that were not in force
// before. It looks at the node only if the configuration has such a threshold, for at most a limited time. The
// node's paths and the runtime are those in use, because new ones take effect at the next start.
func (s *Service) metAtOnce(ctx context.Context, cfg config.Config, limit time.Duration) []api.MetNow {
	known := *s.hard.Load()
	fresh := false
	for signal, v := range cfg.Hard() {
		old, set := known[signal]
		fresh = fresh || !set || old != v
	}
	if !fresh {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cfg.Node, cfg.Runtime = s.opt.Config.Node, s.opt.Config.Runtime
	l, err := OpenLook(ctx, cfg)
	if err != nil {
		s.degraded("look", "reload", "new thresholds not checked, in force without a hold", err)
		return nil
	}
	defer l.Close()
	l.host.lister.Protect(s.host.lister.Protected())
	return slices.DeleteFunc(l.MetNow(ctx), s.wasInForce)
}

// hold makes a configuration wait and raises an alarm. The configuration in force stays.
func (s *Service) hold(cfg config.Config, met []api.MetNow) {
	s.waiting = &heldConfig{cfg, met, s.host.kernel.Now() + holdTime}
	p := s.record("reload")
	p.Alarm, p.AlarmBy, p.AlarmKind = s.waiting.alarm(s.host.kernel.Now()), met[0].Signal.String()+":hard", api.AlarmHeld
	s.publish(&p)
}

// holdAtStart returns the configuration to start with: where a hard threshold is met at once, the one that was
// in force before, or none if this node has run with none.
func (s *Service) holdAtStart(ctx context.Context) config.Config {
	s.loadHard()
	cfg := s.opt.Config
	met := s.metAtOnce(ctx, cfg, lookAtStart)
	if len(met) == 0 {
		return cfg
	}
	s.waiting = &heldConfig{cfg: cfg, met: met}
	e := &cfg.Eviction
	e.Thresholds, e.Off = slices.Clone(e.Thresholds), slices.Clone(e.Off)
	for _, m := range met {
		t := policy.Threshold{Signal: m.Signal, Kind: policy.Hard}
		if i := slices.IndexFunc(e.Thresholds, func(o policy.Threshold) bool { return o.Compare(t) == 0 }); i >= 0 {
			t = e.Thresholds[i]
			e.Thresholds = slices.Delete(e.Thresholds, i, i+1)
		}
		if v, was := s.hard.Load().For(m.Signal, m.Capacity); was {
			t.Value = v
			e.Thresholds = append(e.Thresholds, t)
		} else {
			t.Value = policy.Percent(0)
			e.Off = append(e.Off, t) // it may also derive from another one
		}
	}
	return cfg
}

// endHold puts a held configuration in force when its time is over.
func (s *Service) endHold(now time.Duration) {
	if s.waiting != nil && now >= s.waiting.until {
		s.apply(s.waiting.cfg)
		s.notify(s.opt.Notifier.Status(s.statusLine()))
	}
}

// loadHard reads the hard thresholds that were in force in an earlier run. Without them, none was.
func (s *Service) loadHard() {
	known := config.HardThresholds{}
	if b, err := s.opt.Dir.ReadFile(hardFile, s.readers); err == nil && json.Unmarshal(b, &known) != nil {
		known = config.HardThresholds{}
	}
	s.hard.Store(&known)
}

// saveHard keeps the hard thresholds in force for the next start.
func (s *Service) saveHard() {
	if s.guard.Config().Mode == config.ModeObserve {
		return // nothing was stopped for them
	}
	hard := s.guard.Config().Hard()
	s.hard.Store(&hard)
	b, err := json.Marshal(hard)
	if err == nil {
		err = s.opt.Dir.WriteFile(hardFile, append(b, '\n'), s.readers)
	}
	s.degraded("thresholds", "reload", "a restart may hold the thresholds in force again", err)
}
