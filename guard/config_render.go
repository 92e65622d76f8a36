package guard

import (
	"bytes"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/criguard/criguard/policy"
)

// Effective renders the configuration in force as TOML, with every default filled
// in. Reading it gives the same configuration.
func (c Config) Effective() string {
	var b bytes.Buffer
	enc := toml.NewEncoder(&b)
	enc.Indent = ""
	if err := enc.Encode(c.keys()); err != nil {
		return "# cannot be rendered: " + err.Error() + "\n"
	}
	// A blank line before each table, and an end to the last line.
	spaced := strings.ReplaceAll(strings.TrimSpace(b.String()), "\n[", "\n\n[")
	return strings.ReplaceAll(spaced, "\n\n\n", "\n\n") + "\n"
}

// keys is the configuration as TOML has it: the inverse of checkConfig.
func (c Config) keys() configKeys {
	b, i := c.Budget.BudgetConfig, c.Images
	return configKeys{
		Mode: string(c.Mode), ProtectStatic: c.ProtectStatic, ProtectKubeSystem: c.ProtectKubeSystem,
		Runtime: runtimeKeys{Endpoint: c.Runtime.Endpoint, Timeout: asText(c.Runtime.Timeout)},
		Node: nodeKeys{
			RootDir: c.Node.RootDir, PodLogDir: c.Node.PodLogDir, Proc: c.Node.Proc, Sys: c.Node.Sys, PodsCgroup: c.Node.PodsCgroup,
		},
		Eviction: c.Eviction.keys(),
		Rank: rankKeys{
			Memory: keyNames(c.Rank.Memory), Disk: keyNames(c.Rank.Disk), Inodes: keyNames(c.Rank.Inodes), PID: keyNames(c.Rank.PID),
		},
		Priority: convertAll(c.Priorities, func(r PriorityRule) priorityKeys { return priorityKeys{ruleText(r.Rule), &r.Value} }),
		Protect:  convertAll(c.Protects, ruleText),
		Limit: convertAll(c.Limits, func(r LimitRule) limitKeys {
			return limitKeys{ruleText(r.Rule), quantityText(policy.Bytes(r.EphemeralStorage).String())}
		}),
		Hook: convertAll(c.Hooks, func(h HookConfig) hookKeys {
			return hookKeys{retyped[string](h.On), h.Command, asText(h.Timeout)}
		}),
		Annotations: annotationsKeys{TrustedNamespaces: orEmpty(c.Annotations.TrustedNamespaces)},
		Budget: budgetKeys{
			Hard: bucketKeys{b.Hard.Burst, asText(b.Hard.Every)}, Soft: bucketKeys{b.Soft.Burst, asText(b.Soft.Every)},
			PerHour: b.PerHour, Breaker: b.Breaker,
		},
		Backoff:   backoffKeys{asText(c.Backoff.First), asText(c.Backoff.Max), asText(c.Backoff.Reset)},
		Admission: admissionKeys{Mode: string(c.Admission.Mode)},
		Containers: containersKeys{
			GC: c.Containers.GC, MinAge: asText(c.Containers.MinAge), MaxPerContainer: c.Containers.MaxPerContainer, Max: c.Containers.Max,
		},
		Images: imagesKeys{
			Prune: string(i.Prune), High: quantityText(i.High.String()), Low: quantityText(i.Low.String()),
			MinAge: asText(i.MinAge), MaxAge: asText(i.MaxAge), UnusedGrace: asText(i.UnusedGrace),
			Keep: orEmpty(i.Keep), AirgapDirs: orEmpty(i.AirgapDirs), HoldAfterRuntimeRestart: asText(i.HoldAfterRuntimeRestart),
		},
		History: historyKeys{Dir: c.History.Dir, Passes: c.History.Passes},
		Metrics: metricsKeys{Listen: c.Metrics.Listen, Textfile: c.Metrics.Textfile},
	}
}

func (e EvictionConfig) keys() evictionKeys {
	k := evictionKeys{
		Interval: asText(e.Interval), MaxPodGracePeriod: asText(e.MaxPodGracePeriod),
		PressureTransitionPeriod: asText(e.PressureTransitionPeriod), SoftForgive: asText(e.SoftForgive),
		StopTimeout: asText(e.StopTimeout), DirectKill: string(e.DirectKill), MemoryReclaim: e.MemoryReclaim,
		StallWindow: asText(e.StallWindow), StallFloor: quantityText(e.StallFloor.String()),
		Hard: map[string]quantityText{}, Soft: map[string]quantityText{},
		SoftGracePeriod: map[string]durationText{}, MinimumReclaim: map[string]quantityText{},
	}
	for _, ts := range [][]policy.Threshold{e.Thresholds, e.Off} {
		for _, t := range ts {
			if value := quantityText(t.Value.String()); t.Kind == policy.Hard {
				k.Hard[t.Signal.String()] = value
			} else {
				k.Soft[t.Signal.String()] = value
			}
			if !t.MinReclaim.IsZero() {
				k.MinimumReclaim[t.Signal.String()] = quantityText(t.MinReclaim.String())
			}
		}
	}
	for _, t := range e.Thresholds {
		if t.Kind == policy.Soft {
			k.SoftGracePeriod[t.Signal.String()] = asText(t.Grace)
		}
	}
	return k
}

func ruleText(r policy.Rule) ruleKeys {
	return ruleKeys{Namespace: r.Namespace, Name: r.Name, Labels: r.Labels}
}

func asText(d time.Duration) durationText { return durationText(shortDuration(d)) }

// orEmpty makes no items an empty list: TOML leaves out what is nil.
func orEmpty(items []string) []string {
	return append([]string{}, items...)
}

func convertAll[From, To any](items []From, to func(From) To) []To {
	var out []To
	for _, item := range items {
		out = append(out, to(item))
	}
	return out
}

// retyped gives the items another type of text.
func retyped[To, From ~string](items []From) []To {
	out := make([]To, len(items))
	for i, item := range items {
		out[i] = To(item)
	}
	return out
}
