package config

import (
	"math"
	"time"

	"github.com/criguard/criguard/guard/config/schema"
	"github.com/criguard/criguard/policy"
)

// forever is longer than any sensible duration.
const forever = 100 * 365 * 24 * time.Hour

// longestEvery limits the time until a stop is allowed again: with the largest burst, all of them together are
// far from an overflow of a time.Duration, after which a budget would allow any number of stops.
const longestEvery = 30 * 24 * time.Hour

// Limits of numbers.
const (
	maxPasses = 10_000 // about as much as a command reads at once
	maxStops  = 1000
)

// allKeys lists every key in the order of rendering, bound to a configuration. Its defaults, parsing,
// checks, rendering, differences, origins and suggestions derive from this table. The thresholds
// are bound to the returned tables.
func allKeys(c *Config) ([]schema.Key, *thresholdTables) {
	e, b, i, t := &c.Eviction, &c.Budget.BudgetConfig, &c.Images, c.Eviction.tables()
	return []schema.Key{
		choice("mode", &c.Mode, ModeEnforce, ModeObserve),
		schema.Flag("protect_static", &c.ProtectStatic, true),
		schema.Flag("protect_kube_system", &c.ProtectKubeSystem, true),

		schema.Text("runtime.endpoint", &c.Runtime.Endpoint, endpoint).AtRestart(),
		schema.Duration("runtime.timeout", &c.Runtime.Timeout, "2s", 10*time.Millisecond, time.Minute).AtRestart(),

		schema.Text("node.root_dir", &c.Node.RootDir, foundDir).AtRestart(),
		schema.Text("node.pod_log_dir", &c.Node.PodLogDir, foundDir).AtRestart(),
		schema.Text("node.proc", &c.Node.Proc, foundDir).AtRestart(),
		schema.Text("node.sys", &c.Node.Sys, foundDir).AtRestart(),
		schema.Text("node.pods_cgroup", &c.Node.PodsCgroup, cgroup).AtRestart(),

		schema.Duration("eviction.interval", &e.Interval, "10s", 100*time.Millisecond, 10*time.Minute),
		schema.Duration("eviction.max_pod_grace_period", &e.MaxPodGracePeriod, "30s", 0, 24*time.Hour),
		schema.Duration("eviction.pressure_transition_period", &e.PressureTransitionPeriod, "5m", 0, forever),
		schema.Duration("eviction.soft_forgive", &e.SoftForgive, "5s", 0, forever),
		schema.Duration("eviction.stop_timeout", &e.StopTimeout, "2s", 10*time.Millisecond, 5*time.Minute),
		choice("eviction.direct_kill", &e.DirectKill, DirectKillHardMemory, DirectKillFallback, DirectKillNever),
		schema.Flag("eviction.memory_reclaim", &e.MemoryReclaim, false),
		schema.Duration("eviction.stall_window", &e.StallWindow, "2s", 500*time.Millisecond, 10*time.Second),
		schema.Bind("eviction.stall_floor", &e.StallFloor, schema.Quantities, "20%", parseQuantity, policy.Quantity.String),
		bySignal(TableHard, &t.hard, schema.Quantities, policy.DefaultHard()),
		bySignal(TableSoft, &t.soft, schema.Quantities, nil),
		bySignal(TableGrace, &t.grace, schema.Durations, nil),
		bySignal(TableMinReclaim, &t.minReclaim, schema.Quantities, nil),

		ranking("rank.memory", &c.Rank.Memory, policy.ResourceMemory),
		ranking("rank.disk", &c.Rank.Disk, policy.ResourceDisk),
		ranking("rank.inodes", &c.Rank.Inodes, policy.ResourceInodes),
		ranking("rank.pid", &c.Rank.PID, policy.ResourcePIDs),

		schema.Texts("annotations.trusted_namespaces", &c.Annotations.TrustedNamespaces, nil, namespace),

		schema.Number("budget.per_hour", &b.PerHour, 20, 0, maxStops, "0 = no cap"),
		schema.Number("budget.breaker", &b.Breaker, 3, 0, maxStops, "0 disables the breaker"),
		schema.Number("budget.hard.burst", &b.Hard.Burst, 3, 1, maxStops, `to stop no pods, set mode = "observe"`),
		schema.Duration("budget.hard.every", &b.Hard.Every, "30s", time.Millisecond, longestEvery),
		schema.Number("budget.soft.burst", &b.Soft.Burst, 2, 1, maxStops, `to stop no pods, set mode = "observe"`),
		schema.Duration("budget.soft.every", &b.Soft.Every, "5m", time.Millisecond, longestEvery),

		schema.Duration("backoff.first", &c.Backoff.First, "10s", 0, forever),
		schema.Duration("backoff.max", &c.Backoff.Max, "5m", 0, forever),
		schema.Duration("backoff.reset", &c.Backoff.Reset, "10m", 0, forever),

		choice("admission.mode", &c.Admission.Mode, AdmissionOff, AdmissionStop),

		schema.Flag("fleet.enabled", &c.Fleet.Enabled, false),

		schema.Flag("containers.gc", &c.Containers.GC, true),
		schema.Duration("containers.min_age", &c.Containers.MinAge, "1m", 0, forever),
		schema.Number("containers.max_per_container", &c.Containers.MaxPerContainer, 1, math.MinInt, math.MaxInt, ""),
		schema.Number("containers.max", &c.Containers.Max, -1, math.MinInt, math.MaxInt, ""),

		choice("images.prune", &i.Prune, PruneAuto, PruneNever, PruneAlways),
		percentage("images.high", &i.High, "85%"),
		percentage("images.low", &i.Low, "80%"),
		schema.Duration("images.min_age", &i.MinAge, "2m", 0, forever),
		schema.Duration("images.max_age", &i.MaxAge, "0s", 0, forever),
		schema.Duration("images.unused_grace", &i.UnusedGrace, "24h", 0, forever),
		schema.Texts("images.keep", &i.Keep, nil, imagePattern),
		schema.Texts("images.airgap_dirs", &i.AirgapDirs, []string{
			"/var/lib/rancher/k3s/agent/images", "/var/lib/rancher/rke2/agent/images",
			"/var/lib/k0s/images", "/var/snap/microk8s/common/sideload",
		}, dir),
		schema.Duration("images.hold_after_runtime_restart", &i.HoldAfterRuntimeRestart, "5m", 0, forever),

		schema.Text("history.dir", &c.History.Dir, dir).AtRestart(),
		schema.Number("history.passes", &c.History.Passes, 1000, 1, maxPasses, "the newest passes are kept"),

		schema.Text("metrics.listen", &c.Metrics.Listen, listen).AtRestart(),
		schema.Text("metrics.textfile", &c.Metrics.Textfile, textfile).AtRestart(),

		schema.Tables("priority", &c.Priorities, func(r *PriorityRule) []schema.Key {
			return selector(&r.Rule, schema.Bind("value", &r.Value, schema.NoUnit, 0, priority, schema.Same).OrRequire("for example value = -10; pods with a lower priority are stopped earlier"))
		}),
		schema.Tables("protect", &c.Protects, func(r *policy.Rule) []schema.Key { return selector(r) }),
		schema.Tables("limit", &c.Limits, func(r *LimitRule) []schema.Key {
			return selector(&r.Rule, schema.Bind("ephemeral_storage", &r.EphemeralStorage, schema.Quantities, "", storage, inBytes).OrRequire(`for example ephemeral_storage = "2Gi"`))
		}),
		schema.Tables("hook", &c.Hooks, func(h *Hook) []schema.Key {
			return []schema.Key{
				schema.Bind("on", &h.On, schema.OneOrMore, nil, events, eventNames).OrRequire(`for example on = "stop" or on = ["condition", "alarm"]`),
				schema.Bind("command", &h.Command, schema.NoUnit, nil, command, schema.Same).OrRequire(commandHint),
				schema.Duration("timeout", &h.Timeout, "10s", 100*time.Millisecond, 5*time.Minute),
			}
		}),
	}, t
}

