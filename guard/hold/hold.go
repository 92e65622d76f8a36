package hold

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/policy"
)

// Time is how long a configuration waits.
const Time = 30 * time.Second

// Held is a configuration that waits to be in force.
type Held struct {
	Config config.Config
	Met    []api.MetNow
	Until  time.Duration // boot clock
	told   time.Duration // boot clock: when a command was answered first; 0 = none was
	// AtStart means that only the met thresholds wait. After a reload, the whole configuration does.
	AtStart bool
}

// Tell notes that a command is answered, so that its author sees what waits. A nil Held waits for nothing.
func (h *Held) Tell(now time.Duration) {
	if h != nil && h.told == 0 {
		h.told = now
	}
}

// Again reports whether a command with the same hard thresholds was asked for (boot clock) by someone who may have seen that they
// wait: after another command was answered, or since the start. If two are asked for at once, the author of the second has not
// seen the verdict on the first. A nil Held waits for nothing.
func (h *Held) Again(cfg config.Config, asked time.Duration) bool {
	return h != nil && h.same(cfg) && (h.AtStart && asked >= h.Until-Time || h.told > 0 && asked >= h.told)
}

// same reports whether a configuration has the same hard thresholds.
func (h *Held) same(cfg config.Config) bool { return maps.Equal(h.Config.Hard(), cfg.Hard()) }

// Rest splits a configuration with the same hard thresholds as at a held start: into what is in force meanwhile, with the thresholds
// of before in the place of those that wait, and what waits. Otherwise, all of it would wait, and waits is nil.
func (h *Held) Rest(cfg config.Config, before config.HardThresholds) (rest config.Config, waits *Held) {
	if h == nil || !h.AtStart || !h.same(cfg) {
		return cfg, nil
	}
	waits = new(*h)
	waits.Config = cfg
	return Without(cfg, h.Met, before), waits
}

// Next returns what waits after another configuration has begun to wait. One with the same hard thresholds does not start the
// time again, so that repeated reloads cannot prolong it. A nil Held waits for nothing.
func (h *Held) Next(other Held, now time.Duration) *Held {
	other.Until = now + Time
	if h != nil && h.Until > 0 && h.same(other.Config) {
		other.Until, other.told = h.Until, h.told
	}
	return &other
}

// Beside adds to the reasons of a rejected reload that an earlier configuration waits for less time than its author may think.
// A nil Held adds nothing.
func (h *Held) Beside(rejected error, now time.Duration) error {
	if h == nil {
		return rejected
	}
	return fmt.Errorf("%w\n%s; it is put in force in %s", rejected, h.Line(), h.left(now))
}

func (h *Held) left(now time.Duration) string {
	return policy.ShortDuration(max(h.Until-now, 0).Round(time.Second))
}

// Alarm says in one line what is held, for how long, and what to do.
func (h *Held) Alarm(now time.Duration) string {
	left, line := h.left(now), strings.Join(h.met(), "; ")
	switch {
	case !h.AtStart:
		return line + "; the configuration is held for " + left + " and then put in force (`criguard reload --now`, or a second `criguard reload`, does not wait)"
	case len(h.Met) == 1:
		line += "; the threshold is held for "
	default:
		line += "; the thresholds are held for "
	}
	return line + left + " and then put in force; the rest of the configuration is in force (`criguard reload` does not wait)"
}

// Line says in short what is held, for the status line.
func (h *Held) Line() string {
	if h.AtStart {
		return "threshold held: " + h.met()[0]
	}
	return "configuration held: " + h.met()[0]
}

// met says what each met threshold would do.
func (h *Held) met() []string {
	who := "a reload"
	if h.AtStart {
		who = "in force, it"
	}
	texts := make([]string, len(h.Met))
	for i, m := range h.Met {
		texts[i] = m.Would(who)
	}
	return texts
}

// Without returns the configuration to start with while the met thresholds wait: with those that were in force before
// in their place, or with none.
func Without(cfg config.Config, met []api.MetNow, before config.HardThresholds) config.Config {
	e := &cfg.Eviction
	e.Thresholds, e.Off = slices.Clone(e.Thresholds), slices.Clone(e.Off)
	for _, m := range met {
		t := policy.Threshold{Signal: m.Signal, Kind: policy.Hard}
		if i := slices.IndexFunc(e.Thresholds, func(o policy.Threshold) bool { return o.Compare(t) == 0 }); i >= 0 {
			t = e.Thresholds[i]
			e.Thresholds = slices.Delete(e.Thresholds, i, i+1)
		}
		if v, was := before.For(m.Signal, m.Capacity); was {
			t.Value = v
			e.Thresholds = append(e.Thresholds, t)
		} else {
			t.Value = policy.Percent(0)
			e.Off = append(e.Off, t) // it may also derive from another one
		}
	}
	return cfg
}
