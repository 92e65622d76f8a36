package guard

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/guard/hook"
	"github.com/criguard/criguard/policy"
)

// eventsOf are the events of a pass as JSON, one a line.
func eventsOf(t *testing.T, p *Pass, before policy.Conditions) (events []HookEvent) {
	t.Helper()
	for _, e := range hookEvents(p, before, ModeEnforce) {
		var again HookEvent
		dec := json.NewDecoder(bytes.NewReader(e.encode()))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&again); err != nil {
			t.Fatal(err)
		}
		events = append(events, again)
	}
	return events
}

func TestHookEvents(t *testing.T) {
	p := &Pass{
		ID: 7, Time: time.Unix(1, 0), Conditions: policy.ConditionsOf(policy.MemoryPressure), Alarm: "stops do not help",
		Met:     []MetView{{Threshold: "memory.available:hard", Signal: policy.MemoryAvailable}},
		Settled: []StopView{{Pod: "d/a", Result: &StopResult{Emptied: true}}},
		Stop:    &StopView{Pod: "d/b"}, // begins: no event of its own
	}
	got := eventsOf(t, p, policy.ConditionsOf(policy.DiskPressure))
	var kinds []string
	for _, e := range got {
		kinds = append(kinds, string(e.Event))
		if e.APIVersion != APIVersion || e.Pass != 7 || e.Mode != "enforce" || e.Node == "" || !e.Time.Equal(p.Time) {
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
	p = &Pass{Stop: &StopView{Pod: "d/b", DryRun: true}}
	if got := eventsOf(t, p, 0); len(got) != 1 || got[0].Stop.Pod != "d/b" || !got[0].Stop.DryRun {
		t.Errorf("observe mode: %+v", got)
	}
}

// An alarm names the threshold that stops did not help, not the one that is held back first.
func TestHookEventOfAnAlarm(t *testing.T) {
	g, n := newPassGuard(t, "budget.breaker = 1\n[eviction.hard]\n\"memory.available\" = \"1Gi\"\n\"nodefs.available\" = \"1Gi\"\n")
	n.set(policy.NodeFSAvailable, 0)
	if p := n.at(g, 0); p.Stop == nil {
		t.Fatalf("not stopped, held by %q", p.Held)
	}
	n.end(n.stops[0])
	n.pods[0].Protection = "test"
	n.set(policy.MemoryAvailable, testGiB/2)
	n.at(g, time.Second)
	p := n.at(g, time.Second+policy.ReliefWait(policy.NodeFSAvailable))
	if p.HeldBy != "memory.available:hard" {
		t.Fatalf("held back first: %q", p.HeldBy)
	}
	events := eventsOf(t, &p, p.Conditions)
	if e := events[len(events)-1]; e.Event != EventAlarm || e.Alarm.Threshold != "nodefs.available:hard" || !strings.HasPrefix(e.Alarm.Reason, "nodefs.available: ") {
		t.Errorf("event %+v, alarm %+v", e, e.Alarm)
	}
}

// However much a stop has to tell, its event fits into a pipe.
func TestHookEventFits(t *testing.T) {
	p := &Pass{Settled: []StopView{{Pod: "d/a", Result: &StopResult{Method: "direct", Errors: []string{strings.Repeat("x", hook.MaxInput)}}}}}
	e := hookEvents(p, 0, ModeEnforce)[0].encode()
	if len(e) > hook.MaxInput || !bytes.Contains(e, []byte(`"method":"direct"`)) || !bytes.Contains(e, []byte("too many")) {
		t.Errorf("%d bytes: %.300s", len(e), e)
	}
	if len(p.Settled[0].Result.Errors[0]) != hook.MaxInput {
		t.Error("the record was changed")
	}
}

// What hooks do never takes a moment of the loop: with one whose program hangs for
// ever, and with a queue that is full, a thousand passes take no time.
func TestHooksNeverDelayTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		m := NewMetrics("test")
		h := newHooks(slog.New(slog.NewTextHandler(&log, nil)), m)
		h.configs = []HookConfig{{On: []EventKind{EventAlarm}, Command: []string{"/bin/hangs"}}}
		// Its program never ends: nothing is taken from the queue.
		h.runners = []*hook.Runner{hook.NewRunner(hook.Program{}, &h.gate, func(hook.Event, hook.Result) {})}
		g, n := newPassGuard(t, softAndHard)
		begin := time.Now()
		for i := range 1000 {
			p := n.at(g, time.Duration(i)*time.Second)
			p.Alarm = "stops do not help"
			h.look(g)
			h.post(&p, ModeEnforce)
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("the loop waited %s", took)
		}
		if got := strings.Count(log.String(), "events of a hook are dropped"); got != 1 {
			t.Errorf("told %d times that events are dropped, want once", got)
		}
		if got := counterOf(t, m, "criguard_hook_events_total", "alarm", "dropped"); got != 1000-hook.QueueLength {
			t.Errorf("%v events are counted as dropped, want %d", got, 1000-hook.QueueLength)
		}
	})
}

