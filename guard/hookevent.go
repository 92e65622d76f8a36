package guard

import (
	"encoding/json"
	"os"
	"time"

	"github.com/criguard/criguard/guard/hook"
	"github.com/criguard/criguard/policy"
)

// HookEvent is what a hook's program is given: one of Condition, Stop and Alarm, as
// Event says.
type HookEvent struct {
	APIVersion string         `json:"apiVersion"`
	Event      EventKind      `json:"event"`
	Time       time.Time      `json:"time"`
	Node       string         `json:"node"` // the host's name
	Mode       string         `json:"mode"`
	Pass       uint64         `json:"pass"` // that `criguard history` has it under
	Condition  *HookCondition `json:"condition,omitempty"`
	Stop       *StopView      `json:"stop,omitempty"`
	Alarm      *HookAlarm     `json:"alarm,omitempty"`
	Signals    []SignalView   `json:"signals,omitempty"`
}

// HookCondition is a condition that has begun or ended.
type HookCondition struct {
	Name   string   `json:"name"`
	Active bool     `json:"active"`
	Met    []string `json:"met,omitempty"` // the thresholds that made it begin
}

// HookAlarm is that stops do not help.
type HookAlarm struct {
	Threshold string `json:"threshold,omitempty"`
	Reason    string `json:"reason"`
}

// hookEvents lists what of a pass is worth an event: conditions that were not as
// before, stops that have ended or would have begun, an alarm.
func hookEvents(p *Pass, before policy.Conditions, mode Mode) (events []HookEvent) {
	event := func(kind EventKind) *HookEvent {
		events = append(events, HookEvent{
			APIVersion: APIVersion, Event: kind, Time: p.Time, Node: hostname(), Mode: mode.String(), Pass: p.ID, Signals: p.Signals,
		})
		return &events[len(events)-1]
	}
	for _, c := range policy.AllConditions() {
		if now := p.Conditions.Has(c); now != before.Has(c) {
			event(EventCondition).Condition = &HookCondition{Name: c.String(), Active: now, Met: p.metOf(c)}
		}
	}
	if p.Stop != nil && p.Stop.DryRun {
		event(EventStop).Stop = p.Stop
	}
	for i := range p.Settled {
		event(EventStop).Stop = &p.Settled[i]
	}
	if p.Alarm != "" {
		event(EventAlarm).Alarm = &HookAlarm{Threshold: p.AlarmBy, Reason: p.Alarm}
	}
	return events
}

// encode is the event as JSON, without its longest parts where it would be too
// long for a pipe.
func (e HookEvent) encode() []byte {
	b, err := json.Marshal(e)
	if err == nil && len(b) >= hook.MaxInput {
		e.Signals = nil
		if e.Stop != nil && e.Stop.Result != nil {
			stop, result := *e.Stop, *e.Stop.Result
			result.Errors, stop.Result = []string{"too many to be told; see the log"}, &result
			e.Stop = &stop
		}
		b, err = json.Marshal(e)
	}
	if err != nil {
		return nil // plain data marshals
	}
	return append(b, '\n')
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}
