package top

import (
	"fmt"
	"strconv"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// amount formats an amount of a signal in at most seven columns.
func amount(s policy.Signal, n int64) string {
	text := api.FormatAmount(s, n)
	if _, err := strconv.ParseInt(text, 10, 64); err != nil || len(text) <= 6 {
		return text
	}
	v, unit := float64(n), 0
	for ; (v >= 999.95 || v <= -999.95) && unit < 6; unit++ {
		v /= 1000
	}
	return fmt.Sprintf("%.1f%s", v, []string{"", "k", "M", "G", "T", "P", "E"}[unit])
}

// rate formats a signal's change per second.
func rate(s policy.Signal, perSecond float64) string {
	sign := "+"
	if perSecond < 0 {
		sign, perSecond = "-", -perSecond
	}
	return sign + amount(s, int64(min(perSecond, 1<<62))) + "/s"
}

// age formats a duration for display, in a few characters.
func age(d time.Duration) string {
	switch {
	case d < time.Second:
		return "0s"
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		s := d.Round(time.Minute).String()
		return s[:len(s)-len("0s")]
	default:
		return itoa(int64(d/(24*time.Hour))) + "d"
	}
}
