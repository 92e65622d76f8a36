package guard

import (
	"fmt"
	"time"

	"github.com/criguard/criguard/policy"
)

// forever is longer than any duration that makes sense.
const forever = 100 * 365 * 24 * time.Hour

// maxPasses bounds the history: it is kept in memory.
const maxPasses = 100_000

// checkConfig holds every key to its rule, and makes the configuration ready to
// use. The error joins all mistakes, those of reading included.
func checkConfig(k configKeys, m *mistakes) (Config, error) {
	c := checker{m}
	cfg := Config{
		Mode:          choice(c, "mode", k.Mode, ModeEnforce, ModeObserve),
		ProtectStatic: k.ProtectStatic, ProtectKubeSystem: k.ProtectKubeSystem,
		Runtime: RuntimeConfig{
			Endpoint: c.endpoint("runtime.endpoint", k.Runtime.Endpoint),
			Timeout:  c.duration("runtime.timeout", k.Runtime.Timeout, 10*time.Millisecond, time.Minute),
		},
		Node:        c.node(k.Node),
		Eviction:    c.eviction(k.Eviction),
		Rank:        c.rank(k.Rank),
		Priorities:  c.priorities(k.Priority),
		Protects:    c.protects(k.Protect),
		Limits:      c.limits(k.Limit),
		Annotations: AnnotationsConfig{c.globs("annotations.trusted_namespaces", k.Annotations.TrustedNamespaces)},
		Budget:      c.budget(k.Budget),
		Backoff:     c.backoff(k.Backoff),
		Admission:   AdmissionConfig{choice(c, "admission.mode", k.Admission.Mode, AdmissionOff, AdmissionStop)},
		Containers: ContainersConfig{
			GC: k.Containers.GC, MinAge: c.duration("containers.min_age", k.Containers.MinAge, 0, forever),
			MaxPerContainer: k.Containers.MaxPerContainer, Max: k.Containers.Max,
		},
		Images: c.images(k.Images),
		History: HistoryConfig{
			Dir:    c.dir("history.dir", k.History.Dir),
			Passes: c.number("history.passes", k.History.Passes, 1, maxPasses, "each is kept in memory"),
		},
		Hooks: c.hooks(k.Hook),
		Metrics: MetricsConfig{
			Listen:   c.listen("metrics.listen", k.Metrics.Listen),
			Textfile: c.textfile("metrics.textfile", k.Metrics.Textfile),
		},
	}
	if err := m.err(); err != nil {
		return Config{}, err
	}
	return cfg, nil
}

// checker holds values to their rules. A value that breaks one is not used.
type checker struct{ *mistakes }

func (c checker) node(k nodeKeys) NodeConfig {
	return NodeConfig{
		RootDir: c.dirOrFound("node.root_dir", k.RootDir), PodLogDir: c.dirOrFound("node.pod_log_dir", k.PodLogDir),
		Proc: c.dirOrFound("node.proc", k.Proc), Sys: c.dirOrFound("node.sys", k.Sys),
		PodsCgroup: c.cgroup("node.pods_cgroup", k.PodsCgroup),
	}
}

func (c checker) budget(k budgetKeys) BudgetConfig {
	const most = 1000
	bucket := func(key string, b bucketKeys) policy.Bucket {
		return policy.Bucket{
			Burst: c.number(key+".burst", b.Burst, 1, most, `mode = "observe" stops nothing`),
			Every: c.duration(key+".every", b.Every, time.Millisecond, forever),
		}
	}
	return BudgetConfig{policy.BudgetConfig{
		Hard: bucket("budget.hard", k.Hard), Soft: bucket("budget.soft", k.Soft),
		PerHour: c.number("budget.per_hour", k.PerHour, 0, most, "0 is no cap"),
		Breaker: c.number("budget.breaker", k.Breaker, 0, most, "0 switches the breaker off"),
	}}
}

func (c checker) backoff(k backoffKeys) BackoffConfig {
	b := policy.BackoffConfig{
		First: c.duration("backoff.first", k.First, 0, forever),
		Max:   c.duration("backoff.max", k.Max, 0, forever),
		Reset: c.duration("backoff.reset", k.Reset, 0, forever),
	}
	switch {
	case c.has("backoff.first", "backoff.max", "backoff.reset") || b.First == 0: // 0 = no back-off at all
	case b.First > b.Max:
		c.add("backoff.first", string(k.First), "must not be above backoff.max", fmt.Sprintf("raise backoff.max, which is %s", k.Max))
	case b.Reset < b.Max:
		c.add("backoff.reset", string(k.Reset), "must not be below backoff.max",
			fmt.Sprintf("a workload would be forgotten before its wait of %s is over", k.Max))
	}
	return BackoffConfig{b}
}

func (c checker) images(k imagesKeys) ImagesConfig {
	i := ImagesConfig{
		Prune: choice(c, "images.prune", k.Prune, PruneAuto, PruneNever, PruneAlways),
		High:  c.percent("images.high", k.High), Low: c.percent("images.low", k.Low),
		MinAge:                  c.duration("images.min_age", k.MinAge, 0, forever),
		MaxAge:                  c.duration("images.max_age", k.MaxAge, 0, forever),
		UnusedGrace:             c.duration("images.unused_grace", k.UnusedGrace, 0, forever),
		Keep:                    c.imagePatterns("images.keep", k.Keep),
		HoldAfterRuntimeRestart: c.duration("images.hold_after_runtime_restart", k.HoldAfterRuntimeRestart, 0, forever),
	}
	for n, dir := range k.AirgapDirs {
		i.AirgapDirs = append(i.AirgapDirs, c.dir(fmt.Sprintf("images.airgap_dirs[%d]", n+1), dir))
	}
	if !c.has("images.high", "images.low") && share(i.Low) >= share(i.High) {
		c.add("images.low", string(k.Low), "must be below images.high", fmt.Sprintf("pruning begins at high, which is %s, and ends at low", k.High))
	}
	return i
}

// share makes percentages comparable.
func share(q policy.Quantity) int64 { return q.Of(1 << 62) }
