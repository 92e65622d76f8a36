package policy

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"testing"
	"time"
)

func TestVectorsH(t *testing.T) {
	disk := func(rootfs, logs, volumes int64) DiskUsage {
		return DiskUsage{Rootfs: Exactly(rootfs * mi), Logs: Exactly(logs * mi), Volumes: Exactly(volumes * mi)}
	}
	pod := func(id string, request, usage int64) Candidate {
		return Candidate{ID: id, MemoryRequest: request * mi, Memory: Known(usage * mi)}
	}
	for _, v := range []struct {
		id     string
		signal Signal
		keys   []Key
		pods   []Candidate
		want   []string
	}{
		{
			"H1", MemoryAvailable, nil,
			[]Candidate{
				{ID: "below", MemoryRequest: 200 * mi, Memory: Known(199 * mi), Priority: -1},
				{ID: "exceeds", MemoryRequest: 100 * mi, Memory: Known(101 * mi), Priority: 1},
			},
			[]string{"exceeds", "below"},
		},
		{
			"H2", NodeFSAvailable, nil,
			[]Candidate{
				{ID: "below", StorageRequest: 200 * mi, Disk: disk(100, 99, 0), Priority: -1},
				{ID: "exceeds", StorageRequest: 100 * mi, Disk: disk(90, 11, 0), Priority: 1},
			},
			[]string{"exceeds", "below"},
		},
		{
			"H3", MemoryAvailable, nil,
			[]Candidate{{ID: "1", Priority: 1}, {ID: "12534", Priority: 12534}, {ID: "-134", Priority: -134}},
			[]string{"-134", "1", "12534"},
		},
		{
			"H4", MemoryAvailable, []Key{KeyUsage},
			[]Candidate{
				pod("best-effort-high", 0, 500), pod("best-effort-low", 0, 300), pod("burstable-high", 100, 800),
				pod("burstable-low", 100, 300), pod("guaranteed-high", 1024, 800), pod("guaranteed-low", 1024, 200),
			},
			[]string{"burstable-high", "best-effort-high", "best-effort-low", "burstable-low", "guaranteed-high", "guaranteed-low"},
		},
	} {
		t.Run(v.id, func(t *testing.T) {
			if got := ids(Rank(v.pods, v.signal, SingleFS, v.keys)); !slices.Equal(got, v.want) {
				t.Errorf("ranked %v, want %v", got, v.want)
			}
		})
	}
}

func TestRankKeys(t *testing.T) {
	cs := []Candidate{
		{ID: "be", QoS: BestEffort, Memory: Known(100 * mi), Growth: Known(-5), Priority: 3},
		{ID: "gu", QoS: Guaranteed, Memory: Known(200 * mi), MemoryRequest: 500 * mi, Growth: Known(9), Priority: 2},
		{ID: "bu", QoS: Burstable, Memory: Known(300 * mi), ActiveFile: mi, MemoryRequest: 500 * mi, Priority: 1},
		{ID: "un", Memory: Known(50 * mi), Growth: Known(0), Priority: 1, Created: time.Hour},
	}
	for _, v := range []struct {
		name string
		keys []Key
		want []string
	}{
		{"default", nil, []string{"un", "be", "bu", "gu"}},
		{"culprit, which only Decide knows", []Key{KeyCulprit, KeyGrowth}, []string{"gu", "un", "be", "bu"}},
		{"priority", []Key{KeyPriority}, []string{"un", "bu", "gu", "be"}},
		{"growth, not known last", []Key{KeyGrowth}, []string{"gu", "un", "be", "bu"}},
		{"class, not known last", []Key{KeyQoS}, []string{"be", "bu", "gu", "un"}},
		{"repeated and unknown keys are nothing", []Key{keyCount, KeyQoS, KeyQoS, KeyPriority, 200}, []string{"be", "bu", "gu", "un"}},
	} {
		if got := ids(Rank(cs, MemoryAvailable, SingleFS, v.keys)); !slices.Equal(got, v.want) {
			t.Errorf("%s: ranked %v, want %v", v.name, got, v.want)
		}
	}
	first := Rank(cs, MemoryAvailable, SingleFS, []Key{KeyQoS, KeyOverRequest, KeyPriority, KeyUsage, KeyGrowth})[1]
	want := []KeyValue{{KeyQoS, int64(Burstable)}, {KeyOverRequest, 0}, {KeyPriority, 1}, {KeyUsage, -200 * mi}, {KeyGrowth, Unknown}}
	if !slices.Equal(first.Keys, want) || first.Position != 2 || first.Usage != 300*mi || first.Request != 500*mi ||
		first.Yield != 299*mi || first.Over {
		t.Errorf("got %+v, want keys %v", first, want)
	}
}

