package agent

import (
	"errors"
	"fmt"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/etcd"
	"github.com/criguard/criguard/policy"
)

// State is the body of PUT /v1/state. The guard repeats it every minute.
type State struct {
	Wants   []policy.Pool `json:"wants"` // pools that want a soft stop
	Digest  string        `json:"digest"`
	Version string        `json:"version"`
	Soft    Soft          `json:"soft,omitzero"` // absent = the last one
}

// Soft is the node's own budget of soft stops, from which the fleet derives what a node does that is alone or was held
// for long.
type Soft struct {
	Burst int          `json:"burst"`
	Every api.Duration `json:"every"` // one more token after this time
}

// Request is the body of PUT /v1/permits/{pool}/{sandbox}.
type Request struct {
	Kind     string `json:"kind"`     // "soft" for a threshold, or "limit"
	Workload string `json:"workload"` // what recreates the pod, as namespace/name
}

// Answers to a request.
const (
	Pending = "pending" // the agent asks the fleet now
	Denied  = "denied"
	Granted = "granted"
)

// Sources of a permit.
const (
	Fleet   = "fleet"
	Trickle = "trickle" // a token of a node that was held for long, or is alone
	Local   = "local"   // a token of a node that is alone for long
)

// Answer is the answer to a request.
type Answer struct {
	State      string       `json:"state"`                 // pending, denied or granted
	Reason     string       `json:"reason,omitempty"`      // of a denial
	RetryAfter api.Duration `json:"retry_after,omitempty"` // of a denial; 0 = not known
	ID         string       `json:"id,omitempty"`          // of a permit of the fleet
	Source     string       `json:"source,omitempty"`      // of a permit
	Deadline   api.Duration `json:"deadline,omitempty"`    // since boot, until which a stop must have begun
}

// Status is the answer to GET /v1/status.
type Status struct {
	Fleet     string        `json:"fleet"`                // its name
	Node      string        `json:"node"`                 // its name in the fleet
	Zone      *Zone         `json:"zone,omitempty"`       // at the last report; absent before the first
	NameTaken bool          `json:"name_taken,omitempty"` // another agent reports under this name: its machine is a clone, with the same machine ID
	PauseLost bool          `json:"pause_lost,omitempty"` // a pause ended before its time, and no operator resumed
	PausedFor api.Duration  `json:"paused_for,omitempty"` // for how long an operator has suspended soft stops
	Full      bool          `json:"full,omitempty"`       // the fleet is full and permits no soft stop
	Pressured []etcd.Shared `json:"pressured,omitempty"`  // configurations of the zone's nodes that want a soft stop, if the fleet is full
	Wants     []policy.Pool `json:"wants"`                // pools that want a soft stop
	Requests  []Waiting     `json:"requests"`             // of the guard
	AloneFor  api.Duration  `json:"alone_for,omitempty"`  // without a successful contact; absent = not alone
	Error     string        `json:"error,omitempty"`      // why the last contact failed
	Cause     string        `json:"cause,omitempty"`      // short name of the error
	Counts    fleet.Counts  `json:"counts"`               // soft stops since the agent started
}

// Zone is the node's zone.
type Zone struct {
	Name string `json:"name"` // "" = the only one
	fleet.Zone
	State fleet.State `json:"state"` // normal, partial or full
}

// Waiting is a request with its answer.
type Waiting struct {
	Pool    policy.Pool `json:"pool"`    // under pressure
	Sandbox string      `json:"sandbox"` // of the pod
	Request
	Answer Answer `json:"answer"` // to the guard, the last one
}

// Longest texts of requests, in bytes. The ID of a sandbox has 64 digits; a workload is a namespace and an
// owner.
const (
	maxSandbox = 128
	maxText    = 512
)

// check returns an error for a state that no guard sends.
func (s State) check() error {
	if len(s.Digest) > maxText || len(s.Version) > maxText || len(s.Wants) > int(policy.PoolCount) {
		return errors.New("state is too long")
	}
	if s.Soft.Burst < 0 || s.Soft.Every < 0 {
		return errors.New("soft: want a burst and a duration of at least 0")
	}
	return nil
}

// check returns an error for a request that no guard sends.
func (r Request) check(sandbox string) error {
	switch {
	case r.Kind != "soft" && r.Kind != "limit":
		return fmt.Errorf("kind = %.20q: want soft or limit", r.Kind)
	case r.Workload == "" || len(r.Workload) > maxText:
		return fmt.Errorf("workload: want 1 to %d bytes", maxText)
	case sandbox == "" || len(sandbox) > maxSandbox:
		return fmt.Errorf("sandbox: want 1 to %d bytes", maxSandbox)
	}
	return nil
}
