package policy

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Shortage is what a pool lacks, as its due thresholds see it, and how its pods are compared.
type Shortage struct {
	Due      []Met // the due thresholds of the pool, of the kind that is acted on
	Layout   Layout
	Keys     []Key
	Observed *Observations
	Before   *Observations // of the pass before; may be nil
	Samples  *Samples
	Pods     Amount // working set of the pods cgroup
	Now      time.Duration
}

// Lack is what a pool lacks, in its unit.
type Lack struct {
	Deficit int64
	Fill    int64 // how fast its signal falls, per second
	Outside int64 // the fall of the signal that the growth of the unprotected pods does not explain, per second
	Need    int64 // what has to come back for the pool to be above its target when a stop has taken effect

	whole int64 // Fill, had stops given nothing back meanwhile: they do not give that back again; negative if the signal rose even so
	back  int64 // what comes back from outside the unprotected pods, per second
	taken int64 // what was taken outside them within ten seconds, at most
	lasts bool  // see Samples.Lasts
}

// Why says by which rule a victim was chosen.
type Why uint8

// The rules that choose a victim.
const (
	ByRank     Why = iota // the first in the order whose stop helps
	ByCameBack            // its workload was stopped for this pool, and it has come back
	ByCulprit             // it fills the pool
)

// Reasons why Decide returns no victim.
const (
	HeldProtected = "protected"     // only stopping protected pods would bring relief
	HeldUnknown   = ExcludedUnknown // a pod whose usage is not known may be the one
	HeldOutside   = "outside pods"  // stopping pods would not bring relief
	HeldRecovers  = "recovering"    // what lacks comes back by itself, or is not needed soon
)

// Decision is the result of Decide, with everything that it rests on. Amounts are in the unit of the pool.
type Decision struct {
	Pool       Pool
	Met        Met      // the threshold that is acted on
	Ranked     []Ranked // in the order of stopping
	Victim     *Ranked  // in Ranked; nil = no pod is stopped
	Why        Why
	Held       string // why there is no victim
	Doubtful   bool   // Held rests only on what may be taken within the next seconds: what could be stopped covers the deficit
	Lack              // the largest of each that the thresholds lack
	Helps      int64  // the smallest yield that helps: a twentieth of Need
	Attainable bool   // stopping pods brings relief for at least 10 s
	Tiers      []int64
	Culprit    *Ranked // in Ranked: the victim if it fills the pool, or else the pod that fills it fastest; nil = none

	// Protected is in Ranked: the protected pod that grows fastest, if that explains half of Outside or more; nil = none.
	Protected *Ranked

	byCulprit bool  // the keys let a culprit be stopped first
	least     int64 // the smallest need of the due thresholds
}

// How long the pods that rank before a culprit have to carry the pool for the culprit to wait its turn,
// and how long relief has to last to be worth a pod.
const (
	carryCulprit  = 60 // seconds, for a culprit above its request
	carryCovered  = 10 // seconds, for a culprit within its request
	attainableFor = 10 // seconds
	lastsFor      = 60 // seconds that memory and swap have to last, so that a full swap costs no pod
	tierOfDeficit = 2  // a tier is enough if it yields the deficit divided by this
	carryDeletion = 30 // seconds, for what is being deleted from a disk
	lastSeconds   = 10 // seconds that have to be left while the budget holds back the other pods
	culpritOfNeed = 2  // a pod is a culprit if it grows by the need divided by this within the horizon
)

