package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// With few figures, the p99 is the maximum; the median of an even number is the mean of the middle
// two.
func TestSpread(t *testing.T) {
	var s spread
	for _, d := range []time.Duration{4, 1, 3, 2} {
		s.addTime(d * time.Millisecond)
	}
	s.finish()
	if s.Median != 2.5 || s.P99 != 4 || s.Min != 1 || s.Max != 4 || s.N != 4 {
		t.Errorf("%+v, want median 2.5, p99 4, min 1, max 4 of 4", s)
	}
	s = spread{}
	for i := range 200 {
		s.add(float64(i + 1))
	}
	if s.finish(); s.P99 != 198 {
		t.Errorf("p99 of 1 to 200 is %v, want 198", s.P99)
	}
}

// The crossing is interpolated between two samples, nearer to the one that is closer to the level.
func TestBetween(t *testing.T) {
	for _, c := range []struct {
		from, to     time.Duration
		above, below int64
		want         time.Duration
	}{
		{1000, 2000, 50, 50, 1500},
		{1000, 2000, 10, 90, 1100},
		{1000, 2000, 0, 7, 1000},
		{0, 2000, -90, 90, 2000}, // below the level from the first sample on
	} {
		if got := between(c.from, c.to, c.above, c.below); got != c.want {
			t.Errorf("between(%d, %d, %d, %d) = %d, want %d", c.from, c.to, c.above, c.below, got, c.want)
		}
	}
}

// goodReport returns a report that meets every goal.
func goodReport() *report {
	fast, slow := spread{Median: 10, P99: 30, Max: 30, N: 10}, spread{Median: 50, P99: 90, Max: 90, N: 10}
	r := &report{
		Cgroup:    "v1",
		Runtimes:  []latency{{Guard: ours, Case: "stopped", Dead: spread{Max: 90}}},
		Idle:      &idleCost{CPUPercent: 0.05, Wakeups: 4, ResidentMiB: 18},
		Passes:    []passCost{{Kind: "pressed", Sandboxes: 110, Each: 10}, {Kind: "pressed", Sandboxes: 1000, Each: 15}},
		Breaches:  &endurance{Breaches: 50},
		Footprint: &footprint{Off: memory{AnonMiB: 7}, On: memory{AnonMiB: 9}, Agent: memory{ResidentMiB: 20}, BinaryMiB: 25},
	}
	r.Empty = []litter{
		{Dead: spread{Median: 10}, Pass: spread{Median: 2}},
		{Empty: 2000, Dead: spread{Median: 16}, Pass: spread{Median: 4}},
	}
	// The largest figures of the first half are in its middle, and the last ones are just within their margins.
	r.Churn = []churn{
		{Cgroups: 10, PassMs: 1, ResidentMiB: 12, AnonMiB: 6, SlabMiB: 900, UnreclMiB: 90},
		{Pods: 250, Cgroups: 200, PassMs: 2, ResidentMiB: 14, AnonMiB: 7, SlabMiB: 1000, UnreclMiB: 100},
		{Pods: 500, Cgroups: 150, PassMs: 1.5, ResidentMiB: 13, AnonMiB: 6.5, SlabMiB: 950, UnreclMiB: 95},
		{Pods: 750, Cgroups: 900, PassMs: 9, ResidentMiB: 30, AnonMiB: 20, SlabMiB: 3000, UnreclMiB: 900},
		{Pods: 1000, Cgroups: 310, PassMs: 5, ResidentMiB: 16, AnonMiB: 9, SlabMiB: 1115, UnreclMiB: 125},
	}
	for i, c := range fleetCases() {
		l := latency{Guard: ours, Case: c.name, Dead: spread{Median: 13.5, N: 10}}
		if i == 0 {
			l.Dead.Median = 10
		}
		r.Fleet = append(r.Fleet, l)
	}
	for _, rate := range rates {
		r.Latency = append(r.Latency, latency{Guard: ours, Rate: rate, Dead: fast}, latency{Guard: withoutEvent, Rate: rate, Dead: fast},
			latency{Guard: "earlyoom", Rate: rate, Dead: slow, Wrong: 1})
	}
	return r
}

// missed returns the goals that a report misses.
func missed(r *report) (names []string) {
	r.finish()
	for _, g := range r.Goals {
		if !g.Met {
			names = append(names, g.Name)
		}
	}
	return names
}

// row returns a guard's row at a rate.
func row(r *report, guard string, rate float64) *latency {
	i := slices.IndexFunc(r.Latency, func(l latency) bool { return l.Guard == guard && l.Rate == rate })
	return &r.Latency[i]
}

