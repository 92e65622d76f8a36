package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/criguard/criguard/policy"
)

// Times of a node that the fleet does not answer.
const (
	trickleAfter = 2 * time.Minute  // alone for this long: the trickle
	localAfter   = 15 * time.Minute // alone for this long: the local soft budget
)

// zeroRetry is how long a node waits at least after a denial at rate 0. It asks again with its next contact, so within
// 45 s.
const zeroRetry = 15 * time.Second

// FirstContact is the reason of a pool that has not asked the fleet yet.
const FirstContact = "waiting for the first contact"

// Verdict is what a pool may do now.
type Verdict uint8

// The verdicts.
const (
	Hold    Verdict = iota // wait
	Ask                    // ask the fleet
	Permit                 // stop a pod with the fleet's permit
	Trickle                // stop a pod with a token of the trickle
	Local                  // stop a pod with a token of the local soft budget
)

// Turn is the verdict on a pool at one moment.
type Turn struct {
	Verdict Verdict
	Reason  string        // why the stop is held; "" if it is not
	Until   time.Duration // since boot, when the verdict changes without an event; 0: never
}

// Grant is a permit of the fleet for one soft stop.
type Grant struct {
	ID       string
	Deadline time.Duration // since boot; the permit is void from then on
}

// Counts is how many soft stops a node made. The fleet knows only of those with a permit, not of those with a token.
type Counts struct {
	Permits int `json:"permits"` // with a permit of the fleet
	Trickle int `json:"trickle"` // with a token of the trickle
	Local   int `json:"local"`   // with a token of the local soft budget
}

// Waiter waits for permits for all pools of one node. An episode of a pool begins when it wants a soft stop, and ends
// when it does not any more. It is a state machine in virtual time: every method is given the time since boot, which
// does not go back.
type Waiter struct {
	patience time.Duration
	rnd      *rand.Rand
	beat     beat
	now      time.Duration
	paused   time.Duration // until then
	link     link
	waits    [policy.PoolCount]*wait // nil: no episode
	trickle  tokens
	local    tokens
	counts   Counts
}

// wait is a pool's episode.
type wait struct {
	held   time.Duration // how long the fleet has held the stop
	ask    time.Duration // not before
	reason string        // of the last denial
	grant  Grant         // zero if there is no permit
}

// NewWaiter returns the waiter of a node with a local soft budget. Its random delays are drawn from rnd.
func NewWaiter(patience time.Duration, soft policy.Bucket, rnd *rand.Rand) *Waiter {
	return &Waiter{
		patience: patience, rnd: rnd, beat: newBeat(contactPeriod, rnd),
		trickle: tokens{limit: trickleOf(soft)}, local: tokens{limit: localOf(soft)},
	}
}

// SetSoft changes the node's local soft budget. Tokens that were taken stay taken.
func (w *Waiter) SetSoft(soft policy.Bucket) {
	w.trickle.limit, w.local.limit = trickleOf(soft), localOf(soft)
}

// SetContactPeriod changes the 30 s in which a node contacts the fleet once.
func (w *Waiter) SetContactPeriod(d time.Duration) { w.beat = newBeat(d, w.rnd) }

// NextContact returns when the node may next make a contact that other nodes may make at the same time.
func (w *Waiter) NextContact(now time.Duration) time.Duration { return w.beat.after(now) }

// Begin starts an episode of a pool, unless it has one. Its first contact comes with NextContact.
func (w *Waiter) Begin(p policy.Pool, now time.Duration) {
	w.advance(now)
	if p < policy.PoolCount && w.waits[p] == nil {
		w.waits[p] = &wait{ask: w.beat.after(now), reason: FirstContact}
	}
}

// episode returns the episode of a pool, or nil.
func (w *Waiter) episode(p policy.Pool) *wait {
	if p >= policy.PoolCount {
		return nil
	}
	return w.waits[p]
}

// End ends the episode of a pool. It returns the permit that must be given back, if it has one.
func (w *Waiter) End(p policy.Pool, now time.Duration) (Grant, bool) {
	g, ok := w.Release(p, now)
	if p < policy.PoolCount {
		w.waits[p] = nil
	}
	return g, ok
}

