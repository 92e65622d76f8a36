package cli

import (
	"time"

	"github.com/criguard/criguard/cmd/criguard/internal/words"
	"github.com/criguard/criguard/policy"
)

// Duration is the value of a flag that also takes days.
type Duration time.Duration

// Set parses a duration.
func (d *Duration) Set(s string) error {
	v, err := words.ParseDuration(s)
	*d = Duration(v)
	return err
}

// String formats the duration.
func (d *Duration) String() string { return time.Duration(*d).String() }

// Type names the type of the value in the help.
func (d *Duration) Type() string { return "duration" }

// Age formats a duration for display.
func Age(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Hour:
		return policy.ShortDuration(d.Round(time.Second))
	default:
		return policy.ShortDuration(d.Round(time.Minute))
	}
}

// Short formats a duration for display, with its milliseconds.
func Short(d time.Duration) string { return policy.ShortDuration(d.Round(time.Millisecond)) }
