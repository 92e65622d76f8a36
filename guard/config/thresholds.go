package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/config/schema"
	"github.com/criguard/criguard/policy"
)

// The tables of thresholds.
const (
	TableHard       = "eviction.hard"
	TableSoft       = "eviction.soft"
	TableGrace      = "eviction.soft_grace_period"
	TableMinReclaim = "eviction.minimum_reclaim"
)

// thresholdTables are the tables of [eviction], by signal.
type thresholdTables struct{ hard, soft, grace, minReclaim map[string]string }

// tables returns the thresholds as tables.
func (e Eviction) tables() *thresholdTables {
	t := &thresholdTables{map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}}
	for _, th := range slices.Concat(e.Thresholds, e.Off) {
		name := th.Signal.String()
		if th.Kind == policy.Hard {
			t.hard[name] = th.Value.String()
		} else {
			t.soft[name] = th.Value.String()
		}
		if !th.MinReclaim.IsZero() {
			t.minReclaim[name] = th.MinReclaim.String()
		}
	}
	for _, th := range e.Thresholds {
		if th.Kind == policy.Soft {
			t.grace[th.Signal.String()] = policy.ShortDuration(th.Grace)
		}
	}
	return t
}

// thresholds parses the tables, into the order of acting. A minimum reclaim applies to both the hard and the soft
// threshold of its signal.
func thresholds(c *schema.Checker, e *Eviction, t *thresholdTables) {
	graces, reclaims := parseTable(c, TableGrace, t.grace, grace), parseTable(c, TableMinReclaim, t.minReclaim, minReclaim)
	add := func(kind policy.Kind, values map[policy.Signal]policy.Quantity) {
		for _, s := range policy.Signals() {
			v, set := values[s]
			if !set {
				continue
			}
			if isOff(v) {
				e.Off = append(e.Off, policy.Threshold{Signal: s, Kind: kind, Value: v})
				continue
			}
			th := policy.Threshold{Signal: s, Kind: kind, Value: v, MinReclaim: reclaims[s]}
			if kind == policy.Soft {
				th.Grace = graces[s]
				needsGrace(c, t, s.String())
			}
			if r := th.MinReclaim; v.IsPercent() && r.IsPercent() && share(v) > share(policy.Percent(100))-share(r) {
				c.Add(schema.JoinKey(TableMinReclaim, s.String()), r.String(), "must leave the threshold attainable",
					fmt.Sprintf("with the %s threshold of %s it asks for more than 100%%", kind, v))
			}
			e.Thresholds = append(e.Thresholds, th)
		}
	}
	add(policy.Hard, parseTable(c, TableHard, t.hard, threshold))
	add(policy.Soft, parseTable(c, TableSoft, t.soft, threshold))
	slices.SortFunc(e.Thresholds, policy.Threshold.Compare)
	slices.SortFunc(e.Off, policy.Threshold.Compare)
	companions(c, t)
}

// parseTable parses one table, by signal.
func parseTable[T any](c *schema.Checker, table string, entries map[string]string, parse func(c *schema.Checker, s policy.Signal, key, text string) T) map[policy.Signal]T {
	parsed := make(map[policy.Signal]T, len(entries))
	for _, name := range sortedKeys(entries) {
		key := schema.JoinKey(table, name)
		s, err := policy.ParseSignal(name)
		if err != nil {
			c.Add(key, entries[name], "unknown signal", cmp.Or(SuggestSignal(name), "signals are "+strings.Join(policy.SignalNames(), ", ")))
			continue
		}
		if v := parse(c, s, key, entries[name]); !c.Has(key) {
			parsed[s] = v
		}
	}
	return parsed
}

func threshold(c *schema.Checker, s policy.Signal, key, text string) policy.Quantity {
	q := parseQuantity(c, key, text)
	switch {
	case !q.IsPercent() && q.IsZero():
		c.Add(key, text, "must be above 0", `"0%" or "100%" switches a threshold off`)
	case !q.IsPercent() && s.IsStall():
		c.Add(key, text, "must be a percentage", `"80%" acts when more than 20% of the time is stalled`)
	}
	return q
}

