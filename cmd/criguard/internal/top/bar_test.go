package top

import (
	"math"
	"testing"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

func TestBar(t *testing.T) {
	for _, test := range []struct {
		name                string
		available, capacity int64
		thresholds          []api.ThresholdStatus
		want                string
		style               style // style of the full part
	}{
		{"half", 50, 100, nil, "#####.....", good},
		{"full", 100, 100, nil, "##########", good},
		{"empty", 0, 100, []api.ThresholdStatus{hardAt("10%", 10)}, ".H........", plain},
		{"above both", 50, 100, []api.ThresholdStatus{hardAt("10%", 10), softAt("30%", 30)}, "#H#S#.....", good},
		{"below the soft", 25, 100, []api.ThresholdStatus{hardAt("10%", 10), softAt("30%", 30)}, "#H#S......", warn},
		{"below both", 5, 100, []api.ThresholdStatus{softAt("30%", 30), hardAt("10%", 10)}, "#H.S......", bad},
		{"near zero", 50, 100, []api.ThresholdStatus{hardAt("1", 1), softAt("2", 2)}, "HS###.....", good},
		{"near the end", 100, 100, []api.ThresholdStatus{hardAt("99%", 99), softAt("99%", 99)}, "#########H", good},
		{"more than there is", 200, 100, []api.ThresholdStatus{hardAt("?", 300)}, "#########H", bad},
		{"no capacity", 50, 0, []api.ThresholdStatus{hardAt("10", 10)}, "H.........", plain},
		{"negative", -50, -100, []api.ThresholdStatus{hardAt("?", math.MinInt64)}, "H.........", plain},
		{"huge", math.MaxInt64, math.MaxInt64, []api.ThresholdStatus{hardAt("50%", math.MaxInt64/2)}, "#####H####", good},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := signalAt(policy.PIDAvailable, test.available, test.capacity, test.thresholds...)
			g := glyphsFor(true)
			r := &row{glyphs: &g, left: 11}
			r.bar(10, &s)
			if got := r.line.String(); got != test.want+" " {
				t.Errorf("got %q, want %q", got, test.want)
			}
			style := plain
			for _, span := range r.line {
				if span.Text[0] == '#' {
					style = span.Style
				}
			}
			if style != test.style {
				t.Errorf("style %d, want %d", style, test.style)
			}
		})
	}
}
