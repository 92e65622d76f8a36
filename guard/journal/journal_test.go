package journal

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/metrics"
	"github.com/criguard/criguard/guard/metrics/metricstest"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
	"github.com/criguard/criguard/systemd"
)

// journalLines returns what a journal logs of passes, one line per record: level, message and the requested
// attributes.
func journalLines(t *testing.T, passes []api.Pass, keys ...string) []string {
	t.Helper()
	var text strings.Builder
	j := New(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		for _, key := range append(keys, slog.LevelKey, slog.MessageKey) {
			if a.Key == key {
				return a
			}
		}
		return slog.Attr{}
	}})))
	for i := range passes {
		j.Record(&passes[i])
	}
	if text.Len() == 0 {
		return nil
	}
	return strings.Split(strings.TrimSpace(text.String()), "\n")
}

// ended returns a pass that finds conditions of an earlier run ended.
func ended(conditions policy.Conditions) (p api.Pass) {
	p.End(conditions)
	return p
}

func TestJournal(t *testing.T) {
	memory := policy.ConditionsOf(policy.MemoryPressure)
	both := policy.ConditionsOf(policy.MemoryPressure, policy.DiskPressure)
	met := []api.MetView{{Threshold: "memory.available:hard", Signal: policy.MemoryAvailable}, {Threshold: "nodefs.available:soft", Signal: policy.NodeFSAvailable}}
	const by = "memory.available:hard"
	for _, c := range []struct {
		name   string
		passes []api.Pass
		keys   []string
		want   []string
	}{
		{"quiet", []api.Pass{{}, {}}, nil, nil},
		{
			"conditions, when they begin and end", []api.Pass{{Conditions: memory, Met: met[:1]}, {Conditions: memory, Met: met[:1]}, {Conditions: both, Met: met}, {Conditions: both}, {}},
			[]string{"condition", "reason"},
			[]string{
				`level=WARN msg="condition begins" condition=MemoryPressure reason=memory.available:hard`,
				`level=WARN msg="condition begins" condition=DiskPressure reason=nodefs.available:soft`,
				`level=INFO msg="condition ends" condition=MemoryPressure`,
				`level=INFO msg="condition ends" condition=DiskPressure`,
			},
		},
		{
			"the end of a condition of an earlier run", []api.Pass{ended(memory), {}}, []string{"condition"},
			[]string{`level=INFO msg="condition ends" condition=MemoryPressure`},
		},
		{
			"what holds a stop back, when it changes",
			[]api.Pass{
				{Met: met, Held: api.HeldBudget, HeldBy: by},
				{Met: met, Held: api.HeldBudget, HeldBy: by},
				{Met: met, Held: api.HeldInFlight, HeldBy: by}, // a transient reason is not logged and changes nothing
				{Met: met, Held: api.HeldBudget, HeldBy: by},
				{Met: met, Held: api.HeldBreaker, HeldBy: by},
				{Met: met, Held: api.HeldBreaker, HeldBy: "pid.available:hard"},
				{}, // cleared: the next time is logged again
				{Met: met, Held: api.HeldBreaker, HeldBy: by},
			},
			[]string{"threshold", "reason"},
			[]string{
				`level=WARN msg="stop held back" threshold=memory.available:hard reason=budget`,
				`level=WARN msg="stop held back" threshold=memory.available:hard reason=breaker`,
				`level=WARN msg="stop held back" threshold=pid.available:hard reason=breaker`,
				`level=WARN msg="stop held back" threshold=memory.available:hard reason=breaker`,
			},
		},
		{
			"a stop from its begin to its end",
			[]api.Pass{
				{Stop: &api.StopView{Pod: "d/a"}},
				{Escalated: "d/a"},
				{Settled: []api.StopView{{Pod: "d/a", Result: &api.StopResult{Emptied: true, EmptiedIn: 1e9}}, {Pod: "d/b", Result: &api.StopResult{Errors: []string{"one", "two"}}}}},
				{Stop: &api.StopView{Pod: "d/c", DryRun: true}},
				{Alarm: "three stops in a row"},
			},
			[]string{"pod", "emptied_in", "reason", systemd.EventKey},
			[]string{
				`level=WARN msg="stopping pod" ` + systemd.EventKey + `=stop-begin pod=d/a reason=""`,
				`level=WARN msg="hard threshold met: ending the grace period" ` + systemd.EventKey + `=stop-begin pod=d/a`,
				`level=WARN msg="stopped pod" ` + systemd.EventKey + `=stop-done pod=d/a emptied_in=1s`,
				`level=ERROR msg="pod not stopped" ` + systemd.EventKey + `=stop-failed pod=d/b reason="one; two"`,
				`level=WARN msg="would stop pod (observe mode)" ` + systemd.EventKey + `=stop-begin pod=d/c reason=""`,
				`level=ERROR msg="stopping pods brings no relief" ` + systemd.EventKey + `=alarm reason="three stops in a row"`,
			},
		},
		{
			"a reclaim",
			[]api.Pass{{Reclaimed: []api.ReclaimView{
				{Steps: []string{"containers", "images"}, Reports: []reclaim.Report{
					{Removed: []reclaim.Item{{}, {}}}, {Removed: []reclaim.Item{{}}, Errors: []reclaim.Failure{{Message: "in use"}}},
				}},
				{Steps: []string{"images"}, Reports: []reclaim.Report{{DryRun: true, Removed: []reclaim.Item{{}}}}},
				{Steps: []string{"images"}, Reports: []reclaim.Report{{DryRun: true, AtMost: true, Removed: []reclaim.Item{{}}}}},
			}}},
			[]string{"steps", "removed", "reason"},
			[]string{
				`level=INFO msg=reclaimed steps=containers,images removed=3`,
				`level=WARN msg="reclaim error" reason="in use"`,
				`level=INFO msg="would reclaim (observe mode)" steps=images removed=1`,
				`level=INFO msg="would reclaim at most (observe mode)" steps=images removed=1`,
			},
		},
		{
			"held",
			[]api.Pass{{Wake: "reload", Alarm: "a", AlarmKind: api.AlarmHeld}, {Wake: "start", Alarm: "b", AlarmKind: api.AlarmHeld}},
			[]string{"reason"},
			[]string{
				`level=ERROR msg="configuration held: a hard threshold is met already" reason=a`,
				`level=ERROR msg="hard threshold held: it is met already" reason=b`,
			},
		},
		{
			"commands",
			[]api.Pass{{Command: &api.CommandView{Command: api.CommandDrain, By: &api.Peer{}}}, {Command: &api.CommandView{Command: api.CommandPause, Reason: "upgrade", By: &api.Peer{UID: 7}}}, {Command: &api.CommandView{Command: api.CommandResume, Reason: "it is over"}}},
			[]string{"command", "reason", "by", "by_uid"},
			[]string{`level=WARN msg=command command=drain reason="" by=root by_uid=0`, `level=WARN msg=command command=pause reason=upgrade by="uid 7" by_uid=7`, `level=WARN msg=command command=resume reason="it is over"`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := journalLines(t, c.passes, c.keys...)
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// Amounts have units, and what is not known yet is not logged: the runtime confirms most stops later.
func TestJournalOfAStop(t *testing.T) {
	stop := func(signal string, r api.StopResult) []api.Pass {
		r.Emptied, r.EmptiedIn, r.SettledIn = true, 11_234_567, 98_765_432
		return []api.Pass{{Settled: []api.StopView{{Pod: "d/a", Signal: signal, Result: &r}}}}
	}
	const message, times = `level=WARN msg="stopped pod" `, `emptied_in=11.2ms settled_in=99ms`
	for _, c := range []struct {
		passes []api.Pass
		want   string
	}{
		{stop("memory.available", api.StopResult{Available: 600 << 20, Freed: 511 << 20}), message + times + ` available=600Mi freed=511Mi`},
		{stop("nodefs.inodesFree", api.StopResult{Available: 7000, Freed: 500, Confirmed: true}), message + times + ` available=7000 freed=500 confirmed=true`},
		{stop(api.SignalLimit, api.StopResult{}), message + times},
		{
			[]api.Pass{{Reclaimed: []api.ReclaimView{{Signal: policy.ImageFSAvailable, Freed: 3 << 30, Took: 1_234_567_890}}}},
			`level=INFO msg=reclaimed freed=3Gi took=1.235s`,
		},
		{[]api.Pass{{Reclaimed: []api.ReclaimView{{Signal: policy.ImageFSAvailable}}}}, `level=INFO msg=reclaimed took=0s`},
	} {
		got := journalLines(t, c.passes, "emptied_in", "settled_in", "available", "freed", "confirmed", "took")
		if len(got) != 1 || got[0] != c.want {
			t.Errorf("got %q\nwant %q", got, c.want)
		}
	}
}

// An overdue reclaim is logged as such.
func TestJournalOfAnOverdueReclaim(t *testing.T) {
	p := api.Pass{Alarm: "nodefs.available: slow", AlarmBy: "nodefs.available:hard", AlarmKind: api.AlarmReclaim}
	if lines := journalLines(t, []api.Pass{p}, "reason"); !slices.Contains(lines, `level=ERROR msg="reclaim takes too long" reason="nodefs.available: slow"`) {
		t.Errorf("journal: %q", lines)
	}
}

// The record of a large reclaim is a digest. Metrics and journal have its complete counts.
func TestRecordOfALargeReclaim(t *testing.T) {
	full := reclaim.Report{
		Step: reclaim.StepContainers, Removed: make([]reclaim.Item, 1000), Errors: slices.Repeat([]reclaim.Failure{{Message: "in use"}}, 1000),
	}
	m, p := metrics.New("test", cgroup.BootTime), api.Pass{Reclaimed: []api.ReclaimView{{Signal: policy.ContainerFSAvailable, Reports: []reclaim.Report{full.Digest()}}}}
	m.Record(&p)
	m.ReclaimErrors(p.Reclaimed[0].Reports)
	metricstest.Want(t, m, map[string]string{`reclaimed_total{step="containers"}`: "1000", `reclaim_errors_total{step="containers"}`: "1000"})
	lines := strings.Join(journalLines(t, []api.Pass{p}, "removed", "reason"), "\n")
	if !strings.Contains(lines, "removed=1000\n") || !strings.HasSuffix(lines, `reason="980 more errors"`) {
		t.Errorf("journal:\n%s", lines)
	}
}
