package words

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
)

// Line makes text fit for a line of a terminal: names come from the runtime, and must
// neither move the cursor nor break the line.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// Met tells which thresholds of a signal were met, and for how long.
func Met(p *guard.Pass, s policy.Signal) string {
	var all []string
	for _, m := range p.Met {
		if m.Signal != s {
			continue
		}
		_, kind, _ := strings.Cut(m.Threshold, ":")
		text := fmt.Sprintf("%s, below %s for %s", kind, guard.FormatAmount(s, m.Target), m.For.Round(time.Millisecond))
		switch {
		case m.WarnOnly:
			text += ", only told"
		case !m.Due && m.Wait > 0:
			text += fmt.Sprintf(", %s of the grace period left", m.Wait.Round(time.Millisecond))
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// Freed tells how far the signal of a stop moved; "" where it had none.
func Freed(s *guard.StopView) string {
	sig, err := policy.ParseSignal(s.Signal)
	if err != nil || s.Result == nil {
		return ""
	}
	return fmt.Sprintf("%s rose from %s to %s: %s freed of %s expected", sig, guard.FormatAmount(sig, s.Available),
		guard.FormatAmount(sig, s.Result.Available), guard.FormatAmount(sig, max(s.Result.Available-s.Available, 0)), guard.FormatUsage(sig, s.Expected))
}
