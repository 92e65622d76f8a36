package policy

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Ranked is a pod's place in the order of stopping, with the values behind it.
type Ranked struct {
	Candidate
	Position int        // 1 = stopped first; 0 = excluded
	Keys     []KeyValue // in the order of comparison
	Usage    int64      // of the ranked resource; 0 if unknown
	Request  int64      // in the same unit
	Quality  Quality    // of the usage
	Over     bool       // the usage is above the request, as the ranking counts it
	Yield    int64      // what a stop gives back; 0 if unknown
	Excluded string     // why it is not a candidate; "" = it is one

	above  int64 // usage − request; Unknown if the usage is
	beyond int64 // for a Guaranteed pod that seems to use more than its request: less, the more it does
}

// Reasons why an unprotected pod is not a candidate.
const (
	ExcludedUnknown  = "usage unknown"
	ExcludedTooSmall = "its stop would give nothing back"
	ExcludedSurvived = "its last stop killed nothing"
	ExcludedEnded    = "its last stop has ended it"
)

// Known reports whether the usage is known, exactly or at least in part.
func (r *Ranked) Known() bool { return r.Quality != QualityUnknown }

// Rank orders the pods for a signal: first the candidates in the order of the keys, then the excluded
// pods. [Decide] chooses the victim from this order.
//
// The order is total and does not depend on the order of cs: by the keys (DefaultKeys if there are none),
// then larger usage − request, then younger, then ID. A Guaranteed pod is never above its memory request:
// its request counts as at least its usage. KeyCulprit does not change the order: Decide knows the culprit.
//
// A candidate is not protected, its usage is known, its stop gives back more than next to nothing, and it
// neither survived a stop just before nor was ended by one. An unknown usage never counts as 0, and such a pod is never stopped.
func Rank(cs []Candidate, s Signal, l Layout, keys []Key) []Ranked {
	if len(keys) == 0 {
		keys = DefaultKeys(s.Resource())
	}
	ranked := make([]Ranked, len(cs))
	order := make([]int, len(cs))
	values := make([]KeyValue, 0, len(cs)*len(keys))
	for i := range cs {
		r := &ranked[i]
		r.Candidate = cs[i]
		r.measure(s, l)
		from := len(values)
		for _, k := range keys {
			values = append(values, KeyValue{k, r.value(k)})
		}
		r.Keys, order[i] = values[from:len(values):len(values)], i
	}
	slices.SortFunc(order, func(a, b int) int { return ranked[a].compare(&ranked[b]) })
	for i, from := range order {
		for from < i { // it was swapped to make room
			from = order[from]
		}
		ranked[i], ranked[from] = ranked[from], ranked[i]
		if ranked[i].Excluded == "" {
			ranked[i].Position = i + 1
		}
	}
	return ranked
}

// measure sets what the ranking needs of the usage.
func (r *Ranked) measure(s Signal, l Layout) {
	floor := l.Pool(s).floor()
	used := r.usage(s, l)
	r.Quality, r.Request, r.above = used.Quality, max(r.request(s), 0), Unknown
	if r.Known() {
		r.Usage = max(used.Value, 0)
		r.Yield, r.above = r.yield(s, l, r.Usage), r.Usage-r.Request
		if r.covered(s) && r.above > 0 {
			r.above, r.beyond = 0, math.MaxInt64-r.above // last among its equals; among such pods the larger one first
		}
		r.Over = r.above > 0
	}
	switch {
	case r.Protection != "":
		r.Excluded = r.Protection
	case !r.Known():
		r.Excluded = ExcludedUnknown
	case r.Ended:
		r.Excluded = ExcludedEnded
	case r.Yield < floor:
		r.Excluded = ExcludedTooSmall
	case r.Survived:
		r.Excluded = ExcludedSurvived
	}
}

// value returns the value of a key.
func (r *Ranked) value(k Key) int64 {
	switch {
	case k == KeyPriority:
		return r.Priority
	case k == KeyOverRequest && r.Known():
		return min(max(r.above, 0), 1)
	case k == KeyUsage && r.Known():
		return r.above
	case k == KeyGrowth && r.Growth.Known:
		return r.Growth.Value
	case k == KeyQoS:
		return int64(r.QoS)
	case k == KeyCulprit:
		return 0
	default:
		return Unknown
	}
}

func (r *Ranked) compare(o *Ranked) int {
	if (r.Excluded == "") != (o.Excluded == "") {
		return cmp.Compare(min(len(r.Excluded), 1), min(len(o.Excluded), 1))
	}
	for i, k := range r.Keys {
		if c := cmp.Compare(o.Keys[i].Value, k.Value); c != 0 && k.Key == KeyPriority {
			return -c
		} else if c != 0 {
			return c
		}
	}
	return cmp.Or(
		cmp.Compare(o.above, r.above), cmp.Compare(r.beyond, o.beyond), cmp.Compare(o.Created, r.Created), strings.Compare(r.ID, o.ID),
	)
}
