package policy

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// trial is a random shortage, with the values from which Decide has to derive its own.
type trial struct {
	pods   []Candidate
	was    []Candidate   // at the sample
	age    time.Duration // of the sample
	cgroup [2]Amount     // of the pods: at the sample and now
	before Observations
	q      Shortage
	pool   Pool
}

// randomTrial returns a pool with one to three thresholds and up to ten pods.
func randomTrial(r *rand.Rand) *trial {
	tr := &trial{age: pick(r, second/2, second, second, second, second, 2*second, 10*second, 15*second)}
	s := Signal(r.IntN(int(SignalCount)))
	tr.q = Shortage{Layout: Layout(r.IntN(int(layoutCount))), Observed: &Observations{}, Now: minute}
	if r.IntN(3) == 0 {
		tr.q.Keys = randomKeys(r)
	}
	tr.pool = tr.q.Layout.Pool(s)
	unit := tr.pool.floor()
	tr.pods = randomPods(r, r.IntN(11))
	large := pick[int64](r, 4, 40, 400)
	leak := r.IntN(8) // the index of a pod that grows fast, if it exists
	for i := range tr.pods {
		c := &tr.pods[i]
		was := *c
		for _, at := range []*Candidate{&was, c} {
			use := r.Int64N(large) * unit
			at.Memory.Value, at.Swap.Value, at.PIDs.Value = use, r.Int64N(large)*unit, use
			at.Disk.Rootfs.Value, at.Inodes.Rootfs.Value = at.Disk.Rootfs.Value*large, at.Inodes.Rootfs.Value*large
		}
		c.MemoryRequest, c.StorageRequest = r.Int64N(2*large)*mi, r.Int64N(2*large)*mi
		if r.IntN(4) > 0 {
			c.Memory.Known, c.Swap.Known, c.PIDs.Known = true, true, true
			was.Memory.Known, was.Swap.Known, was.PIDs.Known = true, true, true
			c.Protection, was.Protection, c.Survived = "", "", false
		}
		if i == leak {
			c.Memory.Value, c.PIDs.Value, c.Swap.Value = 9*large*unit, 9*large*unit, 9*large*unit
			c.MemoryRequest *= 9
		}
		c.Created = tr.q.Now - pick(r, 2*tr.age, 2*tr.age, 2*tr.age, tr.age/2)
		if c.Created < tr.q.Now-tr.age {
			tr.was = append(tr.was, was)
		}
	}
	for i := range tr.cgroup {
		tr.cgroup[i] = Amount{r.Int64N(5*large) * unit, r.IntN(3) == 0}
	}
	fall := pick[int64](r, 4, 20, 20)
	for _, s := range tr.signals(r, s) {
		available := r.Int64N(100) * unit
		deficit := 1 + r.Int64N(3*large*unit)
		m := Met{Threshold: Threshold{Signal: s}, Deficit: deficit, Lack: deficit + r.Int64N(2)*r.Int64N(30*large*unit)}
		tr.q.Due = append(tr.q.Due, m)
		tr.q.Observed[s] = read(available, 1<<60)
		tr.before[s] = read(max(available+(r.Int64N(fall*large)-large)*unit, 0), 1<<60)
	}
	if r.IntN(3) == 0 { // there was a pass before, with some of the signals
		tr.q.Before = &Observations{}
		for _, m := range tr.q.Due {
			if o := tr.q.Observed[m.Signal]; r.IntN(5) > 0 {
				tr.q.Before[m.Signal] = read(max(o.Available+(r.Int64N(5)-3)*unit, 0), o.Capacity)
			}
		}
	}
	tr.q.Pods = tr.cgroup[1]
	tr.sample()
	return tr
}

// recovers reports whether a threshold's signal still rises, and what comes back from outside makes up for its deficit
// within a second. That of a disk has 30 s, and may fall since the last pass.
func (tr *trial) recovers(m Met) bool {
	s := counted(m.Signal)
	if tr.q.Before == nil || tr.q.Before[s].Status != OK {
		return false
	}
	_, outside, _ := tr.rates(m)
	now, before := tr.q.Observed[s].Available, tr.q.Before[s].Available
	if s == SwapAvailable && tr.q.Observed[MeminfoAvailable].usable() {
		now += tr.q.Observed[MeminfoAvailable].Available
	}
	if s == SwapAvailable && tr.q.Before[MeminfoAvailable].usable() {
		before += tr.q.Before[MeminfoAvailable].Available
	}
	if tr.pool.IsDisk() {
		return tr.age >= second && 30*int64(-tr.fall(m)/tr.age.Seconds()) >= m.Deficit
	}
	return int64(outside) <= -m.Deficit && before < now
}

