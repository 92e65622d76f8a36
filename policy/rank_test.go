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
		return DiskUsage{Rootfs: rootfs * mi, Logs: logs * mi, Volumes: volumes * mi, Known: true}
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
			if got := ids(Rank(v.pods, v.signal, SingleFS, v.keys, 0)); !slices.Equal(got, v.want) {
				t.Errorf("ranked %v, want %v", got, v.want)
			}
		})
	}
}

func TestRankKeys(t *testing.T) {
	cs := []Candidate{
		{ID: "be", QoS: BestEffort, Memory: Known(100), Growth: Known(-5), Priority: 3},
		{ID: "gu", QoS: Guaranteed, Memory: Known(200), MemoryRequest: 500, Growth: Known(9), Priority: 2},
		{ID: "bu", QoS: Burstable, Memory: Known(300), MemoryRequest: 500, Priority: 1},
		{ID: "un", Memory: Known(50), Growth: Known(0), Priority: 1, Created: time.Hour},
	}
	for _, v := range []struct {
		name string
		keys []Key
		want []string
	}{
		{"default", nil, []string{"un", "be", "bu", "gu"}},
		{"priority", []Key{KeyPriority}, []string{"un", "bu", "gu", "be"}},
		{"growth, not known last", []Key{KeyGrowth}, []string{"gu", "un", "be", "bu"}},
		{"class, not known last", []Key{KeyQoS}, []string{"be", "bu", "gu", "un"}},
		{"repeated and unknown keys are nothing", []Key{keyCount, KeyQoS, KeyQoS, KeyPriority, 200}, []string{"be", "bu", "gu", "un"}},
	} {
		if got := ids(Rank(cs, MemoryAvailable, SingleFS, v.keys, 0)); !slices.Equal(got, v.want) {
			t.Errorf("%s: ranked %v, want %v", v.name, got, v.want)
		}
	}
	first := Rank(cs, MemoryAvailable, SingleFS, []Key{KeyQoS, KeyOverRequest, KeyPriority, KeyUsage, KeyGrowth}, 0)[1]
	want := []KeyValue{{KeyQoS, int64(Burstable)}, {KeyOverRequest, 0}, {KeyPriority, 1}, {KeyUsage, -200}, {KeyGrowth, Unknown}}
	if !slices.Equal(first.Keys, want) || first.Position != 2 || first.Usage != 300 || first.Request != 500 || first.Frees != 300 {
		t.Errorf("got %+v, want keys %v", first, want)
	}
}

// TestRankTies: what is equal by every key is told apart by age, then by ID.
func TestRankTies(t *testing.T) {
	cs := []Candidate{
		{ID: "c", Memory: Known(5)}, {ID: "a", Memory: Known(5)}, {ID: "young", Memory: Known(5), Created: time.Second},
		{ID: "b", Memory: Known(5)}, {ID: "old", Memory: Known(5), Created: -time.Hour},
	}
	want := []string{"young", "a", "b", "c", "old"}
	if got := ids(Rank(cs, PIDAvailable, SingleFS, []Key{KeyPriority}, 0)); !slices.Equal(got, want) {
		t.Errorf("without usage ranked %v, want %v", got, want)
	}
	if got := ids(Rank(cs, MemoryAvailable, SingleFS, nil, 0)); !slices.Equal(got, want) {
		t.Errorf("ranked %v, want %v", got, want)
	}
}

// TestRankFinishesBySize: whatever the keys, the larger usage − request goes first
// among equals, before the younger.
func TestRankFinishesBySize(t *testing.T) {
	cs := []Candidate{
		{ID: "a", Memory: Known(5), Created: time.Hour}, {ID: "b", Memory: Known(7)}, {ID: "c", Memory: Known(9), MemoryRequest: 3},
	}
	if got, want := ids(Rank(cs, MemoryAvailable, SingleFS, []Key{KeyPriority}, 0)), []string{"b", "c", "a"}; !slices.Equal(got, want) {
		t.Errorf("ranked %v, want %v", got, want)
	}
}

