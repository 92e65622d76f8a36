package reclaim

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is a duration that JSON encodes as a string ("1.5s", "3m0s", "-1h0m0s").
type Duration time.Duration

// String formats the duration as Go does.
func (d Duration) String() string { return time.Duration(d).String() }

// Round rounds the duration as time.Duration.Round does.
func (d Duration) Round(m time.Duration) Duration { return Duration(time.Duration(d).Round(m)) }

// Seconds returns the duration in seconds.
func (d Duration) Seconds() float64 { return time.Duration(d).Seconds() }

// MarshalText formats the duration as Go does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalJSON parses a Go duration from a JSON string.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("duration %s: not a string such as \"30s\"", b)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("duration %q: not like \"30s\" or \"5m\"", s)
	}
	*d = Duration(v)
	return nil
}
