package words

import (
	"testing"
	"time"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

func TestAgo(t *testing.T) {
	now := time.Unix(1e9, 0)
	for d, want := range map[time.Duration]string{
		-time.Second: "in the future", 0: "just now", 59 * time.Second: "59s ago", 61 * time.Second: "1m ago",
		25*time.Hour + 3*time.Minute: "25h 3m ago", 72 * time.Hour: "3d ago",
	} {
		if got := Ago(now.Add(-d), now); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

func TestParseSince(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for s, want := range map[string]time.Time{
		"90m": now.Add(-90 * time.Minute), "2026-05-01T10:00:00+02:00": now.Add(-4 * time.Hour),
		"": {}, "0s": {}, "-1h": {}, "yesterday": {}, "2026-05-01": {},
	} {
		got, err := ParseSince(s, now)
		if !got.Equal(want) || (err == nil) == want.IsZero() {
			t.Errorf("%q: %s, %v, want %s", s, got, err, want)
		}
	}
}

// What was not removed is not said to be: a guard is installed in observe mode.
func TestTellReclaimed(t *testing.T) {
	for dry, want := range map[bool]string{false: "reclaimed images: 1 removed, 10Mi freed", true: "would reclaim images: 1 would be removed"} {
		p := guard.Pass{Reclaimed: []guard.ReclaimView{{
			Signal: policy.ImageFSAvailable, Steps: []string{"images"}, Freed: 10 << 20,
			Reports: []reclaim.Report{{Step: reclaim.StepImages, DryRun: dry, Removed: []reclaim.Item{{Name: "a"}}}},
		}}}
		if got := Tell(&p); len(got) != 1 || got[0].What != want {
			t.Errorf("%+v, want %q", got, want)
		}
	}
}

// The first key in which the first and the second differ decided.
func TestDecided(t *testing.T) {
	key := func(over, priority int64) []policy.KeyValue {
		return []policy.KeyValue{{Key: policy.KeyOverRequest, Value: over}, {Key: policy.KeyPriority, Value: priority}}
	}
	a := guard.RankedView{Position: 1, Pod: "a", Sandbox: "1", Keys: key(1, 0)}
	for _, c := range []struct {
		name  string
		other []guard.RankedView
		want  string
	}{
		{"alone", []guard.RankedView{{Pod: "c", Excluded: "static pod"}}, "a was the only candidate"},
		{"first key", []guard.RankedView{{Position: 2, Pod: "b", Keys: key(0, -5)}}, "a before b, by the first key in which they differ: over_request=yes, not over_request=no"},
		{"the cause", []guard.RankedView{{Position: 2, Pod: "b", Sandbox: "2", Keys: key(0, 0)}}, "a ranks first; b, which ranks 2, was stopped for its reason"},
		{"second key", []guard.RankedView{{Position: 2, Pod: "b", Keys: key(1, 5)}}, "a before b, by the first key in which they differ: priority=0, not priority=5"},
		{"alike", []guard.RankedView{{Position: 2, Pod: "b", Keys: key(1, 0)}}, "a before b, alike in every key: by size, then the younger, then the ID"},
	} {
		stopped := "1"
		if c.name == "the cause" {
			stopped = "2"
		}
		p := guard.Pass{Stop: &guard.StopView{Signal: "memory.available", Sandbox: stopped}, Ranked: append([]guard.RankedView{a}, c.other...)}
		if got := decided(&p); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A stop is found with what became of it, and no other stop's.
func TestFind(t *testing.T) {
	view := func(pass uint64, sandbox string) guard.StopView { return guard.StopView{Pass: pass, Sandbox: sandbox} }
	stop := view(0, "s")
	passes := []guard.Pass{
		{ID: 3, Stop: &stop}, {ID: 4, Settled: []guard.StopView{view(2, "s"), view(3, "other")}}, {ID: 5, Settled: []guard.StopView{view(3, "s")}},
	}
	if e := Find(passes, 3); e == nil || e.Effect != &passes[2].Settled[0] || e.SettledBy != 5 {
		t.Errorf("pass 3: %+v", e)
	}
	if e := Find(passes, 0); e == nil || e.Pass.ID != 5 {
		t.Errorf("the last: %+v", e)
	}
	if e := Find(passes, 9); e != nil {
		t.Errorf("an unknown one: %+v", e)
	}
}