// TestRankTies: pods that are equal by every key rank by age, then by ID.
func TestRankTies(t *testing.T) {
	cs := []Candidate{
		{ID: "c", Memory: Known(5)}, {ID: "a", Memory: Known(5)}, {ID: "young", Memory: Known(5), Created: time.Second},
		{ID: "b", Memory: Known(5)}, {ID: "old", Memory: Known(5), Created: -time.Hour},
	}
	want := []string{"young", "a", "b", "c", "old"}
	if got := ids(Rank(cs, PIDAvailable, SingleFS, []Key{KeyPriority})); !slices.Equal(got, want) {
		t.Errorf("without usage ranked %v, want %v", got, want)
	}
	if got := ids(Rank(cs, MemoryAvailable, SingleFS, nil)); !slices.Equal(got, want) {
		t.Errorf("ranked %v, want %v", got, want)
	}
}

// TestRankFinishesBySize: with any keys, equal pods rank by larger usage − request first, then by age.
func TestRankFinishesBySize(t *testing.T) {
	cs := []Candidate{
		{ID: "a", Memory: Known(5), Created: time.Hour}, {ID: "b", Memory: Known(7)}, {ID: "c", Memory: Known(9), MemoryRequest: 3},
	}
	if got, want := ids(Rank(cs, MemoryAvailable, SingleFS, []Key{KeyPriority})), []string{"b", "c", "a"}; !slices.Equal(got, want) {
		t.Errorf("ranked %v, want %v", got, want)
	}
}

// TestStatSets checks which parts count as usage in each layout: rootfs 1, logs 2, volumes 4.
func TestStatSets(t *testing.T) {
	for _, v := range []struct {
		layout  Layout
		apart   bool     // logs on a separate device
		amounts [3]int64 // nodefs, imagefs, containerfs
	}{
		{SingleFS, false, [3]int64{7, 7, 7}}, {DedicatedImageFS, false, [3]int64{6, 1, 1}}, {SplitFS, false, [3]int64{7, 0, 7}},
		{DedicatedContainerFS, false, [3]int64{6, 6, 1}}, {SeparateFS, false, [3]int64{6, 0, 1}},
		{SingleFS, true, [3]int64{5, 5, 5}}, {DedicatedImageFS, true, [3]int64{4, 1, 1}}, {SplitFS, true, [3]int64{5, 0, 5}},
		{DedicatedContainerFS, true, [3]int64{4, 4, 1}}, {SeparateFS, true, [3]int64{4, 0, 1}},
	} {
		u := DiskUsage{Rootfs: Exactly(1), Logs: Exactly(2), Volumes: Exactly(4), LogsPlace: LogsPlace{LogsApart: v.apart}}
		for i, signals := range [][2]Signal{
			{NodeFSAvailable, NodeFSInodesFree}, {ImageFSAvailable, ImageFSInodesFree}, {ContainerFSAvailable, ContainerFSInodesFree},
		} {
			for j, s := range signals {
				c := Candidate{ID: "x", StorageRequest: 3}
				if j == 0 {
					c.Disk = u
				} else {
					c.Inodes = u
				}
				r := Rank([]Candidate{c}, s, v.layout, nil)[0]
				if r.Usage != v.amounts[i] || !r.Known() || (r.Request == 3) != (j == 0) {
					t.Errorf("%s, %s, logs apart %v: usage %d of request %d, want %d", v.layout, s, v.apart, r.Usage, r.Request, v.amounts[i])
				}
			}
		}
	}
	c := Candidate{ID: "x", PIDs: Known(8), Memory: Known(9)}
	for s, amount := range map[Signal]int64{
		PIDAvailable: 8, MemoryAvailable: 9, AllocatableMemoryAvailable: 9, MeminfoAvailable: 9, SwapAvailable: 9, MemoryStall: 9, IOStall: 9,
	} {
		if got := Rank([]Candidate{c}, s, SingleFS, nil)[0].Usage; got != amount {
			t.Errorf("%s ranks %d, want %d", s, got, amount)
		}
	}
}

