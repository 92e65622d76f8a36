package reclaim

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/criguard/criguard/cri"
)

// Options are the inputs of a collector besides the runtime.
type Options struct {
	Ledger *Ledger         // nil = one in memory
	Logs   Logs            // "" = no log directory
	Clock  func() Moment   // reads both clocks at once; required
	Memory MemoryReclaimer // nil = the memory step reclaims nothing
}

// Collector removes what is no longer needed. Between runs it remembers first sightings, the content of
// air-gap files and failed removals, which the rules depend on. It is safe for concurrent use: runs
// wait for each other, except dry runs and those that only reclaim memory.
type Collector struct {
	runtime Runtime
	ledger  *Ledger
	logs    Logs
	clock   func() Moment
	memory  MemoryReclaimer

	turns  turns // of runs that may remove something
	seen   sightings
	airgap airGap
	uses   useCache
	files  worker // for the log directory

	mu    sync.Mutex
	stuck map[string]time.Duration // by id: since boot, when its removal failed
	// waited is by sandbox: since boot, when a long wait for its network plugin was in vain. Short waits do not count: they would
	// put off the long one for ever.
	waited map[string]time.Duration
	// logsLeft are the logs of removed containers that may still be there, by container.
	logsLeft map[string]cri.ContainerDetail
	last     *inventory    // the newest, unless something was removed since; read only
	at       time.Duration // since boot, when it was listed
}

// recentFor is how long an inventory is good enough to see that there is nothing to remove.
const recentFor = time.Second

// NewCollector returns a collector for a runtime.
func NewCollector(rt Runtime, o Options) *Collector {
	if o.Ledger == nil {
		o.Ledger = newLedger("")
	}
	return &Collector{
		runtime: rt, ledger: o.Ledger, logs: o.Logs, clock: o.Clock, memory: o.Memory,
		stuck: map[string]time.Duration{}, waited: map[string]time.Duration{}, logsLeft: map[string]cri.ContainerDetail{}, uses: useCache{asks: make(chan struct{}, 1)},
	}
}

// Plan describes what to free.
type Plan struct {
	Steps []Step // they run in the order of Steps(), each once
	// Target measures how much is still missing, before the first removal and after each one. Nothing
	// more is removed once it is met. Without a target, a run removes everything eligible.
	Target Target
	// Expire also removes images past max_age when the target is met.
	Expire     bool
	DryRun     bool // do everything except the removals
	Containers ContainerPolicy
	// Ended are sandboxes that were stopped. Their dead containers are removed as those of a finished pod are, without the wait
	// until it counts as one. The time since boot is when the stop began: a runtime may still be at it.
	Ended  map[string]time.Duration
	Images ImagePolicy
	Memory []MemoryTarget
	// Progress receives each item as it is removed; it must not block. nil = no calls.
	Progress func(Item)
	// Enough, once closed, ends the wait for other runs and prevents further removals. The removal in
	// flight continues: interrupting it would leave orphaned data.
	Enough <-chan struct{}
	// Orderly lets the removal of an image finish when the context ends meanwhile: interrupting it would leave orphaned data.
	Orderly bool
	// Turn is the turn for the run, nil = Collect asks for one.
	Turn *Turn
	// RuntimeSince returns when the runtime began to answer, in boot time: for a while after that, its
	// listing may be incomplete. It is called after each listing. nil = always.
	RuntimeSince func() time.Duration
}

// NeedsTurn reports whether the run has to wait for other runs.
func (p *Plan) NeedsTurn() bool { return !p.DryRun && !slices.Equal(p.Steps, []Step{StepMemory}) }

// Ask asks for the turn of a run before it begins, for its [Plan]. If the run does not begin, the caller has to leave the queue.
func (c *Collector) Ask() *Turn { return c.turns.ask() }

// Collect runs the steps of a plan until its target is met. It returns a report of each step that ran:
// none if the target is met from the start.
func (c *Collector) Collect(ctx context.Context, p Plan) []Report {
	if !p.NeedsTurn() {
		p.Turn.Leave()
	} else {
		turn := p.Turn
		if turn == nil {
			turn = c.Ask()
		}
		defer turn.Leave()
		select {
		case <-turn.comes:
			defer c.forget()
		case <-ctx.Done():
			return nil
		case <-p.Enough:
			return nil
		}
	}
	g := gauge{target: p.Target, dryRun: p.DryRun}
	first := g.measure(ctx)
	pretended := map[string]bool{}
	var reports []Report
	steps := Steps()
	if p.Containers.Finished && p.Target != nil {
		steps = append(steps, StepContainers)
	}
	for i, step := range steps {
		expires := step == StepImages && p.Expire && p.Images.MaxAge > 0
		if !slices.Contains(p.Steps, step) || g.met() && !expires {
			continue
		}
		last := i == len(Steps())
		j := &job{Collector: c, plan: p, gauge: &g, pretended: pretended, replaced: last, report: Report{Step: step, DryRun: p.DryRun}}
		if r := j.run(ctx, first); !last || len(r.Removed)+len(r.Errors) > 0 {
			reports = append(reports, r)
		}
		if ctx.Err() != nil || g.err != nil || p.isEnough() {
			break
		}
	}
	return reports
}

func (p *Plan) isEnough() bool {
	select {
	case <-p.Enough:
		return true
	default:
		return false
	}
}

// See records a listing that was just made in the sightings, without removing anything.
func (c *Collector) See(all cri.Listing) { c.note(inventory(all)) }

// Notice records a listing that was just made in the sightings, and the images in the ledger, without
// removing anything. Frequent calls make the ages more accurate. It does not save the ledger.
func (c *Collector) Notice(ctx context.Context, all cri.Listing) error {
	inv := inventory(all)
	c.note(inv)
	_, _, err := c.imageUse(ctx, inv)
	return err
}

// inventory lists the containers and sandboxes. It lists the sandboxes second, so that each container's
// sandbox is included.
func (c *Collector) inventory(ctx context.Context) (inventory, error) {
	var inv inventory
	var err error
	if inv.Containers, err = c.runtime.Containers(ctx); err != nil {
		return inventory{}, err
	}
	if inv.Sandboxes, err = c.runtime.Sandboxes(ctx); err != nil {
		return inventory{}, err
	}
	c.note(inv)
	return inv, nil
}

// note records a listing that was just made.
func (c *Collector) note(inv inventory) {
	now := c.clock()
	c.seen.see(inv, now)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.at = &inv, now.Boot
}

// recent returns the last inventory if it is new enough, else a new one. The steps choose from it and
// check each item again right before its removal: on most nodes there is nothing to remove, so not
// every step should list a hundred pods.
func (c *Collector) recent(ctx context.Context) (inventory, error) {
	now := c.clock().Boot
	c.mu.Lock()
	if c.last != nil && now-c.at < recentFor {
		defer c.mu.Unlock()
		return *c.last, nil
	}
	c.mu.Unlock()
	return c.inventory(ctx)
}

// forget drops the newest inventory: something is about to be removed, or the run is over.
func (c *Collector) forget() {
	c.mu.Lock()
	c.last = nil
	c.mu.Unlock()
}
