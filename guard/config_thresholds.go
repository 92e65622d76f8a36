package guard

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/policy"
)

func (c checker) eviction(k evictionKeys) EvictionConfig {
	e := EvictionConfig{
		Interval:                 c.duration("eviction.interval", k.Interval, 100*time.Millisecond, 10*time.Minute),
		MaxPodGracePeriod:        c.duration("eviction.max_pod_grace_period", k.MaxPodGracePeriod, 0, 24*time.Hour),
		PressureTransitionPeriod: c.duration("eviction.pressure_transition_period", k.PressureTransitionPeriod, 0, forever),
		SoftForgive:              c.duration("eviction.soft_forgive", k.SoftForgive, 0, forever),
		StopTimeout:              c.duration("eviction.stop_timeout", k.StopTimeout, 10*time.Millisecond, 5*time.Minute),
		DirectKill:               choice(c, "eviction.direct_kill", k.DirectKill, DirectKillHardMemory, DirectKillFallback, DirectKillNever),
		MemoryReclaim:            k.MemoryReclaim,
		StallWindow:              c.duration("eviction.stall_window", k.StallWindow, 500*time.Millisecond, 10*time.Second),
		StallFloor:               c.quantity("eviction.stall_floor", k.StallFloor),
	}
	hard, soft := retype[string](k.Hard), retype[string](k.Soft)
	var err error
	e.Thresholds, err = policy.ParseThresholds(hard, soft, retype[string](k.SoftGracePeriod), retype[string](k.MinimumReclaim))
	c.thresholds(err)
	e.Off = orNil(policy.SwitchedOff(hard, soft))
	c.companions(k)
	return e
}

// thresholds takes over what policy finds wrong.
func (c checker) thresholds(err error) {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return
	}
	for _, e := range joined.Unwrap() {
		var t *policy.ThresholdError
		if !errors.As(e, &t) {
			continue
		}
		key := joinKey(t.Table, t.Signal)
		var value any
		if _, named := c.keyed[key]; named || t.Value != "" {
			value = t.Value
		}
		_, unknown := policy.ParseSignal(t.Signal)
		if t.Table == policy.TableGrace && unknown == nil && t.Value != "" {
			c.duration(key, durationText(t.Value), 0, forever) // which tells more
		}
		c.add(key, value, t.Rule, t.Hint)
		if last := c.list[len(c.list)-1]; last.Key == key && value == nil {
			soft := c.of(joinKey(policy.TableSoft, t.Signal)) // what misses a grace period
			last.File, last.Line = soft.File, soft.Line
		}
	}
}

// companions finds grace periods and minimum reclaims that belong to no
// threshold: what was meant to protect would do nothing.
func (c checker) companions(k evictionKeys) {
	orphan := func(table, name, value, want, hint string) {
		if _, err := policy.ParseSignal(name); err == nil {
			c.add(joinKey(table, name), value, "must belong to "+want, hint)
		}
	}
	for _, name := range sortedKeys(k.SoftGracePeriod) {
		if _, ok := k.Soft[name]; !ok && !c.has(joinKey(policy.TableSoft, name)) {
			orphan(policy.TableGrace, name, string(k.SoftGracePeriod[name]), "a soft threshold", fmt.Sprintf("name it in [eviction.soft]: %q = …", name))
		}
	}
	for _, name := range sortedKeys(k.MinimumReclaim) {
		_, hard := k.Hard[name]
		if _, soft := k.Soft[name]; !hard && !soft && !c.has(joinKey(policy.TableHard, name), joinKey(policy.TableSoft, name)) {
			hint := fmt.Sprintf("name it in [eviction.hard]: %q = …", name)
			if strings.HasPrefix(name, "containerfs.") {
				hint += "; else that of the filesystem it is on counts"
			}
			orphan(policy.TableMinReclaim, name, string(k.MinimumReclaim[name]), "a threshold", hint)
		}
	}
}

func (c checker) rank(k rankKeys) RankConfig {
	return RankConfig{
		Memory: c.rankKeys("rank.memory", k.Memory), Disk: c.rankKeys("rank.disk", k.Disk),
		Inodes: c.rankKeys("rank.inodes", k.Inodes), PID: c.rankKeys("rank.pid", k.PID),
	}
}

func (c checker) rankKeys(key string, names []string) []policy.Key {
	all := keyNames([]policy.Key{policy.KeyOverRequest, policy.KeyPriority, policy.KeyUsage, policy.KeyGrowth, policy.KeyQoS})
	var keys []policy.Key
	for i, name := range names {
		at := fmt.Sprintf("%s[%d]", key, i+1)
		k, err := policy.ParseKey(name)
		switch {
		case err != nil:
			c.add(at, name, "must be one of "+strings.Join(all, ", "), nearestWord(name, all))
		case slices.Contains(keys, k):
			c.add(at, name, "must be named once", "the first place counts; leave this one out")
		case k == policy.KeyGrowth && key != "rank.memory":
			c.add(at, name, "must not rank what is no memory", "growth is followed of memory alone")
		}
		keys = append(keys, k)
	}
	if len(names) == 0 {
		c.add(key, []any{}, "must name at least one key", "leave it out for the default order")
	}
	return keys
}
