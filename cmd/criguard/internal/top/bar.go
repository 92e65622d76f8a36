package top

import (
	"strings"

	"github.com/criguard/criguard/guard"
)

// share is the part of a capacity, between 0 and 1; 0 of none.
func share(amount, capacity int64) float64 {
	if amount <= 0 || capacity <= 0 {
		return 0
	}
	return min(float64(amount)/float64(capacity), 1)
}

// bar adds a bar that is as full as the signal is available, with a sign where each threshold
// is: the bar ends left of the sign when the threshold is met.
func (r *row) bar(width int, s *guard.SignalStatus) {
	if width < 1 {
		return
	}
	style := Good
	marks := map[int]Span{}
	// The hard one lies lower and keeps its place.
	for _, kind := range []string{hard, soft} {
		t := threshold(s, kind)
		if t == nil {
			continue
		}
		mark, met := Span{r.hard, Bad}, Bad
		if kind == soft {
			mark, met = Span{r.soft, Warn}, Warn
		}
		if t.Met && style != Bad {
			style = met
		}
		at := min(int(share(t.Amount, s.Capacity)*float64(width)), width-1)
		if _, taken := marks[at]; taken {
			at = min(at+1, width-1)
		}
		if _, taken := marks[at]; !taken {
			marks[at] = mark
		}
	}
	full := int(share(s.Available, s.Capacity)*float64(width) + 0.5)
	for at := 0; at < width; {
		if mark, ok := marks[at]; ok {
			r.put(mark.Style, 1, mark.Text)
			at++
			continue
		}
		end := at + 1
		for end < width && (end < full) == (at < full) && marks[end].Text == "" {
			end++
		}
		if at < full {
			r.put(style, end-at, strings.Repeat(r.full, end-at))
		} else {
			r.put(Dim, end-at, strings.Repeat(r.empty, end-at))
		}
		at = end
	}
	r.skip(Plain, 1)
}

// The kinds of thresholds, as the service names them.
const (
	hard = "hard"
	soft = "soft"
)

// threshold is the signal's threshold of a kind, nil without one.
func threshold(s *guard.SignalStatus, kind string) *guard.ThresholdStatus {
	for i := range s.Thresholds {
		if s.Thresholds[i].Kind == kind {
			return &s.Thresholds[i]
		}
	}
	return nil
}
