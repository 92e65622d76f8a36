package guard

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/policy"
)

// build checks a configuration and makes it ready to use.
func build(file string, raw rawConfig) (Config, error) {
	b := &builder{mistakes: mistakes{file: file}}
	cfg := Config{
		Mode:          Mode(oneOf(b, "mode", raw.Mode, ModeEnforce, ModeObserve)),
		ProtectStatic: raw.ProtectStatic, ProtectKubeSystem: raw.ProtectKubeSystem,
		Runtime: RuntimeConfig{
			Endpoint: b.endpoint("runtime.endpoint", raw.Runtime.Endpoint),
			Timeout:  b.duration("runtime.timeout", raw.Runtime.Timeout, 10*time.Millisecond, time.Hour),
		},
		Node:        b.node(raw.Node),
		Eviction:    b.eviction(raw.Eviction),
		Rank:        b.rank(raw.Rank),
		Annotations: AnnotationsConfig{TrustedNamespaces: b.globs("annotations.trusted_namespaces", raw.Annotations.TrustedNamespaces)},
		Budget: BudgetConfig{policy.BudgetConfig{
			Hard: b.bucket("budget.hard", raw.Budget.Hard), Soft: b.bucket("budget.soft", raw.Budget.Soft),
			PerHour: b.atLeast("budget.per_hour", raw.Budget.PerHour, 0, "0 is no cap"),
			Breaker: b.atLeast("budget.breaker", raw.Budget.Breaker, 0, "0 switches the breaker off"),
		}},
		Backoff:   b.backoff(raw.Backoff),
		Admission: AdmissionConfig{AdmissionMode(oneOf(b, "admission.mode", raw.Admission.Mode, AdmissionOff, AdmissionStop))},
		Containers: ContainersConfig{
			GC: raw.Containers.GC, MinAge: b.duration("containers.min_age", raw.Containers.MinAge, 0, forever),
			MaxPerContainer: raw.Containers.MaxPerContainer, Max: raw.Containers.Max,
		},
		Images:  b.images(raw.Images),
		History: HistoryConfig{Dir: b.dir("history.dir", raw.History.Dir, true), Passes: b.atLeast("history.passes", raw.History.Passes, 1, "")},
		Metrics: MetricsConfig{Listen: b.listen("metrics.listen", raw.Metrics.Listen)},
		source:  raw,
	}
	b.rules(&cfg, &raw)
	if raw.History.Passes > maxPasses {
		b.add("history.passes", raw.History.Passes, fmt.Sprintf("must be at most %d", maxPasses), "each pass is kept in memory")
	}
	return cfg, b.err()
}

// maxPasses bounds the history: it is kept in memory.
const maxPasses = 100_000

// forever is longer than any duration that makes sense.
const forever = 100 * 365 * 24 * time.Hour

// builder checks values by their rules.
type builder struct{ mistakes }

func oneOf[T ~string](b *builder, key, value string, allowed ...T) string {
	var names []string
	for _, a := range allowed {
		names = append(names, string(a))
	}
	if slices.Contains(names, value) {
		return value
	}
	hint := ""
	if n := nearest(value, names); n != "" {
		hint = fmt.Sprintf("did you mean %q?", n)
	}
	b.add(key, value, "must be one of "+strings.Join(names, ", "), hint)
	return names[0]
}

func (b *builder) duration(key, value string, least, most time.Duration) time.Duration {
	d, err := time.ParseDuration(value)
	switch {
	case err != nil && value != "" && strings.Trim(value, "0123456789.") == "":
		b.add(key, value, "must have a unit", fmt.Sprintf("%q for seconds; units are ms, s, m, h", value+"s"))
	case err != nil:
		b.add(key, value, "must be a duration", `as "30s", "5m" or "1h30m"`)
	case d < 0:
		b.add(key, value, "must not be negative", "")
	case d < least:
		b.add(key, value, "must be at least "+least.String(), "")
	case d > most:
		b.add(key, value, "must be at most "+most.String(), "")
	}
	return d
}

func (b *builder) atLeast(key string, n, least int, hint string) int {
	if n < least {
		b.add(key, n, fmt.Sprintf("must be at least %d", least), hint)
	}
	return n
}

func (b *builder) percent(key, value string) policy.Quantity {
	q, err := policy.ParseQuantity(value)
	if err != nil || !q.IsPercent() {
		b.add(key, value, "must be a percentage between 0% and 100%", `as "85%"`)
	}
	return q
}

func (b *builder) dir(key, value string, needed bool) string {
	if value == "" && !needed {
		return ""
	}
	if !path.IsAbs(value) || strings.ContainsRune(value, 0) {
		b.add(key, value, "must be an absolute path", "")
	}
	return value
}

