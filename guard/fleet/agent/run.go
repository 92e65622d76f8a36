package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/etcd"
	"github.com/criguard/criguard/policy"
)

// Run makes the calls to etcd until ctx ends. Permits that the guard was given stay valid after it.
func (a *Agent) Run(ctx context.Context) {
	defer a.opt.Disconnect()
	for ctx.Err() == nil {
		job, wait := a.next()
		if job != nil {
			job(ctx)
			continue
		}
		if wait > keepConnected {
			a.opt.Disconnect()
		}
		timer := time.NewTimer(wait)
		select {
		case <-a.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// next returns the next call to make, or for how long there is none.
func (a *Agent) next() (job func(context.Context), wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.opt.Now()
	if len(a.unused) > 0 {
		return a.release, 0
	}
	silent := max(a.heard, a.begun) + guardTimeout
	if now >= silent {
		for p := range policy.PoolCount {
			a.end(p, now)
		}
	}
	switch {
	case a.heard == 0:
		return nil, guardTimeout
	case now < silent:
		wait = silent - now
	case len(a.state.Wants) > 0:
		a.state.Wants, a.reported, a.contact = nil, false, now
		return a.report, 0
	case a.reported:
		return nil, guardTimeout // its membership expires
	default:
		wait = guardTimeout
	}
	due := a.contact
	if at, failing := a.waiter.Contact(); failing {
		due = at
	}
	if due <= now {
		return a.report, 0
	}
	wait = min(wait, due-now)
	for i, r := range a.requests {
		p := policy.Pool(i)
		if r == nil || now > r.asked+requestTimeout || r.answered() {
			continue
		}
		turn := a.waiter.Turn(p, now)
		if turn.Verdict == fleet.Ask {
			if !a.reported {
				return a.report, 0
			}
			return func(ctx context.Context) { a.ask(ctx, p, r) }, 0
		}
		if turn.Until > now {
			wait = min(wait, turn.Until-now)
		}
	}
	return nil, wait
}

// report reports the state and reads the policy.
func (a *Agent) report(ctx context.Context) {
	a.mu.Lock()
	began, state := a.opt.Now(), etcd.State{Digest: a.state.Digest, Version: a.state.Version}
	for _, p := range a.state.Wants {
		state.Pools = append(state.Pools, p.String())
	}
	a.reported = true // unless it changes meanwhile
	a.mu.Unlock()

	err := a.opt.Client.Report(ctx, state)
	var seen etcd.Survey
	if err == nil {
		reported := a.opt.Now()
		seen, err = a.opt.Client.Survey(ctx, a.opt.Rates)
		a.metrics.roundTrip(a.opt.Now()-reported, err)
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.opt.Now()
	if now-a.asked > idleAfter {
		a.waiter.Idle()
	}
	if !a.contacted(ctx, began, now, err, a.waiter.Failed) {
		a.reported = false
		return
	}
	until := time.Duration(0)
	if seen.Paused > 0 {
		until = now + seen.Paused
	}
	early := a.paused-now > fleet.PauseTolerance
	a.lost = seen.Paused == 0 && !seen.Resumed && (a.lost || early)
	a.pause(until, now)
	a.seen, a.reached = seen, true
	// A node whose patience is over asks no more, but its zone may show that the fleet is not full.
	if seen.State != fleet.Full && seen.Zone.Size() >= a.opt.Rates.MinZone || now-a.fullAt >= fullFor {
		a.full = false
	}
	switch {
	case len(a.state.Wants) == 0:
		a.contact = now + idleInterval + a.random(idleSpread)
	case seen.Paused > 0:
		a.contact = now + pauseInterval + a.random(pauseSpread)
	default:
		a.contact = now + wantInterval
	}
	if !a.reported { // the state changed meanwhile
		a.contact = a.waiter.NextContact(now)
	}
}

// fullFor is for how long an answer shows that the fleet is full.
const fullFor = sharedInterval

func (a *Agent) pause(until, now time.Duration) {
	a.paused = until
	a.waiter.Pause(until, now)
}

// contacted records whether a round trip succeeded. failed records that it did not. A call that ended with the agent says
// nothing.
func (a *Agent) contacted(ctx context.Context, began, now time.Duration, err error, failed func(began, now time.Duration)) bool {
	if ctx.Err() != nil && err != nil {
		return false
	}
	a.err = err
	if err != nil {
		failed(began, now)
		return false
	}
	a.waiter.Reached(now)
	return true
}

// ask requests the permit of a request.
func (a *Agent) ask(ctx context.Context, p policy.Pool, r *request) {
	began := a.opt.Now()
	permit, err := a.opt.Client.Acquire(ctx, a.opt.Rates, r.Workload, a.idOf(r))
	denied, isDenied := errors.AsType[*etcd.DeniedError](err)
	if isDenied && denied.Code == etcd.FleetFull {
		a.share(ctx)
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.opt.Now()
	if err == nil || isDenied && !denied.Unsure {
		a.full, a.fullAt = isDenied && denied.Code == etcd.FleetFull, now
	}
	a.metrics.asked(denied, err)
	switch {
	case err == nil:
		a.err, a.taken[p] = nil, ""
		// The guard may have withdrawn the request meanwhile.
		if a.requests[p] != r || !a.waiter.Granted(p, fleet.Grant{ID: permit.ID, Deadline: permit.Deadline}, now) {
			a.unused = append(a.unused, permit)
			return
		}
		r.permit = permit
	case isDenied && denied.Code == etcd.NotReported && !r.lost:
		a.waiter.Reached(now)
		a.reported, r.lost = false, true
	case isDenied && denied.Code == etcd.NotReported:
		a.reported, r.lost = false, false
		a.contacted(ctx, began, now, err, a.waiter.Refused)
	case isDenied:
		a.err, r.lost = nil, false
		if denied.Code == etcd.Paused && denied.Left > 0 {
			a.pause(now+denied.Left, now)
			a.contact = min(a.contact, now+pauseInterval+a.random(pauseSpread))
		}
		if a.taken[p] = ""; denied.Code == etcd.WorkloadTaken {
			if q := a.requests[p]; q != nil && q.Workload != r.Workload {
				a.waiter.Reached(now) // the denial does not concern the workload that is wanted now
				return
			}
			a.taken[p] = r.Workload
		}
		a.waiter.Denied(p, denied.Denial, now)
	default:
		a.contacted(ctx, began, now, err, a.waiter.Refused)
	}
}

// share reads the configurations that the nodes of a full fleet share. They are for people, so a failure changes nothing.
func (a *Agent) share(ctx context.Context) {
	a.mu.Lock()
	now := a.opt.Now()
	due := a.shared == nil || now >= a.sharedAt+sharedInterval
	a.mu.Unlock()
	if !due {
		return
	}
	shared, err := a.opt.Client.Shared(ctx)
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shared, a.sharedAt = shared, now
}

// idOf returns the ID of a request's permit. The request keeps it until the guard is given the permit, also over a restart:
// etcd may have granted it in an answer that was lost.
func (a *Agent) idOf(r *request) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.id == "" {
		r.id = rand.Text()
		a.save()
	}
	return r.id
}

// release gives permits back that were not used. If etcd does not answer, the client repeats it with the next report.
func (a *Agent) release(ctx context.Context) {
	a.mu.Lock()
	began, unused := a.opt.Now(), a.unused
	a.unused = nil
	a.mu.Unlock()
	for _, p := range unused {
		err := a.opt.Client.Release(ctx, p)
		a.mu.Lock()
		a.contacted(ctx, began, a.opt.Now(), err, a.waiter.Failed)
		a.mu.Unlock()
	}
}
