package api

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// SignalLimit is the signal recorded for a stop because of a storage limit.
const SignalLimit = "ephemeral-storage"

// Kinds of stops, besides the hard and soft ones of thresholds.
const (
	// KindLimit is a stop because of a pod's storage limit.
	KindLimit = "limit"
	// KindAdmission is a stop of a pod that started while a condition holds.
	KindAdmission = "admission"
	// KindDrain is a stop for a drain, which an operator requested.
	KindDrain = "drain"
	// KindCommand is a stop of one pod, which an operator requested.
	KindCommand = "command"
)

// ThresholdsOf returns the met thresholds that raise a condition.
func (p *Pass) ThresholdsOf(c policy.Condition) (names []string) {
	for _, m := range p.Met {
		if m.Signal.Condition() == c && !m.WarnOnly {
			names = append(names, m.Threshold)
		}
	}
	return names
}

// Removed returns the number of removed items.
func (r *ReclaimView) Removed() int {
	n := 0
	for i := range r.Reports {
		n += len(r.Reports[i].Removed) + r.Reports[i].RemovedMore
	}
	return n
}

// HeldPaused reports that criguard is paused.
const HeldPaused = "paused"

// Reasons why a stop is held back: the state of criguard's jobs, and the reasons of package policy.
const (
	// HeldGrace reports that a soft threshold's grace period has not ended.
	HeldGrace = "grace"
	// HeldReclaiming reports that a reclaim job for the signal is still running.
	HeldReclaiming = "reclaiming"
	// HeldInFlight reports that an earlier stop has not taken effect yet.
	HeldInFlight = "in flight"
	// HeldObserve reports that observe mode has already logged the stop and does not repeat it, or that the reclaim that it
	// does not make would be enough.
	HeldObserve = "observe"
	// HeldStallFloor reports a stall or short swap while available memory is above stall_floor.
	HeldStallFloor = "stall floor"
	// HeldUnlisted reports that an unlisted pod may use more than the victim, or that the runtime does not
	// answer while the disk usage is not known in full.
	HeldUnlisted = "unlisted pod"
	// HeldAsking reports that the fleet was asked for a permit and has not decided yet.
	HeldAsking = "asking the fleet"
	// HeldFleet reports that the fleet does not permit a soft stop, or one for a limit.
	HeldFleet = "fleet"
	// HeldBudget is policy.HeldBudget.
	HeldBudget = policy.HeldBudget
	// HeldBackoff is policy.HeldBackoff.
	HeldBackoff = policy.HeldBackoff
	// HeldBreaker is policy.HeldBreaker.
	HeldBreaker = policy.HeldBreaker
	// HeldProtected is policy.HeldProtected.
	HeldProtected = policy.HeldProtected
	// HeldOutside is policy.HeldOutside.
	HeldOutside = policy.HeldOutside
	// HeldRecovers is policy.HeldRecovers.
	HeldRecovers = policy.HeldRecovers
	// HeldUnknown is policy.HeldUnknown.
	HeldUnknown = policy.HeldUnknown
)

// Kinds of alarms.
const (
	// AlarmReclaim is the alarm for a reclaim that takes too long.
	AlarmReclaim = "reclaim"
	// AlarmNoRelief is the alarm for a pool for which no pod is stopped although it is due.
	AlarmNoRelief = "no relief"
	// AlarmHeld is the alarm for a configuration that is held because it meets a hard threshold at once.
	AlarmHeld = "held"
)

