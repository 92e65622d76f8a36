package guard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
	"github.com/criguard/criguard/systemd"
)

// ordersFile keeps the orders (pause and drain) across restarts.
const ordersFile = "orders.json"

// Command implements control.Operator.
func (s *Service) Command(ctx context.Context, c api.Command, by api.Peer) (a api.CommandAnswer, err error) {
	if slices.Contains([]string{api.CommandDrain, api.CommandStop, api.CommandProtect}, c.Command) {
		s.host.lister.Fresh(ctx) // a pod may have started since the last listing
	}
	if c.Command == api.CommandReload {
		a, err = s.reloadFor(ctx, c.Now, by)
	} else if doErr := s.do(ctx, func() { a, err = s.execute(ctx, c, by) }); doErr != nil {
		err = doErr
	}
	a.APIVersion = api.APIVersion
	return a, err
}

// execution is a command in progress.
type execution struct {
	api.Command
	by     api.Peer
	now    time.Duration // boot clock
	view   api.CommandView
	answer api.CommandAnswer
	pass   api.Pass // with the stop that the command began, if any
}

// wallTime returns when the time that a command names is over.
func (x *execution) wallTime() time.Time { return time.Now().Add(time.Duration(x.For)) }

// until returns the same by the boot clock.
func (x *execution) until() api.Duration { return api.Duration(x.now) + x.For }

// execute is Command, for the loop's goroutine.
func (s *Service) execute(ctx context.Context, c api.Command, by api.Peer) (api.CommandAnswer, error) {
	x := &execution{
		Command: c, by: by, now: s.host.kernel.Now(),
		view: api.CommandView{Command: c.Command, For: c.For, Grace: c.Grace, Reason: c.Reason, By: &by},
	}
	changed, err := true, error(nil)
	switch c.Command {
	case api.CommandPause:
		s.pause(x)
	case api.CommandResume:
		changed = s.resume(ctx, x)
	case api.CommandDrain:
		changed, err = s.drain(x)
	case api.CommandUndrain:
		changed = s.undrain(x)
	case api.CommandStop:
		changed, err = s.stop(ctx, x)
	case api.CommandProtect:
		err = s.protect(x)
	case api.CommandUnprotect:
		changed, err = s.unprotect(x)
	}
	if err != nil || !changed {
		return x.answer, err
	}
	if x.pass.Stop == nil {
		s.inForce()
		x.pass = s.record("command")
	}
	x.pass.Command = &x.view
	s.publish(&x.pass)
	s.wake("command")
	return x.answer, nil
}

func (s *Service) pause(x *execution) {
	was := s.guard.Orders.Pause.Replaced(x.now)
	s.guard.Orders.Pause = &api.Pause{Since: api.Duration(x.now), Until: x.until(), Reason: x.Reason, By: x.by}
	x.answer.Until, x.answer.Message = x.wallTime(), "paused for "+policy.ShortDuration(time.Duration(x.For))+": nothing is reclaimed or stopped until then"+was
}

func (s *Service) resume(ctx context.Context, x *execution) (changed bool) {
	if s.guard.Orders.Pause == nil {
		x.answer.Message = "not paused"
		return false
	}
	s.guard.Orders.Pause = nil
	met, follows := s.guard.Resumes(ctx)
	x.answer.MetNow, x.answer.Message = met, strings.Join(append([]string{"resumed"}, follows...), "; ")
	return true
}

func (s *Service) drain(x *execution) (changed bool, err error) {
	plan := s.guard.Plan(s.host.lister.Current().Pods, time.Duration(x.Grace))
	x.answer.Plan = &plan
	if x.DryRun {
		x.answer.Message, x.answer.Refused = "would stop "+api.Count(plan.Left, "pod"), s.stopsNothing("a drain")
		return false, s.podsKnown()
	}
	if err := s.mayStopNow("a drain"); err != nil {
		return false, err
	}
	s.guard.Orders.Drain = &api.Drain{Since: api.Duration(x.now), Grace: x.Grace, Reason: x.Reason, By: x.by}
	plan.Draining = true
	x.answer.Message = "draining: stopping " + api.Count(plan.Left, "pod") + ", and new ones until undrain"
	return true, nil
}

