package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/policy"
)

// eventsOf returns the events of a pass, encoded and decoded again.
func eventsOf(t *testing.T, p *api.Pass, before policy.Conditions) (events []Payload) {
	t.Helper()
	for _, e := range Payloads(p, before, config.ModeEnforce) {
		var again Payload
		dec := json.NewDecoder(bytes.NewReader(e.Encode()))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&again); err != nil {
			t.Fatal(err)
		}
		events = append(events, again)
	}
	return events
}

func TestPayloads(t *testing.T) {
	p := &api.Pass{
		ID: 7, Time: time.Unix(1, 0), Conditions: policy.ConditionsOf(policy.MemoryPressure), Alarm: "stops do not help",
		Met:     []api.MetView{{Threshold: "memory.available:hard", Signal: policy.MemoryAvailable}},
		Settled: []api.StopView{{Pod: "d/a", Result: &api.StopResult{Emptied: true}}},
		Stop:    &api.StopView{Pod: "d/b"}, // begins: not an event
	}
	got := eventsOf(t, p, policy.ConditionsOf(policy.DiskPressure))
	var kinds []string
	for _, e := range got {
		kinds = append(kinds, string(e.Event))
		if e.APIVersion != api.APIVersion || e.Pass != 7 || e.Mode != "enforce" || e.Node == "" || !e.Time.Equal(p.Time) {
			t.Errorf("event %+v", e)
		}
	}
	if want := "condition condition stop alarm"; strings.Join(kinds, " ") != want {
		t.Fatalf("events %v, want %s", kinds, want)
	}
	if c := got[0].Condition; c.Name != "MemoryPressure" || !c.Active || len(c.Met) != 1 {
		t.Errorf("condition %+v", c)
	}
	if c := got[1].Condition; c.Name != "DiskPressure" || c.Active {
		t.Errorf("condition %+v", c)
	}
	if got[2].Stop.Pod != "d/a" || !got[2].Stop.Result.Emptied || got[3].Alarm.Reason != "stops do not help" {
		t.Errorf("events %+v", got)
	}
	p = &api.Pass{Stop: &api.StopView{Pod: "d/b", DryRun: true}}
	if got := eventsOf(t, p, 0); len(got) != 1 || got[0].Stop.Pod != "d/b" || !got[0].Stop.DryRun {
		t.Errorf("observe mode: %+v", got)
	}
}

// An event fits into a pipe, however long its stop's errors are.
func TestPayloadFits(t *testing.T) {
	p := &api.Pass{Settled: []api.StopView{{Pod: "d/a", Result: &api.StopResult{Method: "direct", Errors: []string{strings.Repeat("x", maxInput)}}}}}
	e := Payloads(p, 0, config.ModeEnforce)[0].Encode()
	if len(e) > maxInput || !bytes.Contains(e, []byte(`"method":"direct"`)) || !bytes.Contains(e, []byte("too many")) {
		t.Errorf("%d bytes: %.300s", len(e), e)
	}
	if len(p.Settled[0].Result.Errors[0]) != maxInput {
		t.Error("the record was changed")
	}
}

// A hook learns that a condition has ended, also if that was an earlier run's: it may have acted on its beginning.
func TestDispatcherEndsConditionsOfAnEarlierRun(t *testing.T) {
	h := NewDispatcher(slog.New(slog.DiscardHandler), ignore)
	h.configs = []config.Hook{{On: []config.EventKind{config.EventCondition}, Command: []string{"/bin/waits"}}}
	h.runners = []*runner{newRunner(&program{}, &h.gate, func(queued, outcome) {})} // not started
	p := api.Pass{ID: 42, Conditions: policy.ConditionsOf(policy.PIDPressure)}
	p.End(policy.ConditionsOf(policy.MemoryPressure))
	h.Post(&p, config.ModeEnforce)
	h.Post(&api.Pass{ID: 43, Conditions: p.Conditions}, config.ModeEnforce)
	var got []string
	for _, e := range h.runners[0].queue {
		var event Payload
		if err := json.Unmarshal(e.Data, &event); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(event.Pass, " ", event.Condition.Name, " ", event.Condition.Active))
	}
	if want := "42 MemoryPressure false, 42 PIDPressure true"; strings.Join(got, ", ") != want {
		t.Errorf("events %q, want %s", got, want)
	}
}

