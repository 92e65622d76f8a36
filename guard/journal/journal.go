package journal

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
)

// Journal logs the passes that change something. The zero value is not usable.
type Journal struct {
	log        *slog.Logger
	conditions policy.Conditions
	held       map[string]string // the last logged reason, by threshold
}

// New returns a Journal that writes to log.
func New(log *slog.Logger) *Journal {
	return &Journal{log: log, held: map[string]string{}}
}

// Record logs the changes of a pass.
func (j *Journal) Record(p *api.Pass) {
	j.condition(p)
	if c := p.Command; c != nil {
		j.command(c)
	}
	for i := range p.Reclaimed {
		r := &p.Reclaimed[i]
		msg := "reclaimed"
		switch {
		case r.AtMost():
			msg = "would reclaim at most (observe mode)"
		case r.DryRun():
			msg = "would reclaim (observe mode)"
		}
		args := []any{
			systemd.EventKey, systemd.EventReclaim, "action", "reclaim", "pass", p.ID, "signal", r.Signal.String(),
			"steps", strings.Join(r.Steps, ","), "removed", r.Removed(),
		}
		if r.Freed > 0 {
			args = append(args, "freed", api.FormatBytes(r.Freed))
		}
		j.log.Info(msg, append(args, "took", r.Took.Round(time.Millisecond))...)
		for _, e := range reclaimErrors(r) {
			j.log.Warn("reclaim error", systemd.EventKey, systemd.EventReclaim, "action", "reclaim", "signal", r.Signal.String(), "reason", e)
		}
	}
	if s := p.Stop; s != nil {
		msg := "stopping pod"
		if s.DryRun {
			msg = "would stop pod (observe mode)"
		}
		j.log.Warn(msg, systemd.EventKey, systemd.EventStopBegin, "action", "stop", "pass", p.ID, "pod", s.Pod, "uid", s.UID, "sandbox", s.Sandbox,
			"signal", s.Signal, "kind", s.Kind, "grace", s.Grace, "reason", s.Reason)
	}
	if p.Escalated != "" {
		j.log.Warn("hard threshold met: ending the grace period", systemd.EventKey, systemd.EventStopBegin, "action", "escalate", "pass", p.ID, "pod", p.Escalated)
	}
	for i := range p.Settled {
		j.settled(&p.Settled[i])
	}
	if p.Alarm != "" {
		msg := "stopping pods brings no relief"
		switch p.AlarmKind {
		case api.AlarmReclaim:
			msg = "reclaim takes too long"
		case api.AlarmHeld:
			msg = "configuration held: a hard threshold is met already"
			if p.Wake == "start" {
				msg = "hard threshold held: it is met already"
			}
		}
		j.log.Error(msg, systemd.EventKey, systemd.EventAlarm, "action", "alarm", "pass", p.ID, "reason", p.Alarm)
	}
	j.heldBack(p)
}

// MaxChanges limits how many changed keys of a reload are reported.
const MaxChanges = 32

// Reloaded logs that a new configuration is in force: the keys that take effect at once, and what has changed.
func (j *Journal) Reloaded(inForce []string, changes []config.Change) {
	j.log.Info("configuration reloaded", systemd.EventKey, systemd.EventConfigReload, "action", "reload", "changed", strings.Join(inForce, ", "))
	for _, c := range changes[:min(len(changes), MaxChanges)] {
		j.log.Info("key changed", "action", "reload", "key", c.Key, "old", cmp.Or(c.Old, "unset"), "new", cmp.Or(c.New, "unset"))
	}
	if more := len(changes) - MaxChanges; more > 0 {
		j.log.Info("more keys changed", "action", "reload", "count", more)
	}
}

func (j *Journal) command(c *api.CommandView) {
	args := []any{systemd.EventKey, systemd.EventCommand, "action", "command", "command", c.Command, "reason", c.Reason}
	if c.Pod != "" {
		args = append(args, "pod", c.Pod)
	}
	if c.By != nil {
		args = append(args, "by", c.By.String(), "by_uid", c.By.UID, "by_pid", c.By.PID)
	}
	switch c.Command {
	case api.CommandPause, api.CommandProtect:
		args = append(args, "for", c.For)
	case api.CommandDrain, api.CommandStop:
		args = append(args, "grace", c.Grace)
	}
	j.log.Warn("command", args...)
}

func (j *Journal) condition(p *api.Pass) {
	for _, c := range policy.AllConditions() {
		if is, was := p.Conditions.Has(c), (j.conditions | p.Ended()).Has(c); is && !was {
			j.log.Warn("condition begins", systemd.EventKey, systemd.EventCondition, "action", "condition", "pass", p.ID, "condition", c.String(), "reason", strings.Join(p.ThresholdsOf(c), ", "))
		} else if was && !is {
			j.log.Info("condition ends", systemd.EventKey, systemd.EventCondition, "action", "condition", "pass", p.ID, "condition", c.String())
		}
	}
	j.conditions = p.Conditions
}

func (j *Journal) settled(s *api.StopView) {
	args := []any{
		systemd.EventKey, systemd.EventStopDone, "action", "stop", "pass", s.Pass, "pod", s.Pod, "signal", s.Signal, "kind", s.Kind,
		"method", s.Result.Method,
	}
	if s.Result.EmptiedIn > 0 {
		args = append(args, "emptied_in", s.Result.EmptiedIn.Round(100*time.Microsecond))
	}
	args = append(args, "settled_in", s.Result.SettledIn.Round(time.Millisecond))
	if sig, err := policy.ParseSignal(s.Signal); err == nil {
		args = append(args, "available", api.FormatAmount(sig, s.Result.Available), "freed", api.FormatUsage(sig, s.Result.Freed))
	}
	if s.Result.Confirmed { // otherwise the runtime has not had the time to confirm it
		args = append(args, "confirmed", true)
	}
	if len(s.Result.Errors) > 0 {
		args = append(args, "reason", strings.Join(s.Result.Errors, "; "))
	}
	switch {
	case s.Result.Emptied:
		j.log.Warn("stopped pod", args...)
		return
	case s.Result.NotContinued:
		j.log.Warn("stop of an earlier run not continued", args...)
		return
	}
	args[1] = systemd.EventStopFailed
	j.log.Error("pod not stopped", args...)
}

// heldBack logs why a stop is held back, and again when the reason changes, or after a condition has.
func (j *Journal) heldBack(p *api.Pass) {
	if p.Changed || len(p.Met) == 0 {
		maps.DeleteFunc(j.held, func(by, _ string) bool { return !p.HasHold(by) })
	}
	if p.Held == "" || api.Transient(p.Held) || j.held[p.HeldBy] == p.Held {
		return
	}
	j.held[p.HeldBy] = p.Held
	j.log.Warn("stop held back", systemd.EventKey, systemd.EventHeld, "action", "hold", "pass", p.ID, "threshold", p.HeldBy, "reason", p.Why())
}

func reclaimErrors(r *api.ReclaimView) []string {
	var all []string
	for i := range r.Reports {
		for _, f := range r.Reports[i].Errors {
			all = append(all, f.Message)
		}
		if more := r.Reports[i].ErrorsMore; more > 0 {
			all = append(all, fmt.Sprintf("%d more errors", more))
		}
	}
	return all
}
