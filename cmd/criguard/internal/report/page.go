package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/criguard/criguard/cmd/criguard/internal/words"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/safetext"
	"github.com/criguard/criguard/policy"
)

// Input is the data that a page shows.
type Input struct {
	Host     string
	Made     time.Time // times are shown in its location
	Since    time.Time // zero: everything in the history
	Status   api.Status
	Passes   []api.Pass // oldest first
	Windows  []api.Window
	Samples  api.SampleList
	Settings api.Settings
}

// page is a report that is being written.
type page struct {
	document
	in    *Input
	plots []plot
}

// Write writes the page to w.
func Write(w io.Writer, in *Input) error {
	p := &page{in: in}
	p.head()
	p.summary()
	p.stops()
	p.now()
	p.passes()
	p.settings()
	if err := p.foot(); err != nil {
		return err
	}
	if _, err := w.Write(p.Bytes()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func (p *page) head() {
	p.put(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="%s">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>criguard on %s, %s</title>
<style>`, contentPolicy(), p.in.Host, p.in.Made.Format("2006-01-02 15:04"))
	p.WriteString(style())
	p.put(`</style></head><body>
<header><h1>criguard on <span class="name">%s</span></h1>
<p>Made %s%s.</p></header><main>
<noscript><p class="note">Plots need JavaScript. The tables have the same data.</p></noscript>
`, p.in.Host, p.moment(p.in.Made), p.period())
}

func (p *page) moment(t time.Time) string {
	return t.In(p.in.Made.Location()).Format("2006-01-02 15:04:05 MST")
}

func (p *page) period() string {
	if p.in.Since.IsZero() {
		return ", of all that the history keeps"
	}
	return ", of what happened since " + p.moment(p.in.Since)
}

func (p *page) summary() {
	st := &p.in.Status
	runtime := "none answers"
	if st.Runtime.Up {
		runtime = st.Runtime.Name + " " + st.Runtime.Version
	}
	p.put("<section><h2>The node</h2><dl>\n")
	for _, row := range [][2]string{
		{"criguard", fmt.Sprintf("%s, %s mode, up %s", st.Version, st.Mode, st.Uptime.Round(time.Second))},
		{"Runtime", runtime}, {"Pods", fmt.Sprintf("%d, %d of them protected", st.Pods, st.Protected)},
		{"Kernel", fmt.Sprintf("cgroup %s; woken by %s; filesystems %s", st.Kernel.Cgroup, strings.Join(st.Kernel.Wakes, ", "), st.Kernel.Layout)},
		{"Conditions", cmp.Or(st.Conditions.String(), "none")},
	} {
		p.put("<dt>%s</dt><dd>%s</dd>\n", row[0], row[1])
	}
	for _, a := range st.Alarms {
		p.put(`<dt>Alarm</dt><dd class="bad">%s</dd>`, a)
	}
	p.put("</dl></section>\n")
}

// now writes the current signals and their recent values.
func (p *page) now() {
	var rows [][]string
	var limits []api.Limit
	for i := range p.in.Status.Signals {
		s := &p.in.Status.Signals[i]
		if s.Status == policy.Absent.String() && len(s.Thresholds) == 0 {
			continue
		}
		row := []string{s.Signal.String(), s.Status, "-", "-", "-"}
		if s.Status == policy.OK.String() {
			row[1], row[2] = api.FormatAmount(s.Signal, s.Available), api.FormatAmount(s.Signal, s.Capacity)
		}
		for _, t := range s.Thresholds {
			kind, column := policy.Hard, 3
			if t.Kind == policy.Soft.String() {
				kind, column = policy.Soft, 4
			}
			if row[column] = t.Value; s.Status == policy.OK.String() {
				row[column] = api.FormatThreshold(s.Signal, t.Amount)
			}
			limits = append(limits, api.Limit{Signal: s.Signal, Kind: kind, Amount: t.Amount})
		}
		rows = append(rows, row)
	}
	p.put("<section><h2>The signals now</h2>\n")
	p.table("signals now", []string{"Signal", "Available", "Capacity", "Hard", "Soft"}, rows)
	p.put("<p>Of the last ten minutes; 0 is when the report was made.</p>\n")
	for _, sig := range policy.Signals() {
		if len(p.in.Samples.Available[sig]) > 0 {
			p.figure(newPlot("now-"+sig.String(), sig, &p.in.Samples.Series, time.Duration(p.in.Samples.Now), limits))
		}
	}
	p.put("</section>\n")
}

// figure adds a plot and leaves room for it on the page.
func (p *page) figure(one plot) {
	p.plots = append(p.plots, one)
	p.put(`<figure><div class="plot" id="%s" role="img" aria-label="%s over time"></div><figcaption><b>%s</b> %s</figcaption></figure>
`, one.ID, one.Title, one.Title, one.caption())
}

func (p *page) passes() {
	p.put("<section><h2>What happened</h2>\n")
	if len(p.in.Passes) == 0 {
		p.put("<p>Nothing happened in that time.</p></section>\n")
		return
	}
	var rows [][]string
	for i := range p.in.Passes {
		one := &p.in.Passes[i]
		for _, e := range words.Events(one) {
			rows = append(rows, []string{fmt.Sprint(one.ID), p.moment(one.Time), one.Wake, e.What, e.Why})
		}
	}
	p.table("passes", []string{"Pass", "Time", "Woken by", "What", "Why"}, rows)
	p.put("</section>\n")
}

func (p *page) settings() {
	from := "defaults alone"
	if len(p.in.Settings.Files) > 0 {
		from = strings.Join(p.in.Settings.Files, ", ")
	}
	p.put("<section><h2>The configuration in force</h2><p>From %s.</p><pre tabindex=\"0\">%s</pre></section>\n", from, p.in.Settings.Text)
}

// foot ends the page with the plots' data and the scripts that draw them.
func (p *page) foot() error {
	data, err := json.Marshal(p.plots) // escapes <, > and &, so the data cannot close the script element
	if err != nil {
		return fmt.Errorf("encode plots: %w", err)
	}
	p.put("</main><footer><details><summary>The plots are drawn by uPlot, under this licence</summary><pre>%s</pre></details></footer>\n", plotLicence)
	p.put(`<script type="application/json" id="plots">`)
	p.Write(safetext.Escape(data))
	p.put("</script>\n<script>")
	p.WriteString(plotScript)
	p.put("</script>\n<script>")
	p.WriteString(pageScript)
	p.put("</script>\n</body></html>\n")
	return nil
}
