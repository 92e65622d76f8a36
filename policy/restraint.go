package policy

import (
	"slices"
	"time"
)

// BudgetConfig is how many stops are allowed.
type BudgetConfig struct {
	Hard, Soft Bucket
	PerHour    int // of both kinds, within any hour; 0 = no cap
	Breaker    int // stops in a row that did not move a signal; 0 = off
}

// What restraint holds a stop back by.
const (
	HeldBudget  = "budget"
	HeldBackoff = "back-off"
	HeldBreaker = "breaker"
)

// Held says what holds a stop back; the zero value is nothing.
type Held struct {
	By         string        // HeldBudget, HeldBackoff, HeldBreaker or ""
	RetryAfter time.Duration // when that ends; 0 where no time ends it
}

// Restraint remembers what was stopped and bounds what may be stopped next: by a
// budget per kind and per hour, by a back-off per workload, and by a breaker per
// signal. It marshals to JSON, so that a crash loop does not refill the budget.
//
// Time is the time since boot. A clock that goes back loses no budget and wins
// none: ages stay what they were. It is used from one goroutine. The zero value
// allows nothing until it is configured.
type Restraint struct {
	bootID    string
	budget    BudgetConfig
	backoff   BackoffConfig
	now       time.Duration // of the last call
	fills     [kindCount]fill
	recent    []recentStop // within the last hour, oldest first
	workloads map[string]stopped
	fruitless [SignalCount]int // stops in a row that did not move the signal
}

// recentStop is a stop that counts towards the hourly cap.
type recentStop struct {
	At     time.Duration `json:"at"`
	Kind   Kind          `json:"kind"`
	Before fill          `json:"before"` // of the kind's bucket, to undo the stop
}

// maxRecent bounds what is remembered of an hour without a cap.
const maxRecent = 1024

// NewRestraint is one that has seen no stop yet, on the boot with that ID.
func NewRestraint(bootID string) *Restraint { return &Restraint{bootID: bootID} }

// Configure puts other bounds in force. What was stopped stays counted.
func (r *Restraint) Configure(budget BudgetConfig, backoff BackoffConfig) {
	r.budget, r.backoff = budget, backoff
}

func (b BudgetConfig) of(k Kind) Bucket {
	if k == Hard {
		return b.Hard
	}
	return b.Soft
}

// Check says what would hold back a stop of that workload for that signal: the
// breaker first, which no time ends. With the workload "" the back-off is left
// out.
func (r *Restraint) Check(kind Kind, signal Signal, workload string, now time.Duration) Held {
	if r.open(signal) {
		return Held{By: HeldBreaker}
	}
	return r.CheckBudget(kind, workload, now)
}

// CheckBudget is Check without the breaker, for a stop that no signal asks for.
func (r *Restraint) CheckBudget(kind Kind, workload string, now time.Duration) Held {
	r.at(now)
	if wait := r.left(workload); wait > 0 {
		return Held{HeldBackoff, wait}
	}
	bucket, f := r.bucket(kind)
	wait := bucket.wait(f, now)
	spent := bucket.left(f) < 1
	if per := r.budget.PerHour; per > 0 && len(r.recent) >= per {
		spent = true
		wait = max(wait, r.recent[len(r.recent)-per].At+time.Hour-now)
	}
	if spent {
		return Held{HeldBudget, wait}
	}
	return Held{}
}

// CheckWorkload is Check for the back-off alone: HeldBackoff or "".
func (r *Restraint) CheckWorkload(workload string, now time.Duration) string {
	r.at(now)
	if r.left(workload) > 0 {
		return HeldBackoff
	}
	return ""
}

// Take counts a stop that begins now.
func (r *Restraint) Take(kind Kind, signal Signal, workload string, now time.Duration) {
	r.take(kind, now)
	r.note(workload, stopped{Last: now, Condition: signal.Condition()})
}

// TakeBudget is Take for a stop that no signal asks for: no hold-down follows from it.
func (r *Restraint) TakeBudget(kind Kind, workload string, now time.Duration) {
	r.take(kind, now)
	r.Remember(workload, now)
}

func (r *Restraint) take(kind Kind, now time.Duration) {
	r.at(now)
	bucket, f := r.bucket(kind)
	r.recent = append(r.recent, recentStop{now, kind, f})
	r.fills[kind] = bucket.take(f, now)
	if over := len(r.recent) - max(maxRecent, r.budget.PerHour); over > 0 {
		r.recent = slices.Delete(r.recent, 0, over)
	}
}

// Remember counts a stop of a workload that no signal asked for towards its
// back-off alone.
func (r *Restraint) Remember(workload string, now time.Duration) {
	r.at(now)
	r.note(workload, stopped{Last: now, Over: true})
}

// note adds a stop to a workload's past.
func (r *Restraint) note(workload string, s stopped) {
	now := s.Last
	if workload == "" || r.backoff.First <= 0 {
		return
	}
	for name, s := range r.workloads {
		if r.backoff.forgotten(s, now) {
			delete(r.workloads, name)
		}
	}
	if r.workloads == nil {
		r.workloads = map[string]stopped{}
	}
	past, again := r.workloads[workload]
	if s.Over && again {
		s.Condition, s.Over = past.Condition, past.Over // no reason to end a hold-down either
	}
	s.First, s.Previous, s.Count = now, past.Last, min(past.Count+1, maxInARow)
	if again {
		s.First = past.First
	}
	r.workloads[workload] = s
}