// lasts reports whether a threshold of swap is not urgent: memory and swap together last for a minute at the rate since the
// sample, or at that of ten seconds.
func (tr *trial) lasts(m Met) bool {
	left := tr.q.Observed[SwapAvailable].Available
	if memory := tr.q.Observed[MeminfoAvailable]; memory.usable() {
		left += memory.Available
	}
	fill, _, _ := tr.rates(m)
	fell := 0.0
	if tr.age < 10*second {
		fell = max(tr.fall(m), 0)
	}
	return m.Signal == SwapAvailable && (60*float64(int64(fill)) < float64(left) || 6*fell < float64(left))
}

// counted returns the signal of the amount that lacks: for a stall, that is memory.
func counted(s Signal) Signal {
	if s.IsStall() {
		return MeminfoAvailable
	}
	return s
}

// signals returns s, and sometimes other signals of the pool.
func (tr *trial) signals(r *rand.Rand, s Signal) []Signal {
	list := []Signal{s}
	for _, other := range Signals() {
		if other != s && tr.q.Layout.Pool(other) == tr.pool && r.IntN(4) == 0 {
			list = append(list, other)
		}
	}
	return list
}

func (tr *trial) sample() {
	tr.q.Samples = &Samples{}
	tr.q.Samples.Add(tr.q.Now-tr.age, &tr.before, tr.was, tr.cgroup[0])
}

// growth returns a pod's growth per second by the contract.
func (tr *trial) growth(c *Candidate) (float64, bool) {
	of := func(c *Candidate) Amount {
		if tr.pool == PoolPIDs {
			return c.PIDs
		}
		return Amount{c.Memory.Value - c.ActiveFile, c.Memory.Known}
	}
	same := func(w Candidate) bool { return w.ID == c.ID }
	switch i := slices.IndexFunc(tr.was, same); {
	case tr.pool.IsDisk() || tr.age < second || tr.age > 10*second || !of(c).Known:
		return 0, false
	case c.Created > tr.q.Now-tr.age:
		used := float64(of(c).Value)
		if tr.pool == PoolMemory && c.Swap.Known {
			used += float64(c.Swap.Value)
		}
		return used / max((tr.q.Now-c.Created).Seconds(), 1), true
	case i < 0:
		return 0, false
	default:
		w := of(&tr.was[i])
		grown := float64(of(c).Value - w.Value)
		if tr.pool == PoolMemory && c.Swap.Known && tr.was[i].Swap.Known {
			grown += float64(c.Swap.Value - tr.was[i].Swap.Value)
		}
		return grown / tr.age.Seconds(), w.Known
	}
}

// sums are what the contract derives for the thresholds that a filter lets through.
type sums struct{ deficit, fill, need float64 }

// rates returns the fill of a threshold, the change outside the pods (negative if it comes back), and what was taken outside
// them within ten seconds.
func (tr *trial) rates(m Met) (fill, outside, taken float64) {
	most := 10 * second
	if tr.pool.IsDisk() {
		most = 30 * second
	}
	s := counted(m.Signal)
	if tr.q.Observed[s].Status != OK {
		return 0, 0, 0
	}
	fall := tr.fall(m)
	grown, known := tr.grown(m.Signal)
	if known && tr.age < 10*second {
		taken = max(min(fall, fall-grown), 0)
	}
	if tr.age >= second && tr.age <= most {
		if fill = max(fall/tr.age.Seconds(), 0); known {
			outside = (fall - grown) / tr.age.Seconds()
		}
	}
	return fill, outside, taken
}

// fall returns by how much the signal of a threshold has fallen since the sample.
func (tr *trial) fall(m Met) float64 {
	s := counted(m.Signal)
	fall := float64(tr.before[s].Available - tr.q.Observed[s].Available)
	if m.Signal == SwapAvailable && tr.q.Observed[MeminfoAvailable].usable() {
		fall += float64(tr.before[MeminfoAvailable].Available - tr.q.Observed[MeminfoAvailable].Available)
	}
	return fall
}

