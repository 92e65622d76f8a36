package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// The configuration's tables, as errors name them.
const (
	TableHard       = "eviction.hard"
	TableSoft       = "eviction.soft"
	TableGrace      = "eviction.soft_grace_period"
	TableMinReclaim = "eviction.minimum_reclaim"
)

// ThresholdError is one entry of the configuration that breaks a rule.
type ThresholdError struct {
	Table, Signal, Value, Rule, Hint string
}

// Error is `eviction.hard: "memory.available" = "150%": rule (hint: …)`.
func (e *ThresholdError) Error() string {
	return fmt.Sprintf("%s: %q = %q: %s%s", e.Table, e.Signal, e.Value, e.Rule, hint(e.Hint))
}

// ParseThresholds reads the configuration's four tables, each by signal name:
// quantities for hard, soft and minReclaim, Go durations for grace. A value of 0%
// or 100% switches a threshold off. The thresholds come in the order of acting;
// minimum reclaim applies to both kinds of a signal's. The error joins one
// *ThresholdError for each entry that is wrong, in the order of tables and names.
func ParseThresholds(hard, soft, grace, minReclaim map[string]string) ([]Threshold, error) {
	var p thresholdParser
	graces := parseTable(&p, TableGrace, grace, p.duration)
	reclaims := parseTable(&p, TableMinReclaim, minReclaim, p.minReclaim)
	values := [kindCount]map[Signal]Quantity{
		Hard: parseTable(&p, TableHard, hard, p.value),
		Soft: parseTable(&p, TableSoft, soft, p.value),
	}
	var ts []Threshold
	for k := range kindCount {
		for s, v := range values[k] {
			if v.switchesOff() {
				continue
			}
			g, named := graces[s]
			if k == Soft && !named && grace[s.String()] == "" {
				p.fail(&ThresholdError{TableGrace, s.String(), "", "must be set for a soft threshold", `as "1m30s"`})
			}
			if k == Hard {
				g = 0
			}
			if r := reclaims[s]; v.percent && r.percent && v.n+r.n > wholePercent {
				p.fail(&ThresholdError{TableMinReclaim, s.String(), r.String(), "must leave the threshold attainable",
					fmt.Sprintf("with the %s threshold of %s it asks for more than 100%%", k, v)})
			}
			ts = append(ts, Threshold{Signal: s, Kind: k, Value: v, Grace: g, MinReclaim: reclaims[s]})
		}
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	slices.SortFunc(ts, Threshold.Compare)
	return ts, nil
}

// SwitchedOff lists the signal and kind of each threshold that a value of 0% or
// 100% switches off, in the order of acting. What else is wrong with the tables
// is ParseThresholds' to say.
func SwitchedOff(hard, soft map[string]string) []Threshold {
	var off []Threshold
	for k, table := range [kindCount]map[string]string{Hard: hard, Soft: soft} {
		for name, value := range table {
			s, err := ParseSignal(name)
			q, bad := ParseQuantity(value)
			if err == nil && bad == nil && q.switchesOff() {
				off = append(off, Threshold{Signal: s, Kind: Kind(k), Value: q})
			}
		}
	}
	slices.SortFunc(off, Threshold.Compare)
	return off
}

// switchesOff: a share of nothing is never missing, and of everything always.
func (q Quantity) switchesOff() bool { return q.percent && (q.n == 0 || q.n == wholePercent) }

// thresholdParser gathers what is wrong.
type thresholdParser struct{ wrong []*ThresholdError }

func (p *thresholdParser) fail(e *ThresholdError) { p.wrong = append(p.wrong, e) }

// err joins what is wrong, in an order that does not depend on the maps'.
func (p *thresholdParser) err() error {
	tables := []string{TableHard, TableSoft, TableGrace, TableMinReclaim}
	slices.SortFunc(p.wrong, func(a, b *ThresholdError) int {
		if a.Table != b.Table {
			return slices.Index(tables, a.Table) - slices.Index(tables, b.Table)
		}
		return strings.Compare(a.Signal+a.Hint, b.Signal+b.Hint)
	})
	var errs []error
	for _, e := range p.wrong {
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

// parseTable reads one table by signal, leaving out what is wrong.
func parseTable[T any](p *thresholdParser, table string, entries map[string]string, parse func(Signal, string) (T, string, string)) map[Signal]T {
	parsed := map[Signal]T{}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e := ThresholdError{Table: table, Signal: name, Value: entries[name]}
		s, err := ParseSignal(name)
		if err != nil {
			e.Rule, e.Hint = "unknown signal", "signals are "+strings.Join(signalNames, ", ")
			if near := closest(name, signalNames); near != "" {
				e.Hint = fmt.Sprintf("did you mean %q?", near)
			}
			p.fail(&e)
			continue
		}
		v, rule, hint := parse(s, e.Value)
		if e.Rule, e.Hint = rule, hint; rule != "" {
			p.fail(&e)
			continue
		}
		parsed[s] = v
	}
	return parsed
}

const offHint = `"0%" or "100%" switches a threshold off`

func (*thresholdParser) value(s Signal, text string) (q Quantity, rule, hint string) {
	q, rule, hint = parseQuantity(text)
	switch {
	case rule != "":
	case !q.percent && q.n == 0:
		rule, hint = "must be above 0", offHint
	case !q.percent && s.IsStall():
		rule, hint = "must be a percentage", `"80%" acts when more than 20% of the time is stalled`
	}
	return q, rule, hint
}

func (*thresholdParser) minReclaim(s Signal, text string) (q Quantity, rule, hint string) {
	q, rule, hint = parseQuantity(text)
	switch {
	case rule != "":
	case q.percent && q.n == 0:
		rule, hint = "must be above 0%", `"0" asks for no minimum`
	case !q.percent && q.n > 0 && s.IsStall():
		rule = "must be a percentage"
	}
	return q, rule, hint
}

func (*thresholdParser) duration(_ Signal, text string) (d time.Duration, rule, hint string) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, "must be a duration", `as "1m30s"`
	case d < 0:
		return 0, "must not be negative", ""
	}
	return d, "", ""
}