// Pass records one pass of the loop, for the log, the history, the metrics and the status.
type Pass struct {
	ID         uint64            `json:"id"`                           // counts from 1
	Time       time.Time         `json:"time,omitzero"`                // wall clock, for people
	At         Duration          `json:"at"`                           // time since boot
	Wake       string            `json:"wake"`                         // what started the pass
	Took       Duration          `json:"took"`                         // how long the pass took
	Conditions policy.Conditions `json:"conditions"`                   // conditions that hold
	Changed    bool              `json:"conditions_changed,omitempty"` // a condition began or ended
	Signals    []SignalView      `json:"signals,omitempty"`            // as observed
	Met        []MetView         `json:"met,omitempty"`                // thresholds that are met
	Reclaimed  []ReclaimView     `json:"reclaimed,omitempty"`          // reclaim jobs that ended
	Stop       *StopView         `json:"stop,omitempty"`               // the stop that began
	Escalated  string            `json:"escalated,omitempty"`          // the pod whose soft stop became a hard one
	Settled    []StopView        `json:"settled,omitempty"`            // earlier stops that ended, with their effect
	Held       string            `json:"held,omitempty"`               // why a stop was held back
	HeldDetail string            `json:"held_detail,omitempty"`        // what the fleet says about it
	HeldBy     string            `json:"held_by,omitempty"`            // the threshold whose stop was held back
	NextStopIn Duration          `json:"next_stop_in,omitempty"`       // until the budget or a back-off allows it, or the fleet is asked again; 0 = not known
	Need       *Need             `json:"need,omitempty"`               // what the decision rests on
	Alarm      string            `json:"alarm,omitempty"`              // what needs an operator
	AlarmBy    string            `json:"alarm_by,omitempty"`           // threshold
	AlarmKind  string            `json:"alarm_kind,omitempty"`         // reclaim, no relief, held
	Command    *CommandView      `json:"command,omitempty"`            // an operator's command, or the end of one
	Runtime    *RuntimeChange    `json:"runtime,omitempty"`            // the runtime became unavailable, or available again
	Ranked     []RankedView      `json:"ranked,omitempty"`             // the pods at the time of the decision, in order
	RankedMore int               `json:"ranked_more,omitempty"`        // number of ranked pods that are not kept

	holds []Hold            // every reason why a stop was held back
	ended policy.Conditions // see Ended
}

// RuntimeChange records that the runtime became unavailable, or available again.
type RuntimeChange struct {
	Up    bool     `json:"up"`              // it is available again
	Error string   `json:"error,omitempty"` // why it is not
	For   Duration `json:"for,omitempty"`   // how long it has been unavailable, or was; left out if that is not known
}

// Need is what a pool lacks and what stopping pods could give back, in the pool's unit: bytes, inodes or
// tasks. A decision to stop a pod, or not to, rests on it.
type Need struct {
	Pool          policy.Pool `json:"pool"`                                 // memory, pid, nodefs bytes, nodefs inodes, or the same of imagefs or containerfs
	Deficit       int64       `json:"deficit" unit:"pool"`                  // to the threshold or, inside the minimum reclaim, to the target
	Fill          int64       `json:"fill" unit:"pool"`                     // how fast the signal falls, per second
	OutsideFill   int64       `json:"outside_fill" unit:"pool"`             // the part of fill that the growth of the unprotected pods does not explain
	Need          int64       `json:"need" unit:"pool"`                     // amount that has to come back for the pool to be relieved when a stop takes effect
	Helps         int64       `json:"helps" unit:"pool"`                    // the smallest amount that a stop must give back to help
	Attainable    bool        `json:"attainable"`                           // stopping pods brings relief for at least 10 s
	Culprit       string      `json:"culprit"`                              // namespace/name of the pod that fills the pool; "" = none
	CulpritGrowth int64       `json:"culprit_growth,omitempty" unit:"pool"` // how fast the culprit grows, per second
	Tiers         []int64     `json:"tiers,omitempty" unit:"pool"`          // what stopping the pods above their request, then the others, would give back
	// namespace/name of the protected pod that grows fastest, if that explains half of outside_fill or more
	Protected       string `json:"protected,omitempty"`
	ProtectedGrowth int64  `json:"protected_growth,omitempty" unit:"pool"` // how fast it grows, per second
}

// SignalView is one observed signal. Its quantities are bytes, inodes or tasks.
type SignalView struct {
	Signal    policy.Signal `json:"signal"`                  // its name
	Available int64         `json:"available" unit:"signal"` // 0 unless the status is ok
	Capacity  int64         `json:"capacity" unit:"signal"`  // 0 unless the status is ok
	Status    string        `json:"status"`                  // ok, failed, absent
}

// MetView is one met threshold.
type MetView struct {
	Threshold string        `json:"threshold"`               // signal:kind
	Signal    policy.Signal `json:"signal"`                  // its signal
	Available int64         `json:"available" unit:"signal"` // now
	Target    int64         `json:"target" unit:"signal"`    // amount that has to be available for it to clear, with the minimum reclaim
	For       Duration      `json:"for"`                     // how long it has been met
	Due       bool          `json:"due"`                     // met, and the grace period is over
	Wait      Duration      `json:"wait,omitempty"`          // remaining grace period
	WarnOnly  bool          `json:"warn_only,omitempty"`     // a stall while enough memory is available: nothing is stopped
}

// ReclaimView is one reclaim job that ended in this pass.
type ReclaimView struct {
	Signal  policy.Signal    `json:"signal"`             // what it ran for
	Steps   []string         `json:"steps"`              // memory, containers, sandboxes, logs, images
	Off     []string         `json:"off,omitempty"`      // steps that would help, but are switched off
	Freed   int64            `json:"freed" unit:"bytes"` // by statfs; 0 = nothing or not measured
	Took    Duration         `json:"took"`               // how long it took
	Reports []reclaim.Report `json:"reports,omitempty"`  // one for each step
}

