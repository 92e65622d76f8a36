package policy

import (
	"math"
	"slices"
	"time"
)

// The age of the sample from which growth and fill are measured. A few pages within milliseconds would
// give a meaningless rate. On disks, a rate counts for longer.
const (
	minSampleAge  = time.Second
	maxSampleAge  = 10 * time.Second
	maxDiskSample = 30 * time.Second
)

// Samples holds past readings of the node, to measure how fast a signal falls and a pod grows. All rates of
// one decision are measured from the same sample, so that they can be compared. It keeps those that are
// younger than minSampleAge and the one before them.
type Samples struct {
	kept     []sample // oldest first
	outside  [SignalCount]swing
	swap     swing // of memory and swap together: all that is used of them, also by pods
	byCgroup bool  // the memory of the pods in outside is that of the pods cgroup
	gifts    []gift
}

// gift is an amount that a stop gave back, in the unit of its pool, and when that was seen.
type gift struct {
	Pool   Pool          `json:"pool"`
	At     time.Duration `json:"at"`
	Amount int64         `json:"amount"`
}

// sample is one reading of the signals and of all pods.
type sample struct {
	at     time.Duration
	obs    Observations
	pods   map[string]podSample
	cgroup Amount        // working set of the pods cgroup
	late   time.Duration // for how much longer it counts, see Samples.Late
	slept  time.Duration // by how much at was moved, see Samples.Slept
}

// podSample is what a pod used: bytes of memory and of swap, and tasks. cache is the part of memory that is page cache in use.
// The memory of a pod that is apart is not part of the pods cgroup's.
type podSample struct {
	memory, swap, pids Amount
	cache              int64
	apart              bool
}

func (c *Candidate) sample() podSample {
	return podSample{c.Memory, c.Swap, c.PIDs, max(c.ActiveFile, 0), c.Apart}
}

// taken is the memory that the pod has taken from the node, and that its stop gives back: page cache is not.
func (s *podSample) taken() Amount { return Amount{s.memory.Value - s.cache, s.memory.Known} }

// since returns by how much what a pod has taken of a pool has grown since another sample. Memory that the kernel has
// moved to swap is still taken: otherwise a pod that others push out would shrink, and so would a leak.
func (s *podSample) since(past *podSample, p Pool) Amount {
	now, then := s.taken(), past.taken()
	switch {
	case p == PoolPIDs:
		now, then = s.pids, past.pids
	case s.swap.Known && past.swap.Known:
		now.add(s.swap)
		then.add(past.swap)
	}
	return Amount{now.Value - then.Value, now.Known && then.Known}
}

// of returns what the pod used of what a signal's rates are measured from, see [Observations.level].
func (s *podSample) of(sig Signal) Amount {
	switch {
	case sig == PIDAvailable:
		return s.pids
	case s.apart && sig == AllocatableMemoryAvailable:
		return Known(0)
	case sig.countsCache():
		return s.memory
	}
	used := s.taken()
	if sig == SwapAvailable && s.swap.Known {
		used.add(s.swap)
	}
	return used
}

// Add adds a reading of the signals and of all pods. podsMemory is the working set of the pods cgroup, if
// it is known.
func (s *Samples) Add(now time.Duration, obs *Observations, cs []Candidate, podsMemory Amount) {
	s.Note(now, obs, cs, podsMemory)
	for len(s.kept) > 1 && now-s.kept[1].at >= minSampleAge {
		s.kept = slices.Delete(s.kept, 0, 1)
	}
	pods := make(map[string]podSample, len(cs))
	for i := range cs {
		pods[cs[i].ID] = cs[i].sample()
	}
	s.kept = append(s.kept, sample{at: now, obs: *obs, pods: pods, cgroup: podsMemory})
}

// Note notes such a reading for the swing alone, without keeping it as a sample.
func (s *Samples) Note(now time.Duration, obs *Observations, cs []Candidate, podsMemory Amount) {
	for sig := range SignalCount {
		if sig.countsCgroup() && s.byCgroup != podsMemory.Known {
			s.outside[sig] = swing{} // what the pods use is counted in another way from now on
		}
		if o := obs.level(sig); !sig.IsDisk() && !sig.IsStall() && o.usable() {
			s.outside[sig].note(now, sig, o, unprotected(cs, sig, podsMemory))
		}
	}
	if o := obs.level(SwapAvailable); o.usable() {
		s.swap.note(now, SwapAvailable, o, Known(0))
	}
	s.byCgroup = podsMemory.Known
}