func (s *Service) undrain(x *execution) (changed bool) {
	if s.guard.Orders.Drain == nil {
		x.answer.Message = "not drained"
		return false
	}
	s.guard.Orders.Drain = nil
	x.answer.Message = "undrained: new pods may run again"
	return true
}

func (s *Service) stop(ctx context.Context, x *execution) (changed bool, err error) {
	pods, err := s.findPods(x.Pod, func(p *inventory.Pod) string { return p.ID })
	if err != nil {
		return false, err
	}
	pod := pods[0]
	plan := s.guard.Plan([]inventory.Pod{*pod}, time.Duration(x.Grace))
	x.answer.Plan, x.view.Pod = &plan, pod.FullName()
	switch d := plan.Pods[0]; {
	case d.Stays != "":
		return false, fmt.Errorf("%w: %s must not be stopped: %s", api.ErrRefused, d.Pod, d.Stays)
	case d.Stopping:
		return false, fmt.Errorf("%w: %s is already being stopped", api.ErrRefused, d.Pod)
	case s.guard.HasStopped(pod.ID):
		return false, fmt.Errorf("%w: %s has already been stopped", api.ErrRefused, d.Pod)
	case x.DryRun:
		x.answer.Message, x.answer.Refused = "would stop "+d.Pod, s.stopsNothing("a stop")
		return false, s.podsKnown()
	}
	if err := s.mayStopNow("a stop"); err != nil {
		return false, err
	}
	x.pass = s.record("command")
	s.guard.StopPod(ctx, pod, time.Duration(x.Grace), stopReason(x.by, x.Reason), &x.pass)
	s.saveBudget()
	x.answer.Pass = x.pass.ID
	x.answer.Message = fmt.Sprintf("stopping %s, with a grace period of %s", x.view.Pod, x.pass.Stop.Grace)
	return true, nil
}

func (s *Service) protect(x *execution) error {
	pods, err := s.findPods(x.Pod, (*inventory.Pod).FullName)
	if err != nil {
		return err
	}
	o := &s.guard.Orders
	x.view.Pod = pods[0].FullName()
	if o.Unprotect(x.view.Pod); len(o.Protected) >= api.MaxProtected {
		return fmt.Errorf("%w: %d pods are protected already; use a [[protect]] rule", api.ErrRefused, len(o.Protected))
	}
	o.Protect(api.Protection{Pod: x.view.Pod, Since: api.Duration(x.now), Until: x.until(), Reason: x.Reason, By: x.by})
	x.answer.Until = x.wallTime()
	x.answer.Message = fmt.Sprintf("protected %s for %s: criguard does not stop it until then", x.view.Pod, policy.ShortDuration(time.Duration(x.For)))
	if slices.ContainsFunc(pods, func(p *inventory.Pod) bool { return s.guard.Plan([]inventory.Pod{*p}, 0).Pods[0].Stopping }) {
		x.answer.Message += "; the stop in flight continues"
	}
	return nil
}

func (s *Service) unprotect(x *execution) (changed bool, err error) {
	x.view.Pod = x.Pod
	if !s.guard.Orders.Unprotect(x.Pod) { // also a pod that no longer runs
		pods, err := s.findPods(x.Pod, (*inventory.Pod).FullName)
		if err != nil {
			return false, err
		}
		x.view.Pod = pods[0].FullName()
		if !s.guard.Orders.Unprotect(x.view.Pod) {
			x.answer.Message = "no operator protects " + x.view.Pod
			return false, nil
		}
	}
	x.answer.Message = "unprotected " + x.view.Pod
	return true, nil
}

func stopReason(by api.Peer, why string) string {
	return strings.TrimSuffix("stopped by "+by.String()+": "+why, ": ")
}

