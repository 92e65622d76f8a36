package eviction

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// RankedViews converts the ranking of a decision for the record. It takes the sources of requests and
// priorities from pods. Without a need, no pod has a standing. The pods that are not candidates are ordered by the
// reason, then by larger usage, then by name.
func RankedViews(d *policy.Decision, pods []inventory.Pod) []api.RankedView {
	byID := make(map[string]*inventory.Pod, len(pods))
	for i := range pods {
		byID[pods[i].ID] = &pods[i]
	}
	views := make([]api.RankedView, len(d.Ranked))
	for i := range d.Ranked {
		r, v := &d.Ranked[i], &views[i]
		*v = api.RankedView{
			Position: r.Position, Pod: r.Namespace + "/" + r.Name, UID: r.UID, Sandbox: r.ID,
			QoS: r.QoS.String(), Priority: r.Priority, Usage: r.Usage, Known: r.Known(), AtLeast: r.Quality == policy.QualityAtLeast,
			Request: r.Request, Over: r.Over, Keys: r.Keys, Frees: r.Yield, Excluded: r.Excluded,
		}
		if p := byID[r.ID]; p != nil {
			v.RequestSource, v.PrioritySource = p.RequestSource, p.PrioritySource
		}
		switch {
		case r.Excluded != "" || d.Need == 0:
		case d.Culprit != nil && d.Culprit.ID == r.ID:
			v.Standing = "culprit"
		case r.Yield < d.Helps:
			v.Standing = "too small to help"
		case r.CameBack:
			v.Standing = "helps, came back"
		default:
			v.Standing = "helps"
		}
	}
	first := slices.IndexFunc(views, func(v api.RankedView) bool { return v.Position == 0 })
	if first >= 0 {
		slices.SortFunc(views[first:], compareExcluded)
	}
	return views
}

// compareExcluded puts the pods that are not candidates in an order for people: the keys that rank candidates mean
// nothing for them.
func compareExcluded(a, b api.RankedView) int {
	return cmp.Or(strings.Compare(a.Excluded, b.Excluded), cmp.Compare(b.Usage, a.Usage), strings.Compare(a.Pod, b.Pod), strings.Compare(a.Sandbox, b.Sandbox))
}

// grounds returns why a pod is the victim.
func grounds(d *policy.Decision) string {
	v := d.Victim
	switch {
	case d.Why == policy.ByCulprit:
		return fmt.Sprintf("fills it: grew by %s/s", api.FormatUsage(d.Met.Signal, v.Growth.Value))
	case d.Why == policy.ByCameBack:
		return fmt.Sprintf("ranks %d, was stopped for it and came back", v.Position)
	case v.Position <= 1:
		return "ranks first"
	default:
		return fmt.Sprintf("ranks %d, the first whose stop helps", v.Position)
	}
}

// reason returns one line that says why this pod is stopped and why now.
func reason(d *policy.Decision, now time.Duration) string {
	var b strings.Builder
	m, v := &d.Met, d.Victim
	fmt.Fprintf(&b, "%s %s", m.Signal, api.FormatBelow(m.Signal, m.Available, m.Target))
	if d := now - m.Since; m.Kind == policy.Soft && d > 0 {
		fmt.Fprintf(&b, " for %s", d.Round(time.Millisecond))
	}
	keys := make([]string, len(v.Keys))
	for i, k := range v.Keys {
		keys[i] = api.FormatKey(m.Signal, k)
	}
	b.WriteString("; " + grounds(d) + ": " + strings.Join(keys, ", "))
	if v.Quality == policy.QualityAtLeast {
		b.WriteString("; usage measured in part: a lower bound")
	}
	return b.String()
}
