package fleet

import (
	"math/rand/v2"
	"time"

	"github.com/criguard/criguard/policy"
)

// tokens is a bucket that starts empty, with the first token after a random part of its period: many nodes that start
// together then act at an even rate.
type tokens struct {
	limit policy.Bucket
	on    bool
	first time.Duration // when there is the first token, since boot; 0: not drawn yet
}

// trickleShare is by how much the trickle is slower than the local soft budget.
const trickleShare = 10

// slowest is the longest period of a bucket. It keeps the arithmetic of times from overflowing.
const slowest = 10 * 365 * 24 * time.Hour

// trickleOf returns the limit of the trickle: a tenth of the local soft rate, without a burst.
func trickleOf(soft policy.Bucket) policy.Bucket {
	return policy.Bucket{Burst: 1, Every: localOf(soft).Every * trickleShare}
}

// localOf returns the limit of a lonely node: the local soft budget.
func localOf(soft policy.Bucket) policy.Bucket {
	return policy.Bucket{Burst: max(soft.Burst, 1), Every: min(max(soft.Every, 0), slowest)}
}

// fill switches the bucket on or off. A bucket that is switched on is empty. It keeps its random instants, so that nodes
// whose buckets are switched on and off stay spread over the period, and a token that was taken stays taken. No token comes later
// than a period from now.
func (t *tokens) fill(on bool, now time.Duration, rnd *rand.Rand) {
	every := t.limit.Every
	if t.first > now+every { // the period was longer
		t.first = now + (t.first-now)%max(every, 1)
	}
	switch {
	case t.on || !on:
	case t.first == 0:
		t.first = now + random(rnd, every)
	case t.first < now && every > 0:
		t.first += (now - t.first + every - 1) / every * every
	}
	t.on = on
}

// lapse is how long a token that is due outlives a restart.
const lapse = time.Minute

// restore continues a bucket after a restart. Tokens that came while the program was away for long lapse: after a mistake
// in a configuration, all nodes may come back within a minute.
func (t *tokens) restore(s SavedTokens, now time.Duration) {
	t.first, t.on = s.First, s.On && s.First+lapse >= now
}

// take takes a token. The caller has checked that there is one.
func (t *tokens) take(now time.Duration) {
	full := t.first + time.Duration(t.limit.Burst-1)*t.limit.Every
	t.first += t.limit.Every + max(now-full, 0)
}