// Slept makes the samples younger by a time in which the machine slept: what grows when it wakes is as new as before. now is after it. What
// would be later than that was read when the machine had woken.
func (s *Samples) Slept(d, now time.Duration) {
	for i := range s.kept {
		k := &s.kept[i]
		if k.at+d > now {
			break
		}
		k.at, k.slept = k.at+d, k.slept+d
		for sig := range k.obs {
			k.obs[sig].At += d
		}
	}
	for sig := range s.outside {
		s.outside[sig].shift(d, now)
	}
	s.swap.shift(d, now)
	for i := range s.gifts {
		if g := &s.gifts[i]; g.At+d <= now {
			g.At += d
		}
	}
}

// Gave notes an amount of a pool that a stop has given back.
func (s *Samples) Gave(p Pool, amount int64, now time.Duration) {
	s.gifts = slices.DeleteFunc(s.gifts, func(g gift) bool { return now-g.At > maxSampleAge })
	s.gifts = append(s.gifts, gift{p, now, amount})
}

// gaveBack returns how much of a pool stops gave back per second since the sample from which its rates are measured.
func (s *Samples) gaveBack(p Pool, now time.Duration) int64 {
	base := s.base(now, maxSampleAge)
	if base == nil {
		return 0
	}
	sum := int64(0)
	for _, g := range s.gifts {
		if g.Pool == p && g.At > base.at {
			sum = addCapped(sum, g.Amount)
		}
	}
	return PerSecond(sum, now-base.at)
}

// Late lets the samples count for longer, because what reads them was late by d. A rate that is an average over a longer time is
// better than none: without one, nothing shows who grows.
func (s *Samples) Late(d time.Duration) {
	for i := range s.kept {
		s.kept[i].late += d
	}
	s.swap.shift(d, math.MaxInt64) // otherwise a leak would seem to begin only now
}

// Age returns how long ago the last sample was taken. It returns false if there is none.
func (s *Samples) Age(now time.Duration) (time.Duration, bool) {
	if len(s.kept) == 0 {
		return 0, false
	}
	return now - s.kept[len(s.kept)-1].at, true
}

// base returns the newest sample from which a rate can be measured, or nil.
func (s *Samples) base(now, maxAge time.Duration) *sample {
	for i := len(s.kept) - 1; i >= 0; i-- {
		if age := now - s.kept[i].at; age > maxAge+s.kept[i].late {
			return nil
		} else if age >= minSampleAge {
			return &s.kept[i]
		}
	}
	return nil
}

// Growth returns how fast a candidate's usage of a pool grows, per second. A sandbox younger than the sample has grown by all
// that it uses (but for what a stop left, or what it had before a fruitless stop), and so has a young one that was not listed
// when the sample was taken. It is unknown for disks, and without a sample.
func (s *Samples) Growth(c *Candidate, p Pool, now time.Duration) Amount {
	base := s.base(now, maxSampleAge)
	if p.IsDisk() || base == nil {
		return Amount{}
	}
	used, span := c.sample(), now-base.at
	past, isNew := base.pods[c.ID], base.isNew(c, now)
	if isNew {
		past, span = podSample{memory: Known(0), swap: Known(0), pids: Known(0)}, max(base.age(c, now), minSampleAge)
	}
	if c.Kept > 0 { // a sandbox without a container seems to use nothing
		past.memory.Value = max(past.memory.Value, c.Kept)
	}
	grown := used.since(&past, p)
	if !grown.Known {
		return Amount{}
	}
	if isNew {
		grown.Value = max(grown.Value-c.Had, 0)
	}
	return Known(PerSecond(grown.Value, span))
}

// isNew reports whether a sandbox is younger than the sample, or is a young one that was not listed when it was taken. No sandbox is
// new without a sample (nil).
func (s *sample) isNew(c *Candidate, now time.Duration) bool {
	if s == nil {
		return false
	}
	_, listed := s.pods[c.ID]
	return c.Created > s.at-s.slept || !listed && s.age(c, now) <= maxSampleAge+s.late
}

// age returns how old a sandbox is, without what the machine has slept since the sample, if it is older than that.
func (s *sample) age(c *Candidate, now time.Duration) time.Duration {
	if c.Created > s.at {
		return now - c.Created
	}
	return now - c.Created - s.slept
}

// Fill returns how fast a signal falls, per second. It is 0 without a sample.
func (s *Samples) Fill(sig Signal, obs *Observations, now time.Duration) int64 {
	base, fell, span := s.fell(sig, obs.level(sig), now)
	if base == nil {
		return 0
	}
	return max(PerSecond(fell, span), 0)
}