// Acted reports whether the job really removed anything.
func (r *ReclaimView) Acted() bool { return r.Removed() > 0 && !r.DryRun() }

// DryRun reports whether observe mode kept the job from removing anything.
func (r *ReclaimView) DryRun() bool {
	return len(r.Reports) > 0 && r.Reports[0].DryRun
}

// AtMost reports whether fewer removals than those of the dry run may be enough.
func (r *ReclaimView) AtMost() bool {
	return slices.ContainsFunc(r.Reports, func(rep reclaim.Report) bool { return rep.AtMost })
}

// StopView is one stop: its victim, its reason and, once settled, its effect.
type StopView struct {
	Pass      uint64      `json:"pass,omitempty"`          // the pass that began it
	Pod       string      `json:"pod"`                     // namespace/name
	UID       string      `json:"uid"`                     // of the pod
	Sandbox   string      `json:"sandbox"`                 // ID in the runtime
	Workload  string      `json:"workload,omitempty"`      // what recreates the pod
	Signal    string      `json:"signal"`                  // what it was stopped for: a signal, a condition (admission), ephemeral-storage, drain or command
	Kind      string      `json:"kind"`                    // hard, soft, limit, admission, drain, command
	Grace     Duration    `json:"grace"`                   // grace period
	Backoff   Duration    `json:"backoff,omitempty"`       // how long soft stops of the workload wait, since the stop began
	Reason    string      `json:"reason"`                  // why this pod
	Available int64       `json:"available" unit:"signal"` // amount of the signal when the stop began
	Expected  int64       `json:"expected" unit:"signal"`  // amount that the stop should free
	DryRun    bool        `json:"dry_run,omitempty"`       // observe mode: nothing was stopped
	Result    *StopResult `json:"result,omitempty"`        // left out until the stop has settled
}

// StopResult is the result of a stop.
type StopResult struct {
	Emptied   bool     `json:"emptied"`                 // every container cgroup is empty, as the kernel reports
	EmptiedIn Duration `json:"emptied_in"`              // from the order to stop until no process was left; 0 = not known
	Confirmed bool     `json:"confirmed"`               // the runtime confirms it too; this may lag
	Method    string   `json:"method"`                  // runtime, direct, fallback
	Freed     int64    `json:"freed" unit:"signal"`     // what came back from the pod itself
	Available int64    `json:"available" unit:"signal"` // amount of the signal when the stop settled
	SettledIn Duration `json:"settled_in"`              // from the order to stop until its effect was known
	// The time from the pass that first found the threshold met until no process was left; 0 if
	// the stop was not for a threshold, or if an earlier run of the service began it.
	DeadIn Duration `json:"dead_in,omitempty"`
	// An earlier run of the service began the stop, and it was not needed or not possible any more.
	NotContinued bool     `json:"not_continued,omitempty"`
	Errors       []string `json:"errors,omitempty"` // what failed meanwhile
}

// Helped reports whether at least half of what the stop should free came back from the pod.
func (s *StopView) Helped() bool {
	return s.Result != nil && s.Result.Freed >= s.Expected/2+s.Expected%2
}

// Notable reports whether the pass did something or saw a change. A pass that finds the same stop held back
// for the same reason again is also notable; the recorder leaves out repetitions.
func (p *Pass) Notable() bool {
	return p.Held != "" || p.Acts()
}

// Acts reports whether the pass did something or saw a change.
func (p *Pass) Acts() bool {
	return p.Changed || p.Stop != nil || p.Escalated != "" || len(p.Settled) > 0 ||
		len(p.Reclaimed) > 0 || p.Alarm != "" || p.Command != nil || p.Runtime != nil
}

// End records that conditions of an earlier run of the service do not hold any more.
func (p *Pass) End(conditions policy.Conditions) {
	p.ended, p.Changed = conditions, p.Changed || conditions != 0
}

// Ended returns the conditions of an earlier run of the service that do not hold any more.
func (p *Pass) Ended() policy.Conditions { return p.ended }

// Hold records why a stop was held back, and what asked for the stop. The first one is the pass's reason.
func (p *Pass) Hold(by string, held policy.Held) {
	if held.By == "" {
		return
	}
	p.holds = append(p.holds, Hold{by, held.By, held.Detail})
	if p.Held == "" {
		p.Held, p.HeldDetail, p.HeldBy, p.NextStopIn = held.By, held.Detail, by, Rounded(held.RetryAfter)
	}
}

