package guard

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/guard/safetext"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
)

// Files that keep the stop budget and the samples across restarts.
const (
	budgetFile  = "budget.json"
	samplesFile = "samples.json"
)

// callGap is the minimum gap between two calls into the loop, so that many clients at once cannot keep it
// from its passes.
const callGap = 20 * time.Millisecond

// do runs f in the loop's goroutine between two passes and waits for it to return.
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

// Status implements control.Answerer.
func (s *Service) Status(ctx context.Context) (st api.Status, err error) {
	err = s.do(ctx, func() { st = s.status() })
	return st, err
}

// status is Status, for the loop's goroutine.
func (s *Service) status() api.Status {
	st := status(s.guard, s.host)
	st.Live, st.PID, st.Uptime = true, os.Getpid(), api.Rounded(time.Since(s.started))
	st.Version, st.Config, st.ConfigNote = s.opt.Version, s.guard.Config().Source(), s.notes.String()
	st.Resident = cgroup.Resident(s.host.proc)
	if err := cmp.Or(s.saver.Stalled(), s.history.Broken()); err != nil {
		st.Warnings = append(st.Warnings, "history not saved, kept in memory: "+err.Error())
	}
	if err := s.gc.Unsaved(); err != nil {
		st.Warnings = append(st.Warnings, "image ledger not saved, kept in memory: "+err.Error())
	}
	st.Warnings = append(append(st.Warnings, s.hooks.Failed()...), s.fleet.Warnings()...)
	if s.waiting != nil {
		st.Alarms = append(st.Alarms, s.waiting.Alarm(s.host.kernel.Now()))
	}
	st.Orders = s.guard.Orders
	now := s.host.kernel.Now()
	if p := st.Orders.Pause; p != nil {
		st.PausedFor = api.Rounded(time.Duration(p.Until) - now)
	}
	st.Orders.Protected = slices.Clone(st.Orders.Protected)
	for i := range st.Orders.Protected {
		p := &st.Orders.Protected[i]
		p.Left = api.Rounded(max(time.Duration(p.Until)-now, 0))
	}
	if h := s.guard.HeldNow(s.held); h.Reason != "" {
		st.Held, st.HeldDetail, st.HeldBy = h.Reason, h.Detail, h.Threshold
		if h == s.held {
			st.NextStopIn = api.Rounded(max(s.nextStop-now, 0))
		}
		if st.Orders.Pause == nil { // a pause holds all pools
			st.AlsoHeld = slices.DeleteFunc(s.guard.Holds(), func(h api.Hold) bool { return h.Threshold == st.HeldBy })
		}
	}
	if s.lastPass != nil {
		st.LastPass = new(*s.lastPass)
	}
	return st
}

// Rank implements control.Answerer. It returns cri.ErrNoRuntime until pods have been listed once.
func (s *Service) Rank(ctx context.Context, sig policy.Signal) (r api.Ranking, err error) {
	if inv := s.host.lister.Current(); inv.At < 0 && inv.Err != nil {
		return r, inv.Err
	}
	err = s.do(ctx, func() { r = rank(ctx, s.guard, s.host, sig) })
	r.Live = true
	return r, err
}

// History implements control.Answerer.
func (s *Service) History(ctx context.Context, q api.HistoryQuery, emit func(line []byte) error) (note string, err error) {
	defer s.freeSoon()
	return s.history.Query(ctx, q, emit)
}

// Samples implements control.Answerer.
func (s *Service) Samples(last time.Duration) api.SampleList {
	now := s.host.kernel.Now()
	return api.SampleList{APIVersion: api.APIVersion, Time: time.Now(), Now: api.Duration(now), Series: s.samples.Last(last, now)}
}

// Windows implements control.Answerer.
func (s *Service) Windows() []api.Window { return s.samples.Windows() }

// Settings implements control.Answerer.
func (s *Service) Settings(ctx context.Context) (c api.Settings, err error) {
	err = s.do(ctx, func() {
		c = api.Settings{APIVersion: api.APIVersion, Files: append([]string{}, s.guard.Config().Files...), Text: s.guard.Config().Effective()}
	})
	return c, err
}

