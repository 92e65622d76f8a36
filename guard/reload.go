package guard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/hold"
	"github.com/criguard/criguard/guard/journal"
	"github.com/criguard/criguard/systemd"
)

// reloadRequest is a reload that an operator requests on the control socket or by a signal.
type reloadRequest struct {
	load   func() (config.Config, error)
	now    bool                // put even thresholds in force that are met at once
	asked  time.Duration       // boot clock
	by     *api.Peer           // nil = a signal, whose sender sees no verdict
	answer chan<- reloadAnswer // has room for the answer
}

type reloadAnswer struct {
	api.CommandAnswer
	err error
}

// callsOrReload merges reload requests into the calls of the loop. Another goroutine reads the files, looks
// at the node, checks the hooks' programs and notifies the service manager. As Type=notify-reload requires,
// it notifies before reading anything, and again after the configuration was applied, held or refused.
func (s *Service) callsOrReload(ctx context.Context, wg *sync.WaitGroup) <-chan func() {
	wg.Go(func() {
		var r reloadRequest
		var next chan<- reloadRequest // nil = no signal waits
		for {
			select {
			case <-ctx.Done():
				return
			case load := <-s.opt.Reload:
				if next == nil { // one that waits reads the files later than this signal
					s.requested.Add(1)
					r, next = reloadRequest{load: load, asked: s.host.kernel.Now(), answer: make(chan reloadAnswer, 1)}, s.reloads
				}
			case next <- r:
				next = nil
			}
		}
	})
	wg.Go(func() {
		for {
			var request reloadRequest
			select {
			case <-ctx.Done():
				return
			case request = <-s.reloads:
			}
			s.notify(s.opt.Notifier.Reloading())
			cfg, err := request.load()
			var warnings []string
			var met []api.MetNow
			if err == nil {
				warnings = append(s.hooks.Check(ctx, cfg.Hooks), cfg.FileNotes()...)
				met = s.metAtOnce(ctx, cfg, lookAtReload)
			}
			status := make(chan string, 1)
			select {
			case s.calls <- func() {
				s.requested.Add(-1)
				a, err := s.reload(cfg, err, met, request.now || request.by != nil && s.waiting.Again(cfg, request.asked))
				if err == nil {
					s.warnFiles(cfg, "reload")
					s.notes.Warnings = warnings
					a.Message = strings.Join(append([]string{a.Message}, warnings...), "; ")
				}
				if request.by != nil {
					s.waiting.Tell(s.host.kernel.Now())
					p := s.record("command")
					p.Command = &api.CommandView{Command: api.CommandReload, By: request.by, Verdict: verdict(a, err)}
					s.publish(&p)
				}
				request.answer <- reloadAnswer{a, err}
				status <- s.statusLine()
			}:
				s.notify(s.opt.Notifier.Ready(<-status))
			case <-ctx.Done():
				return
			}
		}
	})
	return s.calls
}

// request requests a reload, and returns where its verdict arrives. It waits for another reload until ctx ends.
func (s *Service) request(ctx context.Context, r reloadRequest) (<-chan reloadAnswer, error) {
	answer := make(chan reloadAnswer, 1)
	r.asked, r.answer = s.host.kernel.Now(), answer
	s.requested.Add(1)
	select {
	case s.reloads <- r:
		return answer, nil
	case <-ctx.Done():
		s.requested.Add(-1)
		return nil, fmt.Errorf("wait for another reload: %w", ctx.Err())
	}
}

// reloadFor reloads for an operator and returns the verdict. It returns api.ErrRefused if the configuration
// is invalid.
func (s *Service) reloadFor(ctx context.Context, now bool, by api.Peer) (api.CommandAnswer, error) {
	answer, err := s.request(ctx, reloadRequest{load: s.opt.Load, now: now, by: &by})
	if err != nil {
		return api.CommandAnswer{}, err
	}
	select {
	case a := <-answer:
		return a.CommandAnswer, a.err
	case <-ctx.Done():
		return api.CommandAnswer{}, fmt.Errorf("reload: %w", ctx.Err())
	}
}

// reload applies a new configuration, and returns the verdict. A bad one changes nothing. One that meets hard
// thresholds at once is held, unless it is to be in force now.
func (s *Service) reload(cfg config.Config, err error, met []api.MetNow, now bool) (a api.CommandAnswer, refused error) {
	if err == nil {
		err = cfg.Replaces(s.guard.Config())
	}
	if err == nil && cfg.Mode != s.guard.Config().Mode {
		err = s.host.checkCgroups(cfg.Mode) // otherwise the next start would fail
	}
	s.notes.Rejected = err
	if err != nil {
		s.metrics.Reloaded(err)
		s.log.Error("configuration rejected, the old one stays in force", systemd.EventKey, systemd.EventConfigRefused, "action", "reload", "reason", err.Error())
		return a, fmt.Errorf("%w: %w", api.ErrRefused, s.waiting.Beside(err, s.host.kernel.Now()))
	}
	met = slices.DeleteFunc(met, s.hard.Had) // it may be in force since the look at the node
	switch rest, waits := s.waiting.Rest(cfg, s.hard.Get()); {
	case waits != nil && !now:
		cfg, s.waiting = rest, waits
	case len(met) == 0 || now:
		s.waiting = nil
	default:
		s.hold(hold.Held{Config: cfg, Met: met}, "reload")
		at := s.host.kernel.Now()
		a.Message, a.MetNow, a.Until = s.waiting.Alarm(at), met, time.Now().Add(s.waiting.Until-at)
		return a, nil
	}
	changed := s.apply(cfg)
	a.Message = s.notes.Applied(changed[:min(len(changed), journal.MaxChanges)])
	return a, nil
}

// warnFiles logs what is wrong with the files of a valid configuration.
func (s *Service) warnFiles(cfg config.Config, action string) {
	for _, note := range cfg.FileNotes() {
		s.log.Warn("configuration file needs attention", systemd.EventKey, systemd.EventDegraded, "action", action, "reason", note)
	}
}

// verdict says in one line for the history what became of a reload.
func verdict(a api.CommandAnswer, err error) string {
	switch {
	case err != nil:
		return strings.SplitN(err.Error(), "\n", 2)[0] // one line per mistake
	case len(a.MetNow) > 0:
		return "held" // the alarm has the rest
	}
	return a.Message
}

// apply puts a configuration in force and returns the keys that changed, without those that take effect at the next
// start.
func (s *Service) apply(cfg config.Config) (changed []string) {
	s.metrics.Reloaded(nil)
	changes := cfg.Changes(*s.guard.Config())
	changed = config.ChangedKeys(changes, false)
	s.guard.SetConfig(cfg)
	s.keepHard()
	s.host.setConfig(cfg)
	hint(s.repace)
	s.relist() // the inventory may lack labels that rules name now
	s.gc.SetConfig(cfg)
	s.fleet.Configure(cfg)
	s.hooks.Configure(cfg.Hooks)
	s.history.Resize(cfg.History.Passes)
	s.journal.Reloaded(changed, changes)
	// Compare with the configuration at the start: a later reload does not change what the service runs with.
	if s.notes.Later = config.ChangedKeys(cfg.Changes(s.opt.Config), true); len(s.notes.Later) > 0 {
		s.log.Warn("some keys take effect at the next start", systemd.EventKey, systemd.EventConfigReload, "action", "reload",
			"reason", strings.Join(s.notes.Later, ", "))
	}
	s.wake("reload")
	return changed
}
