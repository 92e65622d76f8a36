package simulate

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/trace"
	"github.com/criguard/criguard/policy"
)

// sweep is what random traces have shown: how often the interesting states were reached, and what broke a
// property.
type sweep struct {
	mu                                                           sync.Mutex
	stops, culprits, cameBack, replicas, breakers, backoffs, due int
	unattainable, outOfBudget, within, shuffled                  int
	ofPool                                                       [policy.PoolCount]int // stops
	broken                                                       map[string][]string
}

func (s *sweep) breaks(property string, seed uint64, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.broken[property]) < 5 {
		s.broken[property] = append(s.broken[property], fmt.Sprintf("seed %d: ", seed)+fmt.Sprintf(format, args...))
	}
}

func (s *sweep) count(counter *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*counter++
}

// each runs a function for every seed, on all CPUs.
func each(f func(seed uint64)) {
	var group sync.WaitGroup
	seeds := make(chan uint64)
	for range 4 {
		group.Go(func() {
			for seed := range seeds {
				f(seed)
			}
		})
	}
	for seed := range randomTraces() {
		seeds <- seed
	}
	close(seeds)
	group.Wait()
}

var (
	sweepOnce sync.Once
	swept     = sweep{broken: map[string][]string{}}
)

// sweepOf runs the random traces, once for all properties.
func sweepOf(t *testing.T) *sweep {
	cfgs := randomConfigs(t)
	sweepOnce.Do(func() {
		each(func(seed uint64) { swept.run(seed, cfgs[seed%uint64(len(cfgs))]) })
	})
	return &swept
}

// report fails the test for each trace that broke a property, and if the traces rarely reached what the
// property is about.
func (s *sweep) report(t *testing.T, property string, reached ...int) {
	t.Helper()
	for _, b := range s.broken[property] {
		t.Error(b)
	}
	for _, n := range reached {
		if least := int(randomTraces() / 50); n < least && randomTraces() >= 500 {
			t.Errorf("only %d of %d traces reached what the property is about: %+v", n, randomTraces(), reached)
		}
	}
}

// observed is what a sweep knows of one trace so far.
type observed struct {
	*sweep
	seed  uint64
	sim   *simulation
	node  *randomNode
	met   [policy.PoolCount]time.Duration // when a threshold of the pool was last met
	began [policy.PoolCount]time.Duration // the pool's episode
	last  time.Duration                   // the last line
	idle  [policy.PoolCount]int           // consecutive lines on which a hard threshold was due, but no stop began
	blind bool                            // the usage of a pod is unknown
}

func (s *sweep) run(seed uint64, cfg config.Config) {
	rng := rand.New(rand.NewPCG(seed, 3))
	o := &observed{sweep: s, seed: seed, sim: newSimulation(cfg, Options{}), node: newRandomNode(rng)}
	var lines []trace.Line
	var stops []lineStop
	for i := range 5 + rng.IntN(26) {
		line := o.node.next()
		now := o.sim.guard.Enforced().Status(start + time.Duration(line.At))
		p := o.sim.pass(context.Background(), line)
		o.blind = slices.ContainsFunc(line.Pods, func(p trace.Pod) bool { return p.NoStats != nil })
		o.episodes(&p)
		o.held(&p)
		if p.Stop != nil {
			o.stopped(&p, &now)
			o.node.find(p.Stop.UID).gone = true
			stops = append(stops, stopAt(i, &p))
		}
		o.overdue(&p)
		lines = append(lines, line)
	}
	o.shuffle(rng, cfg, lines, stops)
}

// shuffle checks P3.
func (o *observed) shuffle(rng *rand.Rand, cfg config.Config, lines []trace.Line, want []lineStop) {
	if o.seed%4 != 0 { // the policy has this property for 10,000 decisions
		return
	}
	for i := range lines {
		pods := slices.Clone(lines[i].Pods)
		rng.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		lines[i].Pods = pods
	}
	if got := play(cfg, Options{}, lines); !slices.Equal(got, want) {
		o.breaks("P3", o.seed, "in another order, %v are stopped instead of %v", got, want)
	}
	if len(want) > 0 {
		o.count(&o.shuffled)
	}
}

// episodes follows the pools' episodes.
func (o *observed) episodes(p *api.Pass) {
	for _, m := range o.sim.guard.Snapshot().Pressure.Met {
		pool := policy.SingleFS.Pool(m.Signal)
		if o.met[pool] == 0 || o.met[pool] < o.last && time.Duration(p.At)-o.met[pool] >= 30*time.Second {
			o.began[pool] = time.Duration(p.At)
		}
		o.met[pool] = time.Duration(p.At)
	}
	o.last = time.Duration(p.At)
}

