package guard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/safetext"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
	"github.com/criguard/criguard/systemd"
)

// ordersFile keeps the orders (pause and drain) across restarts.
const ordersFile = "orders.json"

// Command implements control.Operator.
func (s *Service) Command(ctx context.Context, c api.Command, by api.Peer) (a api.CommandAnswer, err error) {
	if c.Command == api.CommandReload {
		a, err = s.reloadFor(ctx, c.Now, by)
	} else if doErr := s.do(ctx, func() { a, err = s.execute(ctx, c, by) }); doErr != nil {
		err = doErr
	}
	a.APIVersion = api.APIVersion
	return a, err
}

// execute is Command, for the loop's goroutine.
func (s *Service) execute(ctx context.Context, c api.Command, by api.Peer) (api.CommandAnswer, error) {
	now := s.host.kernel.Now()
	o := &s.guard.Orders
	var p api.Pass
	view := api.CommandView{Command: c.Command, For: c.For, Grace: c.Grace, Reason: c.Reason, By: &by}
	var a api.CommandAnswer
	switch c.Command {
	case api.CommandPause:
		o.Pause = &api.Pause{Since: api.Duration(now), Until: api.Duration(now + time.Duration(view.For)), Reason: c.Reason, By: by}
		a.Until = time.Now().Add(time.Duration(view.For))
		a.Message = "paused for " + policy.ShortDuration(time.Duration(view.For)) + ": nothing is reclaimed or stopped until then"
	case api.CommandResume:
		if o.Pause == nil {
			return api.CommandAnswer{Message: "not paused"}, nil
		}
		o.Pause = nil
		a.Message = "resumed"
	case api.CommandDrain:
		plan := s.guard.Plan(s.host.lister.Current().Pods, time.Duration(view.Grace))
		a.Plan = &plan
		if c.DryRun {
			a.Message = "would stop " + api.Count(plan.Left, "pod")
			return a, s.podsKnown()
		}
		if err := s.mayStopNow("a drain"); err != nil {
			return a, err
		}
		o.Drain = &api.Drain{Since: api.Duration(now), Grace: view.Grace, Reason: c.Reason, By: by}
		a.Plan.Draining = true
		a.Message = "draining: stopping " + api.Count(plan.Left, "pod") + ", and new ones until undrain"
	case api.CommandUndrain:
		if o.Drain == nil {
			return api.CommandAnswer{Message: "not drained"}, nil
		}
		o.Drain = nil
		a.Message = "undrained: new pods may run again"
	case api.CommandStop:
		pod, err := s.findPod(c.Pod)
		if err != nil {
			return a, err
		}
		plan := s.guard.Plan([]inventory.Pod{*pod}, time.Duration(view.Grace))
		a.Plan, view.Pod = &plan, pod.FullName()
		switch d := plan.Pods[0]; {
		case d.Stays != "":
			return a, fmt.Errorf("%w: %s must not be stopped: %s", api.ErrRefused, d.Pod, d.Stays)
		case d.Stopping:
			return a, fmt.Errorf("%w: %s is already being stopped", api.ErrRefused, d.Pod)
		case s.guard.HasStopped(pod.ID):
			return a, fmt.Errorf("%w: %s has already been stopped", api.ErrRefused, d.Pod)
		case c.DryRun:
			a.Message = "would stop " + d.Pod
			return a, s.podsKnown()
		}
		if err := s.mayStopNow("a stop"); err != nil {
			return a, err
		}
		p = s.record("command")
		s.guard.StopPod(ctx, pod, time.Duration(view.Grace), stopReason(by, c.Reason), &p)
		s.saveBudget()
		a.Pass = p.ID
		a.Message = fmt.Sprintf("stopping %s, with a grace period of %s", view.Pod, p.Stop.Grace)
	case api.CommandProtect:
		pods, err := s.findPods(c.Pod, (*inventory.Pod).FullName)
		if err != nil {
			return a, err
		}
		view.Pod = pods[0].FullName()
		if o.Unprotect(view.Pod); len(o.Protected) >= api.MaxProtected {
			return a, fmt.Errorf("%w: %d pods are protected already; use a [[protect]] rule", api.ErrRefused, len(o.Protected))
		}
		o.Protect(api.Protection{Pod: view.Pod, Since: api.Duration(now), Until: api.Duration(now + time.Duration(view.For)), Reason: c.Reason, By: by})
		a.Until = time.Now().Add(time.Duration(view.For))
		a.Message = fmt.Sprintf("protected %s for %s: criguard does not stop it until then", view.Pod, policy.ShortDuration(time.Duration(view.For)))
		if slices.ContainsFunc(pods, func(p *inventory.Pod) bool { return s.guard.Plan([]inventory.Pod{*p}, 0).Pods[0].Stopping }) {
			a.Message += "; the stop under way continues"
		}
	case api.CommandUnprotect:
		view.Pod = c.Pod
		if pods, err := s.findPods(c.Pod, (*inventory.Pod).FullName); err == nil {
			view.Pod = pods[0].FullName()
		}
		if !o.Unprotect(view.Pod) {
			return api.CommandAnswer{Message: "no operator protects " + view.Pod}, nil
		}
		a.Message = "unprotected " + view.Pod
	}
	if p.Stop == nil {
		s.inForce()
		p = s.record("command")
	}
	p.Command = &view
	s.publish(&p)
	s.wake("command")
	return a, nil
}

func stopReason(by api.Peer, why string) string {
	reason := "stopped by " + by.String()
	if why != "" {
		reason += ": " + why
	}
	return reason
}