// Release returns the permit of a pool that refuses to use it, so that it must be given back.
func (w *Waiter) Release(p policy.Pool, now time.Duration) (Grant, bool) {
	w.advance(now)
	e := w.episode(p)
	if e == nil || e.grant == (Grant{}) {
		return Grant{}, false
	}
	g := e.grant
	e.grant = Grant{}
	return g, true
}

// PauseTolerance is how exactly the end of a pause is known.
const PauseTolerance = 5 * time.Second

// Paused returns until when soft stops are suspended, in time since boot; 0 = they are not.
func (w *Waiter) Paused() time.Duration { return w.paused }

// Pause suspends soft stops until a time since boot; 0 resumes them. It holds while the node is alone, too, because
// a pause has a mandatory end.
func (w *Waiter) Pause(until, now time.Duration) {
	w.advance(now)
	w.paused = until
}

// Reached records a successful round trip to the fleet.
func (w *Waiter) Reached(now time.Duration) {
	w.advance(now)
	if !w.link.alone && !w.isHeld(now) {
		w.Idle() // no pool repeats a request that failed, so that nothing would end the failure
	}
	w.link.reached(now, w.beat)
}

// isHeld reports whether the fleet holds a pool's stop, which asks again.
func (w *Waiter) isHeld(now time.Duration) bool {
	return slices.ContainsFunc(w.waits[:], func(e *wait) bool { return e != nil && w.phase(e, now) == held })
}

// Failed records a round trip that began at a time and failed, for any reason.
func (w *Waiter) Failed(began, now time.Duration) {
	w.advance(now)
	w.link.failed(began, now, w.beat)
}

// Refused records a request for a permit that began at a time and failed, for any reason. A denial is an answer.
func (w *Waiter) Refused(began, now time.Duration) {
	w.Failed(began, now)
	w.link.refused = true
}

// Idle notes that no permit is requested now. A request that failed before does not matter any more.
func (w *Waiter) Idle() { w.link.refused = false }

// answered records a request for a permit that was answered.
func (w *Waiter) answered(now time.Duration) {
	w.link.refused = false
	w.Reached(now)
}

// Contact returns when the node has to make a round trip to learn whether the fleet answers again, and false if there
// is no need for it.
func (w *Waiter) Contact() (at time.Duration, due bool) { return w.link.next, w.link.failing }

// Alone returns for how long the node has been alone, and false if it is not.
func (w *Waiter) Alone(now time.Duration) (time.Duration, bool) {
	since, alone := w.link.aloneSince()
	return now - since, alone
}

// Denied answers a request of a pool.
func (w *Waiter) Denied(p policy.Pool, d Denial, now time.Duration) {
	w.answered(now)
	e := w.episode(p)
	if e == nil {
		return
	}
	e.reason = d.Reason
	if e.ask = now + d.Left + random(w.rnd, d.spread()); d.Slot <= 0 {
		e.ask = w.beat.after(now + zeroRetry)
	}
}

// Changed notes that a pool's next request is for another workload than the one that was denied. It may be free, so it is
// asked for soon.
func (w *Waiter) Changed(p policy.Pool, now time.Duration) {
	w.advance(now)
	if e := w.episode(p); e != nil && e.ask > now {
		e.ask, e.reason = min(e.ask, w.beat.after(now)), FirstContact
	}
}

// Granted answers a request of a pool. It returns false if the pool needs no permit any more, so that it must be given
// back. A permit ends the episode's wait only when it is used: one may come too late each time.
func (w *Waiter) Granted(p policy.Pool, g Grant, now time.Duration) bool {
	w.answered(now)
	e := w.episode(p)
	if e != nil {
		e.grant = g
	}
	return e != nil
}