// counterOf is the value of a counter of those labels, in their alphabetical order.
func counterOf(t *testing.T, m *Metrics, name string, labels ...string) float64 {
	t.Helper()
	families, err := m.own.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			var got []string
			for _, l := range metric.GetLabel() {
				got = append(got, l.GetValue())
			}
			if f.GetName() == name && strings.Join(got, " ") == strings.Join(labels, " ") {
				return metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	t.Fatalf("no metric %s %v", name, labels)
	return 0
}

// Nothing is started while a stop is under way or a hard threshold of memory is
// met, nor without tasks.
func TestHooksGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, n := newPassGuard(t, softAndHard)
		h := newHooks(slog.New(slog.DiscardHandler), NewMetrics("test"))
		for i, c := range []struct {
			name string
			do   func()
			shut bool
		}{
			{"quiet", func() {}, false},
			{"soft memory", func() { n.set(policy.MemoryAvailable, testGiB+1) }, false},
			{"hard memory", func() { n.set(policy.MemoryAvailable, testGiB/2) }, true},
			{"a stop under way", func() { n.set(policy.MemoryAvailable, 8*testGiB) }, true},
			{"after it", func() { n.end(n.stops[0]) }, false},
			{"no tasks", func() {
				n.obs[policy.PIDAvailable] = policy.Observation{Available: 1, Capacity: 1000, Status: policy.OK}
				n.pods = nil
			}, true},
		} {
			c.do()
			n.at(g, time.Duration(i)*100*time.Millisecond)
			h.look(g)
			if got := !gateOpen(h); got != c.shut {
				t.Errorf("%s: shut %t", c.name, got)
			}
		}
	})
}

// gateOpen reports whether a program could be started now. Of a gate that is shut, it
// does not wait for the end of its patience. In a bubble, one that is open takes no time.
func gateOpen(h *hooks) (open bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	return h.gate.Wait(ctx, time.Now()) == nil
}

// A failure is told with what the program wrote; a program that is not there is told
// at once.
func TestHooksTellFailures(t *testing.T) {
	var log bytes.Buffer
	h := newHooks(slog.New(slog.NewTextHandler(&log, nil)), NewMetrics("test"))
	out := filepath.Join(t.TempDir(), "out")
	h.start(t.Context(), []HookConfig{
		{On: []EventKind{EventAlarm}, Command: []string{"/bin/sh", "-c", "cat > " + out + "; echo broken >&2; exit 4"}, Timeout: time.Minute},
		{On: []EventKind{EventAlarm}, Command: []string{"/no/such/hook"}, Timeout: time.Minute},
	})
	if !strings.Contains(log.String(), "/no/such/hook") {
		t.Errorf("not told at the start:\n%s", log.String())
	}
	h.post(&Pass{ID: 3, Alarm: "stops do not help"}, ModeObserve)
	h.configure(nil)
	h.wait()
	for _, want := range []string{"hook failed", "broken", "exit status 4", "start hook"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, log.String())
		}
	}
	b, err := os.ReadFile(out)
	var e HookEvent
	if err != nil || json.Unmarshal(b, &e) != nil || e.Pass != 3 || e.Mode != "observe" || e.Alarm.Reason != "stops do not help" {
		t.Errorf("the program was given %s (%v)", b, err)
	}
}
