package top

import (
	"cmp"
	"slices"
	"time"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
)

// wide is the width from which on the tables have all their columns.
const wide = 110

// signalColumns are the widths of the table's columns; 0 = left out.
type signalColumns struct{ name, available, capacity, bar, threshold, trend, state int }

func (v *view) signalColumns() signalColumns {
	c := signalColumns{name: 22, available: 7, trend: 9, state: 16}
	switch {
	case v.width >= wide:
		c.name, c.capacity, c.threshold, c.state = 26, 7, 7, 24
	case v.width < 52:
		c.trend, c.state = 0, 9
		c.name = max(8, v.width-27)
	case v.width < 76:
		c.trend = 0
	}
	used := 4 // sign and number
	for _, w := range []int{c.name, c.available, c.capacity, c.threshold, c.threshold, c.trend, c.state} {
		if w > 0 {
			used += w + 1
		}
	}
	c.bar = min(v.width-used, 60)
	return c
}

// signalTable shows so many rows of the signals, the chosen one among them.
func (v *view) signalTable(rows int) []Line {
	if rows < 1 {
		return nil
	}
	c := v.signalColumns()
	r := v.row().cell(Title, 3, "").cell(Title, c.name, "SIGNAL").right(Title, c.available, "AVAIL")
	if c.capacity > 0 {
		r.right(Title, c.capacity, "OF")
	}
	r.cell(Title, c.bar, "0  "+v.hard+" hard  "+v.soft+" soft")
	if c.threshold > 0 {
		r.right(Title, c.threshold, "HARD").right(Title, c.threshold, "SOFT")
	}
	if c.trend > 0 {
		r.right(Title, c.trend, "TREND")
	}
	r.say(Title, "STATE")
	lines := []Line{r.skip(Title, r.left).line}

	shown := v.signals()
	for _, i := range v.foremost(shown, rows-1) {
		lines = append(lines, v.signalRow(c, i, &shown[i]))
	}
	return lines
}

// foremost picks so many signals as there are rows for, in their order: the chosen one, those
// whose thresholds are met or will be, those that are guarded, the rest.
func (v *view) foremost(shown []guard.SignalStatus, rows int) []int {
	class := func(i int) int {
		s := &shown[i]
		_, style := v.state(s, s.Status == policy.OK.String())
		switch {
		case s.Signal == v.chosen:
			return 0
		case style == Bad:
			return 1
		case s.Status == policy.Absent.String():
			return 5
		case style == Warn:
			return 2
		case len(s.Thresholds) > 0:
			return 3
		}
		return 4
	}
	picked := make([]int, len(shown))
	for i := range picked {
		picked[i] = i
	}
	slices.SortStableFunc(picked, func(i, j int) int { return cmp.Compare(class(i), class(j)) })
	picked = picked[:min(len(picked), rows)]
	slices.Sort(picked)
	return picked
}

func (v *view) signalRow(c signalColumns, i int, s *guard.SignalStatus) Line {
	sign, number, style := " ", " ", Plain
	if s.Signal == v.chosen {
		sign, style = v.here, Bold
	}
	if i < 9 {
		number = itoa(int64(i + 1))
	}
	r := v.row().put(style, 1, sign).cell(Dim, 2, number).cell(style, c.name, s.Signal.String())
	known := s.Status == policy.OK.String()
	available, capacity := "-", "-"
	if known {
		available, capacity = amount(s.Signal, s.Available), amount(s.Signal, s.Capacity)
	}
	r.right(style, c.available, available)
	if c.capacity > 0 {
		r.right(Plain, c.capacity, capacity)
	}
	if known {
		r.bar(c.bar, s)
	} else {
		r.cell(Plain, c.bar, "")
	}
	if c.threshold > 0 {
		for _, kind := range []string{hard, soft} {
			value := "-"
			if t := threshold(s, kind); t != nil && known {
				value = amount(s.Signal, t.Amount)
			} else if t != nil {
				value = t.Value
			}
			r.right(Plain, c.threshold, value)
		}
	}
	if c.trend > 0 {
		r.right(Plain, c.trend, v.trend(s, known))
	}
	state, style := v.state(s, known)
	return r.say(style, state).line
}

// trend is how fast a signal changes.
func (v *view) trend(s *guard.SignalStatus, known bool) string {
	if s.Signal >= policy.SignalCount {
		return ""
	}
	t := &v.trends[s.Signal]
	switch {
	case !known || !t.known():
		return "-"
	case t.steady(s.Capacity) || s.Signal.IsStall():
		return "steady"
	}
	return rate(s.Signal, t.rate)
}

// state puts a signal against its thresholds into words.
func (v *view) state(s *guard.SignalStatus, known bool) (string, Style) {
	if !known {
		if v.width >= wide && s.Error != "" {
			return s.Error, Warn
		}
		return s.Status, Warn
	}
	if t := threshold(s, hard); t != nil && t.Met {
		return "MET hard", Bad
	}
	next, in := "", time.Duration(0)
	if s.Signal < policy.SignalCount && !s.Signal.IsStall() {
		next, in = v.trends[s.Signal].reaches(s)
	}
	switch t := threshold(s, soft); {
	case t != nil && t.Met && next != "":
		return "soft; " + next + " " + age(in), Bad
	case t != nil && t.Met && t.Due:
		return "MET soft", Bad
	case t != nil && t.Met:
		return "MET soft for " + age(t.Grace), Warn
	case next != "":
		return next + " in " + age(in), Warn
	}
	return "ok", Good
}
