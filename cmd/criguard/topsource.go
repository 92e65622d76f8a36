package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/criguard/criguard/cmd/criguard/internal/top"
	"github.com/criguard/criguard/cmd/criguard/internal/words"
	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
)

// topPasses is how many passes the live view is given: more than a screen has rows for.
const topPasses = 50

// topSource tells the live view of the service or, while none has answered yet, of the node
// itself. A service that answered once is waited for when it goes away: what a look at the node
// shows has neither its conditions nor its budget.
type topSource struct {
	options *options
	client  *guard.Client
	served  atomic.Bool // a service has answered

	// Looks are used from one goroutine each.
	state, ranked *guard.Look
	lastPass      time.Time
}

// Status implements top.Source.
func (t *topSource) Status(ctx context.Context) (guard.Status, []top.Event, error) {
	st, err := t.client.Status(ctx)
	switch {
	case err == nil:
		t.served.Store(true)
		return st, t.passes(ctx, st.LastPass), nil
	case !errors.Is(err, guard.ErrNoService) || t.served.Load():
		return st, nil, err
	}
	if t.state, err = t.look(ctx, t.state); err != nil {
		return st, nil, err
	}
	st = t.state.Status()
	st.Version = version
	return st, nil, nil
}

// Rank implements top.Source.
func (t *topSource) Rank(ctx context.Context, s policy.Signal) (guard.Ranking, error) {
	r, err := t.client.Rank(ctx, s)
	if !errors.Is(err, guard.ErrNoService) || t.served.Load() {
		return r, err
	}
	if t.ranked, err = t.look(ctx, t.ranked); err != nil {
		return r, err
	}
	return t.ranked.Rank(ctx, s)
}

// look looks at the node, again if it was looked at before.
func (t *topSource) look(ctx context.Context, l *guard.Look) (*guard.Look, error) {
	if l != nil {
		l.Refresh(ctx)
		return l, nil
	}
	cfg, err := t.options.load()
	if err != nil {
		return nil, err
	}
	return guard.OpenLook(ctx, cfg)
}

// passes are what the last passes did, nil when nothing came since they were asked for, or when
// the service does not tell: they are asked for again then.
func (t *topSource) passes(ctx context.Context, last *guard.Pass) []top.Event {
	if last == nil || last.Time.Equal(t.lastPass) {
		return nil
	}
	passes, err := t.client.History(ctx, topPasses)
	if err != nil {
		return nil
	}
	t.lastPass = last.Time
	events := []top.Event{}
	for i := range passes {
		for _, e := range words.Tell(&passes[i]) {
			events = append(events, top.Event{At: passes[i].Time.Local(), What: e.What, Why: e.Why})
		}
	}
	return events
}

// topBefore is how far back the trends of the live view reach when it starts.
const topBefore = 30 * time.Second

// before is what the service read before it was asked for the first time; nothing without one.
func (t *topSource) before(ctx context.Context) []top.Reading {
	if !t.served.Load() {
		return nil
	}
	l, err := t.client.Samples(ctx, topBefore)
	if err != nil {
		return nil // the trends are known a little later
	}
	now := time.Now()
	var all []top.Reading
	for s, column := range l.Available {
		for i, v := range column[:min(len(column), len(l.At))] {
			if v >= 0 {
				all = append(all, top.Reading{Signal: s, At: now.Add(l.At[i] - l.Now), Available: v})
			}
		}
	}
	return all
}

func (t *topSource) close() {
	for _, l := range []*guard.Look{t.state, t.ranked} {
		if l != nil {
			l.Close()
		}
	}
}
