package top

import (
	"strings"

	"github.com/criguard/criguard/guard/api"
)

// share returns amount as a fraction of capacity, from 0 to 1, and 0 for an unknown capacity.
func share(amount, capacity int64) float64 {
	if amount <= 0 || capacity <= 0 {
		return 0
	}
	return min(float64(amount)/float64(capacity), 1)
}

// bar adds a bar that shows how much of the signal is available, with a sign at each threshold. The
// threshold is met when the bar ends to the left of its sign.
func (r *row) bar(width int, s *api.SignalStatus) {
	if width < 1 {
		return
	}
	style := good
	marks := map[int]span{}
	// The hard threshold is lower; when both signs share a column, its sign stays.
	for _, kind := range []string{hard, soft} {
		t := threshold(s, kind)
		if t == nil {
			continue
		}
		mark, met := span{r.hard, bad}, bad
		if kind == soft {
			mark, met = span{r.soft, warn}, warn
		}
		if t.Met && style != bad {
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
			r.put(dim, end-at, strings.Repeat(r.empty, end-at))
		}
		at = end
	}
	r.skip(plain, 1)
}

// Threshold kinds, as the service names them.
const (
	hard = "hard"
	soft = "soft"
)

// threshold returns the signal's threshold of the given kind, or nil.
func threshold(s *api.SignalStatus, kind string) *api.ThresholdStatus {
	for i := range s.Thresholds {
		if s.Thresholds[i].Kind == kind {
			return &s.Thresholds[i]
		}
	}
	return nil
}