// TestRankHostile: wrong numbers never turn an excluded pod into a candidate.
func TestRankHostile(t *testing.T) {
	cs := []Candidate{
		{ID: "negative", Memory: Known(math.MinInt64), MemoryRequest: math.MinInt64, Priority: math.MinInt64},
		{ID: "huge", Memory: Known(math.MaxInt64), MemoryRequest: math.MinInt64, Priority: math.MaxInt64},
		{ID: "request", Memory: Known(1), MemoryRequest: math.MaxInt64, Created: math.MinInt64},
	}
	for i, r := range Rank(cs, MemoryAvailable, SingleFS, nil) {
		if r.Usage < 0 || r.Request < 0 || r.Yield < 0 {
			t.Errorf("%+v", r)
		}
		if want := []string{"huge", "negative", "request"}[i]; r.ID != want {
			t.Errorf("place %d is %s, want %s", i, r.ID, want)
		}
	}
	disk := DiskUsage{Rootfs: Exactly(math.MaxInt64), Logs: Exactly(math.MaxInt64), Volumes: Exactly(math.MinInt64)}
	if r := Rank([]Candidate{{ID: "x", Disk: disk}}, NodeFSAvailable, SingleFS, nil)[0]; r.Usage < 0 {
		t.Errorf("%+v", r)
	}
	if got := Rank(nil, MemoryAvailable, SingleFS, nil); len(got) != 0 {
		t.Errorf("no pods rank as %v", got)
	}
}

// randomPods returns pods with many ties and few large numbers.
func randomPods(r *rand.Rand, n int) []Candidate {
	amount := func(unit int64) Amount { return Amount{r.Int64N(4) * unit, r.IntN(5) > 0} }
	measured := func(unit int64) Measured {
		n := r.Int64N(3) * unit
		return pick(r, Measured{}, AtLeast(n), Exactly(n), Exactly(n), Exactly(n))
	}
	usage := func(unit int64) DiskUsage {
		return DiskUsage{Rootfs: measured(unit), Logs: measured(unit), Volumes: measured(unit), LogsPlace: LogsPlace{LogsApart: r.IntN(5) > 3}}
	}
	cs := make([]Candidate, n)
	for i := range cs {
		cs[i] = Candidate{
			ID: strconv.Itoa(i), Priority: r.Int64N(3) - 1, QoS: QoS(r.IntN(4)), Created: time.Duration(r.IntN(3) - 1),
			MemoryRequest: r.Int64N(3) * mi, StorageRequest: r.Int64N(3) * mi, ActiveFile: r.Int64N(2) * ki,
			Memory: amount(mi), Swap: amount(mi), PIDs: amount(1), Growth: amount(1), Disk: usage(mi), Inodes: usage(32),
			Protection: pick(r, "", "", "", "static pod"), Workload: "default/w" + strconv.Itoa(r.IntN(4)),
			Survived: r.IntN(9) == 0, CameBack: r.IntN(5) == 0,
		}
	}
	return cs
}

func randomKeys(r *rand.Rand) []Key {
	keys := make([]Key, r.IntN(4))
	for i := range keys {
		keys[i] = Key(r.IntN(int(keyCount)))
	}
	return keys
}

