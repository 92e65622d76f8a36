package guard

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/criguard/criguard/guard/hook"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
)

// Results of a hook, as a label.
const (
	hookOK      = "ok"
	hookFailed  = "failed"
	hookTimeout = "timeout"
	hookDropped = "dropped"
)

// hooks hands what passes did to operators' programs. Posting never waits, and no
// program is started while the node is being relieved.
type hooks struct {
	log     *slog.Logger
	metrics *Metrics
	gate    hook.Gate

	mu         sync.Mutex
	ctx        context.Context //nolint:containedctx // of the programs: hooks come and go with the configuration
	configs    []HookConfig
	runners    []*hook.Runner // beside configs
	running    sync.WaitGroup
	conditions policy.Conditions // of the last pass
	told       map[string]bool   // programs whose full queue was told
}

func newHooks(log *slog.Logger, m *Metrics) *hooks {
	return &hooks{log: log, metrics: m, told: map[string]bool{}}
}

// start puts the first hooks in force. Their programs end with ctx.
func (h *hooks) start(ctx context.Context, configs []HookConfig) {
	h.mu.Lock()
	h.ctx = ctx
	h.mu.Unlock()
	h.configure(configs)
}

// configure puts other hooks in force. What is queued for the old ones is run
// still.
func (h *hooks) configure(configs []HookConfig) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if reflect.DeepEqual(configs, h.configs) {
		return
	}
	for _, r := range h.runners {
		r.Close()
	}
	h.configs, h.runners = configs, nil
	for _, c := range configs {
		if st, err := os.Stat(c.Command[0]); err != nil || !st.Mode().IsRegular() || st.Mode()&0o111 == 0 {
			h.log.Warn("the program of a hook is not there, or cannot be run", systemd.EventKey, systemd.EventHook,
				"action", "hook", "command", c.Command[0], "reason", programFault(err))
		}
		r := hook.NewRunner(hook.Program{Command: c.Command, Timeout: c.Timeout}, &h.gate, func(e hook.Event, res hook.Result) { h.ran(c, e, res) })
		h.runners = append(h.runners, r)
		ctx := h.ctx
		h.running.Go(func() { r.Run(ctx) })
	}
}

func programFault(err error) string {
	if err != nil {
		return err.Error()
	}
	return "no executable file"
}

// wait waits for what runs, after its context has ended.
func (h *hooks) wait() { h.running.Wait() }

// look sees how the node is, after each pass.
func (h *hooks) look(g *Guard) {
	s := hook.State{Busy: len(g.flights) > 0, NoTasks: g.pressure.Conditions.Has(policy.PIDPressure)}
	for _, m := range g.pressure.Met {
		s.Busy = s.Busy || m.Kind == policy.Hard && m.Signal.Class() == policy.ClassMemory
	}
	h.gate.Set(s)
}

// post queues the events of a pass for the hooks that want them.
func (h *hooks) post(p *Pass, mode Mode) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.conditions
	h.conditions = p.Conditions
	if len(h.runners) == 0 {
		return
	}
	for _, e := range hookEvents(p, before, mode) {
		event := hook.Event{Kind: string(e.Event), Data: e.encode(), At: time.Now()}
		for i, c := range h.configs {
			if c.wants(e.Event) {
				h.put(i, event)
			}
		}
	}
}

func (h *hooks) put(i int, e hook.Event) {
	dropped, full := h.runners[i].Put(e)
	program := h.configs[i].Command[0]
	if !full {
		h.told[program] = false
		return
	}
	h.metrics.Hook(dropped.Kind, hookDropped, 0)
	if !h.told[program] {
		h.told[program] = true
		h.log.Warn("events of a hook are dropped", systemd.EventKey, systemd.EventHook, "action", "hook", "command", program,
			"reason", "too many wait: the oldest go")
	}
}

// ran hears of each run.
func (h *hooks) ran(c HookConfig, e hook.Event, r hook.Result) {
	if errors.Is(r.Err, context.Canceled) {
		return // the service ends, which is no fault of the program's
	}
	result := hookOK
	switch {
	case errors.Is(r.Err, hook.ErrTimeout):
		result = hookTimeout
	case r.Err != nil:
		result = hookFailed
	}
	h.metrics.Hook(e.Kind, result, r.Took)
	if r.Err != nil {
		h.log.Warn("hook failed", systemd.EventKey, systemd.EventHook, "action", "hook", "command", c.Command[0], "on", e.Kind,
			"took", r.Took, "output", r.Output, "reason", r.Err.Error())
	}
}

// wants reports whether a hook is run for a kind of event.
func (c *HookConfig) wants(kind EventKind) bool {
	for _, on := range c.On {
		if on == kind {
			return true
		}
	}
	return false
}