// Each bad figure misses exactly its own goal.
func TestJudge(t *testing.T) {
	if got := missed(goodReport()); len(got) > 0 {
		t.Errorf("missed %q, want none", got)
	}
	for _, tt := range []struct {
		goal  string // part of its name
		spoil func(*report)
	}{
		{"hog dead", func(r *report) { row(r, ours, goalRate).Dead.Median = 16 }},
		{"(p99)", func(r *report) { row(r, ours, goalRate).Dead.P99 = 41 }},
		{ours + ", 800 MiB/s, 0 MiB of headroom: the right victim", func(r *report) { row(r, ours, goalRate).Wrong = 1 }},
		{"3 times as fast", func(r *report) { row(r, ours, 200).Dead.Median = 17 }},
		{withoutEvent + ", 200 MiB/s, 0 MiB of headroom: hog dead", func(r *report) {
			row(r, withoutEvent, 200).Dead.Median, row(r, "earlyoom", 200).Dead.Median = 16, 90
		}},
		{withoutEvent + ", 3000 MiB/s, 0 MiB of headroom: hog dead within 15 ms (median), 40 ms (worst)", func(r *report) {
			row(r, withoutEvent, 3000).Dead.Max = 41
		}},
		{"5 times as fast", func(r *report) { row(r, withoutEvent, 3000).Dead.Median = 11 }},
		{withoutEvent + ", 3000 MiB/s, 0 MiB of headroom: the right victim", func(r *report) { row(r, withoutEvent, 3000).Wrong = 1 }},
		{"within 100 ms", func(r *report) { r.Runtimes[0].Dead.Max = 101 }},
		{"% of a core", func(r *report) { r.Idle.CPUPercent = 0.051 }},
		{"wake-ups", func(r *report) { r.Idle.Wakeups = 4.1 }},
		{"nothing written", func(r *report) { r.Idle.Written = 4096 }},
		{"MiB resident", func(r *report) { r.Idle.ResidentMiB = 18.1 }},
		{"per sandbox", func(r *report) { r.Passes[1].Each = 21 }},
		{"agent hangs: the fleet does not delay", func(r *report) { r.Fleet[3].Dead.Median = 13.6 }},
		{"agent floods: no hard stop waits", func(r *report) { r.Fleet[4].Dead.Max = 101 }},
		{"agent lies: the fleet does not delay", func(r *report) { r.Fleet[5].Dead = spread{} }},
		{"agent floods: the right victim", func(r *report) { r.Fleet[4].Wrong = 1 }},
		{fleetOff + ": the right victim", func(r *report) { r.Fleet[0].Wrong = 1 }},
		{"agent: 20 MiB", func(r *report) { r.Footprint.Agent.ResidentMiB = 20.1 }},
		{"in a fleet", func(r *report) { r.Footprint.On.AnonMiB = 9.1 }},
		{"binary", func(r *report) { r.Footprint.BinaryMiB = 25.1 }},
		{"empty pod cgroups", func(r *report) { r.Empty[1].Dead.Median = 16.1 }},
		{"empty pod cgroups", func(r *report) { r.Empty[1].Pass.Median = 4.1 }},
		{"empty pod cgroups", func(r *report) { r.Empty[1].Wrong = 1 }},
		{"empty pod cgroups", func(r *report) { r.Empty[0].Wrong = 1 }},
		{"no more pod cgroups", func(r *report) { r.Churn[4].Cgroups = 311 }},
		{"killing pass takes no longer", func(r *report) { r.Churn[4].PassMs = 5.1 }},
		{"memory is flat", func(r *report) { r.Churn[4].ResidentMiB = 16.1 }},
		{"memory is flat", func(r *report) { r.Churn[4].AnonMiB = 9.1 }},
		{"slab is flat", func(r *report) { r.Churn[4].SlabMiB = 1117 }},
		{"slab is flat", func(r *report) { r.Churn[4].UnreclMiB = 127 }},
		{"come and go: the right victim", func(r *report) { r.Churn[3].Wrong = true }},
		{"in a row", func(r *report) { r.Breaches.Leaks = []string{"threads"} }},
	} {
		r := goodReport()
		tt.spoil(r)
		if got := missed(r); len(got) != 1 || !strings.Contains(got[0], tt.goal) {
			t.Errorf("missed %q, want the one with %q", got, tt.goal)
		}
	}
}

// On cgroup v2, the kernel has no event for memory.available, so that its row has the goals of one without an event. A
// large hog's row has none but the right victim.
func TestJudgeWithoutEvent(t *testing.T) {
	r := goodReport()
	r.Cgroup = "v2"
	row(r, ours, 200).Dead.Max = 41
	if got := missed(r); len(got) != 1 || !strings.Contains(got[0], "(worst)") {
		t.Errorf("missed %q, want the worst try at 200 MiB/s", got)
	}
	r = goodReport()
	r.Latency = append(r.Latency, latency{Guard: ours, Rate: goalRate, HeadroomMiB: deepHeadroom, Dead: spread{Median: 80, P99: 90, N: 5}},
		latency{Guard: "earlyoom", Rate: goalRate, HeadroomMiB: deepHeadroom, Dead: spread{Median: 90, P99: 99, N: 5}})
	if got := missed(r); len(got) > 0 {
		t.Errorf("missed %q with a large hog, want none", got)
	}
}

// Resources that grow between the early and the late count are leaks.
func TestEndurance(t *testing.T) {
	early := holdings{Shims: 110, Descriptors: 400, Threads: 9, Goroutines: 20, AnonMiB: 9}
	e := endurance{Early: early, Late: early}
	if e.judge(110); len(e.Leaks) > 0 {
		t.Errorf("leaks %q where nothing grew", e.Leaks)
	}
	e.Late = holdings{Shims: 111, Descriptors: 401, Threads: 10, Goroutines: 21, AnonMiB: 12}
	if e.judge(110); len(e.Leaks) != 5 {
		t.Errorf("leaks %q, want five", e.Leaks)
	}
}

// The regular expression parses the output of `go test -bench`.
func TestBenchLine(t *testing.T) {
	m := benchLine.FindStringSubmatch("goos: linux\nBenchmarkPass/pressed/110-2         \t    3000\t   1834605 ns/op\t  171055 B/op\t     902 allocs/op\n")
	if m == nil || m[1] != "pressed" || m[2] != "110" || m[3] != "1834605" || m[4] != "902" {
		t.Errorf("got %q", m)
	}
}