func (b *builder) endpoint(key, value string) string {
	if value == "" {
		return ""
	}
	scheme, rest, ok := strings.Cut(value, "://")
	if !ok {
		scheme, rest = "unix", value
	}
	switch {
	case scheme != "unix":
		b.add(key, value, "must be a unix socket", `as "unix:///run/containerd/containerd.sock"`)
	case !path.IsAbs(rest):
		b.add(key, value, "must have an absolute path", `as "unix:///run/containerd/containerd.sock"`)
	}
	return value
}

func (b *builder) node(raw rawNode) NodeConfig {
	n := NodeConfig{
		RootDir: b.dir("node.root_dir", raw.RootDir, false), PodLogDir: b.dir("node.pod_log_dir", raw.PodLogDir, false),
		Proc: b.dir("node.proc", raw.Proc, false), Sys: b.dir("node.sys", raw.Sys, false), PodsCgroup: raw.PodsCgroup,
	}
	if n.PodsCgroup != "" && (!path.IsAbs(n.PodsCgroup) || path.Clean(n.PodsCgroup) == "/") {
		b.add("node.pods_cgroup", raw.PodsCgroup, "must be a path below the cgroup root", `as "/kubepods" or "/kubepods.slice"`)
	}
	return n
}

func (b *builder) eviction(raw rawEviction) EvictionConfig {
	e := EvictionConfig{
		Interval:                 b.duration("eviction.interval", raw.Interval, 100*time.Millisecond, time.Hour),
		MaxPodGracePeriod:        b.duration("eviction.max_pod_grace_period", raw.MaxPodGracePeriod, 0, 24*time.Hour),
		PressureTransitionPeriod: b.duration("eviction.pressure_transition_period", raw.PressureTransitionPeriod, 0, forever),
		SoftForgive:              b.duration("eviction.soft_forgive", raw.SoftForgive, 0, forever),
		StopTimeout:              b.duration("eviction.stop_timeout", raw.StopTimeout, 10*time.Millisecond, time.Hour),
		DirectKill:               DirectKill(oneOf(b, "eviction.direct_kill", raw.DirectKill, DirectKillHardMemory, DirectKillFallback, DirectKillNever)),
		MemoryReclaim:            raw.MemoryReclaim,
		StallWindow:              b.duration("eviction.stall_window", raw.StallWindow, 500*time.Millisecond, 10*time.Second),
	}
	var err error
	if e.StallFloor, err = policy.ParseQuantity(raw.StallFloor); err != nil {
		b.add("eviction.stall_floor", raw.StallFloor, "must be a quantity or a percentage", `as "20%" or "500Mi"`)
	}
	e.Thresholds, err = policy.ParseThresholds(raw.Hard, raw.Soft, raw.SoftGracePeriod, raw.MinimumReclaim)
	b.thresholds(err)
	for _, name := range sortedKeys(raw.SoftGracePeriod) {
		if _, ok := raw.Soft[name]; !ok {
			if _, err := policy.ParseSignal(name); err == nil {
				b.add("eviction.soft_grace_period."+fmt.Sprintf("%q", name), raw.SoftGracePeriod[name],
					"has no soft threshold to belong to", fmt.Sprintf("set [eviction.soft] %q, too", name))
			}
		}
	}
	e.Off = policy.SwitchedOff(raw.Hard, raw.Soft)
	return e
}

// thresholds takes over what policy finds wrong.
func (b *builder) thresholds(err error) {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return
	}
	for _, e := range joined.Unwrap() {
		var t *policy.ThresholdError
		if errors.As(e, &t) {
			var value any
			if t.Value != "" {
				value = t.Value
			}
			b.add(t.Table+"."+fmt.Sprintf("%q", t.Signal), value, t.Rule, t.Hint)
		}
	}
}

func (b *builder) rank(raw rawRank) RankConfig {
	return RankConfig{
		Memory: b.keys("rank.memory", raw.Memory), Disk: b.keys("rank.disk", raw.Disk),
		Inodes: b.keys("rank.inodes", raw.Inodes), PID: b.keys("rank.pid", raw.PID),
	}
}

func (b *builder) keys(key string, names []string) []policy.Key {
	all := keyNames([]policy.Key{policy.KeyOverRequest, policy.KeyPriority, policy.KeyUsage, policy.KeyGrowth, policy.KeyQoS})
	var keys []policy.Key
	for _, name := range names {
		k, err := policy.ParseKey(name)
		switch {
		case err != nil:
			hint := ""
			if n := nearest(name, all); n != "" {
				hint = fmt.Sprintf("did you mean %q?", n)
			}
			b.add(key, name, "must name rank keys: "+strings.Join(all, ", "), hint)
		case slices.Contains(keys, k):
			b.add(key, name, "must name each key once", "")
		default:
			keys = append(keys, k)
		}
	}
	if len(names) == 0 {
		b.add(key, names, "must name at least one rank key", "leave it out for the default order")
	}
	return keys
}

