package guard

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/criguard/criguard/policy"
)

// wait is the time for which the stop for a signal is held back by a back-off, of the pod
// that ranks first or of one that was stopped and has come back, or by a stop that has ended
// and gave back less than others take. The zero value is none.
type wait struct {
	enough int64            // how much one pod must have grown to be the cause
	used   map[string]int64 // what each sandbox used when it began, of the signal's resource
}

// begin begins to wait; what was begun goes on. Who takes half of what is still available
// then, and an eighth of the threshold at least, which no pod does by the way, is the cause.
func (w *wait) begin(m policy.Met, ranked []policy.Ranked) {
	if w.used != nil {
		return
	}
	w.enough = max(m.Available/2, (m.Available+m.Deficit)/8)
	w.used = make(map[string]int64, len(ranked))
	for i := range ranked {
		w.used[ranked[i].ID] = ranked[i].Usage
		if !ranked[i].Known {
			w.used[ranked[i].ID] = math.MaxInt64
		}
	}
}

// caused is how much a pod has taken since of what runs the node out; 0 = it is not the
// cause. One that came meanwhile has taken all that it uses.
func (w *wait) caused(r *policy.Ranked) (took int64) {
	if w.used == nil || !r.Known {
		return 0
	}
	if took = r.Usage - w.used[r.ID]; took < w.enough {
		return 0
	}
	return took
}

// heldBack notes that nobody is stopped now, and says what it waits for. The pod that ranks
// first may be in its back-off because it is being stopped, gently, for something else.
func (g *Guard) heldBack(now time.Duration, m policy.Met, ranked []policy.Ranked, held string, p *Pass) string {
	standing := g.restrains(m, now)
	for i := range ranked {
		if ranked[i].Excluded != "" {
			break
		}
		if standing(&ranked[i]).Passed {
			continue
		}
		if f := g.flightOf(ranked[i].ID); f != nil && m.Kind == policy.Hard {
			g.escalate(f, m.Signal, p)
			return HeldInFlight
		}
		break
	}
	if held == HeldBackoff {
		g.waits[m.Signal].begin(m, ranked)
	}
	return held
}

// stopCause waits for what a stop gives back, but not until the kernel kills: where that one
// has ended, and memory falls nonetheless, the one that is seen to take it is stopped. It is one at a
// time here, too; who merely ranks next waits for both.
func (g *Guard) stopCause(ctx context.Context, now time.Duration, m policy.Met, f *flight, p *Pass) string {
	other := func(o *flight) bool { return o != f && o.judged() && o.met.Signal == m.Signal }
	if f.ended == 0 || f.met.Signal != m.Signal || !paced(m.Signal) || slices.ContainsFunc(g.flights, other) ||
		g.obs[m.Signal].Available >= f.view.Available {
		return HeldInFlight
	}
	if held := g.restraint.Check(m.Kind, m.Signal, "", now); held.By != "" {
		return HeldInFlight
	}
	ranked, pods, stranger := g.ranking(ctx, m)
	if g.relieved(m) {
		return HeldInFlight
	}
	g.waits[m.Signal].begin(m, ranked)
	standing := g.restrains(m, now)
	i := slices.IndexFunc(ranked, func(r policy.Ranked) bool {
		s := standing(&r)
		return r.Excluded == "" && s.Cause && !s.Passed && s.Held == "" && r.Usage >= stranger
	})
	if i < 0 {
		return HeldInFlight
	}
	defer func() { p.Ranked = rankedViews(ranked, pods) }()
	return g.begin(ctx, now, m, ranked[i], pods, p)
}

// restrains tells what policy.Choose must know of each candidate.
func (g *Guard) restrains(m policy.Met, now time.Duration) func(*policy.Ranked) policy.Standing {
	return func(r *policy.Ranked) policy.Standing {
		if until, ok := g.skip[r.ID]; ok && now < until {
			return policy.Standing{Passed: true}
		}
		return policy.Standing{
			Held:     g.restraint.CheckWorkload(g.backingOff(r), now),
			Returned: g.restraint.HoldDown(m.Signal, r.Workload, r.Created),
			Cause:    g.waits[m.Signal].caused(r) > 0,
		}
	}
}

// backingOff names the workload whose back-off a sandbox waits for; "" = it waits for none. A
// back-off is for what was stopped and comes back, or outlives its stop, or is dead and listed
// still: another replica, which was there all the time, is as good as any pod.
func (g *Guard) backingOff(r *policy.Ranked) string {
	_, ordered := g.ordered[r.ID]
	earlier := g.restraint.Stopped(r.Workload) < g.started // by a run of the service before this one: nobody knows which sandbox
	if ordered || earlier || r.Created == 0 || g.restraint.Returned(r.Workload, r.Created) {
		return r.Workload
	}
	return ""
}