// fall returns how fast a signal falls, per second, and the part of that which the growth of the unprotected
// pods does not explain. They are negative if it rises. pods is the working set of the pods cgroup now.
func (s *Samples) fall(sig Signal, o Observation, cs []Candidate, pods Amount, now time.Duration) (fall, outside int64) {
	base, fell, span := s.fell(sig, o, now)
	if base == nil {
		return 0, 0
	}
	if !sig.IsDisk() && (!sig.countsCgroup() || base.cgroup.Known == pods.Known) {
		if before, after := base.unprotected(cs, sig), unprotected(cs, sig, pods); before.Known && after.Known {
			outside = fell - (after.Value - before.Value)
		}
	}
	return PerSecond(fell, span), PerSecond(outside, span)
}

// fell returns by how much a signal has fallen since the sample from which its rates are measured, and the time since. Without
// such a sample, base is nil.
func (s *Samples) fell(sig Signal, o Observation, now time.Duration) (base *sample, fell int64, span time.Duration) {
	maxAge := maxSampleAge
	if sig.IsDisk() {
		maxAge = maxDiskSample
	}
	base = s.base(now, maxAge)
	if base == nil || !o.usable() {
		return nil, 0, 0
	}
	was := base.obs.level(sig)
	if !was.usable() || !sig.Comparable(was, o) {
		return nil, 0, 0
	}
	span = now - base.at
	if sig.IsDisk() { // disks are read less often than memory while they are far from their thresholds
		span = max(span, o.At-base.obs[sig].At)
	}
	return base, was.Free() - o.Free(), span
}

// taken returns how much was taken outside the unprotected pods within about the last ten seconds, at most: by how much
// the signal fell without their growth. Unlike a rate, it does not forget what was given back.
func (s *Samples) taken(sig Signal, o Observation, cs []Candidate, pods Amount, now time.Duration) int64 {
	if sig.IsDisk() || !o.usable() || sig.countsCgroup() && s.byCgroup != pods.Known {
		return 0
	}
	w := s.outside[sig.counts()]
	w.note(now, sig.counts(), o, unprotected(cs, sig, pods))
	rise, _ := w.rise(now)
	return rise
}

// Lasts reports whether a threshold of swap can wait, because memory and swap together last for a minute at the rate of the last
// second or at that of about the last ten. The first rate cannot tell a leak from memory that is freed again within seconds, and
// the second cannot tell it from a leak that has ended. Unlike memory, swap need not recover: the pages in it may stay there.
func (s *Samples) Lasts(sig Signal, obs *Observations, now time.Duration) bool {
	o, w := obs.level(sig), s.swap
	if sig != SwapAvailable || !o.usable() {
		return false
	}
	w.note(now, sig, o, Known(0))
	_, fell := w.rise(now)
	return times(s.Fill(sig, obs, now), lastsFor) < o.Available || times(fell, lastsFor/int64(len(w.seconds))) < o.Available
}

// swing is how what is used outside the unprotected pods rose and fell within about the last ten seconds, by the second.
type swing struct {
	noted   bool
	last    Observation // of the signal
	used    int64       // what the unprotected pods used then
	level   int64       // what is used outside, counted from the first reading
	seconds [maxSampleAge / time.Second]struct {
		at              int64
		any             bool
		low, high, rise int64 // rise is the most that the level rose by within this second
	}
}

// note adds a reading. The level rises only by what the signal has lost: if the pods use less and nothing comes back, a
// kill goes on, or a trace does not tell what a stop gave back. From a reading that cannot be compared with the last one, the
// level goes on.
func (w *swing) note(now time.Duration, sig Signal, o Observation, used Amount) {
	const most = math.MaxInt64 >> 10 // sums do not overflow
	if o.Available, o.Reserved, o.Over = min(max(o.Free(), -most), most), 0, 0; !used.Known {
		w.noted = false
		return
	}
	used.Value = min(max(used.Value, -most), most)
	if fell := w.last.Available - o.Available; w.noted && sig.Comparable(w.last, o) {
		w.level += min(fell, fell-(used.Value-w.used))
	}
	w.noted, w.last, w.used = true, o, used.Value
	at := int64(now / time.Second)
	s := &w.seconds[uint64(at)%uint64(len(w.seconds))]
	if !s.any || s.at != at {
		s.at, s.any, s.low, s.high, s.rise = at, true, w.level, w.level, 0
	}
	s.rise = max(s.rise, w.level-s.low)
	s.low, s.high = min(s.low, w.level), max(s.high, w.level)
}