// Decide chooses the pod whose stop helps a pool, or returns why no pod is stopped.
//
//  1. Thresholds of swap are dropped while memory and swap together last for a minute.
//  2. A culprit is a pod that by itself grows by at least half of the need of a threshold within the horizon.
//     Such a pod above its request is the victim, unless the candidates that rank before it could carry the
//     pool for 60 s, at the rate at which it would fill if stops had just given nothing back. One within its
//     request is the victim only if the candidates above theirs could not carry it for 10 s. This rule needs
//     KeyCulprit.
//  3. Otherwise, thresholds whose signal recovers by itself are dropped: it still rises, and what comes back
//     from outside the pods makes up for the deficit within a second (on a disk, within 30). So are those for which the candidates
//     together do not yield the deficit and ten seconds of what grows outside the pods, or what was taken
//     there within the last ten. If none is left, no pod is stopped.
//  4. If the first key is KeyOverRequest, the candidates above their request are the first tier and the
//     others the second; otherwise there is one tier. The first tier that yields half of the deficit counts.
//  5. In it, the victim is the first candidate that came back, or else the first one, whose yield is at
//     least a twentieth of the need. If there is none, the tier's first candidate is the victim.
//
// The pods are ranked for one threshold: the one that the culprit fills, or else the first that is left. A further one counts
// if what the pods yield in that order is enough for it, too.
func Decide(cs []Candidate, q Shortage) Decision {
	d := Decision{Met: q.Due[0], Pool: q.Layout.Pool(q.Due[0].Signal)}
	base := q.Samples.base(q.Now, maxSampleAge)
	for i := range cs {
		cs[i].Growth, cs[i].New = q.Samples.Growth(&cs[i], d.Pool, q.Now), base.isNew(&cs[i], q.Now)
	}
	needs := q.needs(cs, d.Pool)
	d.lack(needs)
	if len(q.Keys) == 0 {
		q.Keys = DefaultKeys(d.Met.Signal.Resource())
	}
	d.byCulprit = slices.Contains(q.Keys, KeyCulprit)
	o := q.order(cs, d.Met.Signal) // of the threshold that is acted on
	var culprit *Ranked
	recovers := false
	attainable := make([]Lack, 0, len(needs))
	for i, n := range needs {
		if n.lasts {
			recovers = true
			continue
		}
		d.least = min(cmp.Or(d.least, n.Need), n.Need)
		this := o
		if q.Due[i].Signal != d.Met.Signal {
			this = q.order(cs, q.Due[i].Signal)
		}
		if d.byCulprit && culprit == nil {
			if culprit = this.culprit(d.Pool, &n); culprit != nil {
				d.Met, o = q.Due[i], this
				d.lack(needs[i : i+1])
			}
		}
		switch {
		case q.recovers(q.Due[i].Signal, n):
			recovers = true
		case this.relieves(&n):
			if !d.Attainable && culprit == nil {
				d.Met, o = q.Due[i], this
			}
			if d.Attainable = true; o.relieves(&n) {
				attainable = append(attainable, n)
			}
		}
	}
	d.Ranked = o.ranked
	for _, tier := range o.tiers {
		d.Tiers = append(d.Tiers, sum(tier))
	}
	if d.byCulprit {
		d.Culprit = fastest(o.candidates, func(r *Ranked) bool { return d.Fills(r.Growth.Value) })
	}
	switch {
	case culprit != nil:
		d.Victim, d.Why = culprit, ByCulprit
		d.front()
	case !d.Attainable && recovers:
		d.Held = HeldRecovers
	case !d.Attainable:
		d.Held, d.Doubtful = d.heldBack(cs, q)
	default:
		d.lack(attainable)
		d.chooseByRank(o.tiers)
	}
	d.Protected = fastest(d.Ranked, func(r *Ranked) bool {
		return r.Protection != "" && d.Outside > 0 && r.Growth.Value >= d.Outside-d.Outside/2
	})
	return d
}

// order is the pods' order for one threshold: in a pool, what a pod uses and gives back depends on the signal.
type order struct {
	ranked, candidates []Ranked
	tiers              [][]Ranked
}

func (q *Shortage) order(cs []Candidate, s Signal) order {
	o := order{ranked: Rank(cs, s, q.Layout, q.Keys)}
	o.candidates = before(o.ranked, func(r *Ranked) bool { return r.Excluded != "" })
	o.tiers = [][]Ranked{o.candidates}
	first := slices.IndexFunc(q.Keys, func(k Key) bool { return k != KeyCulprit })
	if first >= 0 && q.Keys[first] == KeyOverRequest {
		over := before(o.candidates, func(r *Ranked) bool { return !r.Over })
		o.tiers = [][]Ranked{over, o.candidates[len(over):]}
	}
	return o
}

// before returns the pods before the first one for which f is true.
func before(ranked []Ranked, f func(*Ranked) bool) []Ranked {
	for i := range ranked {
		if f(&ranked[i]) {
			return ranked[:i]
		}
	}
	return ranked
}

