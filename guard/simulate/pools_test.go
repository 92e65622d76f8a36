package simulate

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/trace"
	"github.com/criguard/criguard/policy"
)

// P7: without a budget, removing another pool's signals from a trace changes this pool's stops by at most the
// one pass per stop that it waited.
func TestP7PoolsAreIndependent(t *testing.T) {
	t.Parallel()
	cfgs := append(randomConfigs(t), parsed(t, kubeletOrder))
	s := sweep{broken: map[string][]string{}}
	each(func(seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 5))
		cfg, lines := cfgs[rng.IntN(len(cfgs))], poolTrace(rng)
		all := play(cfg, Options{NoBudget: true}, lines)
		signal := poolSignals[seed%uint64(len(poolSignals))]
		alone := make([]trace.Line, len(lines))
		for i, l := range lines {
			alone[i] = l
			alone[i].Signals = map[policy.Signal]trace.Observation{signal: l.Signals[signal]}
		}
		s.independent(seed, policy.SingleFS.Pool(signal), all, play(cfg, Options{NoBudget: true}, alone), len(lines))
	})
	s.report(t, "P7", s.stops, s.due)
}

// independent compares a pool's stops in a whole trace with those in a trace that has no other pool.
func (s *sweep) independent(seed uint64, pool policy.Pool, all, alone []lineStop, lines int) {
	others, k := 0, 0
	for _, a := range all {
		if a.pool != pool {
			others++
			continue
		}
		s.count(&s.stops)
		if others > 0 {
			s.count(&s.due)
		}
		if k == len(alone) || a.pod != alone[k].pod || a.line < alone[k].line || a.line > alone[k].line+others {
			s.breaks("P7", seed, "%s: alone %v, with the others %v", pool, alone, all)
			return
		}
		k++
	}
	if k < len(alone) && alone[k].line+others < lines {
		s.breaks("P7", seed, "%s: alone %v, with the others %v", pool, alone, all)
	}
}

// kubeletOrder ranks without the culprit, in one tier, and has a minimum reclaim.
const kubeletOrder = "[eviction.hard]\n\"memory.available\" = \"1Gi\"\n\"pid.available\" = \"1000\"\n\"nodefs.available\" = \"1Gi\"\n" +
	"[eviction.minimum_reclaim]\n\"memory.available\" = \"20Mi\"\n\"nodefs.available\" = \"20Mi\"\n" +
	"[rank]\nmemory = ['priority', 'usage']\npid = ['priority', 'usage']\n"

// poolTrace returns a trace in which the pools run short one after another, each from some line on, for a hard or for a soft
// threshold. Each pod uses one resource, so that a stop for one pool does not relieve another. Those that use the same one grow
// alike until the first pool is short, so that their order stays, and no line brings back a pod that was stopped. Every pod that
// uses a resource helps, and none is a culprit: how fast a signal fell just before must not matter, because that depends on
// the time of the pass.
func poolTrace(rng *rand.Rand) []trace.Line {
	lines := make([]trace.Line, 8+rng.IntN(23))
	step := []time.Duration{time.Second, 2 * time.Second, 11 * time.Second}[rng.IntN(3)]
	pods := make([]poolPod, 2+rng.IntN(11))
	for i := range pods {
		pods[i] = newPoolPod(rng)
	}
	for i := range lines {
		lines[i].At, lines[i].Signals = api.Duration(step*time.Duration(i)), map[policy.Signal]trace.Observation{}
	}
	var from [len(poolSignals)]int
	first := len(lines)
	for k := range from {
		from[k] = rng.IntN(len(lines))
		first = min(first, from[k])
	}
	for k, s := range poolSignals {
		unit, threshold, grows := int64(1<<20), int64(1<<30), rng.Int64N(2)
		switch {
		case s == policy.PIDAvailable:
			unit, threshold = 1, 1000
		case s == policy.MemoryAvailable && rng.IntN(2) == 0:
			threshold = 2 << 30 // of the soft threshold, if there is one
		}
		lack, together := (10+rng.Int64N(40))*unit, int64(0)
		for i := range pods {
			if pods[i].signal == s {
				pods[i].grows, together = grows*unit, together+grows*unit
			}
		}
		for i := range lines {
			available := threshold + together*int64(max(first-1-i, 0))
			if i >= from[k] {
				available -= lack
			}
			lines[i].Signals[s] = trace.Observation{Available: trace.QuantityOf(available), Capacity: trace.QuantityOf(100 * threshold)}
		}
	}
	for i := range max(first, 1) {
		for k := range pods {
			lines[i].ChangedPods = append(lines[i].ChangedPods, pods[k].at(k, int64(i)))
		}
	}
	return lines
}

var poolSignals = [3]policy.Signal{policy.MemoryAvailable, policy.PIDAvailable, policy.NodeFSAvailable}

// poolPod is a pod of a poolTrace, which uses a single resource.
type poolPod struct {
	signal            policy.Signal
	used, grows       int64 // by the line
	priority, request int64
}

func newPoolPod(rng *rand.Rand) poolPod {
	p := poolPod{signal: poolSignals[rng.IntN(3)], priority: rng.Int64N(3), request: rng.Int64N(2) << 30}
	switch p.signal {
	case policy.PIDAvailable:
		p.used = 8 + rng.Int64N(100)
	case policy.NodeFSAvailable:
		p.used = 40<<20 + rng.Int64N(100<<20)
	default: // 12 of them never make up for the gigabyte between the hard and the soft threshold
		p.used = 8<<20 + rng.Int64N(40<<20)
	}
	return p
}

// at returns the pod as of a line.
func (p *poolPod) at(index int, line int64) trace.Pod {
	t := trace.Pod{
		Name: fmt.Sprint("d/p", index), UID: fmt.Sprint("p", index), Priority: ptr(p.priority), MemoryRequest: trace.QuantityOf(p.request),
		MemoryUsage: trace.QuantityOf(0), PIDs: ptr(0), DiskUsage: &trace.Disk{},
	}
	switch used := p.used + line*p.grows; p.signal {
	case policy.PIDAvailable:
		t.PIDs = ptr(used)
	case policy.NodeFSAvailable:
		t.DiskUsage.Rootfs = trace.Quantity(used)
	default:
		t.MemoryUsage = trace.QuantityOf(used)
	}
	return t
}
