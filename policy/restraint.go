package policy

import (
	"slices"
	"sort"
	"time"
)

// BudgetConfig limits the number of stops.
type BudgetConfig struct {
	Hard, Soft Bucket
	PerHour    int // of each kind, within any hour; 0 = no cap
	Breaker    int // fruitless stops in a row that open a pool's breaker; 0 = off
}

// BackoffConfig limits how often the same workload is stopped. If First is 0, a workload's past stops do not
// count.
type BackoffConfig struct {
	First time.Duration // wait after the first stop; doubles with each further one
	Max   time.Duration // longest wait
	Reset time.Duration // a stop is forgotten after this time
}

// Reasons why the restraint holds a stop back.
const (
	HeldBudget  = "budget"
	HeldBackoff = "back-off"
	HeldBreaker = "breaker"
)

// Held is the reason why a stop is held back. The zero value means that it is not.
type Held struct {
	By         string        // such as HeldBudget; "" = nothing
	Detail     string        // more about it, for people; "" = nothing
	RetryAfter time.Duration // time until it ends; 0 if it does not end with time
}

// Cause is what requires a stop.
type Cause string

// The causes.
const (
	CausePressure  Cause = ""          // a threshold of a pool
	CauseLimit     Cause = "limit"     // a pod's storage limit
	CauseAdmission Cause = "admission" // a pod started while its class is not admitted
	CauseDrain     Cause = "drain"     // an operator who drains the node
	CauseCommand   Cause = "command"   // an operator who stops this pod
)

// ByOperator reports whether an operator requires the stop. Such a stop takes no budget.
func (c Cause) ByOperator() bool { return c == CauseDrain || c == CauseCommand }

// Stop is the record of one stop. Times are since boot.
type Stop struct {
	Workload string        `json:"workload"`
	Sandbox  string        `json:"sandbox"`
	Cause    Cause         `json:"cause,omitempty"`
	Kind     Kind          `json:"kind"` // Soft for every cause but pressure
	Pool     Pool          `json:"pool"` // for pressure, or if Awaited
	Signal   Signal        `json:"signal"`
	Awaited  bool          `json:"awaited,omitempty"` // the pool waits for this stop of another cause as for one of its own
	Released bool          `json:"-"`                 // no pool waits for it any more, although it was for one
	Name     string        `json:"name,omitempty"`    // of what another cause than pressure is recorded for, in place of a signal
	Created  time.Duration `json:"-"`                 // of the sandbox; 0 = unknown
	At       time.Duration `json:"at"`
	Count    int           `json:"count"`         // stops of the workload in a row, with this one
	UID      string        `json:"uid,omitempty"` // of the pod
	// Pass is the ID of the record of its begin. It and the pod's namespace/name are zero once the outcome is
	// recorded.
	Pass      uint64        `json:"pass,omitempty"`
	Pod       string        `json:"pod,omitempty"`
	Grace     time.Duration `json:"grace,omitempty"`     // grace period
	Available int64         `json:"available,omitempty"` // of the signal when it began
	Free      int64         `json:"free,omitempty"`      // the same, see Observation.Free
	Expected  int64         `json:"expected"`            // yield when it began
	Need      int64         `json:"need"`                // of the pool when it began
	Outside   Amount        `json:"outside"`             // what was used outside the unprotected pods when it began
	Back      int64         `json:"back"`                // what came back from the sandbox
	Kept      int64         `json:"kept,omitempty"`      // memory that no stop of the pod gives back, see PodStops.KeptMemory
	Over      bool          `json:"over"`                // its resources are free again, or it was given up
	Judged    bool          `json:"judged"`
	// Fruitless means that the stop did not help. Its workload is not the cause, and gets no special treatment.
	Fruitless bool          `json:"fruitless"`
	CameBack  bool          `json:"came_back,omitempty"` // a stop of a sandbox that came back: it takes no budget
	Culprit   bool          `json:"culprit,omitempty"`
	LogsPlace               // of the pod
	Token     bool          `json:"token,omitempty"` // it took budget, and when
	Taken     time.Duration `json:"taken,omitempty"`
	// Waits are those of the disks that have chosen the pod, too, and wait for what it leaves there, at most one for each pool.
	Waits []Wait `json:"waits,omitempty"`

	met time.Duration // when its pod was last found to be back; 0 = never
}

// breaker counts a pool's fruitless stops in a row. It is open from BudgetConfig.Breaker on.
type breaker struct {
	Fruitless int           `json:"fruitless"`
	Last      []begun       `json:"last,omitempty"` // the last stops, at most BudgetConfig.Breaker, whether fruitless or not
	Pods      Amount        `json:"pods"`           // what the unprotected pods used at the last of them, or when it opened
	Need      int64         `json:"need"`           // by how much they have to grow to close it: by the pool's need then and what the last stops gave back
	Seen      time.Duration `json:"seen"`           // when the pool last had an episode
}