// Holds returns what held stops back, the pass's reason first.
func (p *Pass) Holds() []Hold { return p.holds }

// HasHold reports whether a stop was held back that this has asked for.
func (p *Pass) HasHold(by string) bool {
	return slices.ContainsFunc(p.holds, func(h Hold) bool { return h.Threshold == by })
}

// Why returns what held a stop back, with its detail.
func (p *Pass) Why() string { return Hold{p.HeldBy, p.Held, p.HeldDetail}.Why() }

// Unhold drops the record of all holds: the pass begins a stop.
func (p *Pass) Unhold() { p.Held, p.HeldDetail, p.HeldBy, p.NextStopIn, p.holds = "", "", "", 0, nil }

// Observe copies the observed signals and met thresholds into the pass.
func (p *Pass) Observe(obs *policy.Observations, pr policy.Pressure) {
	p.Signals = signalViews(obs)
	for _, m := range pr.Met {
		p.Met = append(p.Met, MetView{
			Threshold: m.Threshold.String(), Signal: m.Signal, Available: m.Available, Target: m.Target,
			For: Rounded(time.Duration(p.At) - m.Since), Due: m.Due, Wait: Rounded(m.Wait), WarnOnly: m.WarnOnly,
		})
	}
}

// Transient reports whether a hold ends by itself, because it is a step towards the stop or towards another
// reason that holds the stop back.
func Transient(held string) bool {
	return held == HeldGrace || held == HeldReclaiming || held == HeldInFlight || held == HeldRecovers || held == HeldAsking
}

// Hold is what holds a stop back.
type Hold struct {
	Threshold string `json:"threshold"`        // signal:kind
	Reason    string `json:"reason"`           // why its stop is held back
	Detail    string `json:"detail,omitempty"` // what the fleet says about it
}

// Why returns the reason with its detail.
func (h Hold) Why() string {
	if h.Detail == "" {
		return h.Reason
	}
	return h.Reason + ": " + h.Detail
}

// OfPod reports whether a pod's limit or admission asks for the stop, and no threshold.
func (h Hold) OfPod() bool {
	return strings.HasPrefix(h.Threshold, KindLimit+" of ") || strings.HasPrefix(h.Threshold, KindAdmission+" of ")
}

// Changed reports whether the pass is held back for another reason than before, whatever the detail. A signal
// that fluctuates around its threshold restarts its reclaim or grace period each time: if that leads to the
// same reason again, it is not a change.
func (h *Hold) Changed(p *Pass) bool {
	if p.Held == "" {
		if p.Stop != nil || p.Changed || h.OfPod() {
			*h = Hold{}
		}
		return false
	}
	return h.Replace(Hold{p.HeldBy, p.Held, p.HeldDetail})
}

// Replace is Changed for one hold.
func (h *Hold) Replace(now Hold) bool {
	switch {
	case h.Threshold == now.Threshold && h.Reason == now.Reason:
		h.Detail = now.Detail
		return false
	case Transient(now.Reason) && now.Threshold == h.Threshold && !Transient(h.Reason):
		return false
	}
	*h = now
	return true
}

// Holds are what held stops back last, by what asked for the stop: while one threshold is held back, another that is met again
// and again is no news each time. The zero value is usable.
type Holds struct{ by map[string]Hold }

// holdsAtMost limits the holds that are remembered: pods that are held back for their limits come and go.
const holdsAtMost = 100

// Changed reports whether the pass is held back for another reason than when the same was held back before.
func (hs *Holds) Changed(p *Pass) bool {
	hs.forget(p)
	return p.Held != "" && hs.replace(Hold{p.HeldBy, p.Held, p.HeldDetail})
}

// Changes returns all holds of the pass that Changed would report.
func (hs *Holds) Changes(p *Pass) []Hold {
	hs.forget(p)
	return slices.DeleteFunc(slices.Clone(p.holds), func(h Hold) bool { return !hs.replace(h) })
}

// forget forgets what the pass does not hold back, if it begins a stop or a condition begins or ends.
func (hs *Holds) forget(p *Pass) {
	if p.Stop != nil || p.Changed || len(hs.by) > holdsAtMost {
		maps.DeleteFunc(hs.by, func(by string, _ Hold) bool { return !p.HasHold(by) })
	}
}

func (hs *Holds) replace(now Hold) (changed bool) {
	if hs.by == nil {
		hs.by = map[string]Hold{}
	}
	h := hs.by[now.Threshold]
	changed = h.Replace(now)
	hs.by[now.Threshold] = h
	return changed
}