func (b *builder) rules(cfg *Config, raw *rawConfig) {
	for i, r := range raw.Priority {
		at := fmt.Sprintf("priority[%d]", i+1)
		b.rule(at, r.rule())
		if r.Value == nil {
			b.add(at+".value", nil, "must be set", "the priority, as value = -10; lower is stopped earlier")
			continue
		}
		cfg.Priorities = append(cfg.Priorities, PriorityRule{r.rule(), *r.Value})
	}
	for i, r := range raw.Protect {
		b.rule(fmt.Sprintf("protect[%d]", i+1), r.rule())
		cfg.Protects = append(cfg.Protects, r.rule())
	}
	for i, r := range raw.Limit {
		at := fmt.Sprintf("limit[%d]", i+1)
		b.rule(at, r.rule())
		n, ok := parseAmount(r.EphemeralStorage)
		if !ok || n <= 0 {
			b.add(at+".ephemeral_storage", r.EphemeralStorage, "must be an amount above 0", `as "2Gi"`)
		}
		cfg.Limits = append(cfg.Limits, LimitRule{r.rule(), n})
	}
}

func (b *builder) rule(at string, r policy.Rule) {
	if err := r.Validate(); errors.Is(err, policy.ErrEmptyRule) {
		b.add(at, nil, "names no pod", `set namespace, name or labels; "*" is any`)
	} else if err != nil {
		b.add(at, nil, err.Error(), `patterns are globs: "*" any text, "?" one letter, "[ab]" one of these`)
	}
}

func (b *builder) globs(key string, patterns []string) []string {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			b.add(key, p, "must be a name or a glob", `as "team-*"`)
		}
	}
	return patterns
}

func (b *builder) bucket(key string, raw rawBucket) policy.Bucket {
	every := b.duration(key+".every", raw.Every, time.Millisecond, forever)
	return policy.Bucket{Burst: b.atLeast(key+".burst", raw.Burst, 1, `mode = "observe" stops nothing`), Every: every}
}

func (b *builder) backoff(raw rawBackoff) BackoffConfig {
	c := policy.BackoffConfig{
		First: b.duration("backoff.first", raw.First, 0, forever),
		Max:   b.duration("backoff.max", raw.Max, 0, forever),
		Reset: b.duration("backoff.reset", raw.Reset, 0, forever),
	}
	if c.First > c.Max {
		b.add("backoff.first", raw.First, "must not be above backoff.max", "raise backoff.max")
	}
	return BackoffConfig{c}
}

func (b *builder) images(raw rawImages) ImagesConfig {
	c := ImagesConfig{
		Prune: PruneMode(oneOf(b, "images.prune", raw.Prune, PruneAuto, PruneNever, PruneAlways)),
		High:  b.percent("images.high", raw.High), Low: b.percent("images.low", raw.Low),
		MinAge:                  b.duration("images.min_age", raw.MinAge, 0, forever),
		MaxAge:                  b.duration("images.max_age", raw.MaxAge, 0, forever),
		UnusedGrace:             b.duration("images.unused_grace", raw.UnusedGrace, 0, forever),
		Keep:                    b.globs("images.keep", raw.Keep),
		HoldAfterRuntimeRestart: b.duration("images.hold_after_runtime_restart", raw.HoldAfterRuntimeRestart, 0, forever),
	}
	const whole = 1_000_000
	if c.High.IsPercent() && c.Low.IsPercent() && c.Low.Of(whole) >= c.High.Of(whole) {
		b.add("images.low", raw.Low, "must be below images.high", fmt.Sprintf("high is %s", raw.High))
	}
	for _, d := range raw.AirgapDirs {
		c.AirgapDirs = append(c.AirgapDirs, b.dir("images.airgap_dirs", d, true))
	}
	return c
}

// listen allows loopback alone: the metrics carry no authentication.
func (b *builder) listen(key, value string) string {
	if value == "" {
		return ""
	}
	host, port, err := net.SplitHostPort(value)
	if err != nil || port == "" {
		b.add(key, value, "must be an address and a port", `as "127.0.0.1:9480"`)
		return value
	}
	if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback()) {
		b.add(key, value, "must be a loopback address", `as "127.0.0.1:9480"; metrics have no authentication`)
	}
	return value
}
