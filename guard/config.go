package guard

import (
	"time"

	"github.com/criguard/criguard/policy"
)

// Mode is whether the guard acts.
type Mode string

// The modes.
const (
	ModeEnforce Mode = "enforce"
	ModeObserve Mode = "observe" // everything but the acts
)

func (m Mode) String() string { return string(m) }

// DirectKill is when container cgroups are killed without the runtime.
type DirectKill string

// When to kill directly.
const (
	DirectKillHardMemory DirectKill = "hard-memory" // at once for a hard memory threshold; for others as a fallback
	DirectKillFallback   DirectKill = "fallback"    // only when the runtime has not confirmed in time
	DirectKillNever      DirectKill = "never"
)

// AdmissionMode is what happens to pods that start while they are not admitted.
type AdmissionMode string

// The admission modes.
const (
	AdmissionOff  AdmissionMode = "off"
	AdmissionStop AdmissionMode = "stop"
)

// PruneMode is which unused images may be pruned.
type PruneMode string

// The prune modes.
const (
	PruneAuto   PruneMode = "auto"   // those that can be pulled again
	PruneNever  PruneMode = "never"  // none
	PruneAlways PruneMode = "always" // those that cannot be pulled again, too
)

// DefaultConfigPath is where the service's configuration is.
const DefaultConfigPath = "/etc/criguard/config.toml"

// Config is the whole configuration, checked and with every default filled in.
type Config struct {
	Mode              Mode
	ProtectStatic     bool
	ProtectKubeSystem bool
	Runtime           RuntimeConfig
	Node              NodeConfig
	Eviction          EvictionConfig
	Rank              RankConfig
	Priorities        []PriorityRule
	Protects          []policy.Rule
	Limits            []LimitRule
	Annotations       AnnotationsConfig
	Budget            BudgetConfig
	Backoff           BackoffConfig
	Admission         AdmissionConfig
	Containers        ContainersConfig
	Images            ImagesConfig
	History           HistoryConfig
	Metrics           MetricsConfig

	source rawConfig // as it was read over the defaults, for rendering and comparing
}

// RuntimeConfig is how to reach the container runtime.
type RuntimeConfig struct {
	Endpoint string        // "" = found
	Timeout  time.Duration // of one call
}

// NodeConfig is where things are on the node; "" = found.
type NodeConfig struct {
	RootDir    string
	PodLogDir  string
	Proc       string
	Sys        string
	PodsCgroup string
}

// EvictionConfig is when pods are stopped.
type EvictionConfig struct {
	Interval                 time.Duration
	MaxPodGracePeriod        time.Duration
	PressureTransitionPeriod time.Duration
	SoftForgive              time.Duration
	StopTimeout              time.Duration
	DirectKill               DirectKill
	MemoryReclaim            bool
	StallWindow              time.Duration
	StallFloor               policy.Quantity
	Thresholds               []policy.Threshold
	Off                      []policy.Threshold // switched off by name
}

// RankConfig is the order of stopping, by resource.
type RankConfig struct{ Memory, Disk, Inodes, PID []policy.Key }

// Keys are the rank keys of a resource.
func (r RankConfig) Keys(res policy.Resource) []policy.Key {
	switch res {
	case policy.ResourceDisk:
		return r.Disk
	case policy.ResourceInodes:
		return r.Inodes
	case policy.ResourcePIDs:
		return r.PID
	default:
		return r.Memory
	}
}

// PriorityRule gives pods a priority.
type PriorityRule struct {
	policy.Rule
	Value int64
}

// LimitRule gives pods a limit of ephemeral storage, in bytes.
type LimitRule struct {
	policy.Rule
	EphemeralStorage int64
}

// AnnotationsConfig is where pods' own annotations count.
type AnnotationsConfig struct{ TrustedNamespaces []string }

func (a AnnotationsConfig) trusts(namespace string) bool {
	for _, pattern := range a.TrustedNamespaces {
		if (policy.Rule{Namespace: pattern}).Match(namespace, "", nil) {
			return true
		}
	}
	return false
}

// BudgetConfig is how many stops are allowed.
type BudgetConfig struct{ policy.BudgetConfig }

// Policy is the budget as policy takes it.
func (b BudgetConfig) Policy() policy.BudgetConfig { return b.BudgetConfig }

// Off is no budget and no breaker.
func (BudgetConfig) Off() BudgetConfig {
	free := policy.Bucket{Burst: 1}
	return BudgetConfig{policy.BudgetConfig{Hard: free, Soft: free}}
}

// BackoffConfig is how often the same workload is stopped.
type BackoffConfig struct{ policy.BackoffConfig }

// Policy is the back-off as policy takes it.
func (b BackoffConfig) Policy() policy.BackoffConfig { return b.BackoffConfig }

// Off is no back-off and no hold-down.
func (BackoffConfig) Off() BackoffConfig { return BackoffConfig{} }

// AdmissionConfig is what happens to pods that start under pressure.
type AdmissionConfig struct{ Mode AdmissionMode }

// ContainersConfig is which dead containers are garbage.
type ContainersConfig struct {
	GC              bool
	MinAge          time.Duration
	MaxPerContainer int // newest dead ones kept per pod and container; negative = all
	Max             int // on the node; negative = no cap
}

// ImagesConfig is which unused images are pruned, and when.
type ImagesConfig struct {
	Prune                   PruneMode
	High, Low               policy.Quantity // used share of the image filesystem
	MinAge                  time.Duration
	MaxAge                  time.Duration // 0 = any age
	UnusedGrace             time.Duration // for images that were never seen in use
	Keep                    []string
	AirgapDirs              []string
	HoldAfterRuntimeRestart time.Duration
}

// HistoryConfig is where the last passes are kept.
type HistoryConfig struct {
	Dir    string
	Passes int
}

// MetricsConfig is where metrics are served, beside the control socket.
type MetricsConfig struct{ Listen string }
