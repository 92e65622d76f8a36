package api

import "github.com/criguard/criguard/policy"

// Budget is how many stops are left.
type Budget struct {
	Hard      Bucket        `json:"hard"`                // stops for hard thresholds
	Soft      Bucket        `json:"soft"`                // soft stops, limits and admission
	PerHour   int           `json:"per_hour"`            // the cap of each; 0 = no cap
	Breakers  []policy.Pool `json:"breakers,omitempty"`  // pools whose breaker is open: no more stops for them
	Workloads []Workload    `json:"workloads,omitempty"` // those that were stopped, latest first
}

// Bucket is the remaining budget of one kind.
type Bucket struct {
	Left     int      `json:"left"`           // stops left now
	Burst    int      `json:"burst"`          // the most that can be left
	Next     Duration `json:"next,omitempty"` // time until one is left; 0 = now
	LastHour int      `json:"last_hour"`      // stops that took budget
}

// Workload is a workload that was stopped.
type Workload struct {
	Workload   string   `json:"workload"`              // what recreates the pods
	Stops      int      `json:"stops"`                 // in a row
	Ago        Duration `json:"ago"`                   // since the last stop
	RetryAfter Duration `json:"retry_after,omitempty"` // time until it may be stopped again for a soft threshold
}

// BudgetOf returns the budget as it is printed.
func BudgetOf(v policy.BudgetView) Budget {
	bucket := func(b policy.BucketView) Bucket {
		return Bucket{b.Left, b.Burst, Rounded(b.Next), b.LastHour}
	}
	b := Budget{Hard: bucket(v.Hard), Soft: bucket(v.Soft), PerHour: v.PerHour, Breakers: v.Breakers}
	for _, w := range v.Workloads {
		b.Workloads = append(b.Workloads, Workload{w.Workload, w.Stops, Rounded(w.Ago), Rounded(w.RetryAfter)})
	}
	return b
}
