package words

import (
	"fmt"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// Explanation is a pass together with the result of its stop.
type Explanation struct {
	APIVersion string        `json:"apiVersion"`
	Pass       *api.Pass     `json:"pass"`                  // the pass; null if nothing has happened yet
	Decided    string        `json:"decided,omitempty"`     // how the victim was chosen
	Effect     *api.StopView `json:"effect,omitempty"`      // the pass's stop with its result
	SettledBy  uint64        `json:"settled_by,omitempty"`  // the pass that recorded the result
	Excluded   []Excluded    `json:"excluded,omitempty"`    // why pods were no candidates
	Stops      int           `json:"stops,omitempty"`       // of the workload, in the hour up to the pass's stop, with that
	StopsSince int           `json:"stops_since,omitempty"` // of the workload, after the pass's stop
}

// Find explains the pass with this ID, or the last one if id is 0. It returns nil if the pass is
// not in the list.
func Find(passes []api.Pass, id uint64) *Explanation {
	return findLast(passes, func(p *api.Pass) bool { return id == 0 || p.ID == id })
}

// FindStop explains the last pass that stopped a pod, namespace/name or its name, or any pod if pod is "". Without such
// a pass, it returns nil.
func FindStop(passes []api.Pass, pod string) *Explanation {
	return findLast(passes, func(p *api.Pass) bool { return p.Stop != nil && (pod == "" || isNamed(p.Stop.Pod, pod)) })
}

func findLast(passes []api.Pass, match func(*api.Pass) bool) *Explanation {
	for i := len(passes) - 1; i >= 0; i-- {
		if p := &passes[i]; match(p) {
			e := &Explanation{APIVersion: api.APIVersion, Pass: p, Decided: decided(p)}
			if p.RankedMore == 0 {
				e.Excluded = excluded(p.Ranked)
			}
			e.settle(passes[i+1:])
			e.count(passes, i)
			return e
		}
	}
	return nil
}

// settle finds the result of the pass's stop in later passes.
func (e *Explanation) settle(later []api.Pass) {
	if e.Pass.Stop == nil {
		return
	}
	for i := range later {
		for j := range later[i].Settled {
			if s := &later[i].Settled[j]; s.Pass == e.Pass.ID && s.Sandbox == e.Pass.Stop.Sandbox {
				e.Effect, e.SettledBy = s, later[i].ID
				return
			}
		}
	}
}

// count counts the stops of the workload that the pass's stop was for; at is its position. Observe mode makes none.
func (e *Explanation) count(passes []api.Pass, at int) {
	this := e.Pass.Stop
	if this == nil || this.Workload == "" || this.DryRun {
		return
	}
	for i := range passes {
		p := &passes[i]
		switch {
		case p.Stop == nil || p.Stop.Workload != this.Workload || p.Stop.DryRun:
		case i > at: // whatever the clock said
			e.StopsSince++
		case e.Pass.Time.Sub(p.Time) < time.Hour:
			e.Stops++
		}
	}
}

// Again says how often the workload of the pass's stop was stopped, and whether it is in back-off; "" if that is not known.
func (e *Explanation) Again(now time.Time) string {
	if e.Stops == 0 {
		return ""
	}
	text := fmt.Sprintf("Workload %s: %s within an hour, this one included", e.Pass.Stop.Workload, api.Count(e.Stops, "stop"))
	until := e.Pass.Time.Add(time.Duration(e.Pass.Stop.Backoff))
	failed := e.Effect != nil && e.Effect.Result != nil && !e.Effect.Result.Emptied
	switch {
	case e.StopsSince > 0:
		return fmt.Sprintf("%s, and %d since", text, e.StopsSince)
	case now.Before(until) && !failed:
		return text + "; in back-off until " + until.Local().Format(time.TimeOnly) + " (soft stops of it wait)"
	}
	return text + ", none since; not in back-off"
}

// Signal returns the signal that a pass's ranking is for.
func Signal(p *api.Pass) (policy.Signal, bool) {
	name, _, _ := strings.Cut(p.HeldBy, ":")
	if p.Stop != nil {
		name = p.Stop.Signal
	}
	s, err := policy.ParseSignal(name)
	return s, err == nil
}

// decided compares the first and the second of a ranking by the first key in which they differ.
func decided(p *api.Pass) string {
	var first, second, stopped *api.RankedView
	for i := range p.Ranked {
		if p.Stop != nil && p.Ranked[i].Sandbox == p.Stop.Sandbox {
			stopped = &p.Ranked[i]
		}
		switch p.Ranked[i].Position {
		case 1:
			first = &p.Ranked[i]
		case 2:
			second = &p.Ranked[i]
		}
	}
	sig, ok := Signal(p)
	switch {
	case first == nil || !ok || p.Stop != nil && stopped == nil: // the history has kept only the first ones
		return ""
	case stopped != nil && stopped.Position > 1 && p.Need != nil && first.Frees < p.Need.Helps:
		return fmt.Sprintf("%s ranks first, but would give back only %s; %s is the first whose stop helps",
			first.Pod, api.FormatUsage(sig, first.Frees), stopped.Pod)
	case stopped != nil && stopped.Position > 1:
		return fmt.Sprintf("%s ranks first; %s, which ranks %d, comes before it (%s)", first.Pod, stopped.Pod, stopped.Position, stopped.Standing)
	case second == nil:
		return first.Pod + " was the only candidate"
	}
	for i, k := range first.Keys {
		if i < len(second.Keys) && second.Keys[i] != k {
			a, b := api.FormatKeys(sig, k, second.Keys[i])
			return fmt.Sprintf("%s before %s, by the first key in which they differ: %s, not %s", first.Pod, second.Pod, a, b)
		}
	}
	return fmt.Sprintf("%s before %s, alike in every key: by size, then the younger, then the ID", first.Pod, second.Pod)
}

// Excluded counts the pods that were excluded as candidates for the same reason.
type Excluded struct {
	Why  string `json:"why"`  // the reason
	Pods int    `json:"pods"` // how many pods
}

// excluded counts the pods by reason, in the order of the ranking.
func excluded(ranked []api.RankedView) []Excluded {
	var all []Excluded
	at := map[string]int{}
	for i := range ranked {
		why := ranked[i].Excluded
		if why == "" {
			continue
		}
		n, ok := at[why]
		if !ok {
			n = len(all)
			at[why], all = n, append(all, Excluded{Why: why})
		}
		all[n].Pods++
	}
	return all
}
