package api

import (
	"time"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// Conditions is the content of the conditions file, on one line; docs/conditions.md explains it.
type Conditions struct {
	APIVersion string            `json:"apiVersion"`
	Time       time.Time         `json:"time"`              // when the conditions or met thresholds last changed
	Conditions policy.Conditions `json:"conditions"`        // conditions that hold
	Met        []string          `json:"met"`               // thresholds that are met, as signal:kind
	Reasons    map[string]string `json:"reasons,omitempty"` // thresholds by condition
}

// signalViews lists every signal that is present, in acting order.
func signalViews(obs *policy.Observations) []SignalView {
	var views []SignalView
	for s := range policy.SignalCount {
		if o := obs[s]; o.Status != policy.Absent {
			views = append(views, SignalView{s, o.Available, o.Capacity, o.Status.String()})
		}
	}
	return views
}

// APIVersion is part of all output for programs. It changes when a field is removed or changes its meaning.
const APIVersion = "criguard.io/v1"

// RankedView is one pod in a ranking, with its position and the reasons for it.
type RankedView struct {
	Position       int               `json:"position,omitempty"`        // 1 = stopped first; 0 = not a candidate
	Pod            string            `json:"pod"`                       // namespace/name
	UID            string            `json:"uid"`                       // of the pod
	Sandbox        string            `json:"sandbox"`                   // ID in the runtime
	QoS            string            `json:"qos"`                       // Guaranteed, Burstable, BestEffort or Unknown
	Priority       int64             `json:"priority" unit:"-"`         // of the pod, after [[priority]] rules
	Usage          int64             `json:"usage" unit:"signal"`       // of the resource that the signal ranks: bytes, inodes or tasks
	Known          bool              `json:"usage_known"`               // the usage could be measured
	AtLeast        bool              `json:"usage_at_least,omitempty"`  // the usage is a lower bound, not measured in full
	Request        int64             `json:"request" unit:"signal"`     // 0 if unknown, see request_source
	Over           bool              `json:"over"`                      // the usage is above the request, as the ranking counts it
	Keys           []policy.KeyValue `json:"keys"`                      // the values by which it is ranked
	Frees          int64             `json:"frees" unit:"signal"`       // what its stop gives back
	Excluded       string            `json:"excluded,omitempty"`        // why the pod is not a candidate
	Standing       string            `json:"standing,omitempty"`        // while its pool is short: what a candidate's stop would do
	RequestSource  string            `json:"request_source,omitempty"`  // where the request comes from
	PrioritySource string            `json:"priority_source,omitempty"` // where the priority comes from
}

// Ranking is the order in which pods would be stopped for a signal.
type Ranking struct {
	APIVersion string        `json:"apiVersion"`
	Signal     policy.Signal `json:"signal"`                  // what the pods are ranked for
	Available  int64         `json:"available" unit:"signal"` // now
	Capacity   int64         `json:"capacity" unit:"signal"`  // 0 = the node lacks the signal
	Unmeasured string        `json:"unmeasured,omitempty"`    // why the signal has no amounts
	Keys       []policy.Key  `json:"keys"`                    // the rank keys, the most important first
	Need       *Need         `json:"need,omitempty"`          // while a threshold of the signal is due
	Held       *Hold         `json:"held,omitempty"`          // what holds the stop back, as of the last pass
	Pods       []RankedView  `json:"pods"`                    // the candidates in order, then the others by reason, usage and name
	Live       bool          `json:"live"`                    // answered by the running service
	Stale      string        `json:"stale,omitempty"`         // why the pods are those of an earlier listing
	ListedAt   *Duration     `json:"listed_ago,omitempty"`    // age of the list of pods; left out until there is one
}

// Settings is the configuration in force, with all defaults filled in.
type Settings struct {
	APIVersion string   `json:"apiVersion"`
	Files      []string `json:"files"` // files that were read, in order
	Text       string   `json:"text"`  // TOML
}

// Status is the state of criguard.
type Status struct {
	APIVersion string              `json:"apiVersion"`
	Version    string              `json:"version"`                               // version of the service; of the command if no service answers
	Mode       string              `json:"mode"`                                  // enforce or observe
	Live       bool                `json:"live"`                                  // answered by the running service
	PID        int                 `json:"pid,omitempty"`                         // of the service
	GuardedBy  string              `json:"guarded_by,omitempty"`                  // without an answer: run directory and process ID of the service that guards the node
	Uptime     Duration            `json:"uptime,omitempty"`                      // of the service
	Config     string              `json:"config"`                                // the files of the configuration
	ConfigNote string              `json:"config_note,omitempty"`                 // why the last reload was rejected, and what takes effect at the next start
	Runtime    RuntimeStatus       `json:"runtime"`                               // the container runtime
	Kernel     KernelStatus        `json:"kernel"`                                // the kernel interfaces
	Conditions policy.Conditions   `json:"conditions"`                            // conditions that hold
	ClearsIn   map[string]Duration `json:"clears_in,omitempty"`                   // how long each condition still holds whose thresholds are clear again
	Signals    []SignalStatus      `json:"signals"`                               // all signals with their thresholds
	Pods       int                 `json:"pods"`                                  // running pods
	Protected  int                 `json:"protected"`                             // pods that are never stopped
	InFlight   []string            `json:"in_flight,omitempty"`                   // stops that have not taken effect yet
	Held       string              `json:"held,omitempty"`                        // why a stop is held back
	HeldDetail string              `json:"held_detail,omitempty"`                 // what the fleet says about it
	HeldBy     string              `json:"held_by,omitempty"`                     // the threshold whose stop is held back
	NextStopIn Duration            `json:"next_stop_in,omitempty"`                // while the budget or a back-off holds the stop, or until the fleet is asked again
	AlsoHeld   []Hold              `json:"also_held,omitempty"`                   // the stops for other pools that are held back
	Alarms     []string            `json:"alarms,omitempty"`                      // what needs an operator
	Orders     Orders              `json:"orders,omitzero"`                       // commands in force
	PausedFor  Duration            `json:"paused_for,omitempty"`                  // remaining time of a pause
	Warnings   []string            `json:"warnings,omitempty"`                    // what does not work as configured
	Budget     Budget              `json:"budget"`                                // how many stops are left
	LastPass   *Pass               `json:"last_pass,omitempty"`                   // the last pass that did something
	Resident   int64               `json:"resident_bytes,omitempty" unit:"bytes"` // memory of the service
}

// RuntimeStatus is the state of the container runtime.
type RuntimeStatus struct {
	Endpoint string    `json:"endpoint"`             // its socket
	Name     string    `json:"name,omitempty"`       // as the runtime reports it
	Version  string    `json:"version,omitempty"`    // as the runtime reports it
	Up       bool      `json:"up"`                   // it answered the last listing
	Error    string    `json:"error,omitempty"`      // why it did not
	ListedAt *Duration `json:"listed_ago,omitempty"` // age of the list of pods; left out until there is one
}

// KernelStatus describes the kernel interfaces on this node.
type KernelStatus struct {
	Cgroup     string   `json:"cgroup"`                // v1, hybrid, v2
	PodsCgroup string   `json:"pods_cgroup,omitempty"` // left out if not found
	Layout     string   `json:"filesystems"`           // single, dedicated-imagefs, split, dedicated-containerfs, separate
	Wakes      []string `json:"wakes"`                 // wake-up sources of the loop
}

// SignalStatus is one signal with its thresholds.
type SignalStatus struct {
	SignalView
	Condition  string            `json:"condition"`            // the condition that its thresholds raise
	Thresholds []ThresholdStatus `json:"thresholds,omitempty"` // those that are set
	Error      string            `json:"error,omitempty"`      // why it cannot be read
}

// ThresholdStatus is one threshold of a signal on this node.
type ThresholdStatus struct {
	Kind       string   `json:"kind"`                      // hard or soft
	Value      string   `json:"value"`                     // as configured
	Amount     int64    `json:"amount" unit:"signal"`      // the value on this node
	MinReclaim string   `json:"minimum_reclaim,omitempty"` // as configured
	Grace      Duration `json:"grace,omitempty"`           // grace period of a soft threshold
	Met        bool     `json:"met"`                       // less than the amount is available
	Due        bool     `json:"due"`                       // met, and the grace period is over
}

// SourceUnknown is the RequestSource of a pod whose request is unknown.
const SourceUnknown = "unknown"

// Error is the output for a command that failed, and the body of a failed answer on the control socket.
type Error struct {
	APIVersion string `json:"apiVersion"`
	Error      string `json:"error"`          // what failed, and why
	Hint       string `json:"hint,omitempty"` // what to do
}

// Version describes the program.
type Version struct {
	APIVersion string `json:"apiVersion"`
	Version    string `json:"version"`  // of criguard
	Go         string `json:"go"`       // version of the Go toolchain that built it
	Platform   string `json:"platform"` // operating system/architecture
}

// PruneResult is the result of a manual prune.
type PruneResult struct {
	APIVersion string           `json:"apiVersion"`
	DryRun     bool             `json:"dry_run"`            // nothing was removed
	Steps      []reclaim.Report `json:"steps"`              // what each step removed
	Freed      int64            `json:"freed" unit:"bytes"` // by all steps
	Error      string           `json:"error,omitempty"`    // why it ended early, after a part
}

// ImageList lists every image, with the reason why it is kept or may be removed.
type ImageList struct {
	APIVersion string `json:"apiVersion"`
	reclaim.ImageList
}
