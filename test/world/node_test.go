package world

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/test/node/scenario"
)

// nodeScenarios are the scenarios of test/node that the world plays. The others need what only a machine has: systemd, packages, a
// kubelet, the clock on the wall.
var nodeScenarios = []string{
	"leak-fast", "leak-slow", "leak-burstable", "leak-twenty", "leak-priority", "leak-again", "leak-outside", "leak-outside-slow",
	"leak-beside-kernel", "zram", "zram-idle", "soft-polite", "soft-stubborn", "images", "layer", "layer-full", "inodes", "fork-bomb", "io-stall",
	"runtime-killed", "runtime-hangs", "runtime-restarts", "runtime-missing", "killed-mid-stop", "reload", "drain", "pods-110",
}

// The scripts of the virtual nodes' scenarios, with their configurations, pods and expectations, hold in the world. The order of
// the victims is that in which a script awaits their stops. leak-outside-slow and drain only bound how many and which pods are
// stopped, so that their order is free. A script for one cgroup version is played on the other, too.
func TestNodeScenarios(t *testing.T) {
	for _, name := range nodeScenarios {
		s, ok := scenario.Find(name)
		if !ok {
			t.Errorf("test/node has no scenario %q", name)
		}
		played := map[int]bool{} // by cgroup version
		for _, p := range append(s.Profiles, scenario.V1, scenario.V2) {
			if played[p.Cgroup] && (!many() || !slices.Contains(s.Profiles, p)) {
				continue
			}
			played[p.Cgroup] = true
			t.Run(name+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				if story, failures := playScenario(t, newNodeMachine, name, p); len(failures) > 0 {
					t.Errorf("%s:\n%s", strings.Join(failures, "\n"), story)
				}
			})
		}
	}
}

// A script fails in the world if its pod does nothing, or if another pod does that.
func TestNodeScenarioFails(t *testing.T) {
	for want, begin := range map[string]func(m *nodeMachine, p *pod, do func(*pod)){
		"no stop of default/leaky for [memory.available] after": func(*nodeMachine, *pod, func(*pod)) {},
		`stopped [] and ["besteffort"], want ["leaky"] in this order, and []`: func(m *nodeMachine, p *pod, do func(*pod)) {
			if p.spec.Name == "leaky" {
				p = m.world.pods[2]
			}
			do(p)
		},
	} {
		machine := func(t *testing.T, p scenario.Profile) *nodeMachine {
			m := newNodeMachine(t, p)
			m.begin = begin
			return m
		}
		_, failures := playScenario(t, machine, "leak-slow", scenario.V2)
		if !strings.Contains(strings.Join(failures, "\n"), want) {
			t.Errorf("failed with %q, want %q", failures, want)
		}
	}
}

// playScenario runs a scenario of a virtual node in a world, and returns why it failed.
func playScenario(t *testing.T, machine func(*testing.T, scenario.Profile) *nodeMachine, name string, p scenario.Profile) (story string, failures []string) {
	t.Helper()
	tries := 5
	if many() {
		tries = 20
	}
	var stopped, awaited, others []string
	story, wrong := play(t, func(t *testing.T) *World {
		m := machine(t, p)
		w := m.world
		node := scenario.NewNodeOn(m, m.client, func(e scenario.Event) { t.Log(e.Text) })
		w.Start()
		w.expect()
		w.Run(137 * time.Microsecond) // so that the script and the service seldom act at the same time
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			failures = node.Carry(scenario.Order{Profile: p}).Failures
			time.Sleep(10 * time.Second)
			failures = node.Carry(scenario.Order{Profile: p, Scenario: name, Tries: tries}).Failures
		}()
		for running := true; running && !w.out; {
			w.Run(longStep)
			select {
			case <-ended:
				running = false
			default:
			}
		}
		close(m.over)
		<-ended
		for _, p := range w.kills {
			stopped = append(stopped, p.spec.Name)
		}
		awaited, others = node.Victims()
		return w
	})
	t.Logf("stopped %q", stopped)
	if err := compareVictims(stopped, awaited, others); err != nil {
		failures = append(failures, err.Error())
	}
	return story, append(failures, wrong...)
}

// compareVictims compares the stopped pods with those whose stop a script awaits, in this order, and others in any order.
func compareVictims(stopped, awaited, others []string) error {
	isAwaited := func(name string) bool { return slices.Contains(awaited, name) }
	inOrder := slices.DeleteFunc(slices.Clone(stopped), func(name string) bool { return !isAwaited(name) })
	rest := slices.DeleteFunc(slices.Clone(stopped), isAwaited)
	slices.Sort(rest)
	slices.Sort(others)
	if !slices.Equal(inOrder, awaited) || !slices.Equal(rest, others) {
		return fmt.Errorf("stopped %q and %q, want %q in this order, and %q", inOrder, rest, awaited, others)
	}
	return nil
}