// held checks P6 for each pool, and counts what holds stops back.
func (o *observed) held(p *api.Pass) {
	for _, h := range o.sim.guard.Holds() {
		if h.Reason == api.HeldBackoff && strings.HasSuffix(h.Threshold, ":hard") {
			o.breaks("P6", o.seed, "at %v, %s waits for a back-off", time.Duration(p.At)-start, h.Threshold)
		}
	}
	switch p.Held {
	case api.HeldBackoff:
		o.count(&o.backoffs)
	case api.HeldBreaker:
		o.count(&o.breakers)
	case api.HeldBudget:
		o.count(&o.outOfBudget)
	}
	if p.Need != nil && !p.Need.Attainable {
		o.count(&o.unattainable)
	}
}

// stopped checks P1, P2, P5 and P9 for the stop of a pass. before is the budget before it.
func (o *observed) stopped(p *api.Pass, before *policy.BudgetView) {
	o.count(&o.stops)
	culprit := strings.Contains(p.Stop.Reason, "fills it")
	if culprit {
		o.count(&o.culprits)
	}
	if !p.Need.Attainable && !culprit {
		o.breaks("P1", o.seed, "at %v, %s is stopped although relief is not attainable: %s", time.Duration(p.At)-start, p.Stop.Pod, p.Stop.Reason)
	}
	victim := rankedOf(p, p.Stop.UID)
	if !victim.Over {
		o.covered(p, culprit)
	}
	if !culprit && victim.Frees < p.Need.Helps {
		for _, r := range p.Ranked {
			if r.Excluded == "" && r.Over == victim.Over && r.Frees >= p.Need.Helps {
				o.breaks("P2", o.seed, "at %v, %s gives %d back, %s would give %d, and %d helps", time.Duration(p.At)-start, p.Stop.Pod, victim.Frees, r.Pod, r.Frees, p.Need.Helps)
			}
		}
	}
	s, _ := policy.ParseSignal(p.Stop.Signal)
	o.count(&o.ofPool[policy.SingleFS.Pool(s)])
	o.budget(p, before, culprit)
}

// covered checks P9 for the stop of a pod within its request.
func (o *observed) covered(p *api.Pass, culprit bool) {
	o.count(&o.within)
	var above int64
	for _, r := range p.Ranked {
		if r.Excluded == "" && r.Over {
			above += r.Frees
		}
	}
	if n := p.Need; culprit && above >= n.Deficit+10*n.Fill || !culprit && 2*above >= n.Deficit {
		o.breaks("P9", o.seed, "at %v, %s is stopped within its request, though those above theirs yield %d: %+v", time.Duration(p.At)-start, p.Stop.Pod, above, *n)
	}
}

func rankedOf(p *api.Pass, uid string) api.RankedView {
	for _, r := range p.Ranked {
		if r.UID == uid {
			return r
		}
	}
	return api.RankedView{}
}

// budget checks P5: a stop of a sandbox that came back takes no budget, and every other one does, unless it
// is a culprit at a hard threshold for which none is left.
func (o *observed) budget(p *api.Pass, before *policy.BudgetView, culprit bool) {
	var saved struct{ Stops []policy.Stop }
	data, err := json.Marshal(o.sim.guard.Enforced())
	if err == nil {
		err = json.Unmarshal(data, &saved)
	}
	if err != nil {
		o.breaks("P5", o.seed, "%v", err)
		return
	}
	last := saved.Stops[len(saved.Stops)-1]
	named := start + o.node.find(p.Stop.UID).named
	came, replica := false, false
	reset := o.sim.guard.Config().Backoff.Reset // a stop that took budget may be saved for longer
	for _, s := range saved.Stops[:len(saved.Stops)-1] {
		if s.Workload == last.Workload && s.Pool == last.Pool && s.At >= o.began[last.Pool] && time.Duration(p.At)-s.At < reset {
			came, replica = !s.Fruitless && (came || named > s.At), named <= s.At
		}
	}
	after := o.sim.guard.Enforced().Status(time.Duration(p.At))
	was, is := before.Hard, after.Hard
	if p.Stop.Kind != policy.Hard.String() {
		was, is = before.Soft, after.Soft
	}
	took := is.LastHour - was.LastHour
	switch {
	case came:
		if o.count(&o.cameBack); took != 0 {
			o.breaks("P5", o.seed, "at %v, %s came back, but its stop takes budget", time.Duration(p.At)-start, p.Stop.Pod)
		}
		return
	case replica:
		o.count(&o.replicas)
	}
	left := was.Left > 0 && (before.PerHour == 0 || was.LastHour < before.PerHour)
	if spare := culprit && last.Kind == policy.Hard && !left; took != 1 && !spare {
		o.breaks("P5", o.seed, "at %v, %s did not come back, but its %s stop takes %d of the budget (%+v)", time.Duration(p.At)-start, p.Stop.Pod, p.Stop.Kind, took, was)
	}
}

