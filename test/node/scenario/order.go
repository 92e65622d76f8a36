package scenario

import "time"

// Kinds of events.
const (
	Ready = "ready" // the agent listens
	Said  = "said"  // a line for the report
	Done  = "done"  // the order is carried out
)

// Order is one line to the agent: set the node up, or run a scenario on it.
type Order struct {
	Profile  Profile
	Scenario string        // empty: set up
	Seed     uint64        // of random faults
	Length   time.Duration // of random faults
	Tries    int           // how often a guard is tried, where guards are compared
	Rebooted bool          // the scenario goes on after a reboot
}

// Event is one line from the agent.
type Event struct {
	Kind     string
	Text     string   `json:",omitempty"`
	Try      *Try     `json:",omitempty"`
	Failures []string `json:",omitempty"`
	Wrong    bool     `json:",omitempty"` // somebody innocent was stopped
	Journal  string   `json:",omitempty"` // the node's last lines, if something failed
}
