package top

import (
	"slices"
	"strings"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// podTable shows the ranking in the given number of rows, header included.
func (v *view) podTable(rows int) []line {
	if rows < 1 {
		return nil
	}
	text := "PODS for " + v.chosen.String()
	if !v.rankingAt.IsZero() && v.now.Sub(v.rankingAt) > 3*v.options.Interval {
		text += ", " + age(v.now.Sub(v.rankingAt)) + " old"
	}
	if keys := v.ranking.Keys; len(keys) > 0 {
		text += ", ranked by " + api.KeyNames(v.chosen, keys)
	}
	lines := []line{v.title(text)}
	switch {
	case v.rankingErr != nil && len(v.ranking.Pods) == 0:
		lines = append(lines, v.row().say(warn, v.rankingErr.Error()).line)
	case v.rankingAt.IsZero():
		lines = append(lines, v.row().say(dim, "being measured").line)
	case len(v.ranking.Pods) == 0:
		lines = append(lines, v.row().say(plain, "no pods run").line)
	default:
		lines = append(lines, v.ranked(rows-1)...)
	}
	return lines[:min(len(lines), rows)]
}

// podColumns are the widths of the table's columns; 0 omits a column.
type podColumns struct{ position, pod, qos, priority, usage, request, frees int }

func (v *view) podColumns() podColumns {
	const why = 28 // columns for two rank keys
	c := podColumns{position: 4, usage: 8}
	c.pod = min(max(24, v.width-c.position-c.usage-3-why), 40)
	switch {
	case v.width >= wide+30:
		c.pod, c.qos, c.priority, c.request, c.frees = 48, 10, 10, 8, 8
	case v.width >= wide:
		c.pod, c.qos, c.request = 36, 10, 8
	case v.width < 60:
		c.position, c.pod = 3, max(8, v.width-16)
	}
	return c
}

func (v *view) ranked(rows int) []line {
	c := v.podColumns()
	r := v.row().right(dim, c.position, "#").cell(dim, c.pod, "POD")
	if c.qos > 0 {
		r.cell(dim, c.qos, "QOS")
	}
	if c.priority > 0 {
		r.right(dim, c.priority, "PRIORITY")
	}
	r.right(dim, c.usage, "USAGE")
	if c.request > 0 {
		r.right(dim, c.request, "REQUEST")
	}
	if c.frees > 0 {
		r.right(dim, c.frees, "FREES")
	}
	lines := []line{r.say(dim, "WHY").line}
	pods := v.ranking.Pods
	first := max(0, min(v.page, len(pods)-(rows-1)))
	for i := first; i < len(pods) && len(lines) < rows; i++ {
		lines = append(lines, v.podRow(c, &pods[i]))
	}
	return lines
}

func (v *view) podRow(c podColumns, p *api.RankedView) line {
	s := v.ranking.Signal
	position, usage, frees, style := "-", p.FormatUsage(s), "-", plain
	if p.Position > 0 {
		position = itoa(int64(p.Position))
	}
	switch p.Position {
	case 0:
		style = dim
	case 1:
		style = bold
	}
	if p.Known {
		frees = api.FormatUsage(s, p.Frees)
	}
	r := v.row().right(style, c.position, position).cell(style, c.pod, p.Pod)
	if c.qos > 0 {
		r.cell(style, c.qos, p.QoS)
	}
	if c.priority > 0 {
		r.right(style, c.priority, itoa(p.Priority))
	}
	r.right(style, c.usage, usage)
	if c.request > 0 {
		r.right(style, c.request, p.FormatRequest(s))
	}
	if c.frees > 0 {
		r.right(style, c.frees, frees)
	}
	return r.say(style, why(&v.ranking, p)).line
}

// why explains a pod's position: its rank keys, or why it is excluded. It leaves out over_request next to
// over_by, whose sign says the same.
func why(r *api.Ranking, p *api.RankedView) string {
	if p.Excluded != "" {
		return p.Excluded
	}
	overBy := slices.ContainsFunc(p.Keys, func(k policy.KeyValue) bool { return k.Key == policy.KeyUsage && k.Known() })
	var keys []string
	for _, k := range p.Keys {
		if k.Key == policy.KeyCulprit && k.Value == 0 || k.Key == policy.KeyOverRequest && overBy {
			continue // culprit=no is true of almost every pod
		}
		keys = append(keys, api.FormatKey(r.Signal, k))
	}
	return strings.Join(keys, " ")
}
