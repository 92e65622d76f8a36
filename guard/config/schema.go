package config

import (
	"math"
	"strings"
	"time"

	"github.com/criguard/criguard/policy"
)

// key is one key of the TOML file, bound to the field that holds its value.
type key struct {
	name string // path, such as "eviction.interval"; within a rule the key alone
	value
	restart bool // a change takes effect at the next start
}

const restart = true

// forever is longer than any sensible duration.
const forever = 100 * 365 * 24 * time.Hour

// Limits of numbers.
const (
	maxPasses = 100_000 // the history is kept in memory
	maxStops  = 1000
)

// schema lists every key in the order of rendering, bound to a configuration. Its defaults, parsing,
// checks, rendering, differences, origins and suggestions derive from this table. The thresholds
// are bound to the returned tables.
func schema(c *Config) ([]key, *thresholdTables) {
	e, b, i, t := &c.Eviction, &c.Budget.BudgetConfig, &c.Images, c.Eviction.tables()
	return []key{
		{"mode", choice(&c.Mode, ModeEnforce, ModeObserve), false},
		{"protect_static", flag(&c.ProtectStatic, true), false},
		{"protect_kube_system", flag(&c.ProtectKubeSystem, true), false},

		{"runtime.endpoint", text(&c.Runtime.Endpoint, checker.endpoint), restart},
		{"runtime.timeout", duration(&c.Runtime.Timeout, "2s", 10*time.Millisecond, time.Minute), restart},

		{"node.root_dir", text(&c.Node.RootDir, checker.foundDir), restart},
		{"node.pod_log_dir", text(&c.Node.PodLogDir, checker.foundDir), restart},
		{"node.proc", text(&c.Node.Proc, checker.foundDir), restart},
		{"node.sys", text(&c.Node.Sys, checker.foundDir), restart},
		{"node.pods_cgroup", text(&c.Node.PodsCgroup, checker.cgroup), restart},

		{"eviction.interval", duration(&e.Interval, "10s", 100*time.Millisecond, 10*time.Minute), false},
		{"eviction.max_pod_grace_period", duration(&e.MaxPodGracePeriod, "30s", 0, 24*time.Hour), false},
		{"eviction.pressure_transition_period", duration(&e.PressureTransitionPeriod, "5m", 0, forever), false},
		{"eviction.soft_forgive", duration(&e.SoftForgive, "5s", 0, forever), false},
		{"eviction.stop_timeout", duration(&e.StopTimeout, "2s", 10*time.Millisecond, 5*time.Minute), false},
		{"eviction.direct_kill", choice(&e.DirectKill, DirectKillHardMemory, DirectKillFallback, DirectKillNever), false},
		{"eviction.memory_reclaim", flag(&e.MemoryReclaim, false), false},
		{"eviction.stall_window", duration(&e.StallWindow, "2s", 500*time.Millisecond, 10*time.Second), false},
		{"eviction.stall_floor", quantity(&e.StallFloor, "20%", checker.quantity), false},
		{TableHard, bySignal(&t.hard, inQuantities, policy.DefaultHard()), false},
		{TableSoft, bySignal(&t.soft, inQuantities, nil), false},
		{TableGrace, bySignal(&t.grace, inDurations, nil), false},
		{TableMinReclaim, bySignal(&t.minReclaim, inQuantities, nil), false},

		{"rank.memory", ranking(&c.Rank.Memory, policy.ResourceMemory), false},
		{"rank.disk", ranking(&c.Rank.Disk, policy.ResourceDisk), false},
		{"rank.inodes", ranking(&c.Rank.Inodes, policy.ResourceInodes), false},
		{"rank.pid", ranking(&c.Rank.PID, policy.ResourcePIDs), false},

		{"annotations.trusted_namespaces", texts(&c.Annotations.TrustedNamespaces, nil, checker.namespace), false},

		{"budget.per_hour", number(&b.PerHour, 20, 0, maxStops, "0 = no cap"), false},
		{"budget.breaker", number(&b.Breaker, 3, 0, maxStops, "0 disables the breaker"), false},
		{"budget.hard.burst", number(&b.Hard.Burst, 3, 1, maxStops, `to stop no pods, set mode = "observe"`), false},
		{"budget.hard.every", duration(&b.Hard.Every, "30s", time.Millisecond, forever), false},
		{"budget.soft.burst", number(&b.Soft.Burst, 2, 1, maxStops, `to stop no pods, set mode = "observe"`), false},
		{"budget.soft.every", duration(&b.Soft.Every, "5m", time.Millisecond, forever), false},

		{"backoff.first", duration(&c.Backoff.First, "10s", 0, forever), false},
		{"backoff.max", duration(&c.Backoff.Max, "5m", 0, forever), false},
		{"backoff.reset", duration(&c.Backoff.Reset, "10m", 0, forever), false},

		{"admission.mode", choice(&c.Admission.Mode, AdmissionOff, AdmissionStop), false},

		{"fleet.enabled", flag(&c.Fleet.Enabled, false), false},

		{"containers.gc", flag(&c.Containers.GC, true), false},
		{"containers.min_age", duration(&c.Containers.MinAge, "1m", 0, forever), false},
		{"containers.max_per_container", number(&c.Containers.MaxPerContainer, 1, math.MinInt, math.MaxInt, ""), false},
		{"containers.max", number(&c.Containers.Max, -1, math.MinInt, math.MaxInt, ""), false},

		{"images.prune", choice(&i.Prune, PruneAuto, PruneNever, PruneAlways), false},
		{"images.high", quantity(&i.High, "85%", checker.percent), false},
		{"images.low", quantity(&i.Low, "80%", checker.percent), false},
		{"images.min_age", duration(&i.MinAge, "2m", 0, forever), false},
		{"images.max_age", duration(&i.MaxAge, "0s", 0, forever), false},
		{"images.unused_grace", duration(&i.UnusedGrace, "24h", 0, forever), false},
		{"images.keep", texts(&i.Keep, nil, checker.imagePattern), false},
		{"images.airgap_dirs", texts(&i.AirgapDirs, []string{
			"/var/lib/rancher/k3s/agent/images", "/var/lib/rancher/rke2/agent/images",
			"/var/lib/k0s/images", "/var/snap/microk8s/common/sideload",
		}, checker.dir), false},
		{"images.hold_after_runtime_restart", duration(&i.HoldAfterRuntimeRestart, "5m", 0, forever), false},

		{"history.dir", text(&c.History.Dir, checker.dir), restart},
		{"history.passes", number(&c.History.Passes, 1000, 1, maxPasses, "the newest passes are kept"), false},

		{"metrics.listen", text(&c.Metrics.Listen, checker.listen), restart},
		{"metrics.textfile", text(&c.Metrics.Textfile, checker.textfile), restart},

		{"priority", tables(&c.Priorities, func(r *PriorityRule) []key {
			return selector(&r.Rule, key{"value", required(bind(&r.Value, noUnit, 0, checker.priority, same), "for example value = -10; pods with a lower priority are stopped earlier"), false})
		}), false},
		{"protect", tables(&c.Protects, func(r *policy.Rule) []key { return selector(r) }), false},
		{"limit", tables(&c.Limits, func(r *LimitRule) []key {
			return selector(&r.Rule, key{"ephemeral_storage", required(bind(&r.EphemeralStorage, inQuantities, "", checker.storage, inBytes), `for example ephemeral_storage = "2Gi"`), false})
		}), false},
		{"hook", tables(&c.Hooks, func(h *Hook) []key {
			return []key{
				{"on", required(bind(&h.On, oneOrMore, nil, checker.events, eventNames), `for example on = "stop" or on = ["condition", "alarm"]`), false},
				{"command", required(bind(&h.Command, noUnit, nil, checker.command, same), commandHint), false},
				{"timeout", duration(&h.Timeout, "10s", 100*time.Millisecond, 5*time.Minute), false},
			}
		}), false},
	}, t
}

// selector returns the keys of a rule: those that select pods, and its own. The labels come last,
// because TOML renders them as a table.
func selector(r *policy.Rule, own ...key) []key {
	keys := append([]key{{"namespace", text(&r.Namespace, checker.glob), false}, {"name", text(&r.Name, checker.glob), false}}, own...)
	return append(keys, key{"labels", bind(&r.Labels, noUnit, nil, func(c checker, at string, labels map[string]string) map[string]string {
		return c.labels(at, *r, labels) // the last key checks the whole rule
	}, same), false})
}

// Keys returns every key by its path, such as "eviction.interval"; "priority[].value" is a key of a
// rule.
func Keys() (names []string) {
	keys, _ := schema(&Config{})
	for _, k := range keys {
		if k.rules == nil {
			names = append(names, k.name)
			continue
		}
		for _, sub := range k.rules.add() {
			names = append(names, k.name+"[]."+sub.name)
		}
	}
	return names
}

// splitKey splits the path of a key into its table and its name.
func splitKey(path string) (table, name string) {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}
