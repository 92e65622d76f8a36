package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/criguard/criguard/systemd"
)

// ordersFile is where the orders outlive the service.
const ordersFile = "orders.json"

// Command implements Operator.
func (s *Service) Command(ctx context.Context, c Command, by Peer) (a CommandAnswer, err error) {
	doErr := s.do(ctx, func() { a, err = s.carryOut(c, by) })
	a.APIVersion = APIVersion
	return a, firstError(doErr, err)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// carryOut is Command in the loop's goroutine.
func (s *Service) carryOut(c Command, by Peer) (CommandAnswer, error) {
	now := s.node.kernel.Now()
	o := &s.guard.orders
	view := CommandView{Command: c.Command, For: time.Duration(c.For), Grace: time.Duration(c.Grace), Reason: c.Reason, By: &by}
	var a CommandAnswer
	switch c.Command {
	case CommandPause:
		o.Pause = &Pause{Since: now, Until: now + view.For, Reason: c.Reason, By: by}
		a.Until = time.Now().Add(view.For)
		a.Message = "paused for " + shortDuration(view.For) + ": nothing is reclaimed or stopped until then"
	case CommandResume:
		if o.Pause == nil {
			return CommandAnswer{Message: "not paused"}, nil
		}
		o.Pause = nil
		a.Message = "resumed"
	case CommandDrain:
		inv := s.node.lister.Current()
		plan := s.guard.planDrain(inv.Pods, view.Grace)
		a.Plan = &plan
		if c.DryRun && inv.At < 0 && inv.Err != nil {
			return a, inv.Err // nothing was ever listed: the plan is of an empty node
		}
		if c.DryRun {
			a.Message = fmt.Sprintf("would stop %d sandboxes", plan.Left)
			return a, nil
		}
		if err := s.mayDrainNow(); err != nil {
			return a, err
		}
		o.Drain = &Drain{Since: now, Grace: view.Grace, Reason: c.Reason, By: by}
		a.Plan.Draining = true
		a.Message = fmt.Sprintf("draining: %d sandboxes are being stopped, and new ones will be until undrain", plan.Left)
	case CommandUndrain:
		if o.Drain == nil {
			return CommandAnswer{Message: "not drained"}, nil
		}
		o.Drain = nil
		a.Message = "undrained: new sandboxes may run again"
	}
	s.ordered(&view)
	s.wake("command")
	return a, nil
}

// mayDrainNow refuses a drain that would stop nothing.
func (s *Service) mayDrainNow() error {
	switch inv := s.node.lister.Current(); {
	case s.guard.cfg.Mode == ModeObserve:
		return fmt.Errorf(`%w: mode = "observe" stops nothing; --dry-run shows what a drain would do`, ErrRefused)
	case s.guard.orders.Pause != nil:
		return fmt.Errorf("%w: the guard is paused; resume it first", ErrRefused)
	case inv.Err != nil:
		return fmt.Errorf("%w: what runs is not known: %w", ErrRefused, inv.Err)
	}
	return nil
}

// ordered records a command that is in force now.
func (s *Service) ordered(v *CommandView) {
	s.guard.seq++
	p := Pass{ID: s.guard.seq, At: s.node.kernel.Now(), Time: time.Now(), Wake: "command", Conditions: s.guard.pressure.Conditions, Command: v}
	s.journal.Record(&p)
	s.keep(&p)
	s.inForce()
}

// inForce puts the orders as they are now into everything that follows them.
func (s *Service) inForce() {
	o := s.guard.orders
	s.keeper.setPaused(o.Pause != nil)
	s.metrics.Orders(o)
	b, err := json.Marshal(savedOrders{s.node.bootID, o})
	if err == nil {
		err = s.opt.RunDir.writeFile(ordersFile, append(b, '\n'))
	}
	if err != nil && s.once("orders") {
		s.log.Warn("pause and drain would not outlive a restart", systemd.EventKey, systemd.EventDegraded, "action", "command", "reason", err.Error())
	}
	s.notify(s.opt.Notifier.Status(s.statusLine()))
}

// resumeOrders takes up the orders of an earlier run.
func (s *Service) resumeOrders() {
	b, err := os.ReadFile(s.opt.RunDir.path(ordersFile))
	if err != nil {
		return // none were given
	}
	o, err := loadOrders(b, s.node.bootID, s.node.kernel.Now())
	if err != nil {
		s.log.Warn("orders of the last run cannot be read; none is in force", systemd.EventKey, systemd.EventDegraded, "action", "command", "reason", err.Error())
	}
	s.guard.orders = o
	s.keeper.setPaused(o.Pause != nil)
	s.metrics.Orders(o)
	if o.Pause != nil || o.Drain != nil {
		s.log.Warn("orders of the last run are still in force", systemd.EventKey, systemd.EventCommand, "action", "command",
			"command", o.String(), "reason", s.orderLine())
	}
}

// Plan implements Operator.
func (s *Service) Plan(ctx context.Context) (p DrainPlan, err error) {
	err = s.do(ctx, func() {
		grace := maxDrainGrace
		if d := s.guard.orders.Drain; d != nil {
			grace = d.Grace
		}
		p = s.guard.planDrain(s.node.lister.Current().Pods, grace)
	})
	return p, err
}

// String names what is in force.
func (o Orders) String() string {
	switch {
	case o.Pause != nil && o.Drain != nil:
		return "pause, drain"
	case o.Pause != nil:
		return "pause"
	case o.Drain != nil:
		return "drain"
	default:
		return "none"
	}
}

// orderLine says in short what operators have asked for; "" = nothing.
func (s *Service) orderLine() string {
	line := ""
	if p := s.guard.orders.Pause; p != nil {
		line = "PAUSED until " + time.Now().Add(p.Until-s.node.kernel.Now()).Format("15:04:05")
		if p.Reason != "" {
			line += " (" + p.Reason + ")"
		}
	}
	if d := s.guard.orders.Drain; d != nil {
		if line != "" {
			line += ", "
		}
		if line += "DRAINED"; d.Reason != "" {
			line += " (" + d.Reason + ")"
		}
	}
	return line
}