// findPod returns the only listed sandbox that findPods finds.
func (s *Service) findPod(name string) (*inventory.Pod, error) {
	found, err := s.findPods(name, func(p *inventory.Pod) string { return p.ID })
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// findPods returns the listed sandboxes with this namespace/name, UID or sandbox ID, which may be shortened, or
// an error if not all of them have the same key. While a pod is being replaced, its name has two sandboxes.
func (s *Service) findPods(name string, key func(*inventory.Pod) string) (found []*inventory.Pod, err error) {
	inv := s.host.lister.Current()
	for i := range inv.Pods {
		p := &inv.Pods[i]
		if p.FullName() != name && p.UID != name && (len(name) < minSandboxID || !strings.HasPrefix(p.ID, name)) {
			continue
		}
		if len(found) > 0 && key(p) != key(found[0]) {
			return nil, fmt.Errorf("%w: %q means several sandboxes (%.13s, %.13s): name one by its ID", api.ErrBadCommand, name, found[0].ID, p.ID)
		}
		found = append(found, p)
	}
	switch {
	case len(found) > 0:
		return found, nil
	case inv.Err != nil:
		return nil, cri.NoRuntime(inv.Err)
	default:
		return nil, fmt.Errorf("%w is %q: want namespace/name, UID or sandbox ID, as `criguard rank -o json` lists them", api.ErrNoPod, name)
	}
}

// minSandboxID is the minimum length of a shortened sandbox ID.
const minSandboxID = 8

// mayStopNow refuses a drain or a stop that would stop nothing.
func (s *Service) mayStopNow(what string) error {
	switch {
	case s.guard.Config().Mode == config.ModeObserve:
		return fmt.Errorf(`%w: mode = "observe" stops nothing; --dry-run shows what %s would do`, api.ErrRefused, what)
	case s.guard.Orders.Pause != nil:
		return fmt.Errorf("%w: criguard is paused; `criguard resume` ends that", api.ErrRefused)
	}
	return s.podsKnown()
}

// podsKnown returns cri.ErrNoRuntime if the runtime does not answer: the listed pods may have ended.
func (s *Service) podsKnown() error {
	if err := s.host.lister.Current().Err; err != nil {
		return fmt.Errorf("running pods unknown: %w", cri.NoRuntime(err))
	}
	return nil
}

// inForce applies the current orders to everything that depends on them, and saves them.
func (s *Service) inForce() {
	s.applyOrders()
	b, err := safetext.JSON(api.SavedOrders{BootID: s.host.bootID, Orders: s.guard.Orders})
	if err == nil {
		err = s.opt.Dir.WriteFile(ordersFile, append(b, '\n'), s.readers)
	}
	s.degraded("orders", "command", "pause, drain and protect not saved: a restart would end them", err)
}

// applyOrders applies the current orders to everything that depends on them.
func (s *Service) applyOrders() {
	o, now := s.guard.Orders, s.host.kernel.Now()
	s.gc.SetPaused(o.Pause != nil)
	s.metrics.Orders(o)
	protected := make(map[string]string, len(o.Protected))
	for _, p := range o.Protected {
		protected[p.Pod] = fmt.Sprintf("protected by %s until %s", p.By, time.Now().Add(time.Duration(p.Until)-now).Format("15:04:05"))
	}
	s.host.lister.Protect(protected)
}

// resumeOrders restores the orders of an earlier run.
func (s *Service) resumeOrders() {
	b, err := s.opt.Dir.ReadFile(ordersFile, s.readers)
	if err != nil {
		return // there are no orders
	}
	o, err := api.LoadOrders(b, s.host.bootID, s.host.kernel.Now())
	if err != nil {
		s.log.Warn("orders of the last run not readable, none in force", systemd.EventKey, systemd.EventDegraded, "action", "command", "reason", err.Error())
	}
	s.guard.Orders = o
	s.applyOrders()
	if o.String() != "none" {
		s.log.Warn("orders of the last run still in force", systemd.EventKey, systemd.EventCommand, "action", "command",
			"command", o.String(), "reason", s.orderLine())
	}
}

// Plan implements control.Operator.
func (s *Service) Plan(ctx context.Context) (p api.DrainPlan, err error) {
	err = s.do(ctx, func() {
		grace := api.MaxDrainGrace
		if d := s.guard.Orders.Drain; d != nil {
			grace = time.Duration(d.Grace)
		}
		p = s.guard.Plan(s.host.lister.Current().Pods, grace)
	})
	return p, err
}

// Prune implements control.Operator. The service prunes, so that the image ledger has only one writer.
func (s *Service) Prune(ctx context.Context, o api.PruneOptions, by api.Peer) ([]reclaim.Report, error) {
	return s.gc.Prune(ctx, o, by)
}

// Images implements control.Answerer.
func (s *Service) Images(ctx context.Context) (reclaim.ImageList, error) { return s.gc.Images(ctx) }

// orderLine summarizes the orders in force, "" if there are none.
func (s *Service) orderLine() string {
	line := ""
	if p := s.guard.Orders.Pause; p != nil {
		line = "PAUSED until " + time.Now().Add(time.Duration(p.Until)-s.host.kernel.Now()).Format("15:04:05")
		if p.Reason != "" {
			line += " (" + p.Reason + ")"
		}
	}
	if d := s.guard.Orders.Drain; d != nil {
		if line != "" {
			line += ", "
		}
		if line += "DRAINED"; d.Reason != "" {
			line += " (" + d.Reason + ")"
		}
	}
	if n := len(s.guard.Orders.Protected); n > 0 {
		if line != "" {
			line += ", "
		}
		line += fmt.Sprintf("%d PROTECTED", n)
	}
	return line
}
