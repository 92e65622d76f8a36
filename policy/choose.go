package policy

import "slices"

// Standing is what restrains the stop of one candidate.
type Standing struct {
	Passed   bool   // a stop of it killed nothing a moment ago: look at the next
	Held     string // what holds its stop back, as "back-off"; "" = nothing
	Returned bool   // it was stopped for this pressure and has come back
	Cause    bool   // while another was held, or its stop waited for, it took what the node runs out of
}

// Why Choose chose nothing, beside what the standing of a candidate says.
const (
	HeldProtected   = "protected"    // only protected pods would help
	HeldNoCandidate = "no candidate" // no pod's stop would help
)

// Choose picks the victim out of a ranking, or says why there is none now. The
// deficit is in the unit of the signal.
//
// The first candidate is the victim. Two things bend the rank:
//
// A workload that was stopped and came back while its condition held goes before
// the others (hold-down), if it is known to use any of the resource: whoever
// starts it again must not push the pressure on to the next pod.
//
// A candidate that is held, by its back-off, is waited for: the one that ranks
// first is the cause as far as is known, and to stop another in its place would
// be a wrong stop. It is passed over only when its own stop is known not to clear
// the deficit, because then the next would have to go as well; and then only for
// a pod whose usage is known.
//
// Both are guesses at the cause. Where, while a candidate is held, another one is
// seen to be it, nothing is waited for until the kernel kills: that one is stopped.
func Choose(ranked []Ranked, deficit int64, standing func(*Ranked) Standing) (victim *Ranked, held string) {
	candidates := ranked
	for i := range ranked {
		if ranked[i].Excluded != "" {
			candidates = ranked[:i]
			break
		}
	}
	standings := make([]Standing, len(candidates))
	for i := range candidates {
		standings[i] = standing(&candidates[i])
	}
	waiting := slices.ContainsFunc(standings, func(st Standing) bool { return st.Held != "" })
	for i, st := range standings {
		if waiting && st.Cause && !st.Passed && st.Held == "" {
			return &candidates[i], ""
		}
	}
	for _, returned := range []bool{true, false} {
		for i := range candidates {
			r, st := &candidates[i], standings[i]
			if st.Passed || returned != (st.Returned && r.Known && r.Frees > 0) {
				continue
			}
			if st.Held == "" && (r.Known || held == "") {
				return r, ""
			}
			if held == "" {
				held = st.Held
			}
			if !r.Known || r.Frees >= deficit {
				return nil, held
			}
		}
	}
	if held != "" {
		return nil, held
	}
	for i := range ranked {
		if r := &ranked[i]; r.Protection != "" && (!r.Known || r.Frees > 0) {
			return nil, HeldProtected
		}
	}
	return nil, HeldNoCandidate
}
