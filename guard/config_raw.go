package guard

import "github.com/criguard/criguard/policy"

// rawConfig is the configuration as TOML has it: the one place that knows the
// keys. Durations and quantities are strings here, so that every mistake in them
// can be named with its key.
type rawConfig struct {
	Mode              string         `toml:"mode"`
	ProtectStatic     bool           `toml:"protect_static"`
	ProtectKubeSystem bool           `toml:"protect_kube_system"`
	Runtime           rawRuntime     `toml:"runtime"`
	Node              rawNode        `toml:"node"`
	Eviction          rawEviction    `toml:"eviction"`
	Rank              rawRank        `toml:"rank"`
	Priority          []rawPriority  `toml:"priority"`
	Protect           []rawRule      `toml:"protect"`
	Limit             []rawLimit     `toml:"limit"`
	Annotations       rawAnnotations `toml:"annotations"`
	Budget            rawBudget      `toml:"budget"`
	Backoff           rawBackoff     `toml:"backoff"`
	Admission         rawAdmission   `toml:"admission"`
	Containers        rawContainers  `toml:"containers"`
	Images            rawImages      `toml:"images"`
	History           rawHistory     `toml:"history"`
	Metrics           rawMetrics     `toml:"metrics"`
}

type rawRuntime struct {
	Endpoint string `toml:"endpoint"`
	Timeout  string `toml:"timeout"`
}

type rawNode struct {
	RootDir    string `toml:"root_dir"`
	PodLogDir  string `toml:"pod_log_dir"`
	Proc       string `toml:"proc"`
	Sys        string `toml:"sys"`
	PodsCgroup string `toml:"pods_cgroup"`
}

type rawEviction struct {
	Interval                 string            `toml:"interval"`
	MaxPodGracePeriod        string            `toml:"max_pod_grace_period"`
	PressureTransitionPeriod string            `toml:"pressure_transition_period"`
	SoftForgive              string            `toml:"soft_forgive"`
	StopTimeout              string            `toml:"stop_timeout"`
	DirectKill               string            `toml:"direct_kill"`
	MemoryReclaim            bool              `toml:"memory_reclaim"`
	StallWindow              string            `toml:"stall_window"`
	StallFloor               string            `toml:"stall_floor"`
	Hard                     map[string]string `toml:"hard"`
	Soft                     map[string]string `toml:"soft"`
	SoftGracePeriod          map[string]string `toml:"soft_grace_period"`
	MinimumReclaim           map[string]string `toml:"minimum_reclaim"`
}

type rawRank struct {
	Memory []string `toml:"memory"`
	Disk   []string `toml:"disk"`
	Inodes []string `toml:"inodes"`
	PID    []string `toml:"pid"`
}

type rawRule struct {
	Namespace string            `toml:"namespace,omitempty"`
	Name      string            `toml:"name,omitempty"`
	Labels    map[string]string `toml:"labels,omitempty,inline"`
}

func (r rawRule) rule() policy.Rule {
	return policy.Rule{Namespace: r.Namespace, Name: r.Name, Labels: r.Labels}
}

type rawPriority struct {
	rawRule
	Value *int64 `toml:"value"`
}

type rawLimit struct {
	rawRule
	EphemeralStorage string `toml:"ephemeral_storage"`
}

type rawAnnotations struct {
	TrustedNamespaces []string `toml:"trusted_namespaces"`
}

type rawBudget struct {
	Hard    rawBucket `toml:"hard,inline"`
	Soft    rawBucket `toml:"soft,inline"`
	PerHour int       `toml:"per_hour"`
	Breaker int       `toml:"breaker"`
}

type rawBucket struct {
	Burst int    `toml:"burst"`
	Every string `toml:"every"`
}

type rawBackoff struct {
	First string `toml:"first"`
	Max   string `toml:"max"`
	Reset string `toml:"reset"`
}

type rawAdmission struct {
	Mode string `toml:"mode"`
}

type rawContainers struct {
	GC              bool   `toml:"gc"`
	MinAge          string `toml:"min_age"`
	MaxPerContainer int    `toml:"max_per_container"`
	Max             int    `toml:"max"`
}

type rawImages struct {
	Prune                   string   `toml:"prune"`
	High                    string   `toml:"high"`
	Low                     string   `toml:"low"`
	MinAge                  string   `toml:"min_age"`
	MaxAge                  string   `toml:"max_age"`
	UnusedGrace             string   `toml:"unused_grace"`
	Keep                    []string `toml:"keep"`
	AirgapDirs              []string `toml:"airgap_dirs"`
	HoldAfterRuntimeRestart string   `toml:"hold_after_runtime_restart"`
}

type rawHistory struct {
	Dir    string `toml:"dir"`
	Passes int    `toml:"passes"`
}

type rawMetrics struct {
	Listen string `toml:"listen"`
}

// defaultRaw is every key's default.
func defaultRaw() rawConfig {
	return rawConfig{
		Mode: string(ModeEnforce), ProtectStatic: true, ProtectKubeSystem: true,
		Runtime: rawRuntime{Timeout: "2s"},
		Eviction: rawEviction{
			Interval: "10s", MaxPodGracePeriod: "30s", PressureTransitionPeriod: "5m", SoftForgive: "5s",
			StopTimeout: "2s", DirectKill: string(DirectKillHardMemory), StallWindow: "2s", StallFloor: "20%",
			Hard: policy.DefaultHard(), Soft: map[string]string{}, SoftGracePeriod: map[string]string{}, MinimumReclaim: map[string]string{},
		},
		Rank: rawRank{
			Memory: keyNames(policy.DefaultKeys(policy.ResourceMemory)), Disk: keyNames(policy.DefaultKeys(policy.ResourceDisk)),
			Inodes: keyNames(policy.DefaultKeys(policy.ResourceInodes)), PID: keyNames(policy.DefaultKeys(policy.ResourcePIDs)),
		},
		Annotations: rawAnnotations{TrustedNamespaces: []string{}},
		Budget: rawBudget{
			Hard: rawBucket{3, "30s"}, Soft: rawBucket{2, "5m"}, PerHour: 20, Breaker: 3,
		},
		Backoff:    rawBackoff{First: "10s", Max: "5m", Reset: "10m"},
		Admission:  rawAdmission{Mode: string(AdmissionOff)},
		Containers: rawContainers{GC: true, MinAge: "1m", MaxPerContainer: 1, Max: -1},
		Images: rawImages{
			Prune: string(PruneAuto), High: "85%", Low: "80%", MinAge: "2m", MaxAge: "0s", UnusedGrace: "24h", Keep: []string{},
			AirgapDirs:              []string{"/var/lib/rancher/k3s/agent/images", "/var/lib/rancher/rke2/agent/images"},
			HoldAfterRuntimeRestart: "5m",
		},
		History: rawHistory{Dir: string(DefaultRunDir), Passes: 1000},
	}
}

func keyNames(keys []policy.Key) []string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.String()
	}
	return names
}