// Hooks never block the loop: with a program that hangs forever and a full queue, a thousand passes take no
// time.
func TestDispatcherNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		dropped := 0
		count := func(event, result string, _ time.Duration) {
			if event == "alarm" && result == ResultDropped {
				dropped++
			}
		}
		h := NewDispatcher(slog.New(slog.NewTextHandler(&log, nil)), count)
		h.configs = []config.Hook{{On: []config.EventKind{config.EventAlarm}, Command: []string{"/bin/hangs"}}}
		// The runner is not started, so nothing is taken from the queue.
		h.runners = []*runner{newRunner(&program{}, &h.gate, func(queued, outcome) {})}
		begin := time.Now()
		for range 1000 {
			h.Observe(api.State{Relieving: true})
			h.Post(&api.Pass{Alarm: "stops do not help"}, config.ModeEnforce)
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("the loop waited %s", took)
		}
		if got := strings.Count(log.String(), "hook events dropped"); got != 1 {
			t.Errorf("told %d times that events are dropped, want once", got)
		}
		if dropped != 1000-queueLength {
			t.Errorf("%d events are counted as dropped, want %d", dropped, 1000-queueLength)
		}
	})
}

// No program starts while criguard relieves the node, a hard memory threshold is met, or tasks are exhausted.
func TestDispatcherGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewDispatcher(slog.New(slog.DiscardHandler), ignore)
		met := func(s policy.Signal, k policy.Kind) policy.Pressure {
			return policy.Pressure{Met: []policy.Met{{Threshold: policy.Threshold{Signal: s, Kind: k}}}}
		}
		for _, c := range []struct {
			name string
			st   api.State
			shut bool
		}{
			{"quiet", api.State{}, false},
			{"soft memory", api.State{Pressure: met(policy.MemoryAvailable, policy.Soft)}, false},
			{"hard memory", api.State{Pressure: met(policy.MemoryAvailable, policy.Hard)}, true},
			{"a hard disk threshold", api.State{Pressure: met(policy.NodeFSAvailable, policy.Hard)}, false},
			{"a stop for pressure", api.State{InFlight: 1, Relieving: true}, true},
			{"an operator's stop", api.State{InFlight: 1}, false},
			{"after it", api.State{}, false},
			{"no tasks", api.State{Pressure: policy.Pressure{Conditions: policy.ConditionsOf(policy.PIDPressure)}}, true},
		} {
			h.Observe(c.st)
			if got := !gateOpen(h); got != c.shut {
				t.Errorf("%s: shut %t", c.name, got)
			}
		}
	})
}

func ignore(string, string, time.Duration) {}

// gateOpen reports whether a program could be started now. It does not wait until a closed gate opens by its
// timeout. In a bubble, an open gate takes no time.
func gateOpen(h *Dispatcher) (open bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	return h.gate.wait(ctx, time.Now()) == nil
}

// A failure is logged with the program's output; a missing program is logged at once.
func TestDispatcherReportsFailures(t *testing.T) {
	var log bytes.Buffer
	h := NewDispatcher(slog.New(slog.NewTextHandler(&log, nil)), ignore)
	out := filepath.Join(t.TempDir(), "out")
	configs := []config.Hook{
		{On: []config.EventKind{config.EventAlarm}, Command: []string{"/bin/sh", "-c", "cat > " + out + "; echo broken >&2; exit 4"}, Timeout: time.Minute},
		{On: []config.EventKind{config.EventAlarm}, Command: []string{"/no/such/hook"}, Timeout: time.Minute},
	}
	h.Start(t.Context(), configs)
	if got := h.Check(t.Context(), configs); len(got) != 0 {
		t.Errorf("warned %q of programs that answer", got)
	}
	if !strings.Contains(log.String(), "/no/such/hook") {
		t.Errorf("not told at the start:\n%s", log.String())
	}
	h.Post(&api.Pass{ID: 3, Alarm: "stops do not help"}, config.ModeObserve)
	h.Configure(nil)
	h.Wait()
	if got := h.Failed(); len(got) != 0 {
		t.Errorf("warned of hooks that are gone: %q", got)
	}
	h.Configure(configs)
	if got := h.Failed(); len(got) != 2 || got[0] != "hook /bin/sh failed on alarm: run hook: exit status 4" || !strings.Contains(got[1], "/no/such/hook failed on alarm: start hook") {
		t.Errorf("warned %q of failed hooks", got)
	}
	h.ran(configs[0], queued{Kind: "stop"}, outcome{})
	if got := h.Failed(); len(got) != 1 {
		t.Errorf("warned %q after a success", got)
	}
	for _, want := range []string{"hook failed", "broken", "exit status 4", "start hook"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, log.String())
		}
	}
	b, err := os.ReadFile(out)
	var e Payload
	if err != nil || json.Unmarshal(b, &e) != nil || e.Pass != 3 || e.Mode != "observe" || e.Alarm.Reason != "stops do not help" {
		t.Errorf("the program was given %s (%v)", b, err)
	}
}

