package client

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
)

// How often the client sends something.
const (
	stateEvery   = time.Minute            // while nothing changes
	failedEvery  = 5 * time.Second        // after a failure, and while the node is alone
	pendingEvery = 500 * time.Millisecond // while the agent asks the fleet
	deniedEvery  = 30 * time.Second       // after a denial at most, because the agent may learn more meanwhile
)

// maxPending is how long the agent may ask the fleet: several round trips of 5 s each.
const maxPending = time.Minute

var errPending = fmt.Errorf("no decision for %s", maxPending)

// ask is the body of a request.
type ask struct {
	Kind     string `json:"kind"`
	Workload string `json:"workload"`
}

// state is the body with which the client reports the node's state.
type state struct {
	Wants   []policy.Pool `json:"wants"`
	Digest  string        `json:"digest"`
	Version string        `json:"version"`
	Soft    soft          `json:"soft"`
}

// soft is the node's own budget of soft stops.
type soft struct {
	Burst int          `json:"burst"`
	Every api.Duration `json:"every"`
}

// Run talks to the agent until ctx ends. Permits stay with the agent after it.
func (c *Client) Run(ctx context.Context) {
	defer c.save()
	for ctx.Err() == nil {
		job, wait := c.next()
		c.save()
		if job != nil {
			job(ctx)
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-c.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// next returns the next round trip, or for how long there is none.
func (c *Client) next() (job func(context.Context), wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.opt.Now()
	switch {
	case !c.enabled:
		return nil, time.Hour
	case now < c.rest:
		return nil, c.rest - now
	case len(c.gone) > 0:
		t := c.gone[0]
		c.gone = c.gone[1:]
		return func(ctx context.Context) { c.giveBack(ctx, t) }, 0
	case now >= c.report:
		return c.sendState, 0
	}
	wait = c.report - now
	_, alone := c.waiter.Alone(now)
	for i := range c.pools {
		r := c.pools[i].request
		if r == nil || alone && !c.broken { // a node that is alone would not use the permit
			continue
		}
		if now >= r.due {
			r.sent = true
			return func(ctx context.Context) { c.sendRequest(ctx, r) }, 0
		}
		wait = min(wait, r.due-now)
	}
	return nil, wait
}

// sendState sends the node's state.
func (c *Client) sendState(ctx context.Context) {
	c.mu.Lock()
	began := c.opt.Now()
	s := state{Wants: c.wants(), Digest: c.digest, Version: c.opt.Version, Soft: soft{c.soft.Burst, api.Duration(c.soft.Every)}}
	c.report = began + stateEvery // unless it changes meanwhile
	c.mu.Unlock()
	body, err := c.send(ctx, http.MethodPut, []string{"v1", "state"}, s)
	if err == nil {
		c.pause(parsePaused(body))
	}
	c.done(ctx, began, err)
}

// pause notes for how long an operator has suspended soft stops. That holds without the agent, too: an operator ends a pause only in
// the fleet, and it has an end.
func (c *Client) pause(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, until := c.opt.Now(), time.Duration(0)
	if d > 0 {
		until = now + d
	}
	if (until-c.waiter.Paused()).Abs() > fleet.PauseTolerance || until == 0 { // each other value would be saved
		c.waiter.Pause(until, now)
	}
}

func (c *Client) wants() []policy.Pool {
	all := []policy.Pool{}
	for i := range c.pools {
		if c.pools[i].wants {
			all = append(all, policy.Pool(i))
		}
	}
	return all
}

// giveBack withdraws a request, and a permit that was not used.
func (c *Client) giveBack(ctx context.Context, t target) {
	began := c.opt.Now()
	_, err := c.send(ctx, http.MethodDelete, t.path(), nil)
	c.done(ctx, began, err)
}

// sendRequest sends a request, and notes the answer unless the request was withdrawn meanwhile.
func (c *Client) sendRequest(ctx context.Context, r *request) {
	began := c.opt.Now()
	body, err := c.send(ctx, http.MethodPut, r.path(), r.ask)
	var a answer
	if err == nil {
		a, err = parseAnswer(body)
	}
	c.mu.Lock()
	now := c.opt.Now()
	if err == nil {
		err = r.note(a, now)
	}
	c.broken = err != nil
	c.mu.Unlock()
	c.done(ctx, began, err)
}

// note notes an answer. An agent that asks the fleet for too long hangs in a part.
func (r *request) note(a answer, now time.Duration) error {
	r.permit, r.retry = 0, 0
	if a.State == pending {
		r.decided, r.reason, r.due = false, "the agent asks the fleet", now+pendingEvery
		if r.pending == 0 {
			r.pending = now
		}
		if now-r.pending >= maxPending {
			return errPending
		}
		return nil
	}
	r.pending, r.decided = 0, a.Reason != fleet.FirstContact
	switch a.State {
	case granted:
		r.permit = a.until(now)
		r.reason, r.due = "the permit has expired", max(r.permit, now+time.Second)
	case denied:
		r.reason, r.due = a.reason(), now+a.pause()
		if d := a.retryAfter(); d > 0 {
			r.retry = now + d
		}
	}
	return nil
}

// done records a round trip. A call that ended with the service says nothing.
func (c *Client) done(ctx context.Context, began time.Duration, err error) {
	if err != nil && ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	now := c.opt.Now()
	_, before := c.waiter.Alone(now)
	switch {
	case err != nil:
		c.waiter.Failed(began, now)
		c.gone, c.err, c.rest = nil, err, now+failedEvery // an agent that was not reached lets its permits expire
		c.report = min(c.report, c.rest)
	case !c.broken || !slices.ContainsFunc(c.pools[:], func(p pool) bool { return p.request != nil }):
		c.waiter.Reached(now)
		c.err = nil
	}
	_, after := c.waiter.Alone(now)
	if after {
		c.report = min(c.report, now+failedEvery)
	}
	c.mu.Unlock()
	switch {
	case after && !before:
		c.opt.Log.Warn("fleet agent unavailable, gentle stops held", systemd.EventKey, systemd.EventDegraded, "action", "fleet", "reason", err.Error())
	case before && !after:
		c.opt.Log.Info("fleet agent answers again", "action", "fleet")
	}
}
