package policy

import (
	"math"
	"slices"
	"testing"
)

// A sum is only as certain as its parts.
func TestMeasuredPlus(t *testing.T) {
	for _, c := range []struct {
		name       string
		a, b, want Measured
	}{
		{"both exact", Exactly(1), Exactly(2), Exactly(3)},
		{"one cut short", Exactly(1), AtLeast(2), AtLeast(3)},
		{"one unknown", Exactly(1), Measured{}, AtLeast(1)},
		{"one unknown beside nothing", Exactly(0), Measured{}, Measured{}},
		{"both unknown", Measured{}, Measured{}, Measured{}},
		{"cut short before anything was found", Exactly(0), AtLeast(0), Measured{}},
		{"more than there can be", Exactly(math.MaxInt64), Exactly(1), Exactly(math.MaxInt64)},
	} {
		if got, back := c.a.Plus(c.b), c.b.Plus(c.a); got != c.want || back != c.want {
			t.Errorf("%s: %+v and %+v, want %+v", c.name, got, back, c.want)
		}
	}
}

// Only the part on the pressed filesystem matters, so unknown usage of another filesystem does no harm.
func TestQualityByFilesystem(t *testing.T) {
	noLayers := DiskUsage{Logs: Exactly(2), Volumes: Exactly(4)}
	cutShort := DiskUsage{Rootfs: Exactly(1), Logs: Exactly(2), Volumes: AtLeast(4)}
	for _, c := range []struct {
		name   string
		usage  DiskUsage
		signal Signal
		layout Layout
		want   Measured
	}{
		{"layers unknown, on one filesystem", noLayers, NodeFSInodesFree, SingleFS, AtLeast(6)},
		{"layers unknown, on another filesystem", noLayers, NodeFSInodesFree, DedicatedImageFS, Exactly(6)},
		{"layers unknown, on theirs", noLayers, ImageFSInodesFree, DedicatedImageFS, Measured{}},
		{"volumes cut short, on theirs", cutShort, NodeFSInodesFree, DedicatedImageFS, AtLeast(6)},
		{"volumes cut short, on another filesystem", cutShort, ImageFSInodesFree, DedicatedImageFS, Exactly(1)},
		{"logs unknown, apart", DiskUsage{Rootfs: Exactly(1), Volumes: Exactly(4), LogsPlace: LogsPlace{LogsApart: true}}, NodeFSInodesFree, SingleFS, Exactly(5)},
		{"nothing known, of images", DiskUsage{}, ImageFSInodesFree, SplitFS, Exactly(0)},
	} {
		r := Rank([]Candidate{{ID: "x", Inodes: c.usage}}, c.signal, c.layout, nil)[0]
		if got := (Measured{r.Usage, r.Quality}); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// "At least" counts at its lower bound everywhere. Unknown is never treated as zero, and an unknown pod is
// never stopped by rank.
func TestRankIncomplete(t *testing.T) {
	volumes := func(m Measured) DiskUsage { return DiskUsage{Rootfs: Exactly(0), Logs: Exactly(0), Volumes: m} }
	cs := []Candidate{
		{ID: "exact", Disk: volumes(Exactly(300 * mi))},
		{ID: "at least", Disk: volumes(AtLeast(400 * mi))},
		{ID: "at least little", Disk: volumes(AtLeast(mi - 1)), Priority: -1},
		{ID: "little", Disk: volumes(Exactly(mi - 1)), Priority: -1},
		{ID: "none", Disk: volumes(Exactly(0)), Priority: -1},
		{ID: "unknown", Priority: -1},
		{ID: "protected", Protection: "static pod"},
	}
	ranked := Rank(cs, NodeFSAvailable, SingleFS, nil)
	if got := candidatesOf(ranked); !slices.Equal(got, []string{"at least", "exact"}) {
		t.Errorf("candidates %v", got)
	}
	want := map[string]string{
		"at least little": ExcludedTooSmall, "little": ExcludedTooSmall, "none": ExcludedTooSmall, "unknown": ExcludedUnknown, "protected": "static pod",
	}
	for _, r := range ranked {
		if r.Excluded != want[r.ID] {
			t.Errorf("%s: excluded %q, want %q", r.ID, r.Excluded, want[r.ID])
		}
	}
	q := lacking(NodeFSAvailable, 400*mi)
	if d := Decide(cs[1:], q); d.Victim == nil || d.Victim.ID != "at least" {
		t.Errorf("chose %+v", d)
	}
	if d := Decide(cs[2:], q); d.Victim != nil || d.Held != HeldUnknown {
		t.Errorf("without the two: %+v", d)
	}
}

// Another pod with partly unknown usage may be the one to stop. The victim itself and protected pods
// need no second measurement.
func TestUnmeasured(t *testing.T) {
	pod := func(id string, q Quality) Ranked { return Ranked{Candidate: Candidate{ID: id}, Quality: q} }
	protected := pod("p", QualityUnknown)
	protected.Protection = "static pod"
	for _, c := range []struct {
		name   string
		ranked []Ranked
		victim int // -1 = no victim
		want   bool
	}{
		{"all exact", []Ranked{pod("a", QualityExact), pod("b", QualityExact)}, 0, false},
		{"the victim in part", []Ranked{pod("a", QualityAtLeast), pod("b", QualityExact)}, 0, false},
		{"another in part", []Ranked{pod("a", QualityExact), pod("b", QualityAtLeast)}, 0, true},
		{"another not at all", []Ranked{pod("a", QualityExact), pod("b", QualityUnknown)}, 0, true},
		{"a protected one", []Ranked{pod("a", QualityExact), protected}, 0, false},
		{"no victim", []Ranked{pod("a", QualityAtLeast)}, -1, true},
	} {
		var victim *Ranked
		if c.victim >= 0 {
			victim = &c.ranked[c.victim]
		}
		if got := Unmeasured(c.ranked, victim); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