// findPods returns the listed sandboxes with this namespace/name, UID or sandbox ID, which may be shortened, or
// an error if not all of them have the same key. While a pod is being replaced, its name has two sandboxes.
func (s *Service) findPods(name string, key func(*inventory.Pod) string) (found []*inventory.Pod, err error) {
	inv := s.host.lister.Current()
	var ids []string
	for i := range inv.Pods {
		p := &inv.Pods[i]
		if p.FullName() != name && p.UID != name && (len(name) < minSandboxID || !strings.HasPrefix(p.ID, name)) {
			continue
		}
		found, ids = append(found, p), append(ids, fmt.Sprintf("%.13s", p.ID))
	}
	switch {
	case slices.ContainsFunc(found, func(p *inventory.Pod) bool { return key(p) != key(found[0]) }):
		return nil, fmt.Errorf("%w: %q means several sandboxes (%s): name one by its ID", api.ErrBadCommand, name, strings.Join(ids, ", "))
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
	if why := s.stopsNothing(what); why != "" {
		return fmt.Errorf("%w: %s", api.ErrRefused, why)
	}
	return s.podsKnown()
}

// stopsNothing returns why a drain or a stop would stop nothing now; "" = it may.
func (s *Service) stopsNothing(what string) string {
	switch {
	case s.guard.Config().Mode == config.ModeObserve:
		return `mode = "observe" stops nothing; --dry-run shows what ` + what + " would do"
	case s.guard.Orders.Pause != nil:
		return "criguard is paused; `criguard resume` ends that"
	}
	return ""
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
	err := s.states.Save(ordersFile, api.SavedOrders{BootID: s.host.bootID, Orders: s.guard.Orders})
	s.degraded("orders", "command", "pause, drain and protect not saved: a restart would end them", err)
}

// applyOrders applies the current orders to everything that depends on them.
func (s *Service) applyOrders() {
	o, now := s.guard.Orders, s.host.kernel.Now()
	s.gc.SetPaused(o.Pause != nil)
	s.metrics.Orders(o)
	protected := make(map[string]string, len(o.Protected))
	for _, p := range o.Protected {
		protected[p.Pod] = fmt.Sprintf(api.ProtectedBy+"%s until %s", p.By, time.Now().Add(time.Duration(p.Until)-now).Format("15:04:05"))
	}
	s.host.lister.Protect(protected)
}

// resumeOrders restores the orders of an earlier run.
func (s *Service) resumeOrders() {
	o, err := rundir.Load(s.opt.Dir, ordersFile, s.readers, func(b []byte) (api.Orders, error) {
		return api.LoadOrders(b, s.host.bootID, s.host.kernel.Now())
	})
	if err != nil {
		s.log.Warn("orders of the last run not readable, none in force", systemd.EventKey, systemd.EventDegraded, "action", "command", "reason", err.Error())
	}
	s.guard.Orders = o
	s.applyOrders()
	if o.String() != "none" {
		s.log.Warn("orders of the last run still in force", systemd.EventKey, systemd.EventCommand, "action", "command",
			"command", o.String(), "reason", s.guard.Orders.Line(s.host.kernel.Now()))
	}
}

// Plan implements control.Operator. It returns cri.ErrNoRuntime until pods have been listed once: after a restart, a drain whose
// pods still run would look complete.
func (s *Service) Plan(ctx context.Context) (p api.DrainPlan, err error) {
	doErr := s.do(ctx, func() {
		inv := s.host.lister.Current()
		if inv.At < 0 {
			err = s.podsKnown()
			return
		}
		grace := api.MaxDrainGrace
		if d := s.guard.Orders.Drain; d != nil {
			grace = time.Duration(d.Grace)
		}
		p = s.guard.Plan(inv.Pods, grace)
	})
	return p, cmp.Or(doErr, err)
}

// Prune implements control.Operator. The service prunes, so that the image ledger has only one writer.
func (s *Service) Prune(ctx context.Context, o api.PruneOptions, by api.Peer) ([]reclaim.Report, error) {
	return s.gc.Prune(ctx, o, by)
}

// Images implements control.Answerer.
func (s *Service) Images(ctx context.Context) (reclaim.ImageList, error) { return s.gc.Images(ctx) }
