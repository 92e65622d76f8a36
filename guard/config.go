package guard

import (
	"time"

	"github.com/criguard/criguard/policy"
)

// DefaultConfigPath is where the service's configuration is.
const DefaultConfigPath = "/etc/criguard/config.toml"

// Config is the whole configuration, checked and with every default filled in.
// Its fields are named after the keys of the file.
type Config struct {
	Files   []string // what it was read from, in the order in which they count; none = every default is in force
	origins origins

	Mode              Mode
	ProtectStatic     bool // static pods are never stopped
	ProtectKubeSystem bool // nor those of the namespace kube-system
	Runtime           RuntimeConfig
	Node              NodeConfig
	Eviction          EvictionConfig
	Rank              RankConfig
	Priorities        []PriorityRule // the first that matches counts
	Protects          []policy.Rule
	Limits            []LimitRule // the first that matches counts
	Annotations       AnnotationsConfig
	Budget            BudgetConfig
	Backoff           BackoffConfig
	Admission         AdmissionConfig
	Containers        ContainersConfig
	Images            ImagesConfig
	History           HistoryConfig
	Metrics           MetricsConfig
	Hooks             []HookConfig
}

// RuntimeConfig is how to reach the container runtime.
type RuntimeConfig struct {
	Endpoint string        // "unix:///path" or "/path"; "" = found
	Timeout  time.Duration // of one call
}

// NodeConfig is where things are on the node; "" = found. Directories are
// absolute, the cgroup is a path below the cgroup root: "/kubepods".
type NodeConfig struct {
	RootDir    string
	PodLogDir  string
	Proc       string
	Sys        string
	PodsCgroup string
}

// EvictionConfig is when pods are stopped, and how.
type EvictionConfig struct {
	Interval                 time.Duration      // between two listings of the pods; the kernel is looked at more often
	MaxPodGracePeriod        time.Duration      // of soft stops; a pod's own counts when it is shorter
	PressureTransitionPeriod time.Duration      // how long a condition outlives its thresholds
	SoftForgive              time.Duration      // how long a signal must be clear for its grace period to start anew
	StopTimeout              time.Duration      // for the runtime to confirm a stop, beyond the grace period
	DirectKill               DirectKill         // when containers are killed through their cgroups
	MemoryReclaim            bool               // ask cgroup v2 for memory before a pod is stopped for it
	StallWindow              time.Duration      // that the share of a stall is measured over
	StallFloor               policy.Quantity    // of memory: a stall stops nothing while more is available
	Thresholds               []policy.Threshold // in the order of acting
	Off                      []policy.Threshold // switched off by name
}

// RankConfig is the order of stopping, by resource: the first key counts most.
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

// PriorityRule gives pods a priority; the lower is stopped earlier.
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
type AnnotationsConfig struct {
	TrustedNamespaces []string // globs
}

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
	MinAge          time.Duration // since the creation
	MaxPerContainer int           // newest dead ones kept per pod and container; negative = all
	Max             int           // on the node; negative = no cap
}

// ImagesConfig is which unused images are pruned, and when.
type ImagesConfig struct {
	Prune                   PruneMode
	High, Low               policy.Quantity // used share of the image filesystem: where pruning starts and ends
	MinAge                  time.Duration   // since the image was first seen
	MaxAge                  time.Duration   // since it was last used; 0 = any age
	UnusedGrace             time.Duration   // for images that were never seen in use
	Keep                    []string        // patterns with * and ? over names
	AirgapDirs              []string        // directories of tarballs and lists of images that no registry has
	HoldAfterRuntimeRestart time.Duration   // nothing is pruned for so long
}

// HistoryConfig is where the last passes are kept, and the image ledger.
type HistoryConfig struct {
	Dir    string
	Passes int
}

// MetricsConfig is where metrics are served, beside the control socket.
type MetricsConfig struct {
	Listen   string // loopback address and port; "" = nowhere else
	Textfile string // absolute path, for node_exporter; "" = none is written
}

// HookConfig is a program that is run for events.
type HookConfig struct {
	On      []EventKind
	Command []string // the first is an absolute path; no shell looks at them
	Timeout time.Duration
}