// shift moves the readings by whole seconds, but none to later than until.
func (w *swing) shift(by, until time.Duration) {
	before, seconds, last := w.seconds, int64(by/time.Second), int64(until/time.Second)
	clear(w.seconds[:])
	for _, s := range before {
		if !s.any {
			continue
		}
		if s.at+seconds <= last {
			s.at += seconds
		}
		if to := &w.seconds[uint64(s.at)%uint64(len(w.seconds))]; !to.any || to.at < s.at {
			*to = s
		}
	}
}

// rise returns by how much the level rose at most, and by how much of that it is still above its lowest.
func (w *swing) rise(now time.Duration) (most, still int64) {
	last, low := int64(now/time.Second), int64(math.MaxInt64/2)
	for at := last - int64(len(w.seconds)) + 1; at <= last; at++ {
		if s := &w.seconds[uint64(at)%uint64(len(w.seconds))]; s.any && s.at == at {
			most, low = max(most, s.high-low, s.rise), min(low, s.low)
		}
	}
	return most, max(w.level-low, 0)
}

// Unprotected returns what the unprotected pods use of a signal's pool (for swap, of memory and swap together), or an
// unknown amount if a pod that counts is not known. On a device, a pod counts only if it was fully measured: otherwise a
// better measurement would look like growth. podsCgroup is the working set of the pods cgroup.
func Unprotected(cs []Candidate, s Signal, l Layout, podsCgroup Amount) Amount {
	if !s.IsDisk() {
		return unprotected(cs, s, podsCgroup)
	}
	sum := Known(0)
	for i := range cs {
		if c := &cs[i]; c.Protection == "" {
			used := c.usage(s, l)
			sum.add(Amount{used.Value, used.Quality == QualityExact})
		}
	}
	return sum
}

// countsCgroup reports whether what the pods use for a signal is read from the pods cgroup, if possible. Of swap, a node
// keeps no such reading.
func (s Signal) countsCgroup() bool { return s.isMemory() && s != SwapAvailable }

// countsCache reports whether page cache in use counts as used for a signal, as it does in a working set. The kernel's
// MemAvailable counts most of it as available, and so do the signals that follow from that.
func (s Signal) countsCache() bool { return s == MemoryAvailable || s == AllocatableMemoryAvailable }

// unprotected returns what the unprotected pods use of a signal's pool. For memory, that is the pods cgroup without the
// protected pods, and without page cache unless that counts, if the cgroup is known. It is not for disks.
func unprotected(cs []Candidate, sig Signal, podsCgroup Amount) Amount {
	u := newUse(sig, podsCgroup)
	for i := range cs {
		used := cs[i].sample()
		u.add(&used, cs[i].Protection != "")
	}
	return u.unprotected()
}

// unprotected is the same for the pods when the sample was taken, of which those are protected that are now.
func (s *sample) unprotected(cs []Candidate, sig Signal) Amount {
	protected := map[string]bool{}
	for i := range cs {
		if cs[i].Protection != "" {
			protected[cs[i].ID] = true
		}
	}
	u := newUse(sig, s.cgroup)
	for id, used := range s.pods {
		u.add(&used, protected[id])
	}
	return u.unprotected()
}

// use adds up what pods use of a signal's pool. The order of the pods makes no difference.
type use struct {
	sig      Signal
	byCgroup bool   // sum begins with the pods cgroup, which includes all pods but those apart
	sum, not Amount // not is the part of sum that does not count
}

func newUse(sig Signal, podsCgroup Amount) use {
	u := use{sig: sig, byCgroup: sig.countsCgroup() && podsCgroup.Known, sum: Known(0), not: Known(0)}
	if u.byCgroup {
		u.sum = podsCgroup
	}
	return u
}

func (u *use) add(used *podSample, protected bool) {
	switch inside := u.byCgroup && !used.apart; {
	case inside && protected:
		u.not.add(used.memory)
	case inside && !u.sig.countsCache():
		u.not.add(Known(used.cache))
	case !inside && !protected:
		u.sum.add(used.of(u.sig))
	}
}

func (u *use) unprotected() Amount {
	return Amount{u.sum.Value - u.not.Value, u.sum.Known && u.not.Known}
}

// add adds to a sum, which is unknown once a part of it is.
func (a *Amount) add(b Amount) {
	a.Value, a.Known = addCapped(a.Value, max(b.Value, 0)), a.Known && b.Known
}

// PerSecond returns the growth n over d as a rate per second. The rate saturates.
func PerSecond(n int64, d time.Duration) int64 {
	rate := float64(n) / d.Seconds()
	switch {
	case rate >= math.MaxInt64:
		return math.MaxInt64
	case rate <= math.MinInt64:
		return math.MinInt64
	default:
		return int64(rate)
	}
}
