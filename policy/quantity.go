package policy

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Quantity is an amount of a signal: either absolute (bytes, inodes, tasks) or a percentage of the
// capacity. It is exact and comparable. The zero value is the absolute 0.
type Quantity struct {
	n       int64 // the amount, or billionths of a percent
	percent bool
}

// A percentage is stored in billionths of a percent.
const (
	percentDigits = 9
	percentUnit   = 1_000_000_000
	wholePercent  = 100 * percentUnit
)

// maxQuantityLen limits the input; longer numbers are mistakes.
const maxQuantityLen = 64

// Bytes returns an absolute quantity. A negative n counts as 0.
func Bytes(n int64) Quantity { return Quantity{n: max(n, 0)} }

// Percent returns p percent of the capacity, with p clamped to 0 … 100.
func Percent(p int64) Quantity {
	return Quantity{n: min(max(p, 0), 100) * percentUnit, percent: true}
}

// QuantityError is a quantity that breaks a rule.
type QuantityError struct {
	Value, Rule, Hint string
}

// Error returns "parse quantity …: rule (hint: …)".
func (e *QuantityError) Error() string {
	text := fmt.Sprintf("parse quantity %q: %s", e.Value, e.Rule)
	if e.Hint != "" {
		text += " (hint: " + e.Hint + ")"
	}
	return text
}

// ParseQuantity parses the kubelet's syntax: a number of bytes, inodes or tasks with a binary suffix
// ("100Mi", "1.5Gi"), a decimal suffix ("500M", "20k") or an exponent ("1e3"), or a percentage of the
// capacity ("10%", "10.5%"). It rounds a fraction of a byte up. The error is a *QuantityError.
//
// It accepts Kubernetes' suffixes for fractions (m, u, n) if the result is a whole number of bytes.
// "100m" is probably a mistake for a larger unit, so it is an error.
func ParseQuantity(s string) (Quantity, error) {
	q, rule, hint := parseQuantity(s)
	if rule != "" {
		return Quantity{}, &QuantityError{Value: s, Rule: rule, Hint: hint}
	}
	return q, nil
}

