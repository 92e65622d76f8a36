package guard

import (
	"time"

	"github.com/criguard/criguard/policy"
)

// APIVersion is carried by everything that is printed for programs. It changes
// when a field changes its meaning or goes away.
const APIVersion = "criguard.io/v1"

// RankedView is one pod in a ranking: where it stands and why.
type RankedView struct {
	Position int               `json:"position,omitempty"` // 1 = stopped first; 0 = no candidate
	Pod      string            `json:"pod"`
	UID      string            `json:"uid"`
	Sandbox  string            `json:"sandbox"`
	QoS      string            `json:"qos"`
	Priority int64             `json:"priority"`
	Usage    int64             `json:"usage"` // of what the signal ranks: bytes, inodes or tasks
	Known    bool              `json:"usage_known"`
	Request  int64             `json:"request"`
	Keys     []policy.KeyValue `json:"keys"`
	Frees    int64             `json:"frees"`
	ByMemory bool              `json:"by_memory,omitempty"` // for swap: what it has there is not known, usage is its memory
	Excluded string            `json:"excluded,omitempty"`  // why it is no candidate
	// Sources say where the request and the priority come from.
	RequestSource  string `json:"request_source,omitempty"`
	PrioritySource string `json:"priority_source,omitempty"`
}

// rankedViews copies a ranking for the record.
func rankedViews(ranked []policy.Ranked, pods []Pod) []RankedView {
	sources := make(map[string]*Pod, len(pods))
	for i := range pods {
		sources[pods[i].ID] = &pods[i]
	}
	views := make([]RankedView, len(ranked))
	for i, r := range ranked {
		views[i] = RankedView{
			Position: r.Position, Pod: r.Namespace + "/" + r.Name, UID: r.UID, Sandbox: r.ID,
			QoS: r.QoS.String(), Priority: r.Priority, Usage: r.Usage, Known: r.Known,
			Request: r.Request, Keys: r.Keys, Frees: r.Frees, ByMemory: r.ByMemory, Excluded: r.Excluded,
		}
		if p := sources[r.ID]; p != nil {
			views[i].RequestSource, views[i].PrioritySource = p.RequestSource, p.PrioritySource
		}
	}
	return views
}

// Ranking is the answer to "who would be stopped first for this signal".
type Ranking struct {
	APIVersion string        `json:"apiVersion"`
	Signal     policy.Signal `json:"signal"`
	Available  int64         `json:"available"`
	Capacity   int64         `json:"capacity"`
	Keys       []policy.Key  `json:"keys"`
	Pods       []RankedView  `json:"pods"`
	Live       bool          `json:"live"` // answered by the running service
}

// Settings is the configuration in force, every default filled in.
type Settings struct {
	APIVersion string   `json:"apiVersion"`
	Files      []string `json:"files"` // that it was read from, in order
	Text       string   `json:"text"`  // TOML
}

// Status is the state of the guard.
type Status struct {
	APIVersion string            `json:"apiVersion"`
	Version    string            `json:"version"`
	Mode       string            `json:"mode"`
	Live       bool              `json:"live"` // answered by the running service
	PID        int               `json:"pid,omitempty"`
	Uptime     time.Duration     `json:"uptime,omitempty"`
	Config     string            `json:"config"`
	ConfigNote string            `json:"config_note,omitempty"` // why a reload was refused
	Runtime    RuntimeStatus     `json:"runtime"`
	Kernel     KernelStatus      `json:"kernel"`
	Conditions []string          `json:"conditions"`
	Signals    []SignalStatus    `json:"signals"`
	Pods       int               `json:"pods"`
	Protected  int               `json:"protected"`
	InFlight   []string          `json:"in_flight,omitempty"`
	Held       string            `json:"held,omitempty"`
	HeldBy     string            `json:"held_by,omitempty"`
	Alarms     []string          `json:"alarms,omitempty"`
	Orders     Orders            `json:"orders,omitzero"`
	PausedFor  time.Duration     `json:"paused_for,omitempty"` // what is left of a pause
	Warnings   []string          `json:"warnings,omitempty"`
	Budget     policy.BudgetView `json:"budget"`
	LastPass   *Pass             `json:"last_pass,omitempty"`
	Resident   int64             `json:"resident_bytes,omitempty"`
}

// RuntimeStatus is what is known of the container runtime.
type RuntimeStatus struct {
	Endpoint string        `json:"endpoint"`
	Name     string        `json:"name,omitempty"`
	Version  string        `json:"version,omitempty"`
	Up       bool          `json:"up"`
	Error    string        `json:"error,omitempty"`
	ListedAt time.Duration `json:"listed_ago"` // age of the inventory; negative = never listed
}

// KernelStatus is what the kernel gives on this node.
type KernelStatus struct {
	Cgroup     string   `json:"cgroup"` // v1, hybrid, v2
	PodsCgroup string   `json:"pods_cgroup,omitempty"`
	Layout     string   `json:"filesystems"` // single, dedicated-imagefs, split
	Wakes      []string `json:"wakes"`       // what wakes the loop
}

// SignalStatus is one signal against its thresholds.
type SignalStatus struct {
	SignalView
	Condition  string            `json:"condition"`
	Thresholds []ThresholdStatus `json:"thresholds,omitempty"`
	Error      string            `json:"error,omitempty"`
}

// ThresholdStatus is one threshold of a signal on this node.
type ThresholdStatus struct {
	Kind       string        `json:"kind"`
	Value      string        `json:"value"` // as configured
	Amount     int64         `json:"amount"`
	MinReclaim string        `json:"minimum_reclaim,omitempty"`
	Grace      time.Duration `json:"grace,omitempty"`
	Met        bool          `json:"met"`
	Due        bool          `json:"due"`
}