func sameRanked(a, b Ranked) bool {
	return a.Candidate == b.Candidate && a.Position == b.Position && slices.Equal(a.Keys, b.Keys) && a.Usage == b.Usage &&
		a.Request == b.Request && a.Quality == b.Quality && a.Over == b.Over && a.Yield == b.Yield && a.Excluded == b.Excluded
}

// TestRankProperties: a permutation of the input yields the same ranking. No pod is lost. Candidates
// come before the excluded, with positions 1, 2, 3…; protected pods, unknown usage and yields below the floor are
// excluded.
func TestRankProperties(t *testing.T) {
	r := source(6)
	for range 10_000 {
		cs := randomPods(r, r.IntN(12))
		s, l, keys := Signal(r.IntN(int(SignalCount))), Layout(r.IntN(int(layoutCount))), randomKeys(r)
		ranked := Rank(cs, s, l, keys)
		shuffled := slices.Clone(cs)
		r.Shuffle(len(cs), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if again := Rank(shuffled, s, l, keys); !slices.EqualFunc(ranked, again, sameRanked) {
			t.Fatalf("%v in another order ranks %v", ids(ranked), ids(again))
		}
		seen := map[string]bool{}
		for i, p := range ranked {
			seen[p.ID] = true
			switch {
			case (p.Excluded == "") != (p.Position == i+1) || p.Excluded != "" && p.Position != 0:
				t.Fatalf("place %d: position %d, excluded %q", i, p.Position, p.Excluded)
			case p.Protection != "" && p.Excluded != p.Protection:
				t.Fatalf("a protected pod is excluded as %q", p.Excluded)
			case i > 0 && p.Excluded == "" && ranked[i-1].Excluded != "":
				t.Fatalf("%+v comes before %+v", ranked[i-1], p)
			case p.Excluded == "" && (!p.Known() || p.Yield < l.Pool(s).floor() || p.Survived):
				t.Fatalf("a candidate: %+v", p)
			}
		}
		if len(seen) != len(cs) {
			t.Fatalf("ranked %d of %d", len(seen), len(cs))
		}
	}
}

// raiseRequest raises a Guaranteed pod's request to its usage and returns the difference.
func raiseRequest(c *Candidate) int64 {
	old := c.MemoryRequest
	if c.QoS == Guaranteed {
		c.MemoryRequest = max(old, c.Memory.Value)
	}
	return c.MemoryRequest - old
}

// TestRankAgainstRule compares the default order with the documented rule: usage over request, lower
// priority, larger usage − request, younger, ID. The request of a Guaranteed pod counts as at least its
// usage.
func TestRankAgainstRule(t *testing.T) {
	r := source(7)
	for range 10_000 {
		cs := randomPods(r, r.IntN(12))
		for i := range cs {
			cs[i].Protection, cs[i].Survived = "", false
			cs[i].Memory.Value += 2 * mi
		}
		want := slices.Clone(cs)
		sort.Slice(want, func(i, j int) bool {
			a, b := want[i], want[j]
			beyondA, beyondB := raiseRequest(&a), raiseRequest(&b)
			if a.Memory.Known != b.Memory.Known {
				return a.Memory.Known
			}
			if a.Memory.Known {
				overA, overB := a.Memory.Value > a.MemoryRequest, b.Memory.Value > b.MemoryRequest
				if overA != overB {
					return overA
				}
			}
			if a.Priority != b.Priority {
				return a.Priority < b.Priority
			}
			if sizeA, sizeB := a.Memory.Value-a.MemoryRequest, b.Memory.Value-b.MemoryRequest; a.Memory.Known && sizeA != sizeB {
				return sizeA > sizeB
			}
			if beyondA != beyondB && a.Memory.Known {
				return beyondA == 0 || beyondB > 0 && beyondA > beyondB
			}
			if a.Created != b.Created {
				return a.Created > b.Created
			}
			return a.ID < b.ID
		})
		for i, got := range Rank(cs, MemoryAvailable, SingleFS, nil) {
			if got.ID != want[i].ID {
				t.Fatalf("place %d is %+v, want %+v", i, got.Candidate, want[i])
			}
		}
	}
}