// selector returns the keys of a rule: those that select pods, and its own. The labels come last,
// because TOML renders them as a table.
func selector(r *policy.Rule, own ...schema.Key) []schema.Key {
	keys := append([]schema.Key{schema.Text("namespace", &r.Namespace, nameGlob), schema.Text("name", &r.Name, nameGlob)}, own...)
	return append(keys, schema.Bind("labels", &r.Labels, schema.NoUnit, nil, func(c *schema.Checker, at string, set map[string]string) map[string]string {
		return labels(c, at, *r, set) // the last key checks the whole rule
	}, schema.Same))
}

// choice is one of the allowed words; the first is the default.
func choice[T ~string](name string, field *T, allowed ...T) schema.Key {
	return schema.Bind(name, field, schema.NoUnit, string(allowed[0]), func(c *schema.Checker, at, word string) T { return choose(c, at, word, allowed...) }, asString)
}

func percentage(name string, field *policy.Quantity, def string) schema.Key {
	return schema.Bind(name, field, schema.Percentages, def, percent, policy.Quantity.String)
}

// bySignal is a table of strings, which package policy checks.
func bySignal(name string, field *map[string]string, in schema.Unit, def map[string]string) schema.Key {
	return schema.Bind(name, field, in, def, schema.Unchecked, schema.Same)
}

func ranking(name string, field *[]policy.Key, res policy.Resource) schema.Key {
	return schema.Bind(name, field, schema.NoUnit, keyNames(policy.DefaultKeys(res)), rankKeys, keyNames)
}

// Keys returns every key by its path, such as "eviction.interval"; "priority[].value" is a key of a
// rule.
func Keys() (names []string) {
	keys, _ := allKeys(&Config{})
	for _, k := range keys {
		names = append(names, k.Names()...)
	}
	return names
}