// contains reports whether f is true for one of the pods.
func contains(ranked []Ranked, f func(*Ranked) bool) bool {
	return len(before(ranked, f)) < len(ranked)
}

// needs returns what each due threshold lacks.
func (q *Shortage) needs(cs []Candidate, pool Pool) []Lack {
	needs := make([]Lack, len(q.Due))
	for i, m := range q.Due {
		n := Lack{Deficit: max(m.Deficit, 1)}
		o := q.Observed.level(m.Signal)
		fall, outside := q.Samples.fall(m.Signal, o, cs, q.Pods, q.Now)
		n.Fill, n.Outside, n.back = max(fall, 0), max(outside, 0), max(-outside, 0)
		n.whole = addCapped(fall, q.Samples.gaveBack(pool, q.Now))
		if pool.IsDisk() { // the pods' growth is not known, but what they write lowers the signal
			n.back = times(max(-fall, 0), carryDeletion)
		}
		n.taken = q.Samples.taken(m.Signal, o, cs, q.Pods, q.Now)
		n.Need = max(addCapped(m.Lack, times(n.Fill, pool.Horizon())), 1)
		n.lasts = q.Samples.Lasts(m.Signal, q.Observed, q.Now)
		needs[i] = n
	}
	return needs
}

// recovers reports whether a signal still rises, and what comes back from outside the pods makes up for its deficit
// within a second. That rate alone is not enough: it is an average over a second or more. A disk whose files are being deleted
// has longer, because a stop has no effect before that either. For it, the rate is enough: the filesystem gives back in lumps, and others
// write meanwhile.
func (q *Shortage) recovers(s Signal, n Lack) bool {
	if q.Before == nil || n.back < n.Deficit {
		return false
	}
	before, now := q.Before.level(s), q.Observed.level(s)
	return before.usable() && (now.Free() > before.Free() || s.IsDisk())
}

// lack sets what the pool lacks: the largest of each.
func (d *Decision) lack(needs []Lack) {
	var most Lack
	for _, n := range needs {
		most.Deficit, most.Fill = max(most.Deficit, n.Deficit), max(most.Fill, n.Fill)
		most.Outside, most.Need = max(most.Outside, n.Outside), max(most.Need, n.Need)
	}
	d.Lack, d.Helps = most, twentieth(most.Need)
}

// relieves reports whether the candidates together yield the deficit of a threshold and what is taken outside the pods.
func (o *order) relieves(n *Lack) bool {
	return sum(o.candidates) >= addCapped(n.Deficit, max(times(n.Outside, attainableFor), n.taken))
}

// culprit returns the culprit for a threshold that is stopped first, or nil: the one that grows fastest of those for which no
// other pods can carry the pool.
func (o *order) culprit(p Pool, n *Lack) *Ranked {
	over := int64(0) // what the candidates above their request yield
	for i := range o.candidates {
		if o.candidates[i].Over {
			over = addCapped(over, o.candidates[i].Yield)
		}
	}
	sumBefore := int64(0)
	return fastest(o.candidates, func(c *Ranked) bool {
		others, fill, seconds := over, n.Fill, int64(carryCovered)
		if c.Over {
			others, fill, seconds = sumBefore, max(n.Fill, min(c.Growth.Value, n.whole)), carryCulprit
		}
		sumBefore = addCapped(sumBefore, c.Yield)
		return fills(c.Growth.Value, p, n.Need) && others < addCapped(n.Deficit, times(fill, seconds))
	})
}

// fastest returns the pod that grows fastest of those for which f is true, or nil. f is called for each, in their order.
func fastest(pods []Ranked, f func(*Ranked) bool) (most *Ranked) {
	for i := range pods {
		if c := &pods[i]; f(c) && c.Growth.Known && (most == nil || c.Growth.Value > most.Growth.Value) {
			most = c
		}
	}
	return most
}

// Fills reports whether a pod that grows by so much per second is a culprit for one of the due thresholds.
func (d *Decision) Fills(growth int64) bool { return d.least > 0 && fills(growth, d.Pool, d.least) }

func fills(growth int64, p Pool, need int64) bool {
	return times(max(growth, 0), culpritOfNeed*p.Horizon()) >= need
}

