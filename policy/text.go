package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// nameOf returns the name of an enumerated value, or "kind(n)" if it is out of range.
func nameOf[T ~uint8](names []string, v T, kind string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return kind + "(" + strconv.Itoa(int(v)) + ")"
}

// parseName is the inverse of nameOf. The error lists all names.
func parseName[T ~uint8](names []string, s, kind string) (T, error) {
	if i := slices.Index(names, s); i >= 0 {
		return T(i), nil
	}
	return 0, fmt.Errorf("parse %s %q: not one of %s", kind, s, strings.Join(names, ", "))
}

// ShortDuration writes a duration without the units that are 0: "5m", not "5m0s".
func ShortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
