package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/criguard/criguard/guard/fleet"
)

// Permit allows one soft stop of a workload. A permit that was used is left to expire: its slots refill then. One that
// will not be used is released.
type Permit struct {
	ID    string
	Since time.Duration // boot time before its leases were requested
	Slot  time.Duration // length of the zone's slot
	// Deadline is the boot time until which the stop must have begun.
	Deadline time.Duration

	leases []int64
}

// Codes of denials, for JSON and metrics.
const (
	Paused        = "paused"         // by an operator
	FleetFull     = "fleet_full"     // every zone is full: a bad rollout looks like this
	RateZero      = "rate_zero"      // the zone is not normal
	SlotTaken     = "slot_taken"     // by another stop in the zone
	WorkloadTaken = "workload_taken" // by another stop of the workload within its interval
	Settling      = "settling"       // the fleet had no members, or its etcd went back, a moment ago: it may have lost slots
	NotReported   = "not_reported"   // the fleet does not know that the node wants a stop; Report does it
	TooLate       = "too_late"       // the slot ended before etcd's answer came
)

// Denials returns all codes of denials.
func Denials() []string {
	return []string{Paused, FleetFull, RateZero, SlotTaken, WorkloadTaken, Settling, NotReported, TooLate}
}

// DeniedError is a denial by the fleet's rules, not a failure.
type DeniedError struct {
	Code string // one of the constants
	fleet.Denial
	Extended bool // a change of etcd's leader has made the slot longer than this client saw it before
	Unsure   bool // only the node's zone was read, so the fleet may be full nevertheless
}

// Error returns the reason.
func (e *DeniedError) Error() string { return "permit denied: " + e.Reason }

// Acquire requests a permit with an ID that no other request has used, such as rand.Text returns. Until that permit was used,
// it may be repeated with the same ID, even by another process: slots that the permit has already are taken again. A denial is
// a *DeniedError. If the rate is 0 or a slot is taken by another permit, it only reads. After any other error etcd may have
// granted the permit: its slots stay taken until they expire, or the call is repeated.
func (c *Client) Acquire(ctx context.Context, rates fleet.Rates, workload, id string) (Permit, error) {
	// A slot with a lease that may be revoked at any time is no permit.
	if err := c.revokeOrphans(ctx); err != nil {
		return Permit{}, err
	}
	look, err := c.Look(ctx, workload)
	if err != nil && !look.Policy.Paused {
		return Permit{}, err
	}
	if c.wentBack() {
		return Permit{}, lostHistory()
	}
	if err := c.dropOwn(ctx, &look, id); err != nil {
		return Permit{}, err
	}
	if look.Policy.Paused {
		left, err := c.remaining(ctx, look.pause)
		if err != nil {
			return Permit{}, err
		}
		return Permit{}, deny(Paused, "soft stops are paused", left, 0)
	}
	if rates, err = look.Policy.Apply(rates); err != nil {
		return Permit{}, refuse("apply policy", ErrPolicy, err.Error())
	}
	c.applied(rates)
	if !look.Reported {
		return Permit{}, deny(NotReported, "the fleet does not know that the node wants a stop", 0, 0)
	}
	slots, extended, err := c.slots(ctx, look.Slot, look.Workload)
	if err != nil {
		return Permit{}, err
	}
	view, sure, err := c.view(ctx, rates, look)
	if err != nil {
		return Permit{}, err
	}
	rate := rates.Of(view, c.opt.Zone)
	if permitted, d := rates.Decide(view, c.opt.Zone, workload, slots); !permitted {
		full := !view.Settling && rates.FleetFull(view.Zones)
		return Permit{}, &DeniedError{code(rate, full, slots), d, extended, !sure}
	}
	if err := c.settles(ctx, rates, look); err != nil {
		return Permit{}, err
	}
	p, err := c.request(ctx, id, fleet.Slot(rate), time.Duration(seconds(rates.WorkloadInterval))*time.Second)
	if err != nil {
		return Permit{}, err
	}
	return c.take(ctx, p, workload, look)
}

