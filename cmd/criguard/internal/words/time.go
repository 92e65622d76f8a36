package words

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// Ago formats the time between t and now: "3m ago".
func Ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case d < 0:
		return "in the future"
	case d < time.Second:
		return "just now"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh %dm ago", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd ago", int(d.Hours())/24)
}

// Left formats the rest of a wait, rounded up to seconds: "22s", "4m".
func Left(d api.Duration) string {
	return policy.ShortDuration((time.Duration(d) + time.Second - 1).Truncate(time.Second))
}

// Conditions lists the conditions of a status, each with the rest of its transition period, or "" if there are
// none.
func Conditions(st *api.Status) string {
	var names []string
	for _, c := range st.Conditions.List() {
		name := c.String()
		if left := st.ClearsIn[name]; left > 0 {
			name += " (clears in " + Left(left) + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// Clock formats the time of day, with the date unless it is today.
func Clock(t, now time.Time) string {
	if y, m, d := t.Date(); y == now.Year() && m == now.Month() && d == now.Day() {
		return t.Format("15:04:05.000")
	}
	return t.Format("2006-01-02 15:04:05")
}

// ParseDuration parses a duration such as 1h30m or 2d.
func ParseDuration(s string) (time.Duration, error) {
	if days, err := strconv.ParseFloat(strings.TrimSuffix(s, "d"), 64); err == nil && strings.HasSuffix(s, "d") && days > 0 && days < maxDays {
		return time.Duration(days * float64(24*time.Hour)), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("parse duration: %w", err)
	}
	return d, nil
}

// ParseSince parses a duration before now, such as 1h30m or 2d, a time of day, such as 16:10, or a date
// with or without a time. A time without a zone is in now's. A time of day that is still to come is
// yesterday's; a date that is still to come is an error.
func ParseSince(s string, now time.Time) (time.Time, error) {
	if d, err := ParseDuration(s); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	if t, ok := parseTimeOfDay(s); ok {
		at := time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, now.Location())
		if at.After(now) {
			at = at.AddDate(0, 0, -1)
		}
		return at, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly, "2006-01-02 15:04", time.DateTime} {
		t, err := time.ParseInLocation(layout, s, now.Location())
		switch {
		case err != nil:
		case t.After(now):
			return time.Time{}, fmt.Errorf("--since %q: this time is still to come", s)
		default:
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("--since %q: want a duration above 0, as 1h30m or 2d, or a time, as 16:10 or \"2006-01-02 15:04\"", s)
}

// IsYesterday reports whether ParseSince took s for a time of yesterday, t, because today's is still to come.
func IsYesterday(s string, t, now time.Time) bool {
	_, ok := parseTimeOfDay(s)
	return ok && t.Day() != now.Day()
}

func parseTimeOfDay(s string) (time.Time, bool) {
	for _, layout := range []string{"15:04", time.TimeOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// maxDays keeps a number of days within a time.Duration.
const maxDays = 100_000