// Stop takes the permit or the token that a pool's turn offers, and reports which. Without one it returns Hold.
func (w *Waiter) Stop(p policy.Pool, now time.Duration) Verdict {
	t := w.Turn(p, now)
	switch t.Verdict {
	case Permit:
		w.waits[p].grant, w.waits[p].held = Grant{}, 0
		w.counts.Permits++
	case Trickle:
		w.trickle.take(now)
		w.counts.Trickle++
	case Local:
		w.local.take(now)
		w.counts.Local++
	default:
		return Hold
	}
	return t.Verdict
}

// Counts returns the number of soft stops by their source.
func (w *Waiter) Counts() Counts { return w.counts }

// Turn returns the verdict on a pool. After Ask, the caller makes one request, and reports its result with Denied,
// Granted or Refused before the next turn of the pool.
func (w *Waiter) Turn(p policy.Pool, now time.Duration) Turn {
	w.advance(now)
	e := w.episode(p)
	if e == nil {
		return Turn{Reason: "no episode"}
	}
	lonely, alone := w.Alone(now)
	switch is := w.phase(e, now); {
	case is == paused:
		return Turn{Reason: "soft stops are paused", Until: w.paused}
	case is == permitted:
		return Turn{Verdict: Permit, Until: e.grant.Deadline}
	case alone && w.link.retries(now):
		return Turn{Verdict: Ask}
	case is == local:
		return w.local.turn(Local, fmt.Sprintf("alone for %s, local budget", policy.ShortDuration(lonely.Round(time.Second))), now)
	case is == trickling:
		reason, end := fmt.Sprintf("held for %s, soft stops at a tenth", policy.ShortDuration(w.patience)), time.Duration(0)
		if alone {
			reason, end = fmt.Sprintf("alone for %s, soft stops at a tenth", policy.ShortDuration(lonely.Round(time.Second))), now-lonely+localAfter
		}
		t := w.trickle.turn(Trickle, reason, now)
		if t.Verdict == Hold && end > 0 {
			t.Until = min(t.Until, end)
		}
		return t
	}
	over := now + w.patience - e.held
	if alone {
		return Turn{Reason: "alone", Until: min(over, now-lonely+trickleAfter)}
	}
	due := e.ask
	if w.paused > 0 { // the end of a pause comes to all nodes at once
		due = max(due, w.beat.after(w.paused))
	}
	if !w.link.retries(now) {
		due = max(due, w.link.next)
	}
	if due > now {
		return Turn{Reason: e.reason, Until: min(over, due)}
	}
	return Turn{Verdict: Ask, Until: over}
}

// turn returns the verdict if there is a token.
func (t *tokens) turn(v Verdict, reason string, now time.Duration) Turn {
	if t.first > now {
		return Turn{Reason: reason, Until: t.first}
	}
	return Turn{Verdict: v}
}

// phase is the row of the rules that an episode is in.
type phase uint8

const (
	held      phase = iota // by the fleet, or because the node has just become alone
	paused                 // by an operator
	permitted              // it has a permit
	trickling              // patience is over, or the node is alone for some minutes
	local                  // alone for long
)

func (w *Waiter) phase(e *wait, now time.Duration) phase {
	lonely, alone := w.Alone(now)
	switch {
	case now < w.paused:
		return paused
	case now < e.grant.Deadline:
		return permitted
	case alone && lonely >= localAfter:
		return local
	case alone && lonely >= trickleAfter || e.held >= w.patience:
		return trickling
	default:
		return held
	}
}

// advance moves the waiter to a time. An episode's patience runs while the fleet holds it, and not during a pause or
// while it has tokens.
func (w *Waiter) advance(now time.Duration) {
	trickles, locals := false, false
	for _, e := range w.waits {
		if e == nil {
			continue
		}
		if w.phase(e, w.now) == held {
			e.held += now - w.now
		}
		if e.grant != (Grant{}) && now >= e.grant.Deadline {
			e.grant, e.ask = Grant{}, now
		}
		p := w.phase(e, now)
		trickles, locals = trickles || p == trickling, locals || p == local
	}
	w.now = now
	w.trickle.fill(trickles, now, w.rnd)
	w.local.fill(locals, now, w.rnd)
}
