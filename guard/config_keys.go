package guard

import "github.com/criguard/criguard/policy"

// configKeys is the configuration as TOML has it: the one place that knows the
// keys. Durations and quantities are text here, so that every mistake in them
// can be told with its key, and not only the first.
type configKeys struct {
	Mode              string          `toml:"mode"`
	ProtectStatic     bool            `toml:"protect_static"`
	ProtectKubeSystem bool            `toml:"protect_kube_system"`
	Runtime           runtimeKeys     `toml:"runtime"`
	Node              nodeKeys        `toml:"node"`
	Eviction          evictionKeys    `toml:"eviction"`
	Rank              rankKeys        `toml:"rank"`
	Annotations       annotationsKeys `toml:"annotations"`
	Budget            budgetKeys      `toml:"budget"`
	Backoff           backoffKeys     `toml:"backoff"`
	Admission         admissionKeys   `toml:"admission"`
	Containers        containersKeys  `toml:"containers"`
	Images            imagesKeys      `toml:"images"`
	History           historyKeys     `toml:"history"`
	Metrics           metricsKeys     `toml:"metrics"`
	Priority          []priorityKeys  `toml:"priority"`
	Protect           []ruleKeys      `toml:"protect"`
	Limit             []limitKeys     `toml:"limit"`
	Hook              []hookKeys      `toml:"hook"`
}

// durationText is a duration in Go's syntax.
type durationText string

// oneOrMore is a list whose only item may stand alone.
type oneOrMore []string

// quantityText is an amount or a percentage in the kubelet's syntax.
type quantityText string

type runtimeKeys struct {
	Endpoint string       `toml:"endpoint"`
	Timeout  durationText `toml:"timeout"`
}

type nodeKeys struct {
	RootDir    string `toml:"root_dir"`
	PodLogDir  string `toml:"pod_log_dir"`
	Proc       string `toml:"proc"`
	Sys        string `toml:"sys"`
	PodsCgroup string `toml:"pods_cgroup"`
}

type evictionKeys struct {
	Interval                 durationText            `toml:"interval"`
	MaxPodGracePeriod        durationText            `toml:"max_pod_grace_period"`
	PressureTransitionPeriod durationText            `toml:"pressure_transition_period"`
	SoftForgive              durationText            `toml:"soft_forgive"`
	StopTimeout              durationText            `toml:"stop_timeout"`
	DirectKill               string                  `toml:"direct_kill"`
	MemoryReclaim            bool                    `toml:"memory_reclaim"`
	StallWindow              durationText            `toml:"stall_window"`
	StallFloor               quantityText            `toml:"stall_floor"`
	Hard                     map[string]quantityText `toml:"hard"`
	Soft                     map[string]quantityText `toml:"soft"`
	SoftGracePeriod          map[string]durationText `toml:"soft_grace_period"`
	MinimumReclaim           map[string]quantityText `toml:"minimum_reclaim"`
}

type rankKeys struct {
	Memory []string `toml:"memory"`
	Disk   []string `toml:"disk"`
	Inodes []string `toml:"inodes"`
	PID    []string `toml:"pid"`
}

type ruleKeys struct {
	Namespace string            `toml:"namespace,omitempty"`
	Name      string            `toml:"name,omitempty"`
	Labels    map[string]string `toml:"labels,omitempty"`
}

func (r ruleKeys) rule() policy.Rule {
	rule := policy.Rule{Namespace: r.Namespace, Name: r.Name}
	if len(r.Labels) > 0 {
		rule.Labels = r.Labels
	}
	return rule
}

type priorityKeys struct {
	ruleKeys
	Value *int64 `toml:"value"` // nil = left out
}

type limitKeys struct {
	ruleKeys
	EphemeralStorage quantityText `toml:"ephemeral_storage"`
}

type annotationsKeys struct {
	TrustedNamespaces []string `toml:"trusted_namespaces"`
}

type budgetKeys struct {
	Hard    bucketKeys `toml:"hard"`
	Soft    bucketKeys `toml:"soft"`
	PerHour int        `toml:"per_hour"`
	Breaker int        `toml:"breaker"`
}

type bucketKeys struct {
	Burst int          `toml:"burst"`
	Every durationText `toml:"every"`
}

type backoffKeys struct {
	First durationText `toml:"first"`
	Max   durationText `toml:"max"`
	Reset durationText `toml:"reset"`
}

type admissionKeys struct {
	Mode string `toml:"mode"`
}

type containersKeys struct {
	GC              bool         `toml:"gc"`
	MinAge          durationText `toml:"min_age"`
	MaxPerContainer int          `toml:"max_per_container"`
	Max             int          `toml:"max"`
}

type imagesKeys struct {
	Prune                   string       `toml:"prune"`
	High                    quantityText `toml:"high"`
	Low                     quantityText `toml:"low"`
	MinAge                  durationText `toml:"min_age"`
	MaxAge                  durationText `toml:"max_age"`
	UnusedGrace             durationText `toml:"unused_grace"`
	Keep                    []string     `toml:"keep"`
	AirgapDirs              []string     `toml:"airgap_dirs"`
	HoldAfterRuntimeRestart durationText `toml:"hold_after_runtime_restart"`
}

type historyKeys struct {
	Dir    string `toml:"dir"`
	Passes int    `toml:"passes"`
}

type metricsKeys struct {
	Listen   string `toml:"listen"`
	Textfile string `toml:"textfile"`
}

type hookKeys struct {
	On      oneOrMore    `toml:"on"`
	Command []string     `toml:"command"`
	Timeout durationText `toml:"timeout"` // "" = left out
}
