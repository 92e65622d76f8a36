package config

import (
	"cmp"
	"reflect"
	"time"

	"github.com/criguard/criguard/guard/config/schema"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

// DefaultPath is the path of the service's configuration.
const DefaultPath = "/etc/criguard/config.toml"

// Config is the whole configuration, checked and with all defaults filled in. Its fields are named
// after the keys of the file.
type Config struct {
	Files   []string // files it was read from, lowest precedence first; none means all defaults
	origins schema.Origins
	notes   []string // on the files, see Notes

	Mode              Mode
	ProtectStatic     bool // never stop static pods
	ProtectKubeSystem bool // nor pods in the namespace kube-system
	Runtime           Runtime
	Node              Node
	Eviction          Eviction
	Rank              Rank
	Priorities        []PriorityRule // the first match wins; those of the last file come first
	Protects          []policy.Rule
	Limits            []LimitRule // as for priorities
	Annotations       Annotations
	Budget            Budget
	Backoff           Backoff
	Admission         Admission
	Fleet             Fleet
	Containers        Containers
	Images            Images
	History           History
	Metrics           Metrics
	Hooks             []Hook

	// Dir holds the state unless History.Dir is set. The command line sets Dir; there is no key for
	// it. Without both, the state stays in memory.
	Dir rundir.Dir
}

// Runtime configures the connection to the container runtime.
type Runtime struct {
	Endpoint string        // see socket.Path; "": auto-detect
	Timeout  time.Duration // per call
}

// Node configures paths on the node; "" means auto-detect. Directories are absolute; the cgroup is
// a path below the cgroup root, such as "/kubepods".
type Node struct {
	RootDir    string
	PodLogDir  string
	Proc       string
	Sys        string
	PodsCgroup string
}

// Eviction configures when and how pods are stopped.
type Eviction struct {
	Interval                 time.Duration      // between pod listings; kernel signals are polled faster
	MaxPodGracePeriod        time.Duration      // for soft stops; a pod's own applies if it is shorter
	PressureTransitionPeriod time.Duration      // how long a condition stays set after its thresholds clear
	SoftForgive              time.Duration      // time a signal must be clear to restart its grace period
	StopTimeout              time.Duration      // for the runtime to confirm, beyond the grace period
	DirectKill               DirectKill         // when to kill containers through their cgroups
	MemoryReclaim            bool               // ask cgroup v2 to reclaim memory before a stop for it
	StallWindow              time.Duration      // window over which the share of stall time is measured
	StallFloor               policy.Quantity    // available memory above which a stall stops no pod
	Thresholds               []policy.Threshold // in the order of action
	Off                      []policy.Threshold // switched off by name
}

// Rank is the eviction order for each resource: the first key counts most.
type Rank struct{ Memory, Disk, Inodes, PID []policy.Key }

// Keys returns the rank keys for a resource.
func (r Rank) Keys(res policy.Resource) []policy.Key {
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

// PriorityRule gives pods a priority; pods with a lower one are stopped earlier.
type PriorityRule struct {
	policy.Rule
	Value int64
}

// LimitRule limits the ephemeral storage of pods, in bytes.
type LimitRule struct {
	policy.Rule
	EphemeralStorage int64
}

// Annotations configures where criguard honours pods' own annotations.
type Annotations struct {
	TrustedNamespaces []string // globs
}

// Trusts reports whether criguard honours the annotations of pods in a namespace.
func (a Annotations) Trusts(namespace string) bool {
	for _, pattern := range a.TrustedNamespaces {
		if (policy.Rule{Namespace: pattern}).Match(namespace, "", nil) {
			return true
		}
	}
	return false
}

// Budget limits the rate of stops.
type Budget struct{ policy.BudgetConfig }

// Policy returns the budget in package policy's form.
func (b Budget) Policy() policy.BudgetConfig { return b.BudgetConfig }

// Off returns a budget without limits and without a circuit breaker.
func (Budget) Off() Budget {
	free := policy.Bucket{Burst: 1}
	return Budget{policy.BudgetConfig{Hard: free, Soft: free}}
}

// Backoff limits how often the same workload is stopped.
type Backoff struct{ policy.BackoffConfig }

// Policy returns the back-off in package policy's form.
func (b Backoff) Policy() policy.BackoffConfig { return b.BackoffConfig }

// Off returns a back-off that never delays a stop and has no hold-down.
func (Backoff) Off() Backoff { return Backoff{} }

// Admission configures what happens to pods that start under pressure.
type Admission struct{ Mode AdmissionMode }

// Fleet configures permits for gentle stops. The agent has a configuration of its own (guard/fleet/config).
type Fleet struct {
	Enabled bool // stops for soft thresholds and limits need a permit of the fleet
}

// Containers configures the garbage collection of dead containers.
type Containers struct {
	GC              bool
	MinAge          time.Duration // since creation
	MaxPerContainer int           // newest dead containers kept per pod and container name; negative: all
	Max             int           // on the node; negative: no limit
}

// Images configures which unused images are pruned, and when.
type Images struct {
	Prune                   PruneMode
	High, Low               policy.Quantity // used share of the image filesystem: start and end of pruning
	MinAge                  time.Duration   // since the image was first seen
	MaxAge                  time.Duration   // since last use; 0: any age
	UnusedGrace             time.Duration   // for images that were never seen in use
	Keep                    []string        // name patterns with * and ?
	AirgapDirs              []string        // directories with tarballs and lists of images that no registry has
	HoldAfterRuntimeRestart time.Duration   // pause pruning for this time after the runtime restarts
}

// RemovesLike reports whether the same images and containers may be removed.
func (c *Config) RemovesLike(o *Config) bool {
	return c.Mode == o.Mode && c.Containers == o.Containers && reflect.DeepEqual(c.Images, o.Images)
}

// History configures where the last passes and the image ledger are stored.
type History struct {
	Dir    string // "": the run directory
	Passes int
}

// Metrics configures where metrics are served in addition to the control socket.
type Metrics struct {
	Listen   string // loopback address and port; "": control socket only
	Textfile string // absolute path, for node_exporter; "": no file
}

// Hook is a program that runs on events.
type Hook struct {
	On      []EventKind
	Command []string // the first is an absolute path; no shell is involved
	Timeout time.Duration
}

// HistoryDir returns the directory of the history, of the signals recorded around stops and, by
// default, of the image ledger.
func (c *Config) HistoryDir() string { return cmp.Or(c.History.Dir, string(c.Dir)) }
