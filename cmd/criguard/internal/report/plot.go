package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// plot is one signal over time, in the form that the page's script reads.
type plot struct {
	ID     string     `json:"id"`
	Title  string     `json:"title"`
	Unit   string     `json:"unit"` // bytes, count or share
	X      []float64  `json:"x"`    // seconds
	Y      []*float64 `json:"y"`    // null: not read
	Limits []level    `json:"limits"`
	Marks  []mark     `json:"marks"`
}

// level is a threshold; mark is a point in time.
type (
	level struct {
		Label string  `json:"label"`
		Y     float64 `json:"y"`
	}
	mark struct {
		Label string  `json:"label"`
		X     float64 `json:"x"`
	}
)

// newPlot returns the plot of one signal in a series. Times are in seconds relative to from.
func newPlot(id string, sig policy.Signal, s *api.Series, from time.Duration, limits []api.Limit) plot {
	p := plot{ID: id, Title: sig.String(), Unit: unit(sig), Limits: []level{}, Marks: []mark{}}
	for i, v := range s.Available[sig] {
		p.X = append(p.X, seconds(time.Duration(s.At[i])-from))
		var y *float64
		if v >= 0 {
			f := scale(sig, v)
			y = &f
		}
		p.Y = append(p.Y, y)
	}
	for _, l := range limits {
		if l.Signal == sig {
			p.Limits = append(p.Limits, level{fmt.Sprintf("%s %s", l.Kind, api.FormatThreshold(sig, l.Amount)), scale(sig, l.Amount)})
		}
	}
	return p
}

// caption lists the thresholds and the marked times.
func (p *plot) caption() string {
	var all []string
	for _, l := range p.Limits {
		all = append(all, "threshold "+l.Label)
	}
	for _, m := range p.Marks {
		all = append(all, fmt.Sprintf("%s %+.3f s", m.Label, m.X))
	}
	return strings.Join(all, " · ")
}

func unit(s policy.Signal) string {
	switch {
	case s.IsStall():
		return "share"
	case s.Resource() == policy.ResourceInodes || s.Resource() == policy.ResourcePIDs:
		return "count"
	}
	return "bytes"
}

func scale(s policy.Signal, v int64) float64 {
	if s.IsStall() {
		return float64(v) * 100 / policy.StallCapacity
	}
	return float64(v)
}

func seconds(d time.Duration) float64 { return d.Round(100 * time.Microsecond).Seconds() }

// stopMarks returns the events of a stop in the plot of a signal, in seconds relative to the stop's start. A
// crossing belongs to the plot of its own signal alone.
func stopMarks(p *api.Pass, effect *api.StopView, sig policy.Signal) []mark {
	var marks []mark
	for _, m := range p.Met {
		if name, kind, _ := strings.Cut(m.Threshold, ":"); name == sig.String() {
			marks = append(marks, mark{kind + " crossing", seconds(time.Duration(-m.For))})
		}
	}
	name := "stop"
	if p.Stop.DryRun {
		name = "would stop"
	}
	marks = append(marks, mark{name, 0})
	if effect == nil || effect.Result == nil {
		return marks
	}
	if r := effect.Result; r.Emptied && r.EmptiedIn > 0 { // otherwise it is not known when
		marks = append(marks, mark{"dead", seconds(time.Duration(r.EmptiedIn))})
		if effect.Helped() {
			marks = append(marks, mark{"relief", seconds(time.Duration(r.SettledIn))})
		}
	}
	return marks
}

// sampleRows returns at most so many samples of one signal as table rows: the first, the last, and those that
// differ from the row before.
func sampleRows(sig policy.Signal, s *api.Series, from time.Duration, most int) [][]string {
	var rows [][]string
	last := ""
	step := max((len(s.At)+most-1)/most, 1)
	for i := 0; i < len(s.At); i += step {
		amount := "not read"
		if v := s.Available[sig][i]; v >= 0 {
			amount = api.FormatAmount(sig, v)
		}
		if amount == last && i+step < len(s.At) {
			continue
		}
		last = amount
		rows = append(rows, []string{fmt.Sprintf("%+.3f s", seconds(time.Duration(s.At[i])-from)), amount})
	}
	return rows
}