// The success of a hook says nothing about another one with the same program.
func TestDispatcherTellsHooksOfAProgramApart(t *testing.T) {
	var log bytes.Buffer
	h := NewDispatcher(slog.New(slog.NewTextHandler(&log, nil)), ignore)
	hook := func(event config.EventKind, argument string) config.Hook {
		return config.Hook{On: []config.EventKind{event}, Command: []string{"/bin/notify", argument}}
	}
	hooks := []config.Hook{hook(config.EventAlarm, "pager"), hook(config.EventAlarm, "log"), hook(config.EventCondition, "pager")}
	for _, c := range hooks {
		h.configs = append(h.configs, c)
		h.runners = append(h.runners, newRunner(&program{}, &h.gate, func(queued, outcome) {})) // not started
	}
	failed := outcome{Err: errors.New("exit status 4")}
	h.ran(hooks[0], queued{Kind: "alarm"}, failed)
	h.ran(hooks[1], queued{Kind: "alarm"}, outcome{})
	h.ran(hooks[2], queued{Kind: "condition"}, outcome{})
	if got, want := h.Failed(), []string{"hook /bin/notify failed on alarm: exit status 4"}; !slices.Equal(got, want) {
		t.Errorf("warned %q, want %q", got, want)
	}
	h.ran(hooks[0], queued{Kind: "alarm"}, outcome{})
	if got := h.Failed(); len(got) > 0 {
		t.Errorf("warned %q after a success", got)
	}
	for range queueLength + 2 { // only the first hook's queue is full
		h.put(0, queued{Kind: "alarm"})
		h.runners[1].queue = nil
		h.put(1, queued{Kind: "alarm"})
	}
	if n := strings.Count(log.String(), "hook events dropped"); n != 1 {
		t.Errorf("logged %d times that events are dropped, want once", n)
	}
}

// Programs that survive SIGKILL count for their command after a reload, too, even if it was without the hook in between.
func TestDispatcherCountsLeftProgramsOverReloads(t *testing.T) {
	var log bytes.Buffer
	h := NewDispatcher(slog.New(slog.NewTextHandler(&log, nil)), ignore)
	hook := func(script string, timeout time.Duration) config.Hook {
		return config.Hook{On: []config.EventKind{config.EventAlarm}, Command: []string{"/bin/sh", "-c", script}, Timeout: timeout}
	}
	h.Start(t.Context(), []config.Hook{hook("exit 0", time.Minute)})
	h.leftOf(hook("exit 0", 0).Command).Store(maxLeft) // as four runs that do not end
	h.Configure(nil)
	h.Configure([]config.Hook{hook("exit 0", time.Hour), hook("exit 4", time.Hour)})
	h.Post(&api.Pass{Alarm: "stops do not help"}, config.ModeEnforce)
	h.Configure(nil)
	h.Wait()
	for want, n := range map[string]int{`reason="start hook: 4 earlier runs survive SIGKILL"`: 1, `reason="run hook: exit status 4"`: 1, "hook failed": 2} {
		if strings.Count(log.String(), want) != n {
			t.Errorf("want %d times %s in\n%s", n, want, log.String())
		}
	}
}

// A hook that a reload leaves as it is keeps its queue: its programs run one at a time, in the order of the events.
func TestDispatcherKeepsTheQueueOverReloads(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	h := NewDispatcher(slog.New(slog.DiscardHandler), ignore)
	hook := func(script string) config.Hook {
		return config.Hook{On: []config.EventKind{config.EventAlarm}, Command: []string{"/bin/sh", "-c", script}, Timeout: time.Minute}
	}
	stays := hook("grep -o 'alarm [0-9]' >> " + out)
	h.Start(t.Context(), []config.Hook{stays, hook("exit 0")})
	h.gate.set(gateState{NoTasks: true})
	for i := range 6 {
		h.Post(&api.Pass{Alarm: fmt.Sprint("alarm ", i)}, config.ModeEnforce)
		if h.Configure([]config.Hook{hook(fmt.Sprint("exit ", i)), stays}); i == 3 {
			h.gate.set(gateState{})
		}
	}
	h.Configure(nil)
	h.Wait()
	got, err := os.ReadFile(out)
	if want := "alarm 0\nalarm 1\nalarm 2\nalarm 3\nalarm 4\nalarm 5\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
}
