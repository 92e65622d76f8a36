package words

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// Event is one thing that a pass did, and the reason.
type Event struct{ What, Why string }

// Events lists what a pass did.
func Events(p *api.Pass) []Event {
	var es []Event
	add := func(what, why string) { es = append(es, Event{what, why}) }
	prune := p.Command != nil && p.Command.Command == api.CommandPrune
	if c := p.Command; c != nil {
		by := "by itself"
		if c.By != nil {
			by = "by " + c.By.String()
		}
		why := cmp.Or(c.Reason, c.Verdict)
		if prune {
			why = pruned(p)
		}
		add(strings.TrimSpace(c.Command+" "+c.Pod)+" "+by, why)
	}
	if r := p.Runtime; r != nil {
		add(runtime(r))
	}
	if p.Changed {
		var met []string
		for _, m := range p.Met {
			met = append(met, m.Threshold)
		}
		why := strings.Join(met, ", ")
		if p.Conditions == 0 && met == nil {
			why = "pressure has ended: no threshold was met for pressure_transition_period, or since a restart"
		}
		add("conditions: "+cmp.Or(p.Conditions.String(), "none"), why)
	}
	for i := range p.Reclaimed {
		if r := &p.Reclaimed[i]; !prune {
			what, why := reclaimed(r)
			add(what, r.Signal.String()+" "+why)
		}
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
		add("held back: "+p.Why()+Next(p.Held, p.NextStopIn), p.HeldBy)
	}
	if p.Alarm != "" {
		add("ALARM", p.Alarm)
	}
	return es
}

// Next says when a stop that is held back is allowed, or when the fleet is asked for it again; "" if that is not known.
func Next(held string, in api.Duration) string {
	switch {
	case in <= 0:
		return ""
	case held == api.HeldFleet, held == api.HeldAsking:
		return ", asked again in " + Left(in)
	}
	return ", next stop allowed in " + Left(in)
}

// runtime describes a change of the runtime.
func runtime(r *api.RuntimeChange) (what, why string) {
	what, why = "runtime unavailable", r.Error
	if r.Up {
		what = "runtime available again"
	}
	if r.For > 0 {
		took := "for " + policy.ShortDuration(time.Duration(r.For).Round(time.Millisecond))
		if why = took + ": " + why; r.Up {
			why = "it was unavailable " + took
		}
	}
	return what, why
}

// pruned describes what a manual prune did. It is not for a signal.
func pruned(p *api.Pass) string {
	var all []string
	for i := range p.Reclaimed {
		what, why := reclaimed(&p.Reclaimed[i])
		all = append(all, what+", "+why)
	}
	return strings.Join(all, "; ")
}

// reclaimed describes a reclaim job. Apart from its steps, it waits for other removals and for the pods' disk usage.
func reclaimed(r *api.ReclaimView) (what, why string) {
	failed, removing, failure := 0, time.Duration(0), ""
	for i := range r.Reports {
		rep := &r.Reports[i]
		failed += len(rep.Errors) + rep.ErrorsMore
		removing += time.Duration(rep.Took)
		if len(rep.Errors) > 0 {
			failure = cmp.Or(failure, rep.Errors[0].Message)
		}
	}
	steps, removed := strings.Join(r.Steps, ", "), r.Removed()
	switch {
	case removed+failed == 0:
		what = "nothing to reclaim: " + steps
	case r.AtMost():
		what = fmt.Sprintf("would reclaim %s: at most %d would be removed", steps, removed)
	case r.DryRun():
		what = fmt.Sprintf("would reclaim %s: %d would be removed", steps, removed)
	default:
		what = fmt.Sprintf("reclaimed %s: %d removed", steps, removed)
		if r.Freed > 0 {
			what += ", " + api.FormatBytes(r.Freed) + " freed"
		}
		if failed > 0 {
			what += fmt.Sprintf(", %d failed", failed)
		}
	}
	why = "in " + r.Took.Round(time.Millisecond).String()
	if time.Duration(r.Took)-removing > time.Second {
		why += " (removal " + removing.Round(time.Millisecond).String() + ", the rest measuring and waiting)"
	}
	if removed == 0 {
		for i := range r.Reports {
			if kept := Kept(&r.Reports[i]); kept != "" {
				why += "; " + kept
			}
		}
		if len(r.Off) > 0 {
			why += "; switched off: " + strings.Join(r.Off, ", ")
		}
	}
	if failure != "" {
		why += "; failed: " + failure
	}
	return what, why
}

// Kept says what a step that removed nothing keeps, from the digest of its report; "" if there was nothing.
func Kept(r *reclaim.Report) string {
	const enough = 3 // reasons in one line
	var reasons []string
	for _, k := range r.KeptFor[:min(len(r.KeptFor), enough)] {
		reasons = append(reasons, fmt.Sprintf("%s (%d)", k.Why, k.Items))
	}
	if len(r.KeptFor) > enough {
		reasons = append(reasons, "…")
	}
	if reasons == nil {
		return ""
	}
	return fmt.Sprintf("%s kept: %s", r.Step, strings.Join(reasons, ", "))
}

func stop(s *api.StopView) string {
	what := fmt.Sprintf("stop %s (%s, grace %s)", s.Pod, s.Kind, s.Grace)
	if s.DryRun {
		what = "would " + what
	}
	return what
}

// Effect describes the result of a stop.
func Effect(s *api.StopView) (what, how string) {
	r := s.Result
	if r == nil {
		return "stopping " + s.Pod, "not settled yet"
	}
	what = "stopped " + s.Pod
	settled := r.SettledIn.Round(time.Millisecond).String()
	switch {
	case !r.Emptied:
		what, how = "NOT stopped: "+s.Pod, "not empty after "+settled
	case r.EmptiedIn == 0: // it ended while no service ran
		how = fmt.Sprintf("%s: found empty after %s", r.Method, settled)
	default:
		how = fmt.Sprintf("%s: empty after %s, effect after %s", r.Method, r.EmptiedIn.Round(100*time.Microsecond), settled)
	}
	if _, err := policy.ParseSignal(s.Signal); err == nil && !s.Helped() {
		how += ", gave back less than half of what was expected"
	}
	if len(r.Errors) > 0 {
		how += "; " + strings.Join(r.Errors, "; ")
	}
	return what, how
}
