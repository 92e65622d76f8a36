package top

import (
	"math"
	"testing"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
)

func TestBar(t *testing.T) {
	for _, test := range []struct {
		name                string
		available, capacity int64
		thresholds          []guard.ThresholdStatus
		want                string
		style               Style // of the full part
	}{
		{"half", 50, 100, nil, "#####.....", Good},
		{"full", 100, 100, nil, "##########", Good},
		{"empty", 0, 100, []guard.ThresholdStatus{hardAt("10%", 10)}, ".H........", Plain},
		{"above both", 50, 100, []guard.ThresholdStatus{hardAt("10%", 10), softAt("30%", 30)}, "#H#S#.....", Good},
		{"below the soft", 25, 100, []guard.ThresholdStatus{hardAt("10%", 10), softAt("30%", 30)}, "#H#S......", Warn},
		{"below both", 5, 100, []guard.ThresholdStatus{softAt("30%", 30), hardAt("10%", 10)}, "#H.S......", Bad},
		{"near zero", 50, 100, []guard.ThresholdStatus{hardAt("1", 1), softAt("2", 2)}, "HS###.....", Good},
		{"near the end", 100, 100, []guard.ThresholdStatus{hardAt("99%", 99), softAt("99%", 99)}, "#########H", Good},
		{"more than there is", 200, 100, []guard.ThresholdStatus{hardAt("?", 300)}, "#########H", Bad},
		{"no capacity", 50, 0, []guard.ThresholdStatus{hardAt("10", 10)}, "H.........", Plain},
		{"negative", -50, -100, []guard.ThresholdStatus{hardAt("?", math.MinInt64)}, "H.........", Plain},
		{"huge", math.MaxInt64, math.MaxInt64, []guard.ThresholdStatus{hardAt("50%", math.MaxInt64/2)}, "#####H####", Good},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := signalAt(policy.PIDAvailable, test.available, test.capacity, test.thresholds...)
			g := glyphsFor(true)
			r := &row{glyphs: &g, left: 11}
			r.bar(10, &s)
			if got := r.line.String(); got != test.want+" " {
				t.Errorf("got %q, want %q", got, test.want)
			}
			style := Plain
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
