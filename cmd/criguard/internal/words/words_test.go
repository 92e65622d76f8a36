package words

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
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
		"1d": now.AddDate(0, 0, -1), "1.5d": now.Add(-36 * time.Hour), "16:10": time.Date(2026, 4, 30, 16, 10, 0, 0, time.UTC),
		"11:59:30": now.Add(-30 * time.Second), "12:00": now, "2026-05-01": now.Add(-12 * time.Hour),
		"2026-04-30 12:00": now.AddDate(0, 0, -1), "2026-05-01 11:59:59": now.Add(-time.Second),
		"": {}, "0s": {}, "-1h": {}, "d": {}, "-1d": {}, "0d": {}, "1e9d": {}, "NaNd": {}, "24:00": {}, "yesterday": {},
		"2026-05-02": {}, "2026-05-01 12:01": {}, "2026-05-01T12:00:01Z": {}, "2026-05-01T12:00:00Z": now,
	} {
		got, err := ParseSince(s, now)
		if !got.Equal(want) || (err == nil) == want.IsZero() {
			t.Errorf("%q: %s, %v, want %s", s, got, err, want)
		}
	}
}

func TestEventsOfAReload(t *testing.T) {
	p := &api.Pass{Command: &api.CommandView{Command: api.CommandReload, By: &api.Peer{}, Verdict: "refused: typo"}}
	if got := Events(p); len(got) != 1 || got[0] != (Event{"reload by root", "refused: typo"}) {
		t.Errorf("%q", got)
	}
}

// A hold says when the stop may be made, or when the fleet is asked again.
func TestEventsOfAHold(t *testing.T) {
	p := &api.Pass{Held: api.HeldFleet, HeldDetail: "zone z1 is partial: 0/s", HeldBy: "memory.available:soft", NextStopIn: api.Duration(30 * time.Second)}
	if got := Events(p); len(got) != 1 || got[0] != (Event{"held back: fleet: zone z1 is partial: 0/s, asked again in 30s", "memory.available:soft"}) {
		t.Errorf("got %q", got)
	}
	p = &api.Pass{Held: api.HeldBudget, HeldBy: "memory.available:soft", NextStopIn: api.Duration(30 * time.Second)}
	if got := Events(p); len(got) != 1 || got[0].What != "held back: budget, next stop allowed in 30s" {
		t.Errorf("got %q", got)
	}
}

// The history says when the runtime did not answer, for how long, and why.
func TestEventsOfTheRuntime(t *testing.T) {
	for _, c := range []struct {
		change api.RuntimeChange
		want   Event
	}{
		{api.RuntimeChange{Error: "EOF"}, Event{"runtime unavailable", "EOF"}},
		{api.RuntimeChange{Error: "EOF", For: 61_000_400_000}, Event{"runtime unavailable", "for 1m1s: EOF"}},
		{api.RuntimeChange{Up: true, For: 2_345_678_901}, Event{"runtime available again", "it was unavailable for 2.346s"}},
		{api.RuntimeChange{Up: true}, Event{"runtime available again", ""}},
	} {
		if got := Events(&api.Pass{Runtime: &c.change}); len(got) != 1 || got[0] != c.want {
			t.Errorf("%+v: %q, want %q", c.change, got, c.want)
		}
	}
}

