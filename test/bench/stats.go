package main

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"
)

// spread summarizes a series of figures.
type spread struct {
	Median float64 `json:"median"`
	P99    float64 `json:"p99"` // nearest rank: the maximum of up to 100 figures
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	N      int     `json:"n"`
	all    []float64
}

func (s *spread) add(x float64) { s.all = append(s.all, x) }

// addTime adds a time in milliseconds.
func (s *spread) addTime(d time.Duration) { s.add(float64(d) / float64(time.Millisecond)) }

// finish computes the summary.
func (s *spread) finish() {
	sorted := slices.Sorted(slices.Values(s.all))
	if s.N = len(sorted); s.N == 0 {
		return
	}
	s.Min, s.Max = sorted[0], sorted[s.N-1]
	s.Median = (sorted[(s.N-1)/2] + sorted[s.N/2]) / 2
	s.P99 = sorted[int(math.Ceil(0.99*float64(s.N)))-1]
}

// MarshalJSON rounds the figures to the precision of the clocks.
func (s spread) MarshalJSON() ([]byte, error) {
	round := func(x float64) float64 { return math.Round(x*1000) / 1000 }
	type plain spread
	p := plain(s)
	p.Median, p.P99, p.Min, p.Max = round(s.Median), round(s.P99), round(s.Min), round(s.Max)
	return json.Marshal(p)
}

// String returns "median / p99".
func (s spread) String() string { return fmt.Sprintf("%.1f / %.1f", s.Median, s.P99) }