func deny(code, reason string, left, slot time.Duration) error {
	return &DeniedError{Code: code, Denial: fleet.Denial{Reason: reason, Left: left, Slot: slot}}
}

// code returns the code of a denial by [fleet.Rates.Decide].
func code(rate fleet.Millionths, full bool, slots fleet.Slots) string {
	switch {
	case rate <= 0 && full:
		return FleetFull
	case rate <= 0:
		return RateZero
	case slots.Workload > slots.Zone:
		return WorkloadTaken
	default:
		return SlotTaken
	}
}

// slots returns for how long the slots are still taken, and whether one of them was extended. A lease that is gone leaves
// its slot free.
func (c *Client) slots(ctx context.Context, zone, workload *Holder) (s fleet.Slots, extended bool, err error) {
	for at, h := range map[*time.Duration]*Holder{&s.Zone: zone, &s.Workload: workload} {
		if h == nil {
			continue
		}
		if h.lease == 0 {
			return s, false, deny(SlotTaken, "a slot has no lease, so that it never ends: the leases of slots are agents' (hint: an operator must delete its key)", 0, 0)
		}
		begun := c.opt.Now()
		left, err := c.remaining(ctx, h.lease)
		if err != nil {
			return s, false, err
		}
		*at, extended = left, c.extends(h.lease, begun, left) || extended
	}
	return s, extended, nil
}

// maxEnds limits the leases that extends remembers: two for each of the node's requests.
const maxEnds = 32

// uncertain is how exactly the end of a lease is known: remaining rounds up, and etcd looks for expired leases twice a second.
const uncertain = 2 * time.Second

// extends reports whether a lease lives longer than this client has seen it to before, as of a time at which it began to
// read for how long. A change of the leader gives a lease its whole time again, and more. etcd's answer does not show it: it is
// rounded down, and the time that is added is as short as an election.
func (c *Client) extends(lease int64, begun, left time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if end, seen := c.ends[lease]; seen {
		extended := left > 0 && begun+left >= end+uncertain
		if extended {
			c.ends[lease] = c.opt.Now() + left // each change of the leader counts once
		}
		return extended
	}
	if len(c.ends) >= maxEnds {
		clear(c.ends)
	}
	c.ends[lease] = c.opt.Now() + left
	return false
}

// dropOwn frees the slots of a permit that was requested before and not used. Their leases are not used for a permit: they are
// an earlier process's, whose last call may still be on its way and revoke them.
func (c *Client) dropOwn(ctx context.Context, look *Look, id string) error {
	for _, at := range []**Holder{&look.Slot, &look.Workload} {
		if h := *at; h.has(id) {
			if err := c.revoke(ctx, h.lease); err != nil {
				return err
			}
			*at = nil
		}
	}
	return nil
}

// settles denies a permit as long as slots may be in force that were in an etcd which has lost its data.
func (c *Client) settles(ctx context.Context, rates fleet.Rates, look Look) error {
	if !look.Settling {
		return nil
	}
	left, whole, err := c.readLease(ctx, look.settling)
	if err != nil {
		return err
	}
	if after := PermitsBegin(rates, left, whole); after > 0 {
		return deny(Settling, fmt.Sprintf("the fleet settles, because etcd may have lost slots; permits begin in %s", after), after, fleet.Slot(rates.Secondary))
	}
	return nil
}

// PermitsBegin returns after which time a fleet permits stops that settles for another left of a whole time: by then, the
// longest slot that etcd may have lost has ended.
func PermitsBegin(rates fleet.Rates, left, whole time.Duration) time.Duration {
	if left <= 0 {
		return 0
	}
	return max(left-max(whole-rates.LongestSlot(), 0), 0)
}

