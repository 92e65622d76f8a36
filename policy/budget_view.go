package policy

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// BudgetView is the state of a restraint, for display.
type BudgetView struct {
	Hard      BucketView     `json:"hard"`
	Soft      BucketView     `json:"soft"`
	LastHour  int            `json:"last_hour"`          // stops
	PerHour   int            `json:"per_hour"`           // the cap; 0 = none
	Breakers  []Signal       `json:"breakers,omitempty"` // signals that nothing is stopped for any more
	Workloads []WorkloadView `json:"workloads,omitempty"`
}

// BucketView is what is left of one kind's budget.
type BucketView struct {
	Left  int           `json:"left"`
	Burst int           `json:"burst"`
	Next  time.Duration `json:"next,omitempty"` // until one is left; 0 when one is
}

// WorkloadView is a workload that was stopped.
type WorkloadView struct {
	Workload   string        `json:"workload"`
	Stops      int           `json:"stops"` // in a row
	Ago        time.Duration `json:"ago"`   // since the last
	RetryAfter time.Duration `json:"retry_after,omitempty"`
}

// Status shows what is left of the budget, and who waits; workloads by the
// latest stop first.
func (r *Restraint) Status(now time.Duration) BudgetView {
	r.at(now)
	view := func(k Kind) BucketView {
		b, f := r.bucket(k)
		return BucketView{Left: b.left(f), Burst: b.Burst, Next: b.wait(f, now)}
	}
	v := BudgetView{Hard: view(Hard), Soft: view(Soft), LastHour: len(r.recent), PerHour: r.budget.PerHour}
	for s := range SignalCount {
		if r.open(s) {
			v.Breakers = append(v.Breakers, s)
		}
	}
	for name := range r.workloads {
		if s, ok := r.past(name); ok {
			v.Workloads = append(v.Workloads, WorkloadView{name, s.Count, now - s.Last, r.left(name)})
		}
	}
	slices.SortFunc(v.Workloads, func(a, b WorkloadView) int {
		return cmp.Or(cmp.Compare(a.Ago, b.Ago), strings.Compare(a.Workload, b.Workload))
	})
	return v
}