// Return undoes the Take of that moment, of a stop that killed nothing: the
// budget is as if it had not been. What was not taken is not returned.
func (r *Restraint) Return(kind Kind, _ Signal, workload string, taken time.Duration) {
	i := slices.IndexFunc(r.recent, func(s recentStop) bool { return s.At == taken && s.Kind == kind })
	if i < 0 {
		return
	}
	r.replay(i)
	if s, ok := r.workloads[workload]; ok && s.Last == taken {
		if s.Count--; s.Count < 1 {
			delete(r.workloads, workload)
			return
		}
		s.Last = s.Previous
		r.workloads[workload] = s
	}
}

// LastStop is when the last stop that counts began, since boot; ok is false without
// one in the last hour.
func (r *Restraint) LastStop() (at time.Duration, ok bool) {
	if len(r.recent) == 0 {
		return 0, false
	}
	return r.recent[len(r.recent)-1].At, true
}

// Judge tells the breaker whether a stop moved its signal.
func (r *Restraint) Judge(signal Signal, moved bool) {
	if moved {
		r.fruitless[signal] = 0
	} else {
		r.fruitless[signal] = min(r.fruitless[signal]+1, maxFruitless)
	}
}

const maxFruitless = 1 << 16

// Cleared tells that a signal is met no more: its breaker closes. It reports whether
// that changed anything.
func (r *Restraint) Cleared(signal Signal) bool {
	changed := r.fruitless[signal] > 0
	r.fruitless[signal] = 0
	return changed
}

// Ended tells that a condition is reported no more: the hold-down of what was
// stopped for it is over. Its back-off goes on. It reports whether that changed
// anything.
func (r *Restraint) Ended(c Condition) bool {
	changed := false
	for name, s := range r.workloads {
		if s.Condition == c && !s.Over {
			s.Over = true
			r.workloads[name] = s
			changed = true
		}
	}
	return changed
}

// Returned reports whether a sandbox is a workload's return: it was created,
// since boot, after the first of our stops in a row of the workload. A later one may
// have been of another replica.
func (r *Restraint) Returned(workload string, created time.Duration) bool {
	s, ok := r.past(workload)
	return ok && created > s.First
}

// Stopped tells when we last stopped a workload, since boot; 0 where that counts no more.
func (r *Restraint) Stopped(workload string) (at time.Duration) {
	s, _ := r.past(workload)
	return s.Last
}

// HoldDown reports whether a sandbox is to be stopped before all others for a
// signal: its workload was stopped for the signal's condition and has come back
// while that still holds.
func (r *Restraint) HoldDown(signal Signal, workload string, created time.Duration) bool {
	s, _ := r.past(workload)
	return r.Returned(workload, created) && s.Condition == signal.Condition() && !s.Over
}

// AnyStopped reports whether the stop of any workload still counts.
func (r *Restraint) AnyStopped() bool {
	for name := range r.workloads {
		if _, ok := r.past(name); ok {
			return true
		}
	}
	return false
}

// replay takes the i-th recent stop out and counts those of its kind that came
// after it once more. To give a token back would not do: it may have come back
// in time, and the next one have been earned by it.
func (r *Restraint) replay(i int) {
	kind, f := r.recent[i].Kind, r.recent[i].Before
	r.recent = slices.Delete(r.recent, i, i+1)
	bucket := r.budget.of(kind)
	for j := i; j < len(r.recent); j++ {
		if s := &r.recent[j]; s.Kind == kind {
			s.Before = bucket.after(f, s.At)
			f = bucket.take(f, s.At)
		}
	}
	r.fills[kind] = f
}

// at brings the restraint to another time. Should the clock have gone back, what
// is remembered goes back with it.
func (r *Restraint) at(now time.Duration) {
	if back := r.now - now; back > 0 {
		r.shift(back)
	}
	r.now = now
	old := 0
	for old < len(r.recent) && now-r.recent[old].At >= time.Hour {
		old++
	}
	r.recent = slices.Delete(r.recent, 0, old)
}

func (r *Restraint) shift(back time.Duration) {
	for k := range r.fills {
		r.fills[k].At -= back
	}
	for i := range r.recent {
		r.recent[i].At -= back
		r.recent[i].Before.At -= back
	}
	for name, s := range r.workloads {
		s.Last -= back
		s.Previous -= back
		s.First -= back
		r.workloads[name] = s
	}
}

// bucket is a kind's bucket and its fill, brought up to date.
func (r *Restraint) bucket(k Kind) (Bucket, fill) {
	b := r.budget.of(k)
	r.fills[k] = b.after(r.fills[k], r.now)
	return b, r.fills[k]
}

func (r *Restraint) open(s Signal) bool {
	return r.budget.Breaker > 0 && r.fruitless[s] >= r.budget.Breaker
}

// past is what is remembered of a workload and still counts.
func (r *Restraint) past(workload string) (stopped, bool) {
	s, ok := r.workloads[workload]
	if !ok || r.backoff.forgotten(s, r.now) {
		return stopped{}, false
	}
	return s, true
}

// left is what is left of a workload's back-off.
func (r *Restraint) left(workload string) time.Duration {
	s, ok := r.past(workload)
	if !ok {
		return 0
	}
	return max(s.Last+r.backoff.wait(s)-r.now, 0)
}
