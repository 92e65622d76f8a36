package reclaim

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Options are what a collector needs beside the runtime.
type Options struct {
	Ledger *Ledger         // nil = one that is kept in memory
	Logs   Logs            // "" = none
	Clock  func() Moment   // both clocks, read together; must be given
	Memory MemoryReclaimer // nil = the memory step reclaims nothing
}

// Collector frees what nobody needs. Between its runs it remembers what the
// rules ask for: when things were first seen, what was read of air-gap files, and
// what would not go. It may be used from several goroutines: runs wait for
// each other, but for those that reclaim memory and nothing else.
type Collector struct {
	runtime Runtime
	ledger  *Ledger
	logs    Logs
	clock   func() Moment
	memory  MemoryReclaimer

	turn   chan struct{} // holds one element while a run goes on that may remove something
	seen   sightings
	airgap airGap
	uses   useCache

	mu    sync.Mutex
	stuck map[string]time.Duration // by id: since boot, when its removal did not work
	last  *inventory               // the newest, unless something was removed since; read only
	at    time.Duration            // since boot, when it was listed
}

// recentFor is how long an inventory serves to see that there is nothing to remove.
const recentFor = time.Second

// NewCollector returns a collector for a runtime.
func NewCollector(rt Runtime, o Options) *Collector {
	if o.Ledger == nil {
		o.Ledger = newLedger("")
	}
	return &Collector{
		runtime: rt, ledger: o.Ledger, logs: o.Logs, clock: o.Clock, memory: o.Memory,
		turn: make(chan struct{}, 1), stuck: map[string]time.Duration{},
	}
}

// Plan says what to free.
type Plan struct {
	Steps []Step // they run in the order of Steps(), each once
	// Target measures how much is still missing. It is asked before the first
	// removal and after each one, and nothing is removed once it is met. Without it,
	// all that may go goes.
	Target Target
	// Expire removes images past max_age whether or not the target is met.
	Expire     bool
	DryRun     bool // do all but the removals
	Containers ContainerPolicy
	Images     ImagePolicy
	Memory     []MemoryTarget
	// Progress is told of each item as it goes; nil = nobody is. It must not wait.
	Progress func(Item)
	// RuntimeSince tells when the runtime began to answer, in boot time: for a while it
	// may not list all it has. It is asked after each listing. Nil: it always did.
	RuntimeSince func() time.Duration
}

// Collect runs the steps of a plan until its target is met, and reports each
// step that ran: none when the target is met from the start.
func (c *Collector) Collect(ctx context.Context, p Plan) []Report {
	if !slices.Equal(p.Steps, []Step{StepMemory}) {
		select {
		case c.turn <- struct{}{}:
			defer func() { c.forget(); <-c.turn }()
		case <-ctx.Done():
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
		if ctx.Err() != nil || g.err != nil {
			break
		}
	}
	return reports
}

// Notice lists what there is and takes it into the ledger and the sightings,
// without removing anything: the more often, the better the ages. It saves the
// ledger where that is due.
func (c *Collector) Notice(ctx context.Context) error {
	inv, err := c.inventory(ctx)
	if err != nil {
		return err
	}
	if _, _, err := c.imageUse(ctx, inv); err != nil {
		return err
	}
	return c.ledger.SaveDue(c.clock().Boot)
}

// inventory lists the containers and sandboxes. Sandboxes come second, so that
// a container's is among them.
func (c *Collector) inventory(ctx context.Context) (inventory, error) {
	var inv inventory
	var err error
	if inv.Containers, err = c.runtime.Containers(ctx); err != nil {
		return inventory{}, err
	}
	if inv.Sandboxes, err = c.runtime.Sandboxes(ctx); err != nil {
		return inventory{}, err
	}
	now := c.clock()
	c.seen.see(inv, now)
	c.mu.Lock()
	c.last, c.at = &inv, now.Boot
	c.mu.Unlock()
	return inv, nil
}

// recent is what was listed a moment ago, or else a new inventory. What is to be removed is
// chosen from it, and looked at once more right before it goes: on most nodes there is
// nothing, and the steps of a run need not list a hundred pods each.
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

// forget drops the newest inventory: something is about to be removed, or nobody asks for it
// any more.
func (c *Collector) forget() {
	c.mu.Lock()
	c.last = nil
	c.mu.Unlock()
}
