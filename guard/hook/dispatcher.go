package hook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
)

// Dispatcher passes events to operators' programs. Post never blocks. While criguard relieves the
// node, no program is started, for a bounded time (see Gate).
type Dispatcher struct {
	log    *slog.Logger
	count  func(event, result string, took time.Duration)
	gate   gate
	Access *Access

	mu         sync.Mutex
	ctx        context.Context //nolint:containedctx // of the programs: hooks come and go with the configuration
	configs    []config.Hook
	runners    []*runner // parallel to configs
	running    sync.WaitGroup
	conditions policy.Conditions        // of the last pass
	warned     map[string]bool          // by hookKey: its full queue was logged
	failed     map[string]string        // by hookKey: why its last run failed
	left       map[string]*atomic.Int32 // by command: its processes that survive SIGKILL, over reloads
}

// NewDispatcher returns a Dispatcher without hooks. It reports each event's result to count.
func NewDispatcher(log *slog.Logger, count func(event, result string, took time.Duration)) *Dispatcher {
	return &Dispatcher{log: log, count: count, Access: NewAccess(nil), warned: map[string]bool{}, failed: map[string]string{}, left: map[string]*atomic.Int32{}}
}

// Start applies the first configuration. The programs end with ctx.
func (h *Dispatcher) Start(ctx context.Context, configs []config.Hook) {
	h.mu.Lock()
	h.ctx = ctx
	h.mu.Unlock()
	h.Configure(configs)
}

// Configure replaces the hooks. A hook that stays keeps its queue, so that it runs one program at a time. Events that are queued for the
// others are still delivered.
func (h *Dispatcher) Configure(configs []config.Hook) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if reflect.DeepEqual(configs, h.configs) {
		return
	}
	were, old := slices.Clone(h.configs), h.runners
	h.configs, h.runners = configs, nil
	for _, c := range configs {
		if i := slices.IndexFunc(were, func(w config.Hook) bool { return reflect.DeepEqual(w, c) }); i >= 0 {
			h.runners = append(h.runners, old[i])
			were, old = slices.Delete(were, i, i+1), slices.Delete(old, i, i+1)
			continue
		}
		r := newRunner(&program{Command: c.Command, Timeout: c.Timeout, Access: h.Access, left: h.leftOf(c.Command)}, &h.gate, func(e queued, res outcome) { h.ran(c, e, res) })
		h.runners = append(h.runners, r)
		ctx := h.ctx
		h.running.Go(func() { r.loop(ctx) })
	}
	for _, r := range old {
		r.end()
	}
}

// hookKey identifies a hook over reloads: several hooks may have the same program.
func hookKey(c *config.Hook) string { return fmt.Sprintf("%q %q", c.On, c.Command) }

// leftOf returns the counter of a command's processes that survive SIGKILL. A reload does not end them.
func (h *Dispatcher) leftOf(command []string) *atomic.Int32 {
	key := strings.Join(command, "\x00")
	if h.left[key] == nil {
		h.left[key] = new(atomic.Int32)
	}
	return h.left[key]
}

// Check checks the hooks' programs, logs those that cannot be run, and returns a warning for each one whose
// filesystem does not answer. It waits for disks and network mounts, so the loop must not call it.
func (h *Dispatcher) Check(ctx context.Context, configs []config.Hook) (warnings []string) {
	ctx, cancel := context.WithTimeout(ctx, h.Access.Timeout)
	defer cancel()
	faults := make([]error, len(configs))
	var wg sync.WaitGroup
	for i, c := range configs {
		wg.Go(func() { faults[i] = h.Access.check(ctx, c.Command[0]) })
	}
	wg.Wait()
	for i, err := range faults {
		if err == nil || errors.Is(err, context.Canceled) {
			continue
		}
		program := configs[i].Command[0]
		h.log.Warn("hook program missing or not executable", systemd.EventKey, systemd.EventHook,
			"action", "hook", "command", program, "reason", err.Error())
		if warning := "warning: hook program " + program + " does not answer"; errors.Is(err, errNoAnswer) && !slices.Contains(warnings, warning) {
			warnings = append(warnings, warning)
		}
	}
	return warnings
}

// Wait waits until all runners have ended. The context of Start must have ended.
func (h *Dispatcher) Wait() { h.running.Wait() }

// Observe updates after each pass whether programs may be started.
func (h *Dispatcher) Observe(st api.State) {
	s := gateState{Busy: st.Relieving, NoTasks: st.Pressure.Conditions.Has(policy.PIDPressure)}
	for _, m := range st.Pressure.Met {
		s.Busy = s.Busy || m.Kind == policy.Hard && m.Signal.Condition() == policy.MemoryPressure
	}
	h.gate.set(s)
}

// Post queues the events of a pass for the hooks that subscribe to them.
func (h *Dispatcher) Post(p *api.Pass, mode config.Mode) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.conditions | p.Ended()
	h.conditions = p.Conditions
	if len(h.runners) == 0 {
		return
	}
	for _, e := range Payloads(p, before, mode) {
		event := queued{Kind: string(e.Event), Data: e.Encode(), At: time.Now()}
		for i, c := range h.configs {
			if slices.Contains(c.On, e.Event) {
				h.put(i, event)
			}
		}
	}
}

func (h *Dispatcher) put(i int, e queued) {
	dropped, full := h.runners[i].put(e)
	hook := hookKey(&h.configs[i])
	if !full {
		h.warned[hook] = false
		return
	}
	h.count(dropped.Kind, ResultDropped, 0)
	if !h.warned[hook] {
		h.warned[hook] = true
		h.log.Warn("hook events dropped", systemd.EventKey, systemd.EventHook, "action", "hook", "command", h.configs[i].Command[0],
			"reason", "queue full: the oldest are dropped")
	}
}

// Failed returns a warning for each hook whose last run failed.
func (h *Dispatcher) Failed() (warnings []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.configs {
		c := &h.configs[i]
		warning := "hook " + c.Command[0] + " " + h.failed[hookKey(c)]
		if h.failed[hookKey(c)] != "" && !slices.Contains(warnings, warning) {
			warnings = append(warnings, warning)
		}
	}
	return warnings
}

// ran counts the result of a run and logs a failure.
func (h *Dispatcher) ran(c config.Hook, e queued, r outcome) {
	if errors.Is(r.Err, context.Canceled) {
		return // the service is ending, which is not the program's fault
	}
	result := ResultOK
	switch {
	case errors.Is(r.Err, errTimeout) || errors.Is(r.Err, errNoAnswer) || errors.Is(r.Err, errLeft):
		result = ResultTimeout
	case r.Err != nil:
		result = ResultFailed
	}
	h.count(e.Kind, result, r.Took)
	h.mu.Lock()
	delete(h.failed, hookKey(&c))
	if r.Err != nil {
		h.failed[hookKey(&c)] = "failed on " + e.Kind + ": " + r.Err.Error()
	}
	h.mu.Unlock()
	if r.Err != nil {
		h.log.Warn("hook failed", systemd.EventKey, systemd.EventHook, "action", "hook", "command", c.Command[0], "on", e.Kind,
			"took", r.Took, "output", r.Output, "reason", r.Err.Error())
	}
}
