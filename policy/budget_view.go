package policy

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// BudgetView is the state of a restraint for display.
type BudgetView struct {
	Hard      BucketView     // stops for hard thresholds
	Soft      BucketView     // soft stops, limits and admission
	PerHour   int            // the cap of each; 0 = no cap
	Breakers  []Pool         // pools whose breaker is open: no more stops for them
	Workloads []WorkloadView // those that were stopped, latest first
}

// BucketView is the remaining budget of one kind.
type BucketView struct {
	Left     int           // stops left now
	Burst    int           // the most that can be left
	Next     time.Duration // time until one is left; 0 = now
	LastHour int           // stops that took budget
}

// WorkloadView is a workload that was stopped.
type WorkloadView struct {
	Workload   string        // what recreates the pods
	Stops      int           // in a row
	Ago        time.Duration // since the last stop
	RetryAfter time.Duration // left until it may be stopped again for a soft threshold
}

// Status returns the remaining budget and the workloads in back-off, latest stop first.
func (r *Restraint) Status(now time.Duration) BudgetView {
	r.at(now)
	view := func(k Kind) BucketView {
		left, next := r.allows(k)
		return BucketView{left, r.budget.of(k).Burst, next, inLastHour(r.taken(k), now)}
	}
	v := BudgetView{Hard: view(Hard), Soft: view(Soft), PerHour: r.budget.PerHour}
	for p := range PoolCount {
		if r.isOpen(p) {
			v.Breakers = append(v.Breakers, p)
		}
	}
	seen := map[string]bool{}
	for i := len(r.stops) - 1; i >= 0 && r.backoff.First > 0; i-- {
		if s := &r.stops[i]; s.Workload != "" && !seen[s.Workload] && r.lasts(s) {
			seen[s.Workload] = true
			left := max(s.At+r.backoff.wait(s.Count)-now, 0)
			v.Workloads = append(v.Workloads, WorkloadView{s.Workload, s.Count, now - s.At, left})
		}
	}
	slices.SortFunc(v.Workloads, func(a, b WorkloadView) int {
		return cmp.Or(cmp.Compare(a.Ago, b.Ago), strings.Compare(a.Workload, b.Workload))
	})
	return v
}