// counts reports whether there is anything to remember.
func (b *breaker) counts() bool { return b.Fruitless > 0 || len(b.Last) > 0 }

// begun is a stop that is judged together with the next ones.
type begun struct {
	Signal  Signal        `json:"signal"`
	Outside Amount        `json:"outside"`      // what was used outside the unprotected pods when it began
	Back    int64         `json:"back"`         // what came back
	At      time.Duration `json:"at,omitempty"` // when it began
}

// Restraint remembers stops and limits the next ones: by a budget per kind and per hour, by a back-off
// per workload, and by a breaker per pool. It marshals to JSON, so that a crash loop does not refill
// the budget.
//
// Time is the time since boot. If the clock moves back, ages stay the same, so the budget neither
// shrinks nor grows. A Restraint must be used from a single goroutine. The zero value allows no stops
// until Configure.
type Restraint struct {
	bootID   string
	budget   BudgetConfig
	backoff  BackoffConfig
	now      time.Duration // of the last call
	stops    []Stop        // oldest first
	breakers [PoolCount]breaker

	following bool // see FollowTrace

	// Protected are the pods that were protected when it was saved.
	Protected ProtectedPods
	// Limited are the pods that were stopped for their limits, by UID.
	Limited map[string]Limited // written by Limit
}

// Limits of the records, if stops come faster than they expire or if there is no hourly cap.
const (
	maxStops  = 1024
	maxInARow = 64 // no wait doubles more often
)

// NewRestraint returns a Restraint without stops, for the boot with that ID.
func NewRestraint(bootID string) *Restraint { return &Restraint{bootID: bootID} }

// Configure sets new limits. Earlier stops still count.
func (r *Restraint) Configure(budget BudgetConfig, backoff BackoffConfig) {
	r.budget, r.backoff = budget, backoff
}

func (b BudgetConfig) of(k Kind) Bucket {
	if k == Hard {
		return b.Hard
	}
	return b.Soft
}

// Check returns what would hold back a stop. A culprit at a hard threshold is never held back, because
// there is evidence that it is the cause, and a sandbox that came back takes no budget. A hard threshold
// never waits for a back-off. Nothing but the back-off restrains a drain.
func (r *Restraint) Check(s *Stop, now time.Duration) Held {
	r.at(now)
	hard := s.Cause == CausePressure && s.Kind == Hard
	if hard && s.Culprit {
		return Held{}
	}
	if s.Cause == CausePressure && r.isOpen(s.Pool) {
		return Held{By: HeldBreaker}
	}
	if wait := r.left(s); wait > 0 && !hard {
		return Held{By: HeldBackoff, RetryAfter: wait}
	}
	if s.CameBack || s.Cause.ByOperator() {
		return Held{}
	}
	return r.checkBudget(s.Kind)
}

func (r *Restraint) checkBudget(kind Kind) Held {
	if left, wait := r.allows(kind); left < 1 {
		return Held{By: HeldBudget, RetryAfter: wait}
	}
	return Held{}
}

// allows returns how many stops of a kind the budget allows now, and how long until it allows one.
func (r *Restraint) allows(kind Kind) (left int, wait time.Duration) {
	taken := r.taken(kind)
	left, wait, _ = r.budget.of(kind).after(taken, r.now)
	if per := r.budget.PerHour; per > 0 {
		left = min(left, per-inLastHour(taken, r.now))
		if left < 1 && len(taken) >= per {
			wait = max(wait, taken[len(taken)-per]+time.Hour-r.now)
		}
	}
	return max(left, 0), wait
}

// inLastHour returns how many of the times are less than an hour ago.
func inLastHour(times []time.Duration, now time.Duration) (n int) {
	for _, t := range times {
		if now-t < time.Hour {
			n++
		}
	}
	return n
}

// taken returns when the stops of a kind took budget, oldest first.
func (r *Restraint) taken(kind Kind) (at []time.Duration) {
	for i := range r.stops {
		if s := &r.stops[i]; s.Token && s.Kind == kind {
			at = append(at, s.Taken)
		}
	}
	slices.Sort(at) // a stop takes another token when it is escalated
	return at
}

// Begin records a stop that begins now, and takes its budget. It returns the workload's back-off.
func (r *Restraint) Begin(s Stop, now time.Duration) (backoff time.Duration) {
	r.at(now)
	s.At, s.Taken, s.Count = now, now, 1
	s.met = now // it may be back before anybody looks
	if last := r.last(func(l *Stop) bool { return l.Workload == s.Workload }); last != nil {
		s.Count = min(last.Count+1, maxInARow)
	}
	s.Token = !s.CameBack && !s.Cause.ByOperator() && (!s.Culprit || r.checkBudget(s.Kind).By == "")
	r.stops = append(r.stops, s)
	r.forget()
	return r.backoff.wait(s.Count)
}

