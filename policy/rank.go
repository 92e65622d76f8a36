package policy

import (
	"cmp"
	"slices"
	"strings"
)

// Ranked is a pod's place in the order of stopping, and what it rests on.
type Ranked struct {
	Candidate
	Position int        // 1 = stopped first; 0 = excluded
	Keys     []KeyValue // in the order they were compared
	Usage    int64      // of what the signal ranks; 0 when not known
	Request  int64      // in the same unit
	Known    bool       // whether the usage is
	Frees    int64      // what a stop gives back; 0 when not known
	ByMemory bool       // for swap: what it has there is not known, and the usage is its memory
	Excluded string     // why it is no candidate; "" = it is one
}

// Why a pod that is not protected is no candidate.
const (
	ExcludedUsesNone = "cannot help: uses none of it"
	ExcludedTooSmall = "cannot help: under 1 % of the deficit"
)

// Rank orders the pods for a signal: the candidates first, in the order in which
// they are to be stopped, then those that are excluded.
//
// The order is total and independent of the order of cs: usage that is not known
// last, then the keys (DefaultKeys when there are none), then larger usage −
// request, the younger, the ID. Excluded are protected pods; those that are known
// to use nothing of the resource; and those known to use less than 1 % of the
// deficit while another pod, protected or not, has more than that: stopping the
// small for what a large one does is a wrong stop, also where the large one may
// not be stopped. Where none has 1 %, whoever uses any is a candidate, but on disks
// and in swap those that have next to nothing are none: what fills it is no pod's, or
// that of one that was stopped and not removed yet. That last rule needs a deficit above 0
// in the unit of the usage, so it is not applied to stalls.
//
// Pods are ranked for swap by swap alone, which is what a stop gives back of it. Where no
// pod is known to have any, those of which it is not known rank by memory (ByMemory):
// what goes to swap is memory.
func Rank(cs []Candidate, s Signal, l Layout, keys []Key, deficit int64) []Ranked {
	if len(keys) == 0 {
		keys = DefaultKeys(s.Resource())
	}
	keys = distinct(keys)
	byMemory := s == SwapAvailable && !anySwap(cs)
	places := make([]place, len(cs))
	order := make([]*place, len(cs))
	for i := range cs {
		places[i] = measure(&cs[i], s, l, byMemory)
		order[i] = &places[i]
	}
	least := leastHelp(places, s, byMemory, deficit)
	for i := range places {
		places[i].weigh(keys, least)
	}
	slices.SortFunc(order, func(a, b *place) int { return a.compare(b, len(keys)) })
	ranked := make([]Ranked, len(cs))
	values := make([]KeyValue, 0, len(cs)*len(keys))
	for i, p := range order {
		from := len(values)
		for j, k := range keys {
			values = append(values, KeyValue{k, k.value(p.keys[j])})
		}
		ranked[i] = Ranked{
			Candidate: *p.Candidate, Keys: values[from:len(values):len(values)],
			Usage: p.usage, Request: p.request, Known: !p.unknown, Frees: p.usage, ByMemory: p.byMemory, Excluded: p.why(),
		}
		if !p.excluded {
			ranked[i].Position = i + 1
		}
	}
	return ranked
}

// place is what a comparison needs of a candidate. Every number compared ranks
// first when it is small.
type place struct {
	*Candidate
	excluded, unknown, byMemory bool
	keys                        [keyCount]int64
	size                        int64
	usage, request              int64
}

// measure is a place without its keys.
func measure(c *Candidate, s Signal, l Layout, byMemory bool) place {
	p := place{Candidate: c, byMemory: byMemory && !c.Swap.Known}
	if p.byMemory {
		s = MemoryAvailable
	}
	used := c.usage(s, l)
	p.unknown, p.request = !used.Known, max(c.request(s), 0)
	if used.Known {
		p.usage = max(used.Value, 0)
	}
	return p
}

// anySwap tells whether a pod is known to have something in swap.
func anySwap(cs []Candidate) bool {
	return slices.ContainsFunc(cs, func(c Candidate) bool { return c.Swap.Known && c.Swap.Value > 0 })
}

// weigh fills in what the place is compared by.
func (p *place) weigh(keys []Key, least int64) {
	c := p.Candidate
	over, size := int64(Unknown), int64(Unknown)
	if !p.unknown {
		size = p.usage - p.request
		over = min(max(size, 0), 1)
	}
	p.excluded = c.Protection != "" || !p.unknown && p.usage < least
	p.size = ^size
	for i, k := range keys {
		switch k {
		case KeyOverRequest:
			p.keys[i] = ^over
		case KeyPriority:
			p.keys[i] = c.Priority
		case KeyUsage:
			p.keys[i] = ^size
		case KeyGrowth:
			p.keys[i] = ^c.growth()
		case KeyQoS:
			p.keys[i] = ^int64(c.QoS)
		}
	}
}

// value undoes what weigh did to a key's value to have it rank first when small.
func (k Key) value(order int64) int64 {
	if k == KeyPriority {
		return order
	}
	return ^order
}

func (c *Candidate) growth() int64 {
	if !c.Growth.Known {
		return Unknown
	}
	return c.Growth.Value
}

func (p *place) compare(q *place, keys int) int {
	if p.excluded != q.excluded {
		return lastIf(p.excluded)
	}
	if p.unknown != q.unknown {
		return lastIf(p.unknown)
	}
	for i := range keys {
		if p.keys[i] != q.keys[i] {
			return cmp.Compare(p.keys[i], q.keys[i])
		}
	}
	if p.size != q.size {
		return cmp.Compare(p.size, q.size)
	}
	if p.Created != q.Created {
		return cmp.Compare(q.Created, p.Created)
	}
	return strings.Compare(p.ID, q.ID)
}

// why says why an excluded pod is no candidate.
func (p *place) why() string {
	switch {
	case !p.excluded || p.Protection != "":
		return p.Protection
	case p.usage == 0:
		return ExcludedUsesNone
	default:
		return ExcludedTooSmall
	}
}

func lastIf(last bool) int {
	if last {
		return 1
	}
	return -1
}

// leastHelp is the least usage with which a pod is a candidate: 1 % of the deficit if
// any pod has as much, or else more than what it has without having written anything.
func leastHelp(places []place, s Signal, byMemory bool, deficit int64) int64 {
	if deficit <= 0 || s.IsStall() {
		return 1
	}
	percent := (deficit-1)/100 + 1
	for i := range places {
		if places[i].usage >= percent {
			return percent
		}
	}
	return min(percent, nextToNothing(s, byMemory))
}

// nextToNothing is a usage that tells nothing of a pod: mount points, an empty log and the
// like are there for each container, and of each that idles a few pages go to swap.
func nextToNothing(s Signal, byMemory bool) int64 {
	switch r := s.Resource(); {
	case r == ResourceDisk, s == SwapAvailable && !byMemory:
		return 1 << 20
	case r == ResourceInodes:
		return 32
	default:
		return 1
	}
}

// distinct leaves out keys that are repeated or not known: a second comparison
// by the same key decides nothing.
func distinct(keys []Key) []Key {
	kept := make([]Key, 0, keyCount)
	for _, k := range keys {
		if k < keyCount && !slices.Contains(kept, k) {
			kept = append(kept, k)
		}
	}
	return kept
}