// The end of pressure says that it is that.
func TestEventsOfConditions(t *testing.T) {
	met := []api.MetView{{Threshold: "memory.available:hard"}}
	memory := policy.ConditionsOf(policy.MemoryPressure)
	for _, c := range []struct {
		pass api.Pass
		want Event
	}{
		{api.Pass{Conditions: memory, Met: met}, Event{"conditions: MemoryPressure", "memory.available:hard"}},
		{api.Pass{Met: met}, Event{"conditions: none", "memory.available:hard"}}, // which only warns, or in its grace period
		{api.Pass{}, Event{"conditions: none", "pressure has ended: no threshold was met for pressure_transition_period, or since a restart"}},
	} {
		c.pass.Changed = true
		if got := Events(&c.pass); len(got) != 1 || got[0] != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// In observe mode, the text never claims that something was removed.
func TestEventsOfAReclaim(t *testing.T) {
	for report, want := range map[*reclaim.Report]string{
		{}:                           "reclaimed images: 1 removed, 10Mi freed",
		{DryRun: true}:               "would reclaim images: 1 would be removed",
		{DryRun: true, AtMost: true}: "would reclaim images: at most 1 would be removed",
	} {
		report.Step, report.Removed = reclaim.StepImages, []reclaim.Item{{Name: "a"}}
		p := api.Pass{Reclaimed: []api.ReclaimView{{
			Signal: policy.ImageFSAvailable, Steps: []string{"images"}, Freed: 10 << 20,
			Reports: []reclaim.Report{*report},
		}}}
		if got := Events(&p); len(got) != 1 || got[0].What != want {
			t.Errorf("%+v, want %q", got, want)
		}
	}
}

// A reclaim that found nothing says so, and that most of the time was not for removing.
func TestEventsOfAFutileReclaim(t *testing.T) {
	p := api.Pass{Reclaimed: []api.ReclaimView{{
		Signal: policy.ImageFSAvailable, Steps: []string{"logs", "images"}, Took: api.Duration(9660 * time.Millisecond),
		Reports: []reclaim.Report{{Step: reclaim.StepLogs, Took: api.Duration(4 * time.Millisecond)}, {Step: reclaim.StepImages, Took: api.Duration(7 * time.Millisecond)}},
	}}}
	want := Event{"nothing to reclaim: logs, images", "imagefs.available in 9.66s (removal 11ms, the rest measuring and waiting)"}
	if got := Events(&p); len(got) != 1 || got[0] != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	p.Reclaimed[0].Reports[1].Errors = []reclaim.Failure{{}}
	if got := Events(&p); got[0].What != "reclaimed logs, images: 0 removed, 1 failed" {
		t.Errorf("with a failure: %+v", got)
	}
}

// A reclaim that removed nothing says why: what each step keeps, what is switched off, and the first failure.
func TestEventsOfAReclaimSayWhy(t *testing.T) {
	for want, r := range map[string]api.ReclaimView{
		"in 0s; images kept: in use (4), younger than min_age (2)": {Reports: []reclaim.Report{
			{Step: reclaim.StepContainers}, {Step: reclaim.StepImages, KeptFor: []reclaim.Kept{{Why: "in use", Items: 4}, {Why: "younger than min_age", Items: 2}}},
		}},
		"in 0s; images kept: a (1), b (1), c (1), …": {Reports: []reclaim.Report{
			{Step: reclaim.StepImages, KeptFor: []reclaim.Kept{{Why: "a", Items: 1}, {Why: "b", Items: 1}, {Why: "c", Items: 1}, {Why: "d", Items: 1}}},
		}},
		"in 0s; switched off: containers, sandboxes": {Off: []string{"containers", "sandboxes"}},
		"in 0s": {Off: []string{"logs"}, Reports: []reclaim.Report{
			{Step: reclaim.StepContainers, Removed: []reclaim.Item{{}}}, {Step: reclaim.StepImages, KeptFor: []reclaim.Kept{{Why: "in use", Items: 4}}},
		}},
		"in 0s; failed: no": {Reports: []reclaim.Report{{Errors: []reclaim.Failure{{Message: "no"}, {Message: "nor this"}}}}},
	} {
		r.Signal = policy.ImageFSAvailable
		if got := Events(&api.Pass{Reclaimed: []api.ReclaimView{r}}); len(got) != 1 || got[0].Why != "imagefs.available "+want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A manual prune is one event, whose reason is the result, and it names no signal.
func TestEventsOfAPrune(t *testing.T) {
	r := api.ReclaimView{
		Signal: policy.ImageFSAvailable, Steps: []string{"containers", "images"}, Took: api.Duration(3 * time.Millisecond),
		Reports: []reclaim.Report{{Step: reclaim.StepImages, KeptFor: []reclaim.Kept{{Why: "in use", Items: 4}}}},
	}
	p := api.Pass{Command: &api.CommandView{Command: api.CommandPrune, By: &api.Peer{}}, Reclaimed: []api.ReclaimView{r}}
	want := Event{"prune by root", "nothing to reclaim: containers, images, in 3ms; images kept: in use (4)"}
	if got := Events(&p); len(got) != 1 || got[0] != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p.Reclaimed[0].Freed, p.Reclaimed[0].Reports[0].Removed = 382<<20, []reclaim.Item{{Name: "a"}}
	want.Why = "reclaimed containers, images: 1 removed, 382Mi freed, in 3ms"
	if got := Events(&p); len(got) != 1 || got[0] != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The decision names the first key in which the first and the second pod differ.
func TestDecided(t *testing.T) {
	key := func(over, priority int64) []policy.KeyValue {
		return []policy.KeyValue{{Key: policy.KeyOverRequest, Value: over}, {Key: policy.KeyPriority, Value: priority}}
	}
	a := api.RankedView{Position: 1, Pod: "a", Sandbox: "1", Keys: key(1, 0)}
	for _, c := range []struct {
		name  string
		other []api.RankedView
		want  string
	}{
		{"alone", []api.RankedView{{Pod: "c", Excluded: "static pod"}}, "a was the only candidate"},
		{"first key", []api.RankedView{{Position: 2, Pod: "b", Keys: key(0, -5)}}, "a before b, by the first key in which they differ: over_request=yes, not over_request=no"},
		{"came back", []api.RankedView{{Position: 2, Pod: "b", Sandbox: "2", Standing: "helps, came back", Keys: key(0, 0)}}, "a ranks first; b, which ranks 2, comes before it (helps, came back)"},
		{"second key", []api.RankedView{{Position: 2, Pod: "b", Keys: key(1, 5)}}, "a before b, by the first key in which they differ: priority=0, not priority=5"},
		{"alike", []api.RankedView{{Position: 2, Pod: "b", Keys: key(1, 0)}}, "a before b, alike in every key: by size, then the younger, then the ID"},
	} {
		stopped := "1"
		if c.name == "came back" {
			stopped = "2"
		}
		p := api.Pass{Stop: &api.StopView{Signal: "memory.available", Sandbox: stopped}, Ranked: append([]api.RankedView{a}, c.other...)}
		if got := decided(&p); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Of a ranking of which only the first pods are kept, neither the others nor why one of them was stopped is said.
func TestExplanationOfWhatIsKept(t *testing.T) {
	pods := []api.RankedView{{Position: 1, Pod: "a", Sandbox: "1"}, {Position: 2, Pod: "b", Sandbox: "2"}, {Pod: "c", Excluded: "static pod"}}
	for _, c := range []struct {
		stopped string
		more    int
		decided bool
		others  int
	}{{"1", 0, true, 1}, {"1", 3, true, 0}, {"20", 3, false, 0}} {
		e := Find([]api.Pass{{ID: 7, Stop: &api.StopView{Signal: "memory.available", Sandbox: c.stopped}, Ranked: pods, RankedMore: c.more}}, 7)
		if (e.Decided != "") != c.decided || len(e.Excluded) != c.others {
			t.Errorf("%s, %d more: %q, %+v", c.stopped, c.more, e.Decided, e.Excluded)
		}
	}
}

// A stop is matched with its own result and with no other stop's.
func TestFind(t *testing.T) {
	view := func(pass uint64, sandbox string) api.StopView { return api.StopView{Pass: pass, Sandbox: sandbox} }
	stop := view(0, "s")
	passes := []api.Pass{
		{ID: 3, Stop: &stop}, {ID: 4, Settled: []api.StopView{view(2, "s"), view(3, "other")}}, {ID: 5, Settled: []api.StopView{view(3, "s")}},
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

// An explanation says how often the workload was stopped, whichever pod it was, and whether it is in back-off.
func TestAgain(t *testing.T) {
	now := time.Unix(1e9, 0)
	stop := func(id uint64, ago time.Duration, workload string) api.Pass {
		return api.Pass{ID: id, Time: now.Add(-ago), Stop: &api.StopView{Workload: workload, Backoff: api.Duration(time.Minute), Sandbox: fmt.Sprint(id)}}
	}
	passes := []api.Pass{
		stop(1, 100*time.Minute, "d/a"), stop(2, 50*time.Minute, "d/b"), stop(3, 40*time.Minute, "d/a"), stop(4, 30*time.Minute, ""),
		{ID: 5, Time: now, Held: api.HeldBudget}, stop(6, 20*time.Minute, "d/a"), stop(7, time.Second, "d/b"),
		{ID: 8, Time: now, Settled: []api.StopView{{Pass: 7, Sandbox: "7", Result: &api.StopResult{Emptied: true}}}},
	}
	dry := stop(9, 0, "d/b")
	dry.Stop.DryRun = true
	passes = append(passes, dry)
	inBackoff := "Workload d/b: 2 stops within an hour, this one included; in back-off until " + now.Add(59*time.Second).Local().Format("15:04:05") + " (soft stops of it wait)"
	for id, want := range map[uint64]string{
		1: "Workload d/a: 1 stop within an hour, this one included, and 2 since", 2: "Workload d/b: 1 stop within an hour, this one included, and 1 since",
		4: "", 5: "", 6: "Workload d/a: 2 stops within an hour, this one included, none since; not in back-off", 7: inBackoff, 9: "",
	} {
		if got := Find(passes, id).Again(now); got != want {
			t.Errorf("pass %d: %q, want %q", id, got, want)
		}
	}
	passes[6].Time = now.Add(-3 * time.Hour) // the clock was set back
	if got := Find(passes, 2).Again(now); !strings.HasSuffix(got, ", and 1 since") {
		t.Errorf("after the clock was set back: %q", got)
	}
	passes[6].Time = now.Add(-time.Second)
	passes[7].Settled[0].Result.Emptied = false // a stop that killed nothing causes no back-off
	if got := Find(passes, 7).Again(now); !strings.HasSuffix(got, "; not in back-off") {
		t.Errorf("after a failed stop: %q", got)
	}
}

// The need is described without the numbers that are 0.
func TestNeed(t *testing.T) {
	n := api.Need{Pool: policy.PoolMemory, Deficit: 532 << 10, Fill: 166 << 20, Need: 166 << 20, Helps: 8 << 20, Attainable: true, Tiers: []int64{1 << 30, 126 << 20}, Culprit: "d/a", CulpritGrowth: 100 << 20}
	const want = "The pool memory is short of 532Ki and fills at 166Mi/s. When a stop takes effect it needs 166Mi; a stop helps if it gives back 8Mi. " +
		"The pods above their request would give back 1Gi, the others 126Mi. d/a fills it at 100Mi/s"
	if got := Need(&n); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	n = api.Need{Pool: policy.PoolPIDs, Deficit: 3, Fill: 2, OutsideFill: 1, Need: 5, Helps: 1}
	const outside = "The pool pid is short of 3 and fills at 2/s, 1/s of it outside pods. When a stop takes effect it needs 5; a stop helps if it gives back 1. " +
		"Stopping pods cannot bring relief"
	if got := Need(&n); got != outside {
		t.Errorf("%s\nwant %s", got, outside)
	}
	n = api.Need{Pool: policy.PoolPIDs, Deficit: 3, Fill: 9, OutsideFill: 8, Need: 12, Helps: 1, Attainable: true, Protected: "d/p", ProtectedGrowth: 7}
	const protected = "The pool pid is short of 3 and fills at 9/s, 8/s of it outside the pods that may be stopped (d/p, which is protected, grows by 7/s). " +
		"When a stop takes effect it needs 12; a stop helps if it gives back 1"
	if got := Need(&n); got != protected {
		t.Errorf("%s\nwant %s", got, protected)
	}
}

// A pod that was not stopped has no time after which it was empty.
func TestEffectOfAFailedStop(t *testing.T) {
	what, how := Effect(&api.StopView{Pod: "d/slow", Result: &api.StopResult{SettledIn: api.Duration(4 * time.Second), Errors: []string{"one"}}})
	if what != "NOT stopped: d/slow" || how != "not empty after 4s; one" {
		t.Errorf("%q, %q", what, how)
	}
}

// Of a pod that ended while no service ran, it is not known when.
func TestEffectOfAStopWithoutTheService(t *testing.T) {
	_, how := Effect(&api.StopView{Pod: "d/a", Result: &api.StopResult{Emptied: true, Method: "runtime", SettledIn: api.Duration(4 * time.Second)}})
	if how != "runtime: found empty after 4s" {
		t.Errorf("%q", how)
	}
}

// A filter by pod finds every pass that did something to it: its stops, and the operators' commands that name it.
func TestFilterByPod(t *testing.T) {
	stop := &api.StopView{Pod: "default/shop"}
	command := func(name, pod string) *api.CommandView { return &api.CommandView{Command: name, Pod: pod} }
	passes := []api.Pass{
		{ID: 1, Stop: stop},
		{ID: 2, Settled: []api.StopView{*stop}},
		{ID: 3, Escalated: "default/shop"},
		{ID: 4, Command: command(api.CommandProtect, "default/shop")},
		{ID: 5, Command: command(api.CommandUnprotect, "default/shop")},
		{ID: 6, Command: command(api.CommandProtect, "default/workshop")},
		{ID: 7, Command: command(api.CommandPause, "")},
	}
	for _, c := range []struct {
		filter Filter
		want   []uint64
	}{
		{Filter{Pod: "default/shop"}, []uint64{1, 2, 3, 4, 5}},
		{Filter{Pod: "shop"}, []uint64{1, 2, 3, 4, 5}},
		{Filter{Pod: "workshop"}, []uint64{6}},
		{Filter{Pod: "shop", Stops: true}, []uint64{1, 2, 3}},
		{Filter{Pod: "other/shop"}, nil},
	} {
		var got []uint64
		for _, p := range c.filter.Newest(slices.Clone(passes), 0) {
			got = append(got, p.ID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: passes %v, want %v", c.filter, got, c.want)
		}
	}
}

// How long a threshold has been met is left out when it has just been.
func TestMet(t *testing.T) {
	m := api.MetView{Threshold: "memory.available:hard", Signal: policy.MemoryAvailable, Available: 90 << 20, Target: 100 << 20}
	for d, want := range map[time.Duration]string{0: "hard, below 100Mi by 10Mi", 2 * time.Minute: "hard, below 100Mi by 10Mi for 2m", 1500 * time.Microsecond: "hard, below 100Mi by 10Mi for 2ms"} {
		m.For = api.Duration(d)
		if got := Met(&api.Pass{Met: []api.MetView{m}}, policy.MemoryAvailable); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}