// grown returns by how much the unprotected pods have grown since the sample, if that is known.
func (tr *trial) grown(s Signal) (sum float64, known bool) {
	for i, cs := range [][]Candidate{tr.was, tr.pods} {
		sign := float64(2*i - 1)
		byCgroup := tr.pool == PoolMemory && s != SwapAvailable && tr.cgroup[i].Known
		if byCgroup {
			sum += sign * float64(tr.cgroup[i].Value)
		}
		for j := range cs {
			used := map[Pool]Amount{PoolMemory: cs[j].Memory, PoolPIDs: cs[j].PIDs}[tr.pool]
			cache := float64(0) // which counts as available
			if tr.pool == PoolMemory && s != MemoryAvailable && s != AllocatableMemoryAvailable {
				cache = float64(cs[j].ActiveFile)
			}
			if s == SwapAvailable && cs[j].Swap.Known {
				used.Value += cs[j].Swap.Value
			}
			protected := cs[j].Protection != ""
			switch {
			case !used.Known && byCgroup == protected:
				return 0, false
			case byCgroup && protected:
				sum -= sign * float64(used.Value)
			case byCgroup:
				sum -= sign * cache
			case !protected:
				sum += sign * (float64(used.Value) - cache)
			}
		}
	}
	return sum, !tr.pool.IsDisk() && (tr.pool != PoolMemory || s == SwapAvailable || tr.cgroup[0].Known == tr.cgroup[1].Known)
}

// lacks returns the deficit, fill and need of each threshold that is urgent, and the largest of those that do not recover by
// themselves and are attainable, also with what the pods yield for the threshold that is acted on.
func (tr *trial) lacks(ranked []Ranked) (each []sums, attainable sums, found bool) {
	yields := func(ranked []Ranked) (sum float64) {
		for i := range ranked {
			if ranked[i].Excluded == "" {
				sum += float64(ranked[i].Yield)
			}
		}
		return sum
	}
	for _, m := range tr.q.Due {
		if tr.lasts(m) {
			continue
		}
		fill, outside, taken := tr.rates(m)
		fill, outside = float64(int64(fill)), max(float64(int64(outside)), 0)
		one := sums{float64(m.Deficit), fill, float64(m.Lack) + fill*float64(tr.pool.Horizon())}
		each = append(each, one)
		enough := one.deficit + max(10*outside, taken)
		if tr.recovers(m) || yields(Rank(tr.pods, m.Signal, tr.q.Layout, tr.q.Keys)) < enough {
			continue
		}
		if found = true; yields(ranked) >= enough {
			attainable = sums{max(attainable.deficit, one.deficit), max(attainable.fill, one.fill), max(attainable.need, one.need)}
		}
	}
	return each, attainable, found
}

// isCulprit reports whether a pod fills the pool fast enough for a threshold, which what others yield cannot carry for 10 s, and
// the keys let that count.
func (tr *trial) isCulprit(c *Candidate, each []sums, others float64) bool {
	growth, known := tr.growth(c)
	keys := tr.q.Keys
	if len(keys) == 0 {
		keys = DefaultKeys(tr.q.Due[0].Signal.Resource())
	}
	return known && slices.Contains(keys, KeyCulprit) && slices.ContainsFunc(each, func(n sums) bool {
		return 2*float64(int64(growth)) >= n.need && others < n.deficit+10*n.fill
	})
}

// tiered reports whether the keys separate the pods above their request from the others.
func (tr *trial) tiered() bool {
	keys := slices.Clone(tr.q.Keys)
	if len(keys) == 0 {
		keys = DefaultKeys(tr.q.Due[0].Signal.Resource())
	}
	keys = slices.DeleteFunc(keys, func(k Key) bool { return k == KeyCulprit })
	return len(keys) > 0 && keys[0] == KeyOverRequest
}

