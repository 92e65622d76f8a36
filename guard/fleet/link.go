package fleet

import (
	"math/rand/v2"
	"time"
)

// Times of the connection to the fleet.
const (
	// ContactTimeout limits each round trip.
	ContactTimeout = 5 * time.Second
	// contactPeriod is the longest delay of the first contact of an episode, and of each contact after one that failed.
	contactPeriod = 30 * time.Second
	// aloneAfter is how long contacts fail until the node is alone.
	aloneAfter = 15 * time.Second
	// sleptAfter is how late a contact is that a node has slept before. One of many round trips may be a little late.
	sleptAfter = time.Minute
	// stableFor is how long contacts succeed until the node is no longer alone.
	stableFor = 2 * time.Minute
)

// beat is a random place in each contactPeriod since boot, where a node makes the contacts that other nodes may make at
// the same time: 10,000 nodes then make 333 handshakes a second, whatever makes them do so and however often it fails. A
// delay drawn anew for each contact would make twice as many, because its mean is half the period.
type beat struct{ place, period time.Duration }

func newBeat(period time.Duration, rnd *rand.Rand) beat {
	return beat{time.Duration(rnd.Int64N(int64(period))), period}
}

// after returns the first instant after now.
func (b beat) after(now time.Duration) time.Duration {
	at := now - now%b.period + b.place
	if at <= now {
		at += b.period
	}
	return at
}

// link is the connection to the fleet as the node's round trips show it. Every failure counts alike: unreachable, no
// leader, no space, permission denied. All times are since boot.
type link struct {
	failing bool          // the last contact failed, or the node is alone
	since   time.Duration // the first contact that failed began then
	alone   bool          // no contact succeeded for aloneAfter
	stable  time.Duration // first success since the last failure, while alone
	returns bool          // there was one
	next    time.Duration // when the next contact is due, while failing
	// A request for a permit failed, and none was answered since. An etcd without space answers reports, which read and
	// renew, so they do not end the failure.
	refused bool
}

// aloneSince returns since when the node is alone, and false if it is not.
func (l *link) aloneSince() (time.Duration, bool) { return l.since + aloneAfter, l.alone }

// reached records a successful round trip.
func (l *link) reached(now time.Duration, b beat) {
	if !l.refused && (!l.alone || l.isStable(now)) {
		*l = link{}
		return
	}
	if !l.returns {
		l.returns, l.stable = true, now
	}
	l.next = b.after(now)
}

// isStable reports whether contacts have succeeded for long enough.
func (l *link) isStable(now time.Duration) bool { return l.returns && now-l.stable >= stableFor }

// retries reports whether a request for a permit is due after one that failed: contacts succeed again, those of a node that
// is alone for long enough.
func (l *link) retries(now time.Duration) bool {
	return l.refused && l.returns && (!l.alone || l.isStable(now))
}

// failed records a round trip that began at a time and failed. The delay before the next one is no failure, so only
// a contact that fails shows that a node is alone. One that took longer than a round trip can was interrupted: the node slept. A
// later one that ends long after it was due shows a sleep, too, before it or during it.
func (l *link) failed(began, now time.Duration, b beat) {
	if late := now - ContactTimeout - l.next; !l.failing {
		l.failing, l.since = true, max(began, now-ContactTimeout)
	} else if late > sleptAfter {
		l.since += late
	}
	l.alone = l.alone || now-l.since >= aloneAfter
	l.returns, l.next = false, b.after(now)
}

// random returns a random duration from 0 to most.
func random(rnd *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(rnd.Int64N(int64(max(most, 0)) + 1))
}
