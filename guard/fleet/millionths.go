package fleet

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Millionths is a number with six decimals: 0.1 is 100,000. It keeps the arithmetic of rates and shares exact.
type Millionths int64

// one is the number 1.
const one Millionths = 1_000_000

// MillionthsOf returns a number of at least 0 with at most six decimals, and false for any other number.
func MillionthsOf(f float64) (Millionths, bool) {
	m := math.Round(f * float64(one))
	if !(f >= 0 && m < 1<<53) || m/float64(one) != f {
		return 0, false
	}
	return Millionths(m), true
}

// String formats the number in decimals without trailing zeros, such as "0.1".
func (m Millionths) String() string {
	sign, u := "", uint64(m)
	if m < 0 {
		sign, u = "-", -u
	}
	text := fmt.Sprintf("%s%d.%06d", sign, u/uint64(one), u%uint64(one))
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// MarshalJSON formats the number as a JSON number.
func (m Millionths) MarshalJSON() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalJSON parses a JSON number of at least 0 with at most six decimals.
func (m *Millionths) UnmarshalJSON(b []byte) error {
	f, err := strconv.ParseFloat(string(b), 64)
	n, ok := MillionthsOf(f)
	if err != nil || !ok {
		return fmt.Errorf("parse number %s: want at least 0, with at most six decimals", b)
	}
	*m = n
	return nil
}
