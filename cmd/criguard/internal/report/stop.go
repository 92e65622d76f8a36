package report

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/criguard/criguard/cmd/criguard/internal/words"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// tableSamples limits the rows of the table that replaces a plot when scripts are off.
const tableSamples = 60

// stops describes each stop, newest first.
func (p *page) stops() {
	p.put("<section><h2>Stops</h2>\n")
	none := true
	for i := len(p.in.Passes) - 1; i >= 0; i-- {
		if p.in.Passes[i].Stop != nil {
			none = false
			p.stop(words.Find(p.in.Passes, p.in.Passes[i].ID))
		}
	}
	if none {
		p.put("<p>Nothing was stopped in that time.</p>\n")
	}
	p.put("</section>\n")
}

func (p *page) stop(e *words.Explanation) {
	one, s := e.Pass, e.Pass.Stop
	what := "stopped"
	if s.DryRun {
		what = "would be stopped (observe mode)"
	}
	p.put(`<article id="pass-%s"><h3><span class="name">%s</span> %s, %s</h3><p>%s</p>
`, fmt.Sprint(one.ID), s.Pod, what, p.moment(one.Time), s.Reason)
	if one.Need != nil {
		p.put("<p>%s.</p>\n", words.Need(one.Need))
	}
	if e.Decided != "" {
		p.put("<p>%s.</p>\n", e.Decided)
	}
	switch {
	case e.Effect != nil:
		result, how := words.Effect(e.Effect)
		p.put("<p><b>%s</b> %s. %s</p>\n", result, how, words.Freed(e.Effect))
	case !s.DryRun:
		p.put("<p>What became of it is not in the history.</p>\n")
	}
	p.around(e)
	p.ranking(one)
	p.put("</article>\n")
}

// around plots the signals around a stop: the one that triggered it and those with thresholds.
func (p *page) around(e *words.Explanation) {
	i := slices.IndexFunc(p.in.Windows, func(w api.Window) bool {
		return w.Pass == e.Pass.ID && w.Time.Equal(e.Pass.Time)
	})
	asked, ok := words.Signal(e.Pass)
	if !ok {
		return
	}
	if i < 0 || len(p.in.Windows[i].Available[asked]) == 0 {
		p.put("<p class=\"note\">The signals around it are not kept any more.</p>\n")
		return
	}
	w := &p.in.Windows[i]
	p.put("<p>Seconds are counted from the stop.</p>\n")
	for _, sig := range policy.Signals() {
		limited := slices.ContainsFunc(w.Limits, func(l api.Limit) bool { return l.Signal == sig })
		if len(w.Available[sig]) == 0 || sig != asked && (!limited || sig.Condition() != asked.Condition()) {
			continue
		}
		one := newPlot(fmt.Sprintf("pass-%d-%s", w.Pass, sig), sig, &w.Series, time.Duration(w.StopAt), w.Limits)
		one.Marks = stopMarks(e.Pass, e.Effect, sig)
		p.figure(one)
	}
	p.put("<details><summary>%s as a table</summary>\n", asked.String())
	p.table("samples", []string{"Seconds", asked.String()}, sampleRows(asked, &w.Series, time.Duration(w.StopAt), tableSamples))
	p.put("</details>\n")
}

func (p *page) ranking(one *api.Pass) {
	sig, ok := words.Signal(one)
	if !ok || len(one.Ranked) == 0 {
		return
	}
	head := []string{"#", "Pod", "QoS", "Priority", "Usage", "Request"}
	keys := []policy.KeyValue{}
	for i := range one.Ranked {
		if len(one.Ranked[i].Keys) > len(keys) {
			keys = one.Ranked[i].Keys
		}
	}
	for _, k := range keys {
		head = append(head, "Key: "+api.KeyName(sig, k.Key))
	}
	head = append(head, "Frees", "No candidate for")
	var rows [][]string
	for i := range one.Ranked {
		rows = append(rows, rankedRow(sig, &one.Ranked[i], len(keys)))
	}
	p.put("<p>The ranking of that moment.</p>\n")
	if one.RankedMore > 0 {
		p.put("<p>%s pods more were ranked; only the last stops are kept with all.</p>\n", strconv.Itoa(one.RankedMore))
	}
	p.table("ranking", head, rows)
}

func rankedRow(sig policy.Signal, r *api.RankedView, keys int) []string {
	position, usage, frees := "-", r.FormatUsage(sig), "-"
	if r.Position > 0 {
		position = strconv.Itoa(r.Position)
	}
	if r.Known {
		frees = api.FormatUsage(sig, r.Frees)
	}
	row := []string{position, r.Pod, r.QoS, strconv.FormatInt(r.Priority, 10), usage, r.FormatRequest(sig)}
	for i := range keys {
		value := "-"
		if i < len(r.Keys) {
			value = api.FormatKeyValue(sig, r.Keys[i])
		}
		row = append(row, value)
	}
	return append(row, frees, r.Excluded)
}