// TestStatSets is what counts as usage, by layout: rootfs 1, logs 2, volumes 4.
func TestStatSets(t *testing.T) {
	for _, v := range []struct {
		layout  Layout
		apart   bool     // the logs
		amounts [3]int64 // nodefs, imagefs, containerfs
	}{
		{SingleFS, false, [3]int64{7, 7, 7}}, {DedicatedImageFS, false, [3]int64{6, 1, 1}}, {SplitFS, false, [3]int64{7, 0, 7}},
		{SingleFS, true, [3]int64{5, 5, 5}}, {DedicatedImageFS, true, [3]int64{4, 1, 1}}, {SplitFS, true, [3]int64{5, 0, 5}},
	} {
		u := DiskUsage{Rootfs: 1, Logs: 2, Volumes: 4, Known: true, LogsApart: v.apart}
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
				r := Rank([]Candidate{c}, s, v.layout, nil, 0)[0]
				if r.Usage != v.amounts[i] || !r.Known || (r.Request == 3) != (j == 0) {
					t.Errorf("%s, %s, logs apart %v: usage %d of request %d, want %d", v.layout, s, v.apart, r.Usage, r.Request, v.amounts[i])
				}
			}
		}
	}
	c := Candidate{ID: "x", PIDs: Known(8), Memory: Known(9)}
	for s, amount := range map[Signal]int64{
		PIDAvailable: 8, MemoryAvailable: 9, AllocatableMemoryAvailable: 9, MeminfoAvailable: 9, SwapAvailable: 9, MemoryStall: 9, IOStall: 9,
	} {
		if got := Rank([]Candidate{c}, s, SingleFS, nil, 0)[0].Usage; got != amount {
			t.Errorf("%s ranks %d, want %d", s, got, amount)
		}
	}
}

func TestRankDeficit(t *testing.T) {
	cs := []Candidate{
		{ID: "tiny", Memory: Known(9), PIDs: Known(9), Disk: DiskUsage{Rootfs: 9, Known: true}, Inodes: DiskUsage{Rootfs: 9, Known: true}, Priority: -1},
		{ID: "big", Memory: Known(500), Protection: "static pod"},
	}
	excluded := func(s Signal, deficit int64) string {
		ranked := Rank(cs, s, SingleFS, nil, deficit)
		return ranked[slices.IndexFunc(ranked, func(r Ranked) bool { return r.ID == "tiny" })].Excluded
	}
	if got := excluded(MemoryAvailable, 1000); got != ExcludedTooSmall {
		t.Errorf("beside a protected pod that uses it all: excluded %q", got)
	}
	for _, deficit := range []int64{math.MinInt64, -1, 0, 1, 900} {
		if got := excluded(MemoryAvailable, deficit); got != "" {
			t.Errorf("with a deficit of %d excluded %q", deficit, got)
		}
	}
	if got := excluded(MemoryStall, 1000); got != "" {
		t.Errorf("a stall's deficit is compared with bytes: excluded %q", got)
	}
	for s, want := range map[Signal]string{MemoryAvailable: "", PIDAvailable: "", NodeFSAvailable: ExcludedTooSmall, NodeFSInodesFree: ExcludedTooSmall} {
		if got := excluded(s, math.MaxInt64); got != want {
			t.Errorf("%s, where nobody has 1 %%: excluded %q, want %q", s, got, want)
		}
	}
}

// TestRankHostile: no number, however wrong, makes a candidate of who is none.
func TestRankHostile(t *testing.T) {
	cs := []Candidate{
		{ID: "negative", Memory: Known(math.MinInt64), MemoryRequest: math.MinInt64, Priority: math.MinInt64},
		{ID: "huge", Memory: Known(math.MaxInt64), MemoryRequest: math.MinInt64, Priority: math.MaxInt64},
		{ID: "request", Memory: Known(1), MemoryRequest: math.MaxInt64, Created: math.MinInt64},
	}
	for i, r := range Rank(cs, MemoryAvailable, SingleFS, nil, math.MaxInt64) {
		if r.Usage < 0 || r.Request < 0 || r.Frees < 0 {
			t.Errorf("%+v", r)
		}
		if want := []string{"huge", "negative", "request"}[i]; r.ID != want {
			t.Errorf("place %d is %s, want %s", i, r.ID, want)
		}
	}
	disk := DiskUsage{Rootfs: math.MaxInt64, Logs: math.MaxInt64, Volumes: math.MinInt64, Known: true}
	if r := Rank([]Candidate{{ID: "x", Disk: disk}}, NodeFSAvailable, SingleFS, nil, 1)[0]; r.Usage < 0 {
		t.Errorf("%+v", r)
	}
	if got := Rank(nil, MemoryAvailable, SingleFS, nil, 1); len(got) != 0 {
		t.Errorf("nobody ranks as %v", got)
	}
}

