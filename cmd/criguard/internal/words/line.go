package words

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// Met lists the thresholds of a signal that were met, and for how long.
func Met(p *api.Pass, s policy.Signal) string {
	var all []string
	for _, m := range p.Met {
		if m.Signal != s {
			continue
		}
		_, kind, _ := strings.Cut(m.Threshold, ":")
		text := fmt.Sprintf("%s, below %s by %s", kind, api.FormatAmount(s, m.Target), api.FormatAmount(s, m.Target-m.Available))
		if d := time.Duration(m.For).Round(time.Millisecond); d > 0 { // 0: since this pass
			text += " for " + policy.ShortDuration(d)
		}
		switch {
		case m.WarnOnly:
			text += ", warning only"
		case !m.Due && m.Wait > 0:
			text += fmt.Sprintf(", %s of the grace period left", policy.ShortDuration(time.Duration(m.Wait).Round(time.Millisecond)))
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// Need describes what a pool lacks and what stopping pods could give back, without the last period.
func Need(n *api.Need) string {
	amount := func(v int64) string {
		if r := n.Pool.Resource(); r == policy.ResourcePIDs || r == policy.ResourceInodes {
			return strconv.FormatInt(v, 10)
		}
		return api.FormatBytes(v)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The pool %s is short of %s", n.Pool, amount(n.Deficit))
	if n.Fill > 0 {
		fmt.Fprintf(&b, " and fills at %s/s", amount(n.Fill))
	}
	switch {
	case n.Protected != "":
		fmt.Fprintf(&b, ", %s/s of it outside the pods that may be stopped (%s, which is protected, grows by %s/s)",
			amount(n.OutsideFill), n.Protected, amount(n.ProtectedGrowth))
	case n.OutsideFill > 0:
		fmt.Fprintf(&b, ", %s/s of it outside pods", amount(n.OutsideFill))
	}
	fmt.Fprintf(&b, ". When a stop takes effect it needs %s; a stop helps if it gives back %s", amount(n.Need), amount(n.Helps))
	if len(n.Tiers) == 2 {
		fmt.Fprintf(&b, ". The pods above their request would give back %s, the others %s", amount(n.Tiers[0]), amount(n.Tiers[1]))
	} else if len(n.Tiers) == 1 {
		fmt.Fprintf(&b, ". The candidates would give back %s", amount(n.Tiers[0]))
	}
	if !n.Attainable {
		b.WriteString(". Stopping pods cannot bring relief")
	}
	if n.Culprit != "" {
		fmt.Fprintf(&b, ". %s fills it at %s/s", n.Culprit, amount(n.CulpritGrowth))
	}
	return b.String()
}

// Freed describes what a stop gave back and how far its signal moved. It returns "" if the stop has no
// signal or no result yet.
func Freed(s *api.StopView) string {
	sig, err := policy.ParseSignal(s.Signal)
	if err != nil || s.Result == nil {
		return ""
	}
	return fmt.Sprintf("%s freed of %s expected; %s from %s to %s", api.FormatUsage(sig, s.Result.Freed), api.FormatUsage(sig, s.Expected),
		sig, api.FormatAmount(sig, s.Available), api.FormatAmount(sig, s.Result.Available))
}
