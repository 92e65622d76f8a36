package top

import (
	"slices"
	"strings"

	"github.com/criguard/criguard/guard"
)

// podTable shows so many rows of the ranking, its head with it.
func (v *view) podTable(rows int) []Line {
	if rows < 1 {
		return nil
	}
	text := "PODS for " + v.chosen.String()
	var keys []string
	for _, k := range v.ranking.Keys {
		keys = append(keys, k.String())
	}
	if len(keys) > 0 {
		text += ", ranked by " + strings.Join(keys, ", ")
	}
	if slices.ContainsFunc(v.ranking.Pods, func(p guard.RankedView) bool { return p.ByMemory }) {
		text += ", " + guard.ByMemory
	}
	if !v.rankingAt.IsZero() && v.now.Sub(v.rankingAt) > 3*v.options.Interval {
		text += "; " + age(v.now.Sub(v.rankingAt)) + " old"
	}
	lines := []Line{v.title(text)}
	switch {
	case v.rankingErr != nil && len(v.ranking.Pods) == 0:
		lines = append(lines, v.row().say(Warn, v.rankingErr.Error()).line)
	case v.rankingAt.IsZero():
		lines = append(lines, v.row().say(Dim, "being measured").line)
	case len(v.ranking.Pods) == 0:
		lines = append(lines, v.row().say(Plain, "no pods run").line)
	default:
		lines = append(lines, v.ranked(rows-1)...)
	}
	return lines[:min(len(lines), rows)]
}

// podColumns are the widths of the table's columns; 0 = left out.
type podColumns struct{ position, pod, qos, priority, usage, request, frees int }

func (v *view) podColumns() podColumns {
	const why = 41 // columns of three rank keys
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

func (v *view) ranked(rows int) []Line {
	c := v.podColumns()
	r := v.row().right(Dim, c.position, "#").cell(Dim, c.pod, "POD")
	if c.qos > 0 {
		r.cell(Dim, c.qos, "QOS")
	}
	if c.priority > 0 {
		r.right(Dim, c.priority, "PRIORITY")
	}
	r.right(Dim, c.usage, "USAGE")
	if c.request > 0 {
		r.right(Dim, c.request, "REQUEST")
	}
	if c.frees > 0 {
		r.right(Dim, c.frees, "FREES")
	}
	lines := []Line{r.say(Dim, "WHY").line}
	pods := v.ranking.Pods
	first := max(0, min(v.page, len(pods)-(rows-1)))
	for i := first; i < len(pods) && len(lines) < rows; i++ {
		lines = append(lines, v.podRow(c, &pods[i]))
	}
	return lines
}

func (v *view) podRow(c podColumns, p *guard.RankedView) Line {
	s := v.ranking.Signal
	position, usage, frees, style := "-", "unknown", "-", Plain
	if p.Position > 0 {
		position = itoa(int64(p.Position))
	}
	switch p.Position {
	case 0:
		style = Dim
	case 1:
		style = Bold
	}
	if p.Known {
		usage, frees = guard.FormatUsage(s, p.Usage), guard.FormatUsage(s, p.Frees)
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
		r.right(style, c.request, guard.FormatUsage(s, p.Request))
	}
	if c.frees > 0 {
		r.right(style, c.frees, frees)
	}
	return r.say(style, why(&v.ranking, p)).line
}

// why is what a pod's place in the ranking comes from.
func why(r *guard.Ranking, p *guard.RankedView) string {
	if p.Excluded != "" {
		return p.Excluded
	}
	var keys []string
	for _, k := range p.Keys {
		keys = append(keys, guard.FormatKey(r.Signal, k))
	}
	return strings.Join(keys, " ")
}
