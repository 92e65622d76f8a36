package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/criguard/criguard/cmd/criguard/internal/top"
	"github.com/criguard/criguard/cmd/criguard/internal/words"
	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/policy"
)

// topPasses is the number of passes that the live view gets: more than a screen has rows.
const topPasses = 50

// topSource reads from the service or, until one has answered, from the node directly. Once a
// service has answered, topSource waits for it to come back: a direct look has no conditions and no
// budget. It never reads from a service of another runtime than that of --endpoint.
type topSource struct {
	options *options
	client  *control.Client
	served  atomic.Bool // a service has answered
	other   atomic.Bool // that of another runtime has

	// A Look is not safe for concurrent use, so Status and Rank have one each.
	state, ranked *guard.Look
	lastPass      time.Time
}

// Status implements top.Source.
func (t *topSource) Status(ctx context.Context) (api.Status, []top.Event, error) {
	st, err := t.client.Status(ctx)
	if e := t.options.endpoint; err == nil && e != "" && !t.served.Load() {
		t.other.Store(st.Runtime.Endpoint != "" && !sameSocket(e, st.Runtime.Endpoint)) // "" = it has found none yet
	}
	switch {
	case t.other.Load():
	case err == nil:
		t.served.Store(true)
		return st, t.passes(ctx, st.LastPass), nil
	case !errors.Is(err, control.ErrNoService) || t.served.Load():
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
func (t *topSource) Rank(ctx context.Context, s policy.Signal) (api.Ranking, error) {
	var r api.Ranking
	err := control.ErrNoService
	if !t.other.Load() {
		r, err = t.client.Rank(ctx, s)
	}
	if !errors.Is(err, control.ErrNoService) || t.served.Load() {
		return r, err
	}
	if t.ranked, err = t.look(ctx, t.ranked); err != nil {
		return r, err
	}
	return t.ranked.Rank(ctx, s)
}

// look refreshes l, or opens a direct look at the node if l is nil.
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

// passes returns what the last passes did. It returns nil if there is no new pass or the request
// failed; the next call asks again.
func (t *topSource) passes(ctx context.Context, last *api.Pass) []top.Event {
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
		for _, e := range words.Events(&passes[i]) {
			events = append(events, top.Event{At: passes[i].Time.Local(), What: e.What, Why: e.Why})
		}
	}
	return events
}

// topBefore is how far back the trends of the live view reach when it starts: those of disks need minutes.
const topBefore = 5 * time.Minute

// before returns the service's readings from before the first request, or nil without a service.
func (t *topSource) before(ctx context.Context) []top.Reading {
	if !t.served.Load() {
		return nil
	}
	l, err := t.client.Samples(ctx, topBefore)
	if err != nil {
		return nil // the trends become known a little later
	}
	now := time.Now()
	var all []top.Reading
	for s, column := range l.Available {
		for i, v := range column[:min(len(column), len(l.At))] {
			if v >= 0 {
				all = append(all, top.Reading{Signal: s, At: now.Add(time.Duration(l.At[i] - l.Now)), Available: v})
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