// tries runs a property on 10,000 trials. It returns whether the trial was one of those that the property is about,
// of which there have to be enough.
func tries(t *testing.T, seed uint64, enough int, property func(r *rand.Rand, tr *trial, d Decision) bool) {
	t.Helper()
	r := source(seed)
	n := 0
	for range 10_000 {
		tr := randomTrial(r)
		if property(r, tr, Decide(tr.pods, tr.q)) {
			n++
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	if n < enough {
		t.Errorf("only %d of the trials were about the property", n)
	}
}

// TestP1: nobody but a culprit is stopped when relief is not attainable, or what lacks comes back by itself.
func TestP1(t *testing.T) {
	culprits, recovers := 0, 0
	tries(t, 21, 2000, func(_ *rand.Rand, tr *trial, d Decision) bool {
		if slices.ContainsFunc(tr.q.Due, tr.recovers) || slices.ContainsFunc(tr.q.Due, tr.lasts) {
			recovers++
		}
		each, _, found := tr.lacks(d.Ranked)
		if found != d.Attainable {
			t.Errorf("attainable %t: %+v", found, d)
		}
		if d.Victim != nil && !found {
			if culprits++; d.Why != ByCulprit || !tr.isCulprit(&d.Victim.Candidate, each, 0) {
				t.Errorf("%s is stopped in vain: %+v", d.Victim.ID, d)
			}
		}
		if found && d.Victim == nil {
			t.Errorf("relief is attainable, and no pod is stopped: %+v", d)
		}
		return !found
	})
	if culprits < 40 || recovers < 40 {
		t.Errorf("only %d culprits, %d signals that recover", culprits, recovers)
	}
}

// TestP2: the victim is the culprit, or yields at least need / 20, or no pod in its tier does.
func TestP2(t *testing.T) {
	little := 0
	tries(t, 22, 3000, func(_ *rand.Rand, tr *trial, d Decision) bool {
		each, attainable, _ := tr.lacks(d.Ranked)
		if d.Victim == nil || d.Why == ByCulprit && tr.isCulprit(&d.Victim.Candidate, each, 0) {
			return false
		}
		if 20*float64(d.Victim.Yield) >= attainable.need {
			return true
		}
		little++
		for i := range d.Ranked {
			r := &d.Ranked[i]
			sameTier := !tr.tiered() || r.Over == d.Victim.Over
			if r.Excluded == "" && sameTier && (20*float64(r.Yield) >= attainable.need || r.Position < d.Victim.Position) {
				t.Errorf("%s is stopped instead of %s: %+v", d.Victim.ID, r.ID, d)
			}
		}
		return true
	})
	if little < 100 {
		t.Errorf("only %d victims with less", little)
	}
}

// TestP3: the order of the input changes nothing.
func TestP3(t *testing.T) {
	tries(t, 23, 3000, func(r *rand.Rand, tr *trial, d Decision) bool {
		want, victim, culprit := slices.Clone(d.Ranked), id(d.Victim), id(d.Culprit)
		cs := tr.pods
		r.Shuffle(len(cs), func(i, j int) { cs[i], cs[j] = cs[j], cs[i] })
		r.Shuffle(len(tr.was), func(i, j int) { tr.was[i], tr.was[j] = tr.was[j], tr.was[i] })
		tr.sample()
		e := Decide(cs, tr.q)
		if !slices.EqualFunc(e.Ranked, want, sameRanked) || id(e.Victim) != victim || id(e.Culprit) != culprit || e.Why != d.Why || e.Held != d.Held ||
			e.Met != d.Met || e.Need != d.Need || e.Outside != d.Outside || e.Attainable != d.Attainable || !slices.Equal(e.Tiers, d.Tiers) {
			t.Errorf("in another order %+v, want %+v", e, d)
		}
		return d.Victim != nil
	})
}

func id(r *Ranked) string {
	if r == nil {
		return ""
	}
	return r.ID
}

// TestP9: a pod within its request is not stopped while pods above theirs could bring half the deficit, unless
// it is the culprit and those could not carry the pool for 10 s.
func TestP9(t *testing.T) {
	culprits := 0
	tries(t, 29, 500, func(_ *rand.Rand, tr *trial, d Decision) bool {
		if d.Victim == nil || d.Victim.Over || !tr.tiered() {
			return false
		}
		above := 0.0
		for i := range d.Ranked {
			if r := &d.Ranked[i]; r.Excluded == "" && r.Over {
				above += float64(r.Yield)
			}
		}
		each, attainable, _ := tr.lacks(d.Ranked)
		if d.Why == ByCulprit {
			if culprits++; !tr.isCulprit(&d.Victim.Candidate, each, above) {
				t.Errorf("the culprit %s is stopped, though those above their requests yield %v: %+v", d.Victim.ID, above, d)
			}
		} else if 2*above >= attainable.deficit {
			t.Errorf("%s is stopped, though those above their requests yield %v: %+v", d.Victim.ID, above, d)
		}
		return true
	})
	if culprits < 40 {
		t.Errorf("only %d culprits within their requests", culprits)
	}
}

// TestDecideProperties: a decision is either a victim or a reason. The victim is a candidate, its positions are those
// of the order, and the reason says what is true of the pods.
func TestDecideProperties(t *testing.T) {
	tries(t, 8, 3000, func(_ *rand.Rand, tr *trial, d Decision) bool {
		isProtected := func(c Candidate) bool { return c.Protection != "" }
		isUnknown := func(r Ranked) bool { return r.Protection == "" && !r.Known() }
		switch {
		case (d.Victim == nil) == (d.Held == ""):
			t.Errorf("a victim or a reason: %+v", d)
		case d.Victim != nil && (d.Victim.Excluded != "" || d.Victim != &d.Ranked[d.Victim.Position-1]):
			t.Errorf("the victim is no candidate: %+v", d)
		case d.Held == HeldProtected && !slices.ContainsFunc(tr.pods, isProtected):
			t.Errorf("held by a protection that no pod has: %+v", d)
		case d.Held == HeldRecovers && !slices.ContainsFunc(tr.q.Due, tr.recovers) && !slices.ContainsFunc(tr.q.Due, tr.lasts):
			t.Errorf("held because it recovers: %+v", d)
		case d.Held != "" && d.Held != HeldRecovers && (d.Held == HeldUnknown) != slices.ContainsFunc(d.Ranked, isUnknown):
			t.Errorf("unknown usage: %+v", d)
		case d.Why == ByCameBack && !d.Victim.CameBack, d.Why == ByCulprit && d.Victim.Position != 1:
			t.Errorf("chosen by the wrong rule: %+v", d)
		}
		for i := range d.Ranked {
			if r := &d.Ranked[i]; (r.Excluded == "") != (r.Position == i+1) {
				t.Errorf("place %d: %+v", i+1, r)
			}
		}
		return d.Victim != nil
	})
}

// TestProtectedNeverChosen runs the whole decision with every pod protected, or every pod but one.
func TestProtectedNeverChosen(t *testing.T) {
	tries(t, 9, 5000, func(r *rand.Rand, tr *trial, _ Decision) bool {
		free := r.IntN(len(tr.pods) + 1)
		for i := range tr.pods {
			tr.pods[i].Protection = "protect rule " + strings.Repeat("I", i+1)
			if i == free {
				tr.pods[i].Protection = ""
			}
		}
		d := Decide(tr.pods, tr.q)
		if d.Victim != nil && (free == len(tr.pods) || d.Victim.ID != tr.pods[free].ID) {
			t.Errorf("chose the protected %s", d.Victim.ID)
		}
		if d.Victim == nil && d.Held != HeldProtected && d.Held != HeldOutside && d.Held != HeldUnknown && d.Held != HeldRecovers {
			t.Errorf("held by %q", d.Held)
		}
		return len(tr.pods) > 0
	})
}

// TestDecideHostile: wrong numbers never make a pod a victim that is no candidate, and a decision shows none that is
// negative.
func TestDecideHostile(t *testing.T) {
	amounts := []int64{math.MinInt64, -1, 0, 1, mi, gi, math.MaxInt64 - 1, math.MaxInt64}
	tries(t, 30, 3000, func(r *rand.Rand, tr *trial, _ Decision) bool {
		for _, cs := range [][]Candidate{tr.pods, tr.was} {
			for i := range cs {
				c := &cs[i]
				c.Memory.Value, c.Swap.Value, c.PIDs.Value = pick(r, amounts...), pick(r, amounts...), pick(r, amounts...)
				c.ActiveFile, c.MemoryRequest, c.StorageRequest = pick(r, amounts...), pick(r, amounts...), pick(r, amounts...)
				c.Disk.Rootfs.Value, c.Inodes.Volumes.Value = pick(r, amounts...), pick(r, amounts...)
				c.Created = time.Duration(pick(r, amounts...))
			}
		}
		for i := range tr.q.Due {
			m := &tr.q.Due[i]
			m.Deficit, m.Lack = pick(r, amounts...), pick(r, amounts...)
			tr.before[m.Signal].Available, tr.q.Observed[m.Signal].Available = pick(r, amounts...), pick(r, amounts...)
		}
		tr.sample()
		d := Decide(tr.pods, tr.q)
		if d.Victim != nil && (d.Victim.Excluded != "" || d.Victim.Yield < tr.pool.floor()) {
			t.Errorf("chose %+v", d.Victim)
		}
		if d.Deficit < 1 || d.Need < 1 || d.Helps < 1 || d.Fill < 0 || d.Outside < 0 || slices.Min(d.Tiers) < 0 {
			t.Errorf("%+v", d)
		}
		return d.Victim != nil
	})
}