// TakeCulprit makes the pod above its request that grows fastest the victim, because the pods that rank before it
// must not be stopped before wait is over (0 = it does not end with time). The pod has to be a culprit, or use up
// by itself what is left before that, within ten seconds. TakeCulprit reports whether there is such a pod. One
// within its request does not count: its request is a promise that the pods above theirs are stopped before it as
// long as they could bring relief, and a used-up budget does not break it.
func (d *Decision) TakeCulprit(wait time.Duration) bool {
	if !d.byCulprit || d.Why == ByCulprit {
		return false
	}
	taken := fastest(d.Ranked, func(r *Ranked) bool {
		return r.Over && r.Excluded == "" && (d.Fills(r.Growth.Value) || d.usesUp(r, wait))
	})
	if taken == nil {
		return false
	}
	d.Victim, d.Why = taken, ByCulprit
	d.front()
	return true
}

// usesUp reports whether a pod uses up by itself what is left before the wait is over, within ten seconds. A new sandbox is
// expected to take as much again, but no more: the memory of its start does not show a rate. If nothing is left, a pod that does not
// grow has not used it up.
func (d *Decision) usesUp(r *Ranked, wait time.Duration) bool {
	seconds := min(int64(wait/time.Second), lastSeconds)
	if r.New {
		seconds = min(seconds, 1)
	}
	return seconds > 0 && r.Growth.Value > 0 && !d.Met.Signal.IsEvidence() && times(r.Growth.Value, seconds) >= d.Met.Available
}

// chooseByRank chooses in the first tier that yields enough.
func (d *Decision) chooseByRank(tiers [][]Ranked) {
	tier := tiers[0]
	if len(tiers) > 1 && d.Tiers[0] < d.Deficit/tierOfDeficit+d.Deficit%tierOfDeficit {
		tier = tiers[1]
	}
	for _, why := range []Why{ByCameBack, ByRank} {
		for i := range tier {
			if r := &tier[i]; r.Yield >= d.Helps && (why == ByRank || r.CameBack) {
				d.Victim, d.Why = r, why
				return
			}
		}
	}
	d.Victim = &tier[0]
}

// front moves the culprit, which is stopped first, to the front of the order.
func (d *Decision) front() {
	at := d.Victim.Position - 1
	c := d.Ranked[at]
	copy(d.Ranked[1:at+1], d.Ranked[:at])
	d.Ranked[0] = c
	for i := range at + 1 {
		d.Ranked[i].Position = i + 1
	}
	r := &d.Ranked[0]
	d.Victim, d.Culprit = r, r
	for i := range r.Keys {
		if r.Keys[i].Key == KeyCulprit {
			r.Keys[i].Value = 1
		}
	}
}

// heldBack returns why no pod is stopped where relief is not attainable, and whether that is doubtful.
func (d *Decision) heldBack(cs []Candidate, q Shortage) (held string, doubtful bool) {
	if contains(d.Ranked, func(r *Ranked) bool { return r.Protection == "" && !r.Known() }) {
		return HeldUnknown, false
	}
	covered := func(ranked []Ranked) bool {
		return sum(before(ranked, func(r *Ranked) bool { return r.Excluded != "" })) >= d.Deficit
	}
	if !contains(d.Ranked, func(r *Ranked) bool { return r.Protection != "" }) {
		return HeldOutside, covered(d.Ranked)
	}
	lifted := slices.Clone(cs)
	for i := range lifted {
		lifted[i].Protection = ""
	}
	// What was noted as taken outside the pods includes what the protected ones have taken.
	q.Samples = &Samples{kept: q.Samples.kept, swap: q.Samples.swap}
	l := Decide(lifted, q)
	if l.Victim != nil {
		return HeldProtected, covered(d.Ranked)
	}
	return HeldOutside, covered(l.Ranked)
}

// sum returns what all the candidates yield together.
func sum(candidates []Ranked) (yields int64) {
	for i := range candidates {
		yields = addCapped(yields, candidates[i].Yield)
	}
	return yields
}

// times returns n×k for n ≥ 0 and k > 0. The product saturates.
func times(n, k int64) int64 {
	if n > math.MaxInt64/k {
		return math.MaxInt64
	}
	return n * k
}
