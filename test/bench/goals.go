package main

import (
	"fmt"

	"github.com/criguard/criguard/cgroup"
)

// goal is a target for a figure.
type goal struct {
	Name string `json:"name"`
	Got  string `json:"got"`
	Met  bool   `json:"met"`
}

// The goals. The comparisons hold on any machine; the times are for a small, otherwise idle one.
const (
	goalRate      = 800
	goalMedian    = 15.0 // ms from the crossing to the hog's end
	goalP99       = 40.0
	goalRatio     = 3.0  // times as fast as earlyoom
	goalWorst     = 40.0 // ms, where the kernel has no event
	goalPolled    = 5.0  // times as fast as earlyoom, where the kernel has no event
	goalHung      = 100.0
	goalIdleCPU   = 0.05 // percent of one core
	goalWakeups   = 4.0  // per second
	goalResident  = 18.0 // MiB
	goalPassRatio = 2.0
	goalFleet     = 1.25 // times the median without a fleet, and goalFleetMs
	goalFleetMs   = 1.0
	goalAgent     = 20.0 // MiB resident
	goalBinary    = 25.0 // MiB
)

// judge compares the figures with their goals.
func (r *report) judge() []goal {
	goals := []goal{}
	add := func(met bool, name, got string, args ...any) {
		goals = append(goals, goal{name, fmt.Sprintf(got, args...), met})
	}
	for i := range r.Latency {
		if l := &r.Latency[i]; l.Guard == ours || l.Guard == withoutEvent {
			r.judgeLatency(l, add)
		}
	}
	for i := range r.Runtimes {
		l := &r.Runtimes[i]
		add(l.Dead.Max <= goalHung && l.Wrong == 0, fmt.Sprintf("%s: hog dead within %.0f ms every time", l.Case, goalHung),
			"%.1f ms at most, %d wrong", l.Dead.Max, l.Wrong)
	}
	if c := r.Idle; c != nil {
		add(c.CPUPercent <= goalIdleCPU, fmt.Sprintf("idle: %.2f %% of a core", goalIdleCPU), "%.3f %%", c.CPUPercent)
		add(c.Wakeups <= goalWakeups, fmt.Sprintf("idle: %.0f wake-ups per second", goalWakeups), "%.1f", c.Wakeups)
		add(c.Written == 0, "idle: nothing written", "%d bytes", c.Written)
		add(c.ResidentMiB <= goalResident, fmt.Sprintf("idle: %.0f MiB resident", goalResident), "%.1f MiB", c.ResidentMiB)
	}
	r.judgeFleet(add)
	if ratio := r.passRatio(); ratio > 0 {
		add(ratio <= goalPassRatio, fmt.Sprintf("a pass costs no more than %.0f times per sandbox at 1,000 as at 110", goalPassRatio), "%.2f times", ratio)
	}
	if e := r.Breaches; e != nil {
		add(len(e.Leaks) == 0, fmt.Sprintf("%d breaches in a row leak nothing", e.Breaches), "%v", e.Leaks)
	}
	r.judgeLitter(add)
	return goals
}

// judgeLatency compares a row of criguard with its goals. Without an event of the kernel, they hold at every rate.
func (r *report) judgeLatency(l *latency, add func(met bool, name, got string, args ...any)) {
	at := fmt.Sprintf("%s, %.0f MiB/s, %d MiB of headroom", l.Guard, l.Rate, l.HeadroomMiB)
	add(l.Wrong == 0, at+": the right victim every time", "%d wrong of %d", l.Wrong, l.Dead.N)
	if l.HeadroomMiB == deepHeadroom {
		return
	}
	times := goalRatio
	if l.Guard == withoutEvent || r.Cgroup == cgroup.V2.String() {
		times = goalPolled
		add(l.Dead.Median <= goalMedian && l.Dead.Max <= goalWorst,
			fmt.Sprintf("%s: hog dead within %.0f ms (median), %.0f ms (worst)", at, goalMedian, goalWorst),
			"%.1f / %.1f ms", l.Dead.Median, l.Dead.Max)
	} else if l.Rate == goalRate {
		add(l.Dead.Median <= goalMedian && l.Dead.P99 <= goalP99,
			fmt.Sprintf("%s: hog dead within %.0f ms (median), %.0f ms (p99)", at, goalMedian, goalP99), "%s ms", l.Dead)
	}
	if peer := r.peer(l); peer != nil {
		ratio := peer.Dead.Median / l.Dead.Median
		add(ratio >= times, fmt.Sprintf("%s: %.0f times as fast as %s", at, times, peer.Guard), "%.1f times", ratio)
	}
}

