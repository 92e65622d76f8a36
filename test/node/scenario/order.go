package scenario

import "time"

// Kinds of events.
const (
	Ready = "ready" // the agent is ready for orders
	Said  = "said"  // a line for the report
	Done  = "done"  // the order has been executed
)

// Order is one line to the agent: set the node up, or run a scenario on it.
type Order struct {
	Profile  Profile
	Scenario string        // empty: set up
	Seed     uint64        // of random faults
	Length   time.Duration // of random faults
	Tries    int           // how often a scenario repeats what must work every time; number of tries per guard and rate in a comparison
	Rebooted bool          // the scenario continues after a reboot
}

// Event is one line from the agent.
type Event struct {
	Kind     string
	Text     string   `json:",omitempty"`
	Try      *Try     `json:",omitempty"`
	Failures []string `json:",omitempty"`
	Wrong    bool     `json:",omitempty"` // an innocent pod was stopped
	Journal  string   `json:",omitempty"` // the end of the node's journal, if something failed
}
