package api

import "github.com/criguard/criguard/policy"

// State is the result of a pass for metrics and hooks. It refers to memory that the next pass changes, and
// is not serialized.
type State struct {
	Observing    bool                   // observe mode
	InFleet      bool                   // soft stops need a permit of the fleet
	InFlight     int                    // number of stops in flight
	Relieving    bool                   // one of them is criguard's own, or a threshold waits for it
	Alarms       [policy.PoolCount]bool // pools that have an alarm
	Observations *policy.Observations
	Thresholds   []policy.Threshold
	Pressure     policy.Pressure
	Budget       func() policy.BudgetView // more expensive than the other fields
}