// judgeFleet compares hard stops in a fleet with those without, and the memory of the guard.
func (r *report) judgeFleet(add func(met bool, name, got string, args ...any)) {
	for i := range r.Fleet {
		l, off := &r.Fleet[i], &r.Fleet[0]
		add(l.Wrong == 0, l.Case+": the right victim every time", "%d wrong of %d", l.Wrong, l.Dead.N)
		if i > 0 {
			add(l.Dead.N > 0 && off.Dead.N > 0 && l.Dead.Median <= goalFleet*off.Dead.Median+goalFleetMs,
				l.Case+": the fleet does not delay a hard stop", "dead after %.1f ms (median), %.1f with the fleet off", l.Dead.Median, off.Dead.Median)
			add(l.Dead.Max <= goalHung, fmt.Sprintf("%s: no hard stop waits for the agent, hog dead within %.0f ms every time", l.Case, goalHung),
				"%.1f ms at most", l.Dead.Max)
		}
	}
	if f := r.Footprint; f != nil {
		add(f.Agent.ResidentMiB <= goalAgent, fmt.Sprintf("the fleet's agent: %.0f MiB resident", goalAgent), "%.1f MiB", f.Agent.ResidentMiB)
		// The rest of the resident memory is the program file, as far as the kernel finds it worth keeping.
		add(f.On.AnonMiB <= f.Off.AnonMiB+slack, "the guard needs no more memory in a fleet",
			"%.1f MiB anonymous, %.1f with the fleet off", f.On.AnonMiB, f.Off.AnonMiB)
		add(f.BinaryMiB <= goalBinary, fmt.Sprintf("the binary: %.0f MiB", goalBinary), "%.1f MiB", f.BinaryMiB)
	}
}

// judgeLitter compares many empty pod cgroups with none, and the last pods of the churn with the
// first, with a margin for noise.
func (r *report) judgeLitter(add func(met bool, name, got string, args ...any)) {
	if n := len(r.Empty); n > 0 {
		none, many := &r.Empty[0], &r.Empty[n-1]
		add(none.Wrong+many.Wrong == 0 && many.Dead.Median <= 1.5*none.Dead.Median+1 && many.Pass.Median <= 1.5*none.Pass.Median+1,
			fmt.Sprintf("%d empty pod cgroups cost a leak's life and the killing pass nothing", many.Empty),
			"dead after %.1f instead of %.1f ms, pass %.2f instead of %.2f ms, %d wrong",
			many.Dead.Median, none.Dead.Median, many.Pass.Median, none.Pass.Median, none.Wrong+many.Wrong)
	}
	n := len(r.Churn)
	if n <= 2 {
		return
	}
	last, most, wrong := &r.Churn[n-1], r.Churn[0], 0 // most is the largest of each in the first half
	for i := range r.Churn {
		c := &r.Churn[i]
		if c.Wrong {
			wrong++
		}
		if i > n/2 {
			continue
		}
		most.Cgroups, most.PassMs = max(most.Cgroups, c.Cgroups), max(most.PassMs, c.PassMs)
		most.AnonMiB, most.ResidentMiB = max(most.AnonMiB, c.AnonMiB), max(most.ResidentMiB, c.ResidentMiB)
		most.SlabMiB, most.UnreclMiB = max(most.SlabMiB, c.SlabMiB), max(most.UnreclMiB, c.UnreclMiB)
	}
	after := fmt.Sprintf("%d pods that come and go: ", last.Pods)
	add(float64(last.Cgroups) <= 1.5*float64(most.Cgroups)+10, after+"no more pod cgroups in the end", "%d, and %d in the first half", last.Cgroups, most.Cgroups)
	add(last.PassMs <= 2*most.PassMs+1, after+"the killing pass takes no longer", "%.2f ms, and %.2f in the first half", last.PassMs, most.PassMs)
	add(last.AnonMiB <= most.AnonMiB+slack && last.ResidentMiB <= most.ResidentMiB+slack, after+"the guard's memory is flat",
		"%.1f MiB resident, %.1f of them anonymous, and %.1f and %.1f in the first half", last.ResidentMiB, last.AnonMiB, most.ResidentMiB, most.AnonMiB)
	add(last.SlabMiB <= slabGrowth*most.SlabMiB+slabSlack && last.UnreclMiB <= slabGrowth*most.UnreclMiB+slabSlack, after+"the kernel's slab is flat",
		"%.0f MiB, %.0f of them unreclaimable, and %.0f and %.0f in the first half", last.SlabMiB, last.UnreclMiB, most.SlabMiB, most.UnreclMiB)
	add(wrong == 0, after+"the right victim every time", "%d wrong of %d", wrong, n)
}

// How much the slab may grow in the second half of a churn, by the rest of the machine: a factor, and MiB.
const (
	slabGrowth = 1.1
	slabSlack  = 16
)

// peer returns earlyoom's row for the same rate and headroom.
func (r *report) peer(l *latency) *latency {
	for i := range r.Latency {
		if p := &r.Latency[i]; p.Guard == "earlyoom" && p.Rate == l.Rate && p.HeadroomMiB == l.HeadroomMiB {
			return p
		}
	}
	return nil
}