// overdue checks P10 for each pool. A pass that stopped a pod for another pool does not count: it stops at most one.
func (o *observed) overdue(p *api.Pass) {
	if p.Stop != nil {
		s, _ := policy.ParseSignal(p.Stop.Signal)
		o.idle[policy.SingleFS.Pool(s)] = 0
		return
	}
	var due [policy.PoolCount]bool
	for _, m := range o.sim.guard.Snapshot().Pressure.Met {
		pool := policy.SingleFS.Pool(m.Signal)
		due[pool] = due[pool] || m.Due && m.Kind == policy.Hard
	}
	held := map[policy.Pool]string{}
	for _, h := range o.sim.guard.Holds() {
		name, _, _ := strings.Cut(h.Threshold, ":")
		s, _ := policy.ParseSignal(name)
		held[policy.SingleFS.Pool(s)] = h.Reason
	}
	for pool := range policy.PoolCount {
		most := 1
		if pool.IsDisk() && o.blind {
			most = 4 // its pods are measured again three times
		}
		switch held[pool] {
		case api.HeldBudget, api.HeldBreaker, api.HeldOutside, api.HeldProtected, api.HeldUnknown, api.HeldRecovers:
			o.idle[pool] = 0
			continue
		}
		if !due[pool] {
			o.idle[pool] = 0
			continue
		}
		o.count(&o.due)
		if o.idle[pool]++; o.idle[pool] > most {
			o.breaks("P10", o.seed, "at %v, a hard threshold of %s has been due for %d passes and no stop has begun: held by %q", time.Duration(p.At)-start, pool, o.idle[pool], held[pool])
		}
	}
}

// P1: only a culprit is stopped when relief is not attainable.
func TestP1OnlyACulpritIsStoppedInVain(t *testing.T) {
	t.Parallel()
	s := sweepOf(t)
	s.report(t, "P1", s.stops, s.culprits, s.unattainable)
}

// P2: the victim is the culprit, or yields at least need / 20, or no pod in its tier does.
func TestP2TheVictimHelps(t *testing.T) {
	t.Parallel()
	s := sweepOf(t)
	s.report(t, "P2", s.stops)
}

// P3: the order of the input changes nothing.
func TestP3OrderChangesNothing(t *testing.T) {
	t.Parallel()
	s := sweepOf(t)
	s.report(t, "P3", s.shuffled)
}

// P9: a pod within its request is not stopped while pods above theirs could bring half the deficit, unless it is the culprit
// and those could not carry the pool for 10 s.
func TestP9WithinItsRequest(t *testing.T) {
	t.Parallel()
	s := sweepOf(t)
	s.report(t, "P9", s.within)
}

// P5: a sandbox that came back costs no budget; another replica of its workload does.
func TestP5CameBackIsFree(t *testing.T) {
	t.Parallel()
	s := sweepOf(t)
	s.report(t, "P5", s.cameBack, s.replicas, s.outOfBudget)
}

// P6: a hard threshold never waits for a back-off.
func TestP6HardNeverWaitsForBackoff(t *testing.T) {
	t.Parallel()
	s := sweepOf(t)
	s.report(t, "P6", s.cameBack, s.backoffs, s.ofPool[policy.PoolMemory], s.ofPool[policy.PoolPIDs], s.ofPool[policy.PoolNodeBytes])
}

// P10: while a hard threshold stays due, relief is attainable, and neither budget nor breaker holds, a stop
// begins within two passes of the last one being over.
func TestP10AStopBeginsWithinTwoPasses(t *testing.T) {
	t.Parallel()
	s := sweepOf(t)
	s.report(t, "P10", s.breakers, s.outOfBudget, s.ofPool[policy.PoolMemory], s.ofPool[policy.PoolPIDs], s.ofPool[policy.PoolNodeBytes])
	t.Logf("%d stops (by pool %v, %d within the request), %d of culprits, %d of pods that came back, %d of replicas; held: %d breaker, %d back-off, %d budget, %d unattainable; %d lines without a stop while due",
		s.stops, s.ofPool, s.within, s.culprits, s.cameBack, s.replicas, s.breakers, s.backoffs, s.outOfBudget, s.unattainable, s.due)
}

// lineStop is a stop of a trace: at which line, for which pool, of which pod.
type lineStop struct {
	line int
	pool policy.Pool
	pod  string
}

// play runs lines and returns the stops.
func play(cfg config.Config, opt Options, lines []trace.Line) (stops []lineStop) {
	sim := newSimulation(cfg, opt)
	for i, l := range lines {
		if p := sim.pass(context.Background(), l); p.Stop != nil {
			stops = append(stops, stopAt(i, &p))
		}
	}
	return stops
}

func stopAt(line int, p *api.Pass) lineStop {
	s, _ := policy.ParseSignal(p.Stop.Signal)
	return lineStop{line, policy.SingleFS.Pool(s), p.Stop.Pod}
}

