package top

import (
	"cmp"
	"slices"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// wide is the minimum screen width, in columns, at which the tables have all their columns.
const wide = 110

// signalColumns are the widths of the table's columns; 0 omits a column.
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

// signalTable shows the signals in the given number of rows, always including the chosen one.
func (v *view) signalTable(rows int) []line {
	if rows < 1 {
		return nil
	}
	c := v.signalColumns()
	r := v.row().cell(title, 3, "").cell(title, c.name, "SIGNAL").right(title, c.available, "AVAIL")
	if c.capacity > 0 {
		r.right(title, c.capacity, "OF")
	}
	r.cell(title, c.bar, "0  "+v.hard+" hard  "+v.soft+" soft")
	if c.threshold > 0 {
		r.right(title, c.threshold, "HARD").right(title, c.threshold, "SOFT")
	}
	if c.trend > 0 {
		r.right(title, c.trend, "TREND")
	}
	r.say(title, "STATE")
	lines := []line{r.skip(title, r.left).line}

	shown := v.signals()
	for _, i := range v.foremost(shown, rows-1) {
		lines = append(lines, v.signalRow(c, i, &shown[i]))
	}
	return lines
}

// foremost picks the signals for the available rows and keeps the table's order. It prefers the
// chosen signal, then those that are met, in warning, or have thresholds; absent signals come last.
func (v *view) foremost(shown []api.SignalStatus, rows int) []int {
	class := func(i int) int {
		s := &shown[i]
		_, style := v.state(s, s.Status == policy.OK.String())
		switch {
		case s.Signal == v.chosen:
			return 0
		case style == bad:
			return 1
		case s.Status == policy.Absent.String():
			return 5
		case style == warn:
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

func (v *view) signalRow(c signalColumns, i int, s *api.SignalStatus) line {
	sign, number, style := " ", " ", plain
	if s.Signal == v.chosen {
		sign, style = v.here, bold
	}
	if i < 9 {
		number = itoa(int64(i + 1))
	}
	r := v.row().put(style, 1, sign).cell(dim, 2, number).cell(style, c.name, s.Signal.String())
	known := s.Status == policy.OK.String()
	available, capacity := "-", "-"
	if known {
		available, capacity = amount(s.Signal, s.Available), amount(s.Signal, s.Capacity)
	}
	r.right(style, c.available, available)
	if c.capacity > 0 {
		r.right(plain, c.capacity, capacity)
	}
	if known {
		r.bar(c.bar, s)
	} else {
		r.cell(plain, c.bar, "")
	}
	if c.threshold > 0 {
		for _, kind := range []string{hard, soft} {
			value := "-"
			if t := threshold(s, kind); t != nil && known {
				value = amount(s.Signal, t.Amount)
			} else if t != nil {
				value = t.Value
			}
			r.right(plain, c.threshold, value)
		}
	}
	if c.trend > 0 {
		r.right(plain, c.trend, v.trend(s, known))
	}
	state, style := v.state(s, known)
	return r.say(style, state).line
}

// trend describes how fast a signal changes.
func (v *view) trend(s *api.SignalStatus, known bool) string {
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

// state describes a signal relative to its thresholds.
func (v *view) state(s *api.SignalStatus, known bool) (string, style) {
	if !known {
		if v.width >= wide && s.Error != "" {
			return s.Error, warn
		}
		return s.Status, warn
	}
	if t := threshold(s, hard); t != nil && t.Met {
		return "MET hard", bad
	}
	next, in := "", time.Duration(0)
	if s.Signal < policy.SignalCount && !s.Signal.IsStall() {
		next, in = v.trends[s.Signal].reaches(s)
	}
	switch t := threshold(s, soft); {
	case t != nil && t.Met && next != "":
		return "soft; " + next + " " + age(in), bad
	case t != nil && t.Met && t.Due:
		return "MET soft", bad
	case t != nil && t.Met:
		return "MET soft, grace period " + age(time.Duration(t.Grace)), warn
	case next != "":
		return next + " in " + age(in), warn
	}
	return "ok", good
}