func parseQuantity(s string) (q Quantity, rule, hint string) {
	if s == "" || len(s) > maxQuantityLen {
		return q, "must be a quantity", `as "100Mi" or "10%"`
	}
	if s[0] == '-' {
		return q, "must not be negative", ""
	}
	if whole := strings.Join(strings.Fields(s), ""); whole != s && whole != "" {
		return q, "must not contain blanks", fmt.Sprintf("write it as %q", whole)
	}
	number := strings.TrimPrefix(s, "+")
	end := strings.IndexFunc(number, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	suffix := ""
	if end >= 0 {
		number, suffix = number[:end], number[end:]
	}
	value, ok := new(big.Rat).SetString(number)
	if !ok {
		return q, "must begin with a number", `as "100Mi" or "10%"`
	}
	if suffix == "%" {
		return percentage(value)
	}
	factor, rule, hint := multiplier(suffix)
	if rule != "" {
		return q, rule, hint
	}
	value.Mul(value, factor)
	n, rest := new(big.Int).QuoRem(value.Num(), value.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		if slices.Contains(fractionSuffixes, suffix) && suffix != "" {
			return q, "must be whole bytes", fmt.Sprintf(`%q is a fraction in Kubernetes; mega is "M", mebi is "Mi"`, suffix)
		}
		n.Add(n, big.NewInt(1))
	}
	if !n.IsInt64() {
		return q, "must be below 8Ei", ""
	}
	return Quantity{n: n.Int64()}, "", ""
}

func percentage(value *big.Rat) (q Quantity, rule, hint string) {
	value.Mul(value, big.NewRat(percentUnit, 1))
	switch {
	case !value.IsInt():
		return q, fmt.Sprintf("must have at most %d decimals", percentDigits), ""
	case value.Cmp(big.NewRat(wholePercent, 1)) > 0:
		return q, "must not be above 100%", ""
	}
	return Quantity{n: value.Num().Int64(), percent: true}, "", ""
}

// The suffixes, by the power of 1024, 1000 or a thousandth that they stand for.
var (
	binarySuffixes   = []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	decimalSuffixes  = []string{"", "k", "M", "G", "T", "P", "E"}
	fractionSuffixes = []string{"", "m", "u", "n"}
)

// multiplier returns the factor that a suffix or an exponent stands for.
func multiplier(suffix string) (factor *big.Rat, rule, hint string) {
	if i := slices.Index(decimalSuffixes, suffix); i >= 0 {
		return power(1000, i), "", ""
	} else if i := slices.Index(binarySuffixes, suffix); i >= 0 {
		return power(1024, i), "", ""
	} else if i := slices.Index(fractionSuffixes, suffix); i >= 0 {
		return new(big.Rat).Inv(power(1000, i)), "", ""
	}
	switch {
	case suffix[0] == 'e' || suffix[0] == 'E':
		exp, err := strconv.ParseUint(strings.TrimPrefix(suffix[1:], "+"), 10, 8)
		if err != nil || exp > maxQuantityLen {
			return nil, "must have an exponent between 0 and 64", ""
		}
		return power(10, int(exp)), "", ""
	case suffix == "K":
		return nil, "must have a known suffix", `"k" is 1000, "Ki" is 1024`
	}
	if bare := strings.TrimRight(suffix, "Bb"); bare != "" && bare != suffix {
		if _, rule, _ := multiplier(bare); rule == "" {
			return nil, "must have a known suffix", fmt.Sprintf("leave the %q out", suffix[len(bare):])
		}
	}
	return nil, "must have a known suffix", "suffixes are Ki, Mi, Gi, Ti, Pi, Ei, k, M, G, T, P, E and %"
}

func power(base int64, exp int) *big.Rat {
	return new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(base), big.NewInt(int64(exp)), nil))
}

// Of returns the quantity in units of the signal for a capacity. It is exact; a percentage is rounded
// down. A capacity below 0 counts as 0.
func (q Quantity) Of(capacity int64) int64 {
	if !q.percent {
		return q.n
	}
	return mulDiv(max(capacity, 0), q.n, wholePercent)
}

// IsPercent reports whether the quantity is a share of the capacity.
func (q Quantity) IsPercent() bool { return q.percent }

// IsZero reports whether the quantity is 0 or 0%.
func (q Quantity) IsZero() bool { return q.n == 0 }

// String returns the shortest exact form, which ParseQuantity accepts.
func (q Quantity) String() string {
	if q.percent {
		whole, fraction := q.n/percentUnit, q.n%percentUnit
		if fraction == 0 {
			return strconv.FormatInt(whole, 10) + "%"
		}
		return strings.TrimRight(fmt.Sprintf("%d.%09d", whole, fraction), "0") + "%"
	}
	if q.n == 0 {
		return "0"
	}
	if n, i := divideOut(q.n, 1024); i > 0 {
		return strconv.FormatInt(n, 10) + binarySuffixes[i]
	}
	n, i := divideOut(q.n, 1000)
	return strconv.FormatInt(n, 10) + decimalSuffixes[i]
}

// divideOut divides n by base as often as there is no remainder.
func divideOut(n, base int64) (rest int64, times int) {
	for n%base == 0 {
		n /= base
		times++
	}
	return n, times
}

// MarshalText returns String.
func (q Quantity) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// UnmarshalText parses with ParseQuantity.
func (q *Quantity) UnmarshalText(text []byte) (err error) {
	*q, err = ParseQuantity(string(text))
	return err
}

// mulDiv returns a·b/c, computed in 128 bits and rounded down. No argument may be negative, and b ≤ c,
// so that the result fits.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	quotient, _ := bits.Div64(hi, lo, uint64(c))
	return int64(quotient)
}

// addCapped adds two non-negative amounts. The sum saturates at MaxInt64.
func addCapped(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
