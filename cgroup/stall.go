package cgroup

import (
	"bytes"
	"math"
	"time"
)

// Stall is how long tasks have been stalled since boot. Some counts the time in which at least one task
// was stalled, Full the time in which all were stalled at once (psi.rst).
type Stall struct{ Some, Full time.Duration }

// parseStall parses the totals of the lines "some" and "full", in microseconds. A missing line yields
// −1 (cpu had no "full" before linux 5.13).
func parseStall(b []byte) Stall {
	s := Stall{-1, -1}
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		kind, rest, _ := bytes.Cut(line, []byte(" "))
		_, total, found := bytes.Cut(rest, []byte("total="))
		n := parseNumber(total)
		if !found || n < 0 || n > math.MaxInt64/int64(time.Microsecond) {
			continue
		}
		switch string(kind) {
		case "some":
			s.Some = time.Duration(n) * time.Microsecond
		case "full":
			s.Full = time.Duration(n) * time.Microsecond
		}
	}
	return s
}