// statusLine returns the state in one line, for the service manager.
func (s *Service) statusLine() string {
	line := "no pressure"
	if c := s.guard.Snapshot().Pressure.Conditions; c != 0 {
		line = c.String()
	}
	if o := s.guard.Orders.Line(s.host.kernel.Now()); o != "" {
		line = o + "; " + line
	}
	if h := s.guard.HeldNow(s.held); h.Reason != "" {
		line += ", held back: " + h.Why()
	}
	if s.guard.Config().Mode == config.ModeObserve {
		line += " (observe mode)"
	}
	if s.waiting != nil {
		line += "; " + s.waiting.Line()
	}
	if notes := s.notes.Line(); notes != "" {
		line += "; " + notes
	}
	return safetext.Line(line)
}

// loadBudget restores the budget of an earlier run, so that a crash loop does not refill it.
func (s *Service) loadBudget() *policy.Restraint {
	r, err := rundir.Load(s.opt.Dir, budgetFile, s.readers, func(b []byte) (*policy.Restraint, error) {
		return policy.LoadRestraint(b, s.host.bootID, s.host.kernel.Now())
	})
	if err != nil {
		s.log.Warn("stop budget of the last run not readable, starting with a full budget", systemd.EventKey, systemd.EventDegraded, "action", "budget", "reason", err.Error())
	}
	return cmp.Or(r, policy.NewRestraint(s.host.bootID))
}

func (s *Service) saveBudget() {
	s.degraded("budget", "budget", "stop budget not saved: a restart would refill it", s.states.Save(budgetFile, s.guard.Saved()))
}

// loadSamples restores the samples of an earlier run. Without them, it is not known for a second which pod grows.
func (s *Service) loadSamples() {
	samples, err := rundir.Load(s.opt.Dir, samplesFile, s.readers, func(b []byte) (policy.Samples, error) {
		return policy.LoadSamples(b, s.host.bootID, s.host.kernel.Now())
	})
	s.degraded("samples", "start", "samples of the last run not readable: for a second, it is not known which pod grows", err)
	*s.guard.Samples() = samples
}

// rank ranks the pods for a signal, and says why the signal has no amounts, if so.
func rank(ctx context.Context, g *eviction.Manager, h *host, sig policy.Signal) api.Ranking {
	r := g.RankNow(ctx, sig)
	if g.Snapshot().Observations[sig].Status != policy.OK {
		r.Unmeasured = h.kernel.Reason(sig).Error()
	}
	inv := h.lister.Current()
	if inv.Err != nil {
		r.Stale = inv.Err.Error()
	}
	r.ListedAt = (*api.Duration)(inv.Age(h.kernel.Now()))
	return r
}

// status combines the state of the manager and the node.
func status(g *eviction.Manager, h *host) api.Status {
	st := g.Status(func(s policy.Signal) string { return h.kernel.Reason(s).Error() }, h.kernel.SwapUnaccounted())
	inv := h.lister.Current()
	endpoint, v := h.conn.Version()
	st.Runtime = api.RuntimeStatus{Endpoint: endpoint, Name: v.RuntimeName, Version: v.RuntimeVersion, Up: inv.Err == nil}
	st.Kernel = api.KernelStatus{Cgroup: h.kernel.Cgroup(), PodsCgroup: h.kernel.PodsCgroup(), Layout: h.kernel.Layout().String(), Wakes: h.kernel.Wakes()}
	st.Pods = len(inv.Pods)
	st.Runtime.ListedAt = (*api.Duration)(inv.Age(h.kernel.Now()))
	if inv.Err != nil {
		st.Runtime.Error = inv.Err.Error()
	}
	st.Warnings = append(st.Warnings, h.mounts.Missing()...)
	for i := range inv.Pods {
		if inv.Pods[i].Protection != "" {
			st.Protected++
		}
	}
	return st
}
