package hook

import (
	"os"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/safetext"
	"github.com/criguard/criguard/policy"
)

// Payload is the JSON input of a hook's program. The event determines which of the fields condition, stop and
// alarm is there.
type Payload struct {
	APIVersion string           `json:"apiVersion"`
	Event      config.EventKind `json:"event"`               // condition, stop or alarm
	Time       time.Time        `json:"time"`                // wall clock
	Node       string           `json:"node"`                // host name
	Mode       string           `json:"mode"`                // enforce or observe
	Pass       uint64           `json:"pass"`                // ID of the pass in `criguard history`
	Condition  *condition       `json:"condition,omitempty"` // that began or ended
	Stop       *api.StopView    `json:"stop,omitempty"`      // that ended or, in observe mode, would have begun
	Alarm      *alarm           `json:"alarm,omitempty"`     // what needs an operator
	Signals    []api.SignalView `json:"signals,omitempty"`   // as observed
}

// condition is a condition that has begun or ended.
type condition struct {
	Name   string   `json:"name"`          // the condition
	Active bool     `json:"active"`        // it began
	Met    []string `json:"met,omitempty"` // the thresholds that raised it
}

// alarm reports that a threshold is due, but no pod is stopped (breaker, outside pods, protected, usage unknown),
// that a reclaim takes longer than a minute, or that a configuration is held.
type alarm struct {
	Threshold string `json:"threshold,omitempty"` // as signal:kind
	Reason    string `json:"reason"`              // what is wrong
}

// Payloads returns the events of a pass: conditions that changed, stops that ended or would have begun
// (observe mode), and an alarm.
func Payloads(p *api.Pass, before policy.Conditions, mode config.Mode) (events []Payload) {
	event := func(kind config.EventKind) *Payload {
		events = append(events, Payload{
			APIVersion: api.APIVersion, Event: kind, Time: p.Time.UTC(), Node: hostname(), Mode: mode.String(), Pass: p.ID, Signals: p.Signals,
		})
		return &events[len(events)-1]
	}
	for _, c := range policy.AllConditions() {
		if now := p.Conditions.Has(c); now != before.Has(c) {
			event(config.EventCondition).Condition = &condition{Name: c.String(), Active: now, Met: p.ThresholdsOf(c)}
		}
	}
	if p.Stop != nil && p.Stop.DryRun {
		event(config.EventStop).Stop = p.Stop
	}
	for i := range p.Settled {
		event(config.EventStop).Stop = &p.Settled[i]
	}
	if p.Alarm != "" {
		event(config.EventAlarm).Alarm = &alarm{Threshold: p.AlarmBy, Reason: p.Alarm}
	}
	return events
}

// Encode returns the event as a line of JSON. It drops the longest parts if the event would not fit into a
// pipe.
func (e Payload) Encode() []byte {
	b, err := safetext.JSON(e)
	if err == nil && len(b) >= maxInput {
		e.Signals = nil
		if e.Stop != nil && e.Stop.Result != nil {
			stop, result := *e.Stop, *e.Stop.Result
			result.Errors, stop.Result = []string{"too many errors; see the log"}, &result
			e.Stop = &stop
		}
		b, err = safetext.JSON(e)
	}
	if err != nil {
		return nil // plain data always encodes
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