func minReclaim(c *schema.Checker, s policy.Signal, key, text string) policy.Quantity {
	q := parseQuantity(c, key, text)
	switch {
	case q.IsPercent() && q.IsZero():
		c.Add(key, text, "must be above 0%", `"0" asks for no minimum`)
	case !q.IsPercent() && !q.IsZero() && s.IsStall():
		c.Add(key, text, "must be a percentage", "")
	}
	return q
}

func grace(c *schema.Checker, _ policy.Signal, key, text string) time.Duration {
	return c.Duration(key, text, 0, forever)
}

// needsGrace rejects a soft threshold without a grace period.
func needsGrace(c *schema.Checker, t *thresholdTables, name string) {
	key := schema.JoinKey(TableGrace, name)
	if _, set := t.grace[name]; set || c.Has(key) {
		return
	}
	soft := c.Of(schema.JoinKey(TableSoft, name)) // point to the threshold
	c.AddAt(soft, key, nil, "must be set for a soft threshold", `as "1m30s"`)
}

// companions rejects grace periods and minimum reclaims without a threshold: they would silently
// have no effect.
func companions(c *schema.Checker, t *thresholdTables) {
	orphan := func(table, name, value, want, hint string) {
		if _, err := policy.ParseSignal(name); err == nil {
			c.Add(schema.JoinKey(table, name), value, "must belong to "+want, hint)
		}
	}
	for _, name := range sortedKeys(t.grace) {
		if _, ok := t.soft[name]; !ok && !c.Has(schema.JoinKey(TableSoft, name)) {
			orphan(TableGrace, name, t.grace[name], "a soft threshold", fmt.Sprintf("set a threshold in [eviction.soft]: %q = …", name))
		}
	}
	for _, name := range sortedKeys(t.minReclaim) {
		_, hard := t.hard[name]
		if _, soft := t.soft[name]; !hard && !soft && !c.Has(schema.JoinKey(TableHard, name), schema.JoinKey(TableSoft, name)) {
			hint := fmt.Sprintf("set a threshold in [eviction.hard]: %q = …", name)
			if strings.HasPrefix(name, "containerfs.") {
				hint += "; otherwise the minimum reclaim of its filesystem applies"
			}
			orphan(TableMinReclaim, name, t.minReclaim[name], "a threshold", hint)
		}
	}
}

func rankKeys(c *schema.Checker, key string, names []string) []policy.Key {
	allowed := []policy.Key{policy.KeyOverRequest, policy.KeyPriority, policy.KeyUsage, policy.KeyQoS}
	switch key {
	case "rank.memory":
		allowed = []policy.Key{policy.KeyCulprit, policy.KeyOverRequest, policy.KeyPriority, policy.KeyUsage, policy.KeyGrowth, policy.KeyQoS}
	case "rank.pid":
		allowed = slices.Insert(allowed, 0, policy.KeyCulprit)
	}
	all := keyNames(allowed)
	var keys []policy.Key
	for i, name := range names {
		at := fmt.Sprintf("%s[%d]", key, i+1)
		k, err := policy.ParseKey(name)
		switch {
		case err != nil:
			c.Add(at, name, "must be one of "+strings.Join(all, ", "), schema.SuggestWord(name, all))
		case slices.Contains(keys, k):
			c.Add(at, name, "must be listed only once", "only the first position counts; remove this one")
		case k == policy.KeyCulprit && !slices.Contains(allowed, k):
			c.Add(at, name, "must not be used outside rank.memory and rank.pid", "a disk fills too slowly for it")
		case k == policy.KeyCulprit && i > 0:
			c.Add(at, name, "must be the first key", "it is stopped before any other pod, or not at all")
		case k == policy.KeyGrowth && !slices.Contains(allowed, k):
			c.Add(at, name, "must not be used outside rank.memory", "criguard measures growth only for memory")
		}
		keys = append(keys, k)
	}
	if len(names) == 0 {
		c.Add(key, names, "must contain at least one key", "remove the line to use the default order")
	}
	return keys
}

// keyNames returns the names of rank keys.
func keyNames(keys []policy.Key) []string { return convertAll(keys, policy.Key.String) }

// SuggestSignal suggests the signal that was probably meant, as a question, or returns "" if none is close.
func SuggestSignal(name string) string { return schema.SuggestWord(name, policy.SignalNames()) }
