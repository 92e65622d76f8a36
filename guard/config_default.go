package guard

import "github.com/criguard/criguard/policy"

// DefaultConfig is the configuration without any file.
func DefaultConfig() Config {
	cfg, _ := checkConfig(defaultKeys(), &mistakes{}) // a test holds the defaults to the rules
	return cfg
}

// defaultKeys is every key's default. Thresholds, rank keys and their meaning are
// policy's.
func defaultKeys() configKeys {
	return configKeys{
		Mode: string(ModeEnforce), ProtectStatic: true, ProtectKubeSystem: true,
		Runtime: runtimeKeys{Timeout: "2s"},
		Eviction: evictionKeys{
			Interval: "10s", MaxPodGracePeriod: "30s", PressureTransitionPeriod: "5m", SoftForgive: "5s",
			StopTimeout: "2s", DirectKill: string(DirectKillHardMemory), StallWindow: "2s", StallFloor: "20%",
			Hard: retype[quantityText](policy.DefaultHard()),
			Soft: map[string]quantityText{}, SoftGracePeriod: map[string]durationText{}, MinimumReclaim: map[string]quantityText{},
		},
		Rank: rankKeys{
			Memory: keyNames(policy.DefaultKeys(policy.ResourceMemory)), Disk: keyNames(policy.DefaultKeys(policy.ResourceDisk)),
			Inodes: keyNames(policy.DefaultKeys(policy.ResourceInodes)), PID: keyNames(policy.DefaultKeys(policy.ResourcePIDs)),
		},
		Annotations: annotationsKeys{TrustedNamespaces: []string{}},
		Budget: budgetKeys{
			Hard: bucketKeys{Burst: 3, Every: "30s"}, Soft: bucketKeys{Burst: 2, Every: "5m"},
			PerHour: 20, Breaker: 3,
		},
		Backoff:    backoffKeys{First: "10s", Max: "5m", Reset: "10m"},
		Admission:  admissionKeys{Mode: string(AdmissionOff)},
		Containers: containersKeys{GC: true, MinAge: "1m", MaxPerContainer: 1, Max: -1},
		Images: imagesKeys{
			Prune: string(PruneAuto), High: "85%", Low: "80%", MinAge: "2m", MaxAge: "0s", UnusedGrace: "24h",
			Keep: []string{},
			AirgapDirs: []string{
				"/var/lib/rancher/k3s/agent/images", "/var/lib/rancher/rke2/agent/images",
				"/var/lib/k0s/images", "/var/snap/microk8s/common/sideload",
			},
			HoldAfterRuntimeRestart: "5m",
		},
		History: historyKeys{Dir: string(DefaultRunDir), Passes: 1000},
	}
}

// keyNames gives the names of rank keys.
func keyNames(keys []policy.Key) []string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.String()
	}
	return names
}

// retype gives a table's values another type of text.
func retype[To, From ~string](table map[string]From) map[string]To {
	out := make(map[string]To, len(table))
	for key, value := range table {
		out[key] = To(value)
	}
	return out
}