// forget drops the records that no rule needs any more, and the oldest ones if there are too many: first
// those that took no budget.
func (r *Restraint) forget() {
	var busy [kindCount]time.Duration
	for k := range kindCount {
		_, _, busy[k] = r.budget.of(k).after(r.taken(k), r.now)
		busy[k] = min(busy[k], r.now-time.Hour)
	}
	r.stops = slices.DeleteFunc(r.stops, func(s Stop) bool { return !r.lasts(&s) && !r.isKept(&s) && (!s.Token || s.Taken < busy[s.Kind]) })
	for len(r.stops) > max(maxStops, 2*r.budget.PerHour) {
		i := max(slices.IndexFunc(r.stops, func(s Stop) bool { return !s.Token }), 0)
		r.stops = slices.Delete(r.stops, i, i+1)
	}
}

// Escalate records that a soft stop in flight became a hard one. It takes a hard token if there is one
// and no operator required the stop. Without one, a stop for a limit keeps its soft token: limits never go beyond the budgets.
func (r *Restraint) Escalate(sandbox string, now time.Duration) {
	r.at(now)
	if s := r.last(func(s *Stop) bool { return s.Sandbox == sandbox && !s.Over }); s != nil && s.Kind == Soft {
		if token := !s.Cause.ByOperator() && r.checkBudget(Hard).By == ""; token || s.Cause != CauseLimit {
			s.Kind, s.Taken, s.Token = Hard, now, token
		}
		s.Grace = max(now-s.At, 0) // the next run of the service gives it no other
	}
}

// Undo removes the record of a sandbox's last stop, because it killed nothing: the budget is as if the
// stop had never been taken. If the stop is over for its pool, only the disks do not wait for it any more.
func (r *Restraint) Undo(sandbox string) {
	for i := len(r.stops) - 1; i >= 0; i-- {
		if s := &r.stops[i]; s.Sandbox == sandbox {
			if s.Over {
				s.Waits = nil
			} else {
				r.stops = slices.Delete(r.stops, i, i+1)
			}
			return
		}
	}
}

// Sandboxes returns the recorded sandboxes that a stop has ended or is ending, and when it began.
func (r *Restraint) Sandboxes() map[string]time.Duration {
	all := make(map[string]time.Duration, len(r.stops))
	for i := range r.stops {
		all[r.stops[i].Sandbox] = r.stops[i].At
	}
	return all
}

// Judge decides whether the last stop for a pool was fruitless, once, when the pool's next victim would be
// chosen: if less than half of its expected yield came back, or if meanwhile the use outside the
// unprotected pods has grown by half of what came back. The same holds for as many stops together as open the
// breaker: with noise, or in quick succession, each may seem to have helped. outside returns that use, as of now,
// by the signal that a stop was for. pods is what the unprotected pods use now. Judge reports whether there was a
// stop to judge.
func (r *Restraint) Judge(p Pool, outside func(Signal) Amount, pods Amount, now time.Duration) bool {
	r.at(now)
	s := r.last(func(s *Stop) bool { return s.Cause == CausePressure && s.Pool == p })
	if s == nil || !s.Over || s.Judged {
		return false
	}
	s.Judged = true
	grew := func(since begun, back int64) bool {
		o := outside(since.Signal)
		return o.Known && since.Outside.Known && o.Value-since.Outside.Value >= back/2+back%2
	}
	this, b := begun{s.Signal, s.Outside, s.Back, s.At}, &r.breakers[p]
	s.Fruitless = grew(this, s.Back) || s.Back < s.Expected/2+s.Expected%2
	b.Last = append(b.Last, this)
	b.Last = b.Last[max(len(b.Last)-max(r.budget.Breaker, 1), 0):]
	back := int64(0)
	for _, l := range b.Last {
		back = addCapped(back, l.Back)
	}
	together := len(b.Last) == r.budget.Breaker && grew(b.Last[0], back)
	if b.Seen = now; !r.isOpen(p) {
		b.Pods, b.Need = pods, addCapped(s.Need, back)
	}
	switch {
	case together:
		b.Fruitless = max(b.Fruitless, r.budget.Breaker)
	case s.Fruitless:
		b.Fruitless = min(b.Fruitless+1, maxInARow)
	default:
		b.Fruitless = 0
	}
	return true
}

// Remembers reports whether stops are remembered.
func (r *Restraint) Remembers() bool { return len(r.stops) > 0 }

