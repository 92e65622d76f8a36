package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
)

// plot is one signal over time, as the page's script reads it.
type plot struct {
	ID     string     `json:"id"`
	Title  string     `json:"title"`
	Unit   string     `json:"unit"` // bytes, count, share
	X      []float64  `json:"x"`    // seconds
	Y      []*float64 `json:"y"`    // null = not read
	Limits []level    `json:"limits"`
	Marks  []mark     `json:"marks"`
}

// level is a threshold; mark is a moment.
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

// newPlot draws one signal of a series, in seconds from a moment on.
func newPlot(id string, sig policy.Signal, s *guard.Series, from time.Duration, limits []guard.Limit) plot {
	p := plot{ID: id, Title: sig.String(), Unit: unit(sig), Limits: []level{}, Marks: []mark{}}
	for i, v := range s.Available[sig] {
		p.X = append(p.X, seconds(s.At[i]-from))
		var y *float64
		if v >= 0 {
			f := scale(sig, v)
			y = &f
		}
		p.Y = append(p.Y, y)
	}
	for _, l := range limits {
		if l.Signal == sig {
			p.Limits = append(p.Limits, level{fmt.Sprintf("%s %s", l.Kind, guard.FormatAmount(sig, l.Amount)), scale(sig, l.Amount)})
		}
	}
	return p
}

// caption tells in words what is marked.
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

// stopMarks are the moments of a stop, in seconds from when it began.
func stopMarks(p *guard.Pass, effect *guard.StopView) []mark {
	var marks []mark
	for _, m := range p.Met {
		if m.Threshold == p.Stop.Signal+":"+p.Stop.Kind {
			marks = append(marks, mark{"crossing", seconds(-m.For)})
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
	if r := effect.Result; r.Emptied {
		marks = append(marks, mark{"dead", seconds(r.EmptiedIn)})
		if r.Moved {
			marks = append(marks, mark{"relief", seconds(r.SettledIn)})
		}
	}
	return marks
}

// sampleRows are the samples of one signal, about so many, as a table.
func sampleRows(sig policy.Signal, s *guard.Series, from time.Duration, most int) [][]string {
	var rows [][]string
	step := max((len(s.At)+most-1)/most, 1)
	for i := 0; i < len(s.At); i += step {
		amount := "not read"
		if v := s.Available[sig][i]; v >= 0 {
			amount = guard.FormatAmount(sig, v)
		}
		rows = append(rows, []string{fmt.Sprintf("%+.3f s", seconds(s.At[i]-from)), amount})
	}
	return rows
}
