package guard

import (
	"time"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// What can hold a stop back: beside what policy says, the state of the jobs.
const (
	HeldGrace       = "grace"        // a soft threshold's grace period runs
	HeldReclaiming  = "reclaiming"   // a reclaim job for the signal is not through
	HeldInFlight    = "in flight"    // an earlier stop has not shown its effect yet
	HeldObserve     = "observe mode" // the stop was said, as observe mode has it, and is not said again
	HeldStallFloor  = "stall floor"  // stalled, but memory is above stall_floor
	HeldUnlisted    = "unlisted pod" // a pod that uses more runs, and the runtime does not say which
	HeldUncounted   = policy.HeldUncounted
	HeldBudget      = policy.HeldBudget
	HeldBackoff     = policy.HeldBackoff
	HeldBreaker     = policy.HeldBreaker
	HeldProtected   = policy.HeldProtected
	HeldNoCandidate = policy.HeldNoCandidate
)

// Pass is one round and all that is known of it. It feeds the log, the history,
// the metrics, status and simulate.
type Pass struct {
	ID         uint64            `json:"id"`
	Time       time.Time         `json:"time,omitzero"` // wall clock, for people
	At         time.Duration     `json:"at"`            // time since boot, in nanoseconds
	Wake       string            `json:"wake"`
	Took       time.Duration     `json:"took"`
	Conditions policy.Conditions `json:"conditions"`
	Changed    bool              `json:"conditions_changed,omitempty"`
	Signals    []SignalView      `json:"signals,omitempty"`
	Met        []MetView         `json:"met,omitempty"`
	Reclaimed  []ReclaimView     `json:"reclaimed,omitempty"`
	Stop       *StopView         `json:"stop,omitempty"`
	Escalated  string            `json:"escalated,omitempty"` // the pod whose soft stop became a hard one
	Settled    []StopView        `json:"settled,omitempty"`   // earlier stops that ended, with their effect
	Held       string            `json:"held,omitempty"`
	HeldBy     string            `json:"held_by,omitempty"` // the threshold that was held back
	Alarm      string            `json:"alarm,omitempty"`
	AlarmBy    string            `json:"alarm_by,omitempty"` // the threshold whose stops do not help
	Command    *CommandView      `json:"command,omitempty"`  // an operator's, or the end of one
	Ranked     []RankedView      `json:"ranked,omitempty"`
	RankedMore int               `json:"ranked_more,omitempty"` // further pods were ranked, and are not kept
}

// SignalView is one signal as observed. Quantities are bytes, inodes or tasks.
type SignalView struct {
	Signal    policy.Signal `json:"signal"`
	Available int64         `json:"available"`
	Capacity  int64         `json:"capacity"`
	Status    string        `json:"status"` // ok, failed, absent
}

// MetView is one met threshold. Target includes the minimum reclaim.
type MetView struct {
	Threshold string        `json:"threshold"` // signal:kind
	Signal    policy.Signal `json:"signal"`
	Available int64         `json:"available"`
	Target    int64         `json:"target"`
	For       time.Duration `json:"for"`
	Due       bool          `json:"due"`
	Wait      time.Duration `json:"wait,omitempty"` // of the grace period
	WarnOnly  bool          `json:"warn_only,omitempty"`
}

// ReclaimView is one reclaim job that ended in this pass.
type ReclaimView struct {
	Signal  policy.Signal    `json:"signal"`
	Steps   []string         `json:"steps"`
	Freed   int64            `json:"freed"` // bytes, by statfs
	Took    time.Duration    `json:"took"`
	Reports []reclaim.Report `json:"reports,omitempty"`
}

// acted tells whether anything was removed indeed.
func (r *ReclaimView) acted() bool { return r.Removed() > 0 && !r.DryRun() }

// DryRun tells whether nothing was removed because of observe mode.
func (r *ReclaimView) DryRun() bool {
	return len(r.Reports) > 0 && r.Reports[0].DryRun
}

// StopView is one stop: what, why, and, once it has settled, with what effect.
type StopView struct {
	Pass      uint64        `json:"pass,omitempty"` // the pass that began it
	Pod       string        `json:"pod"`            // namespace/name
	UID       string        `json:"uid"`
	Sandbox   string        `json:"sandbox"`
	Signal    string        `json:"signal"`
	Kind      string        `json:"kind"` // hard, soft, limit, admission, drain
	Grace     time.Duration `json:"grace"`
	Reason    string        `json:"reason"`
	Available int64         `json:"available"` // of the signal, when the stop began
	Expected  int64         `json:"expected"`  // what the stop should free
	DryRun    bool          `json:"dry_run,omitempty"`
	Result    *StopResult   `json:"result,omitempty"`
}

// StopResult is what became of a stop.
type StopResult struct {
	Emptied   bool          `json:"emptied"` // every container cgroup is empty: the truth
	EmptiedIn time.Duration `json:"emptied_in"`
	Confirmed bool          `json:"confirmed"` // the runtime says so too; it may lag
	Method    string        `json:"method"`    // runtime, direct, fallback
	Moved     bool          `json:"moved"`     // the signal moved
	Available int64         `json:"available"` // of the signal, when the stop settled
	SettledIn time.Duration `json:"settled_in"`
	// DeadIn is how long after the look that first found the threshold met no process
	// was left; 0 where no threshold asked for the stop.
	DeadIn time.Duration `json:"dead_in,omitempty"`
	Errors []string      `json:"errors,omitempty"`
}

// Notable reports whether the pass did something or saw something change. A
// pass that merely finds the same pressure held back by the same thing again
// is notable too; the recorder leaves repetitions out.
func (p *Pass) Notable() bool {
	return p.Changed || p.Stop != nil || p.Escalated != "" || len(p.Settled) > 0 ||
		len(p.Reclaimed) > 0 || p.Held != "" || p.Alarm != "" || p.Command != nil
}

// hold notes the first thing that held a stop back.
func (p *Pass) hold(m policy.Met, held string) {
	if held != "" && p.Held == "" {
		p.Held, p.HeldBy = held, m.Threshold.String()
	}
}

// transient reports whether what holds a stop back ends by itself: it is a step on the way to
// the stop, or to what else holds that back.
func transient(held string) bool {
	return held == HeldGrace || held == HeldReclaiming || held == HeldInFlight
}

// hold follows what holds stops back from pass to pass, for those that tell it once.
type hold struct{ threshold, reason string }

// news tells whether a pass is held back by something else than those before it. A signal
// that crosses its threshold to and fro has its reclaim, or its grace period, begin anew each
// time: on the way to what held the same threshold back before, that is no news.
func (h *hold) news(p *Pass) bool {
	switch {
	case p.Held == "":
		if p.Stop != nil || p.Changed {
			*h = hold{}
		}
		return false
	case *h == hold{p.HeldBy, p.Held}, transient(p.Held) && p.HeldBy == h.threshold && !transient(h.reason):
		return false
	}
	*h = hold{p.HeldBy, p.Held}
	return true
}

// observe copies what was seen into the record.
func (p *Pass) observe(obs *policy.Observations, pr policy.Pressure) {
	p.Signals = signalViews(obs)
	for _, m := range pr.Met {
		p.Met = append(p.Met, MetView{
			Threshold: m.Threshold.String(), Signal: m.Signal, Available: m.Available, Target: m.Target,
			For: p.At - m.Since, Due: m.Due, Wait: m.Wait, WarnOnly: m.WarnOnly,
		})
	}
}

// signalViews lists every signal that is there, in acting order.
func signalViews(obs *policy.Observations) []SignalView {
	var views []SignalView
	for s := range policy.SignalCount {
		if o := obs[s]; o.Status != policy.Absent {
			views = append(views, SignalView{s, o.Available, o.Capacity, o.Status.String()})
		}
	}
	return views
}