// randomPods has many ties and few large numbers.
func randomPods(r *rand.Rand, n int) []Candidate {
	amount := func() Amount { return Amount{r.Int64N(4), r.IntN(5) > 0} }
	usage := func() DiskUsage {
		return DiskUsage{Rootfs: r.Int64N(3), Logs: r.Int64N(2), Volumes: r.Int64N(2), Known: r.IntN(5) > 0, LogsApart: r.IntN(5) > 3}
	}
	cs := make([]Candidate, n)
	for i := range cs {
		cs[i] = Candidate{
			ID: strconv.Itoa(i), Priority: r.Int64N(3) - 1, QoS: QoS(r.IntN(4)), Created: time.Duration(r.IntN(3) - 1),
			MemoryRequest: r.Int64N(3), StorageRequest: r.Int64N(3),
			Memory: amount(), Swap: amount(), PIDs: amount(), Growth: amount(), Disk: usage(), Inodes: usage(),
			Protection: pick(r, "", "", "", "static pod"), Workload: "default/w" + strconv.Itoa(r.IntN(4)),
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
		a.Request == b.Request && a.Known == b.Known && a.Frees == b.Frees && a.ByMemory == b.ByMemory && a.Excluded == b.Excluded
}

// TestRankProperties: a permutation of the input ranks the same; nobody is lost;
// candidates come before the excluded, with positions 1, 2, 3…; protected pods
// are excluded; known usage comes before unknown.
func TestRankProperties(t *testing.T) {
	r := source(6)
	for range 10_000 {
		cs := randomPods(r, r.IntN(12))
		s, l, keys, deficit := Signal(r.IntN(int(SignalCount))), Layout(r.IntN(3)), randomKeys(r), r.Int64N(400)
		ranked := Rank(cs, s, l, keys, deficit)
		shuffled := slices.Clone(cs)
		r.Shuffle(len(cs), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if again := Rank(shuffled, s, l, keys, deficit); !slices.EqualFunc(ranked, again, sameRanked) {
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
			case i > 0 && p.Excluded == "" && (ranked[i-1].Excluded != "" || p.Known && !ranked[i-1].Known):
				t.Fatalf("%+v comes before %+v", ranked[i-1], p)
			case p.Excluded == "" && p.Known && p.Frees == 0:
				t.Fatalf("a candidate that frees nothing: %+v", p)
			}
		}
		if len(seen) != len(cs) {
			t.Fatalf("ranked %d of %d", len(seen), len(cs))
		}
	}
}

// TestRankAgainstRule compares the default order with the rule as it is written
// down: usage over request, lower priority, larger usage − request, younger, ID.
func TestRankAgainstRule(t *testing.T) {
	r := source(7)
	for range 10_000 {
		cs := randomPods(r, r.IntN(12))
		for i := range cs {
			cs[i].Protection = ""
			cs[i].Memory.Value++
		}
		want := slices.Clone(cs)
		sort.Slice(want, func(i, j int) bool {
			a, b := want[i], want[j]
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
			if a.Created != b.Created {
				return a.Created > b.Created
			}
			return a.ID < b.ID
		})
		for i, got := range Rank(cs, MemoryAvailable, SingleFS, nil, 0) {
			if got.ID != want[i].ID {
				t.Fatalf("place %d is %+v, want %+v", i, got.Candidate, want[i])
			}
		}
	}
}