// request requests the leases of both slots.
func (c *Client) request(ctx context.Context, id string, slot, interval time.Duration) (Permit, error) {
	p := Permit{ID: id, Since: c.opt.Now(), Slot: slot}
	for _, ttl := range []time.Duration{interval, slot} { // the shorter one last
		id, err := c.grantExactly(ctx, ttl)
		if err != nil {
			return Permit{}, errors.Join(err, c.abandon(ctx, p.leases...))
		}
		p.leases = append(p.leases, id)
	}
	p.Deadline = p.Since + min(interval, slot)
	return p, nil
}

// grantExactly requests a lease, and returns ErrMinTTL if etcd granted a longer one.
func (c *Client) grantExactly(ctx context.Context, ttl time.Duration) (int64, error) {
	id, granted, err := c.grant(ctx, ttl)
	if err != nil {
		return 0, err
	}
	if granted != ttl {
		err = refuse("grant lease", ErrMinTTL, fmt.Sprintf("requested %s, granted %s", ttl, granted))
		return 0, errors.Join(err, c.abandon(ctx, id))
	}
	return id, nil
}

// take puts both slots in one transaction if both are free, and what decided is as it was: a node under pressure may have
// stood still since, while an operator paused the fleet or etcd lost its data.
func (c *Client) take(ctx context.Context, p Permit, workload string, look Look) (Permit, error) {
	value, err := json.Marshal(Holder{Node: c.opt.Node, Permit: p.ID})
	if err != nil {
		return Permit{}, err
	}
	if c.opt.Now() >= p.Deadline {
		return Permit{}, errors.Join(tooLate(p), c.abandon(ctx, p.leases...))
	}
	zone, own := c.keys.zoneSlot(c.opt.Zone), c.keys.workloadSlot(workload)
	holders := []*requestOp{get(zone), get(own)}
	resp, err := c.transactOnce(ctx, "take slots", &txnRequest{
		compare: []*compare{
			absent(zone), absent(own), hasLease(c.keys.pause(), look.pause), hasLease(c.keys.settling(), look.settling),
			hasLease(c.keys.want(c.opt.Zone, c.opt.Node), look.want),
		},
		success: []*requestOp{put(zone, string(value), p.leases[1]), put(own, string(value), p.leases[0])},
		failure: holders,
	})
	granted := err == nil && resp.succeeded
	if isUnknown(err) {
		// etcd may have performed the transaction.
		r, readErr := c.read(context.WithoutCancel(ctx), "take slots", holders...)
		if readErr != nil {
			return Permit{}, errors.Join(err, readErr, c.abandon(ctx, p.leases...))
		}
		// An earlier request with the same ID had other leases, which end earlier.
		granted = ctx.Err() == nil && leaseOf(first(r[0])) == p.leases[1] && leaseOf(first(r[1])) == p.leases[0]
	}
	switch {
	case c.wentBack():
		err = lostHistory()
	case granted && c.opt.Now() < p.Deadline:
		return p, nil
	case granted || isGone(err):
		err = tooLate(p)
	case err == nil && first(resp.responses[0].read) == nil && first(resp.responses[1].read) == nil:
		err = deny(TooLate, "the fleet changed at the same time", 0, p.Slot)
	case err == nil:
		err = &DeniedError{Code: SlotTaken, Denial: fleet.Denial{
			Reason: "another stop was permitted at the same time", Left: p.Slot, Slot: p.Slot, Wanting: look.Zone.Wanting,
		}}
	}
	// A transaction that is still on its way fails without its leases.
	return Permit{}, errors.Join(err, c.abandon(ctx, p.leases...))
}

func lostHistory() error {
	return deny(NotReported, "etcd has lost its last writes, or is another one", 0, 0)
}

func tooLate(p Permit) error {
	return deny(TooLate, fmt.Sprintf("etcd took longer than the slot of %s", p.Slot), 0, p.Slot)
}

func (h *Holder) has(permit string) bool { return h != nil && h.Permit == permit }

// Release gives the slots of a permit back that will not be used. If etcd does not answer, the next Report or Acquire repeats it.
func (c *Client) Release(ctx context.Context, p Permit) error { return c.revoke(ctx, p.leases...) }
