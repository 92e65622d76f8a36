package words

import (
	"fmt"
	"strings"
	"time"

	"github.com/criguard/criguard/guard"
)

// Event is one thing that a pass did, and why.
type Event struct{ What, Why string }

// Tell lists what a pass did.
func Tell(p *guard.Pass) []Event {
	var es []Event
	add := func(what, why string) { es = append(es, Event{what, why}) }
	if c := p.Command; c != nil {
		by := "by itself"
		if c.By != nil {
			by = fmt.Sprintf("by uid %d", c.By.UID)
		}
		add(c.Command+" "+by, c.Reason)
	}
	if p.Changed {
		cond := p.Conditions.String()
		if p.Conditions == 0 {
			cond = "none"
		}
		var met []string
		for _, m := range p.Met {
			met = append(met, m.Threshold)
		}
		add("conditions: "+cond, strings.Join(met, ", "))
	}
	for _, r := range p.Reclaimed {
		what := fmt.Sprintf("reclaimed %s: %d removed, %s freed", strings.Join(r.Steps, ", "), r.Removed(), guard.FormatBytes(r.Freed))
		if r.DryRun() {
			what = fmt.Sprintf("would reclaim %s: %d would be removed", strings.Join(r.Steps, ", "), r.Removed())
		}
		add(what, r.Signal.String()+" in "+r.Took.Round(time.Millisecond).String())
	}
	if p.Stop != nil {
		add(stop(p.Stop), p.Stop.Reason)
	}
	if p.Escalated != "" {
		add("end the grace period of "+p.Escalated, "hard threshold met")
	}
	for i := range p.Settled {
		add(Effect(&p.Settled[i]))
	}
	if p.Held != "" {
		add("held back: "+p.Held, p.HeldBy)
	}
	if p.Alarm != "" {
		add("ALARM", p.Alarm)
	}
	return es
}

func stop(s *guard.StopView) string {
	what := fmt.Sprintf("stop %s (%s, grace %s)", s.Pod, s.Kind, s.Grace)
	if s.DryRun {
		what = "would " + what
	}
	return what
}

// Effect tells what became of a stop.
func Effect(s *guard.StopView) (what, how string) {
	r := s.Result
	if r == nil {
		return "stopping " + s.Pod, "not settled yet"
	}
	what = "stopped " + s.Pod
	if !r.Emptied {
		what = "NOT stopped: " + s.Pod
	}
	how = fmt.Sprintf("%s: empty after %s, effect after %s", r.Method, r.EmptiedIn.Round(100*time.Microsecond), r.SettledIn.Round(time.Millisecond))
	if !r.Moved && s.Signal != s.Kind { // a drain has no signal
		how += ", signal did not move"
	}
	if len(r.Errors) > 0 {
		how += "; " + strings.Join(r.Errors, "; ")
	}
	return what, how
}
