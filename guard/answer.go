package guard

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
)

// budgetFile is where the budget outlives the service.
const budgetFile = "budget.json"

// callGap is the least time between two calls into the loop: many clients at once
// do not keep it from its passes.
const callGap = 20 * time.Millisecond

// do runs f between two passes and waits for it.
func (s *Service) do(ctx context.Context, f func()) error {
	select {
	case s.turn <- struct{}{}:
		defer time.AfterFunc(callGap, func() { <-s.turn })
	case <-ctx.Done():
		return fmt.Errorf("wait for the decision loop: %w", ctx.Err())
	}
	done := make(chan struct{})
	select {
	case s.calls <- func() { f(); close(done) }:
	case <-ctx.Done():
		return fmt.Errorf("ask the decision loop: %w", ctx.Err())
	}
	<-done
	return nil
}

// Status implements Answerer.
func (s *Service) Status(ctx context.Context) (st Status, err error) {
	err = s.do(ctx, func() { st = s.status() })
	return st, err
}

// status is Status in the loop's goroutine.
func (s *Service) status() Status {
	st := s.guard.status(s.node)
	st.Live, st.PID, st.Uptime = true, os.Getpid(), time.Since(s.started)
	st.Version, st.Config, st.ConfigNote = s.opt.Version, s.guard.cfg.Source(), s.note
	st.Resident = resident()
	if err := cmp.Or(s.saver.stalled(), s.history.Broken()); err != nil {
		st.Warnings = append(st.Warnings, "history stays in memory: "+err.Error())
	}
	st.Orders = s.guard.orders
	if p := st.Orders.Pause; p != nil {
		st.PausedFor = p.Until - s.node.kernel.Now()
	}
	if s.isHeld() {
		st.Held, st.HeldBy = s.held.reason, s.held.threshold
	}
	if s.lastPass != nil {
		p := *s.lastPass
		st.LastPass = &p
	}
	return st
}

// Rank implements Answerer. ErrNoRuntime while no pods have ever been listed.
func (s *Service) Rank(ctx context.Context, sig policy.Signal) (r Ranking, err error) {
	if inv := s.node.lister.Current(); inv.At < 0 && inv.Err != nil {
		return r, inv.Err
	}
	err = s.do(ctx, func() { r = s.guard.rankNow(ctx, sig) })
	r.Live = true
	return r, err
}

// History implements Answerer.
func (s *Service) History(n int) []Pass { return s.history.Last(n) }

// Samples implements Answerer.
func (s *Service) Samples(last time.Duration) SampleList {
	now := s.node.kernel.Now()
	return SampleList{APIVersion: APIVersion, Time: time.Now(), Now: now, Series: s.samples.Last(last, now)}
}

// Windows implements Answerer.
func (s *Service) Windows() []Window { return s.samples.Windows() }

// Settings implements Answerer.
func (s *Service) Settings(ctx context.Context) (c Settings, err error) {
	err = s.do(ctx, func() {
		c = Settings{APIVersion: APIVersion, Files: s.guard.cfg.Files, Text: s.guard.cfg.Effective()}
	})
	return c, err
}

// statusLine is the state in one line, for the service manager.
func (s *Service) statusLine() string {
	line := "no pressure"
	if c := s.guard.pressure.Conditions; c != 0 {
		line = c.String()
	}
	if o := s.orderLine(); o != "" {
		line = o + "; " + line
	}
	if s.isHeld() {
		line += ", held back: " + s.held.reason
	}
	if s.guard.cfg.Mode == ModeObserve {
		line += " (observe mode)"
	}
	if s.note != "" {
		line += "; " + strings.SplitN(s.note, "\n", 2)[0]
	}
	return line
}

// isHeld tells whether a stop is held back now.
func (s *Service) isHeld() bool { return s.held.reason != "" && len(s.guard.pressure.Met) > 0 }

// loadBudget takes up the budget of an earlier run, so that a crash loop does
// not refill it.
func (s *Service) loadBudget() *policy.Restraint {
	b, err := os.ReadFile(s.opt.RunDir.path(budgetFile))
	if err != nil {
		return policy.NewRestraint(s.node.bootID)
	}
	r, err := policy.LoadRestraint(b, s.node.bootID, s.node.kernel.Now())
	if err != nil {
		s.log.Warn("stop budget of the last run cannot be read; starting with none spent", systemd.EventKey, systemd.EventDegraded, "action", "budget", "reason", err.Error())
	}
	return r
}

func (s *Service) saveBudget() {
	if s.guard.cfg.Mode == ModeObserve {
		return
	}
	b, err := json.Marshal(s.guard.restraint)
	if err == nil {
		err = s.opt.RunDir.writeFile(budgetFile, b)
	}
	if err != nil && s.once("budget") {
		s.log.Warn("stop budget cannot be kept; a restart would refill it", systemd.EventKey, systemd.EventDegraded, "action", "budget", "reason", err.Error())
	}
}
