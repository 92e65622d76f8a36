package api

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/criguard/criguard/policy"
)

// FormatBytes formats bytes for people, in the kubelet's units: "1.5Gi", "312Mi".
func FormatBytes(n int64) string {
	sign := ""
	if n < 0 {
		sign = "-"
	}
	v, unit := float64(n), 0
	if v < 0 {
		v = -v
	}
	for v >= 1023.5 && unit < maxUnit {
		v, unit = v/1024, unit+1
	}
	if unit == 0 || v >= 99.95 || v == float64(int64(v)) {
		return fmt.Sprintf("%s%.0f%s", sign, v, byteUnit(unit))
	}
	return fmt.Sprintf("%s%.1f%s", sign, v, byteUnit(unit))
}

// maxUnit is the largest unit, Ei, as a power of 1024.
const maxUnit = 6

// byteUnit returns the name of a power of 1024.
func byteUnit(power int) string {
	return []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}[power]
}

// bytesIn formats bytes in a unit, with one digit after the point unless that is 0.
func bytesIn(n int64, power int) string {
	v := float64(n) / float64(int64(1)<<(10*power))
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") + byteUnit(power)
}

// formatApart formats two different numbers of bytes so that they differ: "1399.9Mi", "1400Mi".
func formatApart(a, b int64) (as, bs string) {
	as, bs = FormatBytes(a), FormatBytes(b)
	for power := maxUnit; power >= 0 && as == bs; power-- {
		as, bs = bytesIn(a, power), bytesIn(b, power)
	}
	return as, bs
}

// FormatThreshold formats the amount of a threshold exactly, if four digits before the point are enough:
// "1400Mi", not "1.4Gi". Otherwise it is like FormatAmount.
func FormatThreshold(s policy.Signal, n int64) string {
	text := FormatAmount(s, n)
	if text != FormatBytes(n) {
		return text
	}
	for power := maxUnit - 1; power >= 0; power-- { // ten times an Ei would overflow
		if size := int64(1) << (10 * power); n >= size && n/size < 10_000 && n%size*10%size == 0 {
			return bytesIn(n, power)
		}
	}
	return text
}

// Rounded returns a duration for JSON to the millisecond: an age or a remaining time is no more exact.
func Rounded(d time.Duration) Duration { return Duration(d.Round(time.Millisecond)) }

// Count formats a number of things: "1 pod", "2 pods".
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

// FormatAmount formats an amount of a signal: bytes, a count or, for stalls, the percentage of the time
// without stalls.
func FormatAmount(s policy.Signal, n int64) string {
	if s.IsStall() {
		return fmt.Sprintf("%.1f%%", float64(n)*100/policy.StallCapacity)
	}
	return FormatUsage(s, n)
}

// FormatBelow formats an amount of a signal that is below a threshold, with digits enough to differ:
// "86Mi < 100Mi", "1399.9Mi < 1400Mi".
func FormatBelow(s policy.Signal, available, threshold int64) string {
	a, t := FormatAmount(s, available), FormatAmount(s, threshold)
	switch {
	case a != t:
		return a + " < " + t
	case s.IsStall(): // the difference would be 0.0%
		exact := func(n int64) string {
			return strconv.FormatFloat(float64(n)*100/policy.StallCapacity, 'f', -1, 64) + "%"
		}
		return exact(available) + " < " + exact(threshold)
	default:
		a, t = formatApart(available, threshold)
		return a + " < " + t
	}
}

// FormatUsage formats a usage of the resource that the signal ranks.
func FormatUsage(s policy.Signal, n int64) string {
	switch s.Resource() {
	case policy.ResourceInodes, policy.ResourcePIDs:
		return strconv.FormatInt(n, 10)
	default:
		return FormatBytes(n)
	}
}

// FormatUsage formats the pod's usage of the resource that the signal ranks: "312Mi", "≥ 312Mi" if it could
// not be measured in full, or "unknown".
func (r *RankedView) FormatUsage(s policy.Signal) string {
	switch {
	case !r.Known:
		return "unknown"
	case r.AtLeast:
		return "≥ " + FormatUsage(s, r.Usage)
	default:
		return FormatUsage(s, r.Usage)
	}
}

// NoRequest stands for the request for a resource that pods do not request.
const NoRequest = "-"

// FormatRequest formats the pod's request for the resource that the signal ranks, "unknown" or NoRequest.
func (r *RankedView) FormatRequest(s policy.Signal) string {
	switch resource := s.Resource(); {
	case resource != policy.ResourceMemory && resource != policy.ResourceDisk:
		return NoRequest
	case resource == policy.ResourceMemory && r.RequestSource == SourceUnknown:
		return SourceUnknown
	default:
		return FormatUsage(s, r.Request)
	}
}

// KeyName returns the name under which a rank key's value is shown. For a resource that pods request, the key
// "usage" compares by how much they use more than they requested.
func KeyName(s policy.Signal, k policy.Key) string {
	if r := s.Resource(); k == policy.KeyUsage && (r == policy.ResourceMemory || r == policy.ResourceDisk) {
		return "over_by"
	}
	return k.String()
}

// KeyNames returns the names of rank keys, separated by commas.
func KeyNames(s policy.Signal, keys []policy.Key) string {
	var names []string
	for _, k := range keys {
		names = append(names, KeyName(s, k))
	}
	return strings.Join(names, ", ")
}

// FormatKey formats the value of a rank key: "over_request=yes", "over_by=312Mi", and "over_by=-1Gi" for a pod
// that uses 1 GiB less than it requested.
func FormatKey(s policy.Signal, k policy.KeyValue) string {
	return KeyName(s, k.Key) + "=" + FormatKeyValue(s, k)
}

// FormatKeys formats two different values of a rank key, with digits enough to differ.
func FormatKeys(s policy.Signal, a, b policy.KeyValue) (as, bs string) {
	as, bs = FormatKey(s, a), FormatKey(s, b)
	if as == bs {
		as, bs = formatApart(a.Value, b.Value)
		as, bs = KeyName(s, a.Key)+"="+as, KeyName(s, b.Key)+"="+bs
		if a.Key == policy.KeyGrowth {
			as, bs = as+"/s", bs+"/s"
		}
	}
	return as, bs
}

// FormatKeyValue formats the value of a rank key without its name.
func FormatKeyValue(s policy.Signal, k policy.KeyValue) string {
	if !k.Known() {
		return SourceUnknown
	}
	switch k.Key {
	case policy.KeyCulprit, policy.KeyOverRequest:
		if k.Value != 0 {
			return "yes"
		}
		return "no"
	case policy.KeyUsage:
		return FormatUsage(s, k.Value)
	case policy.KeyGrowth:
		return FormatBytes(k.Value) + "/s"
	case policy.KeyQoS:
		return policy.QoS(k.Value).String() //nolint:gosec // a QoS was put in
	default:
		return strconv.FormatInt(k.Value, 10)
	}
}
