package guard

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
)

// Recorder keeps what passes did.
type Recorder interface {
	Record(*Pass)
}

// Journal writes a log line for each change of state: a condition that comes or
// goes, a stop that begins or settles, a reclaim, a stop that is held back by
// something else than before. Never a line per pass.
type Journal struct {
	log        *slog.Logger
	conditions policy.Conditions
	held       map[string]string // by threshold
}

// NewJournal writes to log.
func NewJournal(log *slog.Logger) *Journal {
	return &Journal{log: log, held: map[string]string{}}
}

// Record writes what changed with this pass.
func (j *Journal) Record(p *Pass) {
	j.condition(p)
	if c := p.Command; c != nil {
		j.command(c)
	}
	for i := range p.Reclaimed {
		r := &p.Reclaimed[i]
		msg := "reclaimed"
		if r.DryRun() {
			msg = "would reclaim (observe mode)"
		}
		j.log.Info(msg, systemd.EventKey, systemd.EventReclaim, "action", "reclaim", "pass", p.ID, "signal", r.Signal.String(),
			"steps", strings.Join(r.Steps, ","), "removed", r.Removed(), "freed", FormatBytes(r.Freed), "took", r.Took)
		for _, e := range r.errors() {
			j.log.Warn("reclaim error", systemd.EventKey, systemd.EventReclaim, "action", "reclaim", "signal", r.Signal.String(), "reason", e)
		}
	}
	if s := p.Stop; s != nil {
		msg := "stopping sandbox"
		if s.DryRun {
			msg = "would stop sandbox (observe mode)"
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
		j.log.Error("stops do not help", systemd.EventKey, systemd.EventAlarm, "action", "alarm", "pass", p.ID, "reason", p.Alarm)
	}
	j.heldBack(p)
}

func (j *Journal) command(c *CommandView) {
	args := []any{systemd.EventKey, systemd.EventCommand, "action", "command", "command", c.Command, "reason", c.Reason}
	if c.By != nil {
		args = append(args, "by_uid", c.By.UID, "by_pid", c.By.PID)
	}
	switch c.Command {
	case CommandPause:
		args = append(args, "for", c.For)
	case CommandDrain:
		args = append(args, "grace", c.Grace)
	}
	j.log.Warn("command", args...)
}

func (j *Journal) condition(p *Pass) {
	for _, c := range policy.AllConditions() {
		if is, was := p.Conditions.Has(c), j.conditions.Has(c); is && !was {
			j.log.Warn("condition begins", systemd.EventKey, systemd.EventCondition, "action", "condition", "pass", p.ID, "condition", c.String(), "reason", p.met(c))
		} else if was && !is {
			j.log.Info("condition ends", systemd.EventKey, systemd.EventCondition, "action", "condition", "pass", p.ID, "condition", c.String())
		}
	}
	j.conditions = p.Conditions
}

func (j *Journal) settled(s *StopView) {
	args := []any{
		systemd.EventKey, systemd.EventStopDone, "action", "stop", "pass", s.Pass, "pod", s.Pod, "signal", s.Signal, "kind", s.Kind,
		"method", s.Result.Method, "emptied_in", s.Result.EmptiedIn, "settled_in", s.Result.SettledIn,
		"available", s.Result.Available, "moved", s.Result.Moved, "confirmed", s.Result.Confirmed,
	}
	if len(s.Result.Errors) > 0 {
		args = append(args, "reason", strings.Join(s.Result.Errors, "; "))
	}
	if s.Result.Emptied {
		j.log.Warn("stopped sandbox", args...)
		return
	}
	args[1] = systemd.EventStopFailed
	j.log.Error("sandbox not stopped", args...)
}

// heldBack says once what holds a stop back, and again when that changes.
func (j *Journal) heldBack(p *Pass) {
	if p.Held == "" || transient(p.Held) {
		if len(p.Met) == 0 {
			clear(j.held)
		}
		return
	}
	if j.held[p.HeldBy] == p.Held {
		return
	}
	j.held[p.HeldBy] = p.Held
	j.log.Warn("stop held back", systemd.EventKey, systemd.EventHeld, "action", "hold", "pass", p.ID, "threshold", p.HeldBy, "reason", p.Held)
}

// met names the thresholds that raise a condition.
func (p *Pass) met(c policy.Condition) string { return strings.Join(p.metOf(c), ", ") }

func (p *Pass) metOf(c policy.Condition) (names []string) {
	for _, m := range p.Met {
		if m.Signal.Condition() == c && !m.WarnOnly {
			names = append(names, m.Threshold)
		}
	}
	return names
}

// Removed counts what was removed.
func (r *ReclaimView) Removed() int {
	n := 0
	for i := range r.Reports {
		n += len(r.Reports[i].Removed) + r.Reports[i].RemovedMore
	}
	return n
}

func (r *ReclaimView) errors() []string {
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
