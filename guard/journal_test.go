package guard

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
	"github.com/criguard/criguard/systemd"
)

// journalLines gives what a journal writes of passes, a line for each record: level,
// message and the attributes that are asked for.
func journalLines(t *testing.T, passes []Pass, keys ...string) []string {
	t.Helper()
	var text strings.Builder
	j := NewJournal(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
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

func TestJournal(t *testing.T) {
	memory := policy.ConditionsOf(policy.MemoryPressure)
	both := policy.ConditionsOf(policy.MemoryPressure, policy.DiskPressure)
	met := []MetView{{Threshold: "memory.available:hard", Signal: policy.MemoryAvailable}, {Threshold: "nodefs.available:soft", Signal: policy.NodeFSAvailable}}
	const by = "memory.available:hard"
	for _, c := range []struct {
		name   string
		passes []Pass
		keys   []string
		want   []string
	}{
		{"quiet", []Pass{{}, {}}, nil, nil},
		{
			"conditions, when they begin and end", []Pass{{Conditions: memory, Met: met[:1]}, {Conditions: memory, Met: met[:1]}, {Conditions: both, Met: met}, {Conditions: both}, {}},
			[]string{"condition", "reason"},
			[]string{
				`level=WARN msg="condition begins" condition=MemoryPressure reason=memory.available:hard`,
				`level=WARN msg="condition begins" condition=DiskPressure reason=nodefs.available:soft`,
				`level=INFO msg="condition ends" condition=MemoryPressure`,
				`level=INFO msg="condition ends" condition=DiskPressure`,
			},
		},
		{
			"what holds a stop back, when it changes",
			[]Pass{
				{Met: met, Held: HeldBudget, HeldBy: by},
				{Met: met, Held: HeldBudget, HeldBy: by},
				{Met: met, Held: HeldInFlight, HeldBy: by}, // what ends by itself is not told, and changes nothing
				{Met: met, Held: HeldBudget, HeldBy: by},
				{Met: met, Held: HeldBreaker, HeldBy: by},
				{Met: met, Held: HeldBreaker, HeldBy: "pid.available:hard"},
				{}, // clear: the next time it is news again
				{Met: met, Held: HeldBreaker, HeldBy: by},
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
			[]Pass{
				{Stop: &StopView{Pod: "d/a"}},
				{Escalated: "d/a"},
				{Settled: []StopView{{Pod: "d/a", Result: &StopResult{Emptied: true}}, {Pod: "d/b", Result: &StopResult{Errors: []string{"one", "two"}}}}},
				{Stop: &StopView{Pod: "d/c", DryRun: true}},
				{Alarm: "three stops in a row"},
			},
			[]string{"pod", "reason", systemd.EventKey},
			[]string{
				`level=WARN msg="stopping sandbox" ` + systemd.EventKey + `=stop-begin pod=d/a reason=""`,
				`level=WARN msg="hard threshold met: ending the grace period" ` + systemd.EventKey + `=stop-begin pod=d/a`,
				`level=WARN msg="stopped sandbox" ` + systemd.EventKey + `=stop-done pod=d/a`,
				`level=ERROR msg="sandbox not stopped" ` + systemd.EventKey + `=stop-failed pod=d/b reason="one; two"`,
				`level=WARN msg="would stop sandbox (observe mode)" ` + systemd.EventKey + `=stop-begin pod=d/c reason=""`,
				`level=ERROR msg="stops do not help" ` + systemd.EventKey + `=alarm reason="three stops in a row"`,
			},
		},
		{
			"a reclaim",
			[]Pass{{Reclaimed: []ReclaimView{
				{Steps: []string{"containers", "images"}, Reports: []reclaim.Report{
					{Removed: []reclaim.Item{{}, {}}}, {Removed: []reclaim.Item{{}}, Errors: []reclaim.Failure{{Message: "in use"}}},
				}},
				{Steps: []string{"images"}, Reports: []reclaim.Report{{DryRun: true, Removed: []reclaim.Item{{}}}}},
			}}},
			[]string{"steps", "removed", "reason"},
			[]string{
				`level=INFO msg=reclaimed steps=containers,images removed=3`,
				`level=WARN msg="reclaim error" reason="in use"`,
				`level=INFO msg="would reclaim (observe mode)" steps=images removed=1`,
			},
		},
		{
			"commands",
			[]Pass{{Command: &CommandView{Command: CommandPause, Reason: "upgrade", By: &Peer{UID: 7}}}, {Command: &CommandView{Command: CommandResume, Reason: "it is over"}}},
			[]string{"command", "reason", "by_uid"},
			[]string{`level=WARN msg=command command=pause reason=upgrade by_uid=7`, `level=WARN msg=command command=resume reason="it is over"`},
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