// P4: noise on a signal that crosses no threshold changes no victim.
func TestP4NoiseChangesNoVictim(t *testing.T) {
	t.Parallel()
	cfgs := randomConfigs(t)
	for i := range cfgs {
		conf := cfgs[i].Eviction.Thresholds
		for _, s := range []policy.Signal{policy.MeminfoAvailable, policy.SwapAvailable, policy.ImageFSAvailable} {
			conf = append(conf, policy.Threshold{Signal: s, Value: policy.Bytes(1 << 30)})
		}
		cfgs[i].Eviction.Thresholds = conf
	}
	s := sweep{broken: map[string][]string{}}
	each(func(seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 4))
		cfg := cfgs[seed%uint64(len(cfgs))]
		sim, node := newSimulation(cfg, Options{}), newRandomNode(rng)
		signals := []policy.Signal{policy.MeminfoAvailable, policy.SwapAvailable, policy.ImageFSAvailable}
		var lines []trace.Line
		var want []lineStop
		for i := range 5 + rng.IntN(26) {
			line := node.next()
			for _, s := range signals {
				line.Signals[s] = trace.Observation{Available: trace.QuantityOf(4 << 30), Capacity: trace.QuantityOf(8 << 30)}
			}
			lines = append(lines, line)
			if p := sim.pass(context.Background(), line); p.Stop != nil {
				node.find(p.Stop.UID).gone = true
				want = append(want, stopAt(i, &p))
			}
		}
		for _, line := range lines {
			for _, s := range signals {
				line.Signals[s] = trace.Observation{Available: trace.QuantityOf(5<<29 + rng.Int64N(5<<30)), Capacity: trace.QuantityOf(8 << 30)}
			}
		}
		if got := play(cfg, Options{}, lines); fmt.Sprint(got) != fmt.Sprint(want) {
			s.breaks("P4", seed, "with noise, %v are stopped instead of %v", got, want)
		}
		for range want {
			s.count(&s.stops)
		}
	})
	s.report(t, "P4", s.stops)
}

// P8: if all growth is outside the pods and nothing else moves, three pods are the most that are stopped, and
// none when pods could not bring relief, at 10 ms between lines as well as at 1 s.
func TestP8OutsideGrowthCostsThreePodsAtMost(t *testing.T) {
	t.Parallel()
	cfg := randomConfigs(t)[0]
	cfg.Budget.Hard.Burst = 100 // only the breaker restrains
	s := sweep{broken: map[string][]string{}}
	each(func(seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 6))
		const threshold, capacity = 1 << 30, 8 << 30
		var pods []trace.Pod
		var yields int64
		for i := range 2 + rng.IntN(11) {
			used := 1<<20 + rng.Int64N(600<<20)
			yields += used
			pods = append(pods, trace.Pod{
				Name: fmt.Sprint("d/p", i), UID: fmt.Sprint("p", i), Priority: ptr(rng.Int64N(3)), MemoryRequest: trace.QuantityOf(rng.Int64N(2 * used)), MemoryUsage: trace.QuantityOf(used),
			})
		}
		step, at := 10*time.Millisecond, time.Duration(0)
		if seed%2 == 0 {
			step = time.Second
		}
		rate, available := rng.Int64N(400<<20), threshold+rng.Int64N(50<<20)
		if rng.IntN(3) == 0 {
			rate = rng.Int64N(4 << 20)
		}
		// Lines for more than a second, so that the rate is known. Then the threshold is crossed.
		lines := []trace.Line{{Pods: pods, At: 0}}
		available += rate + rate/4
		for len(lines) < 30 {
			lines[len(lines)-1].Signals = map[policy.Signal]trace.Observation{
				policy.MemoryAvailable: {Available: trace.QuantityOf(available), Capacity: trace.QuantityOf(capacity)},
			}
			d := step
			if len(lines) == 1 {
				d = 1100 * time.Millisecond
			}
			at, available = at+d, available-int64(float64(rate)*d.Seconds())
			if available < 0 {
				break
			}
			lines = append(lines, trace.Line{At: api.Duration(at)})
		}
		if lines[len(lines)-1].Signals == nil {
			lines = lines[:len(lines)-1]
		}
		stops := play(cfg, Options{}, lines)
		relief := yields >= 10*rate
		switch {
		case len(stops) > 3:
			s.breaks("P8", seed, "%v are stopped", stops)
		case !relief && len(stops) > 0:
			s.breaks("P8", seed, "%v are stopped, although all pods together yield %d, and %d/s fill it", stops, yields, rate)
		case !relief:
			s.count(&s.unattainable)
		case len(stops) == 3:
			s.count(&s.breakers)
		}
	})
	s.report(t, "P8", s.unattainable, s.breakers)
}
