package guard

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/criguard/criguard/policy"
)

// FormatBytes writes bytes for people, in the kubelet's units: "1.5Gi", "312Mi".
func FormatBytes(n int64) string {
	sign := ""
	if n < 0 {
		sign = "-"
	}
	v, unit := float64(n), 0
	if v < 0 {
		v = -v
	}
	units := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	for v >= 1023.5 && unit < len(units)-1 {
		v, unit = v/1024, unit+1
	}
	if unit == 0 || v >= 99.95 || v == float64(int64(v)) {
		return fmt.Sprintf("%s%.0f%s", sign, v, units[unit])
	}
	return fmt.Sprintf("%s%.1f%s", sign, v, units[unit])
}

// FormatAmount writes an amount of a signal: bytes, a count, or for stalls the
// share of time that was free of them.
func FormatAmount(s policy.Signal, n int64) string {
	switch s {
	case policy.MemoryStall, policy.IOStall:
		return fmt.Sprintf("%.1f%%", float64(n)*100/policy.StallCapacity)
	case policy.PIDAvailable, policy.NodeFSInodesFree, policy.ImageFSInodesFree, policy.ContainerFSInodesFree:
		return strconv.FormatInt(n, 10)
	default:
		return FormatBytes(n)
	}
}

// FormatUsage writes what a pod uses of the resource that the signal ranks.
func FormatUsage(s policy.Signal, n int64) string {
	switch s.Resource() {
	case policy.ResourceInodes, policy.ResourcePIDs:
		return strconv.FormatInt(n, 10)
	default:
		return FormatBytes(n)
	}
}

// FormatKey writes a rank key's value: "over_request=yes", "usage=312Mi".
func FormatKey(s policy.Signal, k policy.KeyValue) string {
	var v string
	if !k.Known() {
		return k.Key.String() + "=unknown"
	}
	switch k.Key {
	case policy.KeyOverRequest:
		v = "no"
		if k.Value != 0 {
			v = "yes"
		}
	case policy.KeyUsage:
		v = FormatUsage(s, k.Value)
	case policy.KeyGrowth:
		v = FormatBytes(k.Value) + "/s"
	case policy.KeyQoS:
		v = policy.QoS(k.Value).String() //nolint:gosec // a QoS was put in
	default:
		v = strconv.FormatInt(k.Value, 10)
	}
	return k.Key.String() + "=" + v
}

// grounds says what makes a pod the victim. took is what it has taken while another stop was
// waited for, back how long ago its workload was stopped that came back; 0 = neither.
func grounds(m policy.Met, v policy.Ranked, took int64, back time.Duration) string {
	switch {
	case took > 0:
		return fmt.Sprintf("took %s while another stop was waited for", FormatAmount(m.Signal, took))
	case v.Position <= 1:
		return "ranks first"
	case back > 0:
		return fmt.Sprintf("ranks %d, was stopped %s ago and has come back", v.Position, back.Round(time.Second))
	default:
		return fmt.Sprintf("ranks %d, those before it cannot be stopped now", v.Position)
	}
}

// reason says in one line why this sandbox and why now.
func reason(m policy.Met, v policy.Ranked, grounds string, now time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s < %s", m.Signal, FormatAmount(m.Signal, m.Available), FormatAmount(m.Signal, m.Target))
	if d := now - m.Since; m.Kind == policy.Soft && d > 0 {
		fmt.Fprintf(&b, " for %s", d.Round(time.Millisecond))
	}
	b.WriteString("; " + grounds + ":")
	for i, k := range v.Keys {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(" " + FormatKey(m.Signal, k))
	}
	if v.ByMemory {
		b.WriteString("; " + ByMemory)
	}
	return b.String()
}
