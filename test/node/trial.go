package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/criguard/criguard/test/node/scenario"
)

// trial is one scenario on one profile, with its result.
type trial struct {
	scenario scenario.Scenario
	profile  scenario.Profile
	order    scenario.Order // the order, except for the names

	tries    []scenario.Try
	said     []string // what broke, and what criguard did
	failures []string
	wrong    bool // an innocent pod was stopped
	journal  string
	took     time.Duration

	first string // why it failed the first time, with the journal; "": it did not run again
}

func (t *trial) name() string { return t.scenario.Name + "/" + t.profile.Name }

// trialsOf returns every scenario on each of its profiles, as selected by want.
func trialsOf(scenarios []scenario.Scenario, want func(name string) bool) []*trial {
	var trials []*trial
	for _, s := range scenarios {
		for _, p := range s.Profiles {
			if t := (&trial{scenario: s, profile: p}); want(t.name()) {
				trials = append(trials, t)
			}
		}
	}
	return trials
}

// run thaws a machine and runs the scenario on it.
func (t *trial) run(ctx context.Context, l *labs) {
	f, err := l.get(ctx, t.profile)
	if err != nil {
		t.failures = []string{err.Error()}
		return
	}
	begin := time.Now()
	if err := t.on(ctx, l, f); err != nil {
		t.failures = append(t.failures, err.Error())
	}
	t.took = time.Since(begin)
}

// runAgain repeats a failed trial without another machine next to it: two machines that share
// emulated CPUs may be too slow for a scenario's timeouts. A wrong stop does not depend on timing
// and stays a failure.
func (t *trial) runAgain(ctx context.Context, l *labs) {
	t.first = "  " + strings.Join(t.failures, "\n  ") + "\n" + t.journal
	t.said, t.failures, t.journal, t.tries = nil, nil, "", nil
	t.run(ctx, l)
}

// verdict is "ok", "FLAKY" if it failed and then passed, or "FAILED".
func (t *trial) verdict() string {
	switch {
	case len(t.failures) > 0:
		return "FAILED"
	case t.first != "":
		return "FLAKY"
	default:
		return "ok"
	}
}

func (t *trial) on(ctx context.Context, l *labs, f *frozen) error {
	dir := filepath.Join(l.dir, strings.ReplaceAll(t.name(), "/", "-"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	m, err := startMachine(ctx, dir, t.profile, l.image, f.root, l.payload.disk, f.state)
	if err != nil {
		return err
	}
	order := t.order
	order.Profile, order.Scenario = t.profile, t.scenario.Name
	err = m.order(order)
	if err == nil {
		var done scenario.Event
		done, err = m.await(ctx, scenario.Done, t.scenario.Bound()+t.order.Length, func(e scenario.Event) {
			if e.Kind == scenario.Said {
				t.said = append(t.said, e.Text)
			}
			if e.Try != nil {
				t.tries = append(t.tries, *e.Try)
			}
		})
		t.failures, t.wrong, t.journal = done.Failures, done.Wrong, done.Journal
		if err != nil {
			t.journal = m.logTail().Error()
		}
	}
	return errors.Join(err, m.end())
}
