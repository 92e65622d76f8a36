package words

import (
	"fmt"
	"strings"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
)

// Explanation is a pass with what belongs to it.
type Explanation struct {
	APIVersion string          `json:"apiVersion"`
	Pass       *guard.Pass     `json:"pass"`
	Decided    string          `json:"decided,omitempty"`    // why the first of the ranking is first
	Effect     *guard.StopView `json:"effect,omitempty"`     // the pass's stop as it settled
	SettledBy  uint64          `json:"settled_by,omitempty"` // the pass that found it settled
	Excluded   []Excluded      `json:"excluded,omitempty"`
}

// Find explains one of the passes; nil when it is none of them. 0 is the last one.
func Find(passes []guard.Pass, id uint64) *Explanation {
	for i := len(passes) - 1; i >= 0; i-- {
		if p := &passes[i]; id == 0 || p.ID == id {
			e := &Explanation{APIVersion: guard.APIVersion, Pass: p, Decided: decided(p), Excluded: excluded(p.Ranked)}
			e.settle(passes[i+1:])
			return e
		}
	}
	return nil
}

// settle looks for what became of the pass's stop.
func (e *Explanation) settle(later []guard.Pass) {
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

// Signal is what a pass's ranking is for.
func Signal(p *guard.Pass) (policy.Signal, bool) {
	name, _, _ := strings.Cut(p.HeldBy, ":")
	if p.Stop != nil {
		name = p.Stop.Signal
	}
	s, err := policy.ParseSignal(name)
	return s, err == nil
}

// decided compares the first of a ranking with the second, by the first key in which they
// differ.
func decided(p *guard.Pass) string {
	var first, second, stopped *guard.RankedView
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
	case first == nil || !ok:
		return ""
	case stopped != nil && stopped.Position > 1:
		return fmt.Sprintf("%s ranks first; %s, which ranks %d, was stopped for its reason", first.Pod, stopped.Pod, stopped.Position)
	case second == nil:
		return first.Pod + " was the only candidate"
	}
	for i, k := range first.Keys {
		if i < len(second.Keys) && second.Keys[i] != k {
			return fmt.Sprintf("%s before %s, by the first key in which they differ: %s, not %s",
				first.Pod, second.Pod, guard.FormatKey(sig, k), guard.FormatKey(sig, second.Keys[i]))
		}
	}
	return fmt.Sprintf("%s before %s, alike in every key: by size, then the younger, then the ID", first.Pod, second.Pod)
}

// Excluded counts the pods that were no candidates for the same reason.
type Excluded struct {
	Why  string `json:"why"`
	Pods int    `json:"pods"`
}

// excluded counts them, in the order of the ranking.
func excluded(ranked []guard.RankedView) []Excluded {
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