// Episode records that a pool has an episode, which keeps its breaker open. It closes the breaker if the
// unprotected pods have grown since, by what the pool needed beyond what the last stops gave back, and reports
// whether that changed anything. Pods that come back do not close it.
func (r *Restraint) Episode(p Pool, pods Amount, now time.Duration) (closed bool) {
	r.at(now)
	b := &r.breakers[p]
	b.Seen = now
	if r.isOpen(p) && pods.Known && b.Pods.Known && pods.Value-b.Pods.Value >= max(b.Need, 1) {
		*b = breaker{Seen: now}
		return true
	}
	return false
}

// Stopped reports whether a pod was stopped for a pool in the current episode, which began then.
func (r *Restraint) Stopped(p Pool, episode, now time.Duration) bool {
	r.at(now)
	return r.last(func(s *Stop) bool { return s.Cause == CausePressure && s.Pool == p && s.At >= episode }) != nil
}

// CameBack reports whether a sandbox is younger than a stop of its workload for a pool in the current
// episode, which began then. A fruitless stop shows that the workload is not the cause: a sandbox that is younger
// than that has not come back in this sense, and had is what the stop was expected to give back.
func (r *Restraint) CameBack(p Pool, workload string, created, episode, now time.Duration) (came bool, had int64) {
	r.at(now)
	first := sort.Search(len(r.stops), func(i int) bool { return r.stops[i].At >= episode })
	for i := first; i < len(r.stops); i++ {
		s := &r.stops[i]
		lasts := now-s.At < r.backoff.Reset // a record may last longer than the reset
		if r.backoff.First > 0 && s.Cause == CausePressure && s.Pool == p && s.Workload == workload && lasts {
			came, had = !s.Fruitless && (came || created > s.At), 0
			if s.Fruitless && created > s.At {
				had = s.Expected
			}
		}
	}
	return came, had
}

// left returns the rest of a workload's back-off. It applies to a sandbox that came back after a stop, that
// outlived its stop, or whose age is unknown. Another replica that has been there all the time is treated
// like any pod.
func (r *Restraint) left(s *Stop) time.Duration {
	var last *Stop
	applies := s.Created == 0
	for i := range r.stops {
		if l := &r.stops[i]; l.Workload == s.Workload {
			last = l
			applies = applies || s.Created > l.At || l.Sandbox == s.Sandbox
		}
	}
	if last == nil || !applies {
		return 0
	}
	return max(last.At+r.backoff.wait(last.Count)-r.now, 0)
}

// wait returns for how long a workload is in back-off after its last stop.
func (b BackoffConfig) wait(count int) time.Duration {
	wait := b.First
	for range count - 1 {
		if wait >= b.Max/2 {
			return max(b.Max, b.First)
		}
		wait *= 2
	}
	return wait
}

// lasts reports whether a stop still counts for its workload and its pool: until it is over, during its
// workload's back-off, and long enough to be judged.
func (r *Restraint) lasts(s *Stop) bool {
	return s.Pending() || r.now-s.At < max(r.remembers(), r.backoff.wait(s.Count))
}

// last returns the last stop that counts and that f selects, or nil.
func (r *Restraint) last(f func(*Stop) bool) *Stop {
	for i := len(r.stops) - 1; i >= 0; i-- {
		if s := &r.stops[i]; f(s) && r.lasts(s) {
			return s
		}
	}
	return nil
}

func (r *Restraint) isOpen(p Pool) bool {
	return r.budget.Breaker > 0 && r.breakers[p].Fruitless >= r.budget.Breaker
}

// Bucket is a rate limit for stops: a burst of Burst, and one more per Every. A Burst below 1 allows no
// stops; otherwise, an Every of 0 allows any number.
type Bucket struct {
	Burst int
	Every time.Duration
}

// after takes a token at each of the times, oldest first, if there is one. It returns how many are left at
// now, the time until there is one, and since when at least one has been missing: older stops do not count.
func (b Bucket) after(taken []time.Duration, now time.Duration) (left int, wait, since time.Duration) {
	if b.Every <= 0 || b.Burst < 1 || len(taken) == 0 {
		return max(b.Burst, 0), 0, now
	}
	full := taken[0] // when all tokens are back
	missing := func(at time.Duration) int { return int((full - at + b.Every - 1) / b.Every) }
	for _, t := range taken {
		if full <= t {
			full, since = t, t
		}
		if missing(t) < b.Burst {
			full += b.Every
		}
	}
	if full <= now {
		return b.Burst, 0, now
	}
	if left = b.Burst - missing(now); left < 1 {
		wait = full - time.Duration(b.Burst-1)*b.Every - now
	}
	return left, wait, since
}
