package etcd

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/criguard/criguard/guard/fleet"
)

// Look is what one read-only transaction shows of the fleet.
type Look struct {
	Zone     fleet.Zone // the node's zone
	Slot     *Holder    // who has the zone's slot; nil = it is free
	Workload *Holder    // who has the workload's slot; nil = it is free
	Policy   Policy
	// Reported is set if etcd has the node's own wish for a stop. It lacks it if the lease expired or etcd lost its data.
	Reported bool
	Settling bool

	pause, settling, want int64 // the leases of these keys; 0 = absent
}

// Holder has a slot.
type Holder struct {
	Node   string `json:"node"`
	Permit string `json:"permit"`
	lease  int64
}

// Look reads the node's zone, its slot, the slot of a workload and the policy. With ErrPolicy, the look has all but the rates: they
// do not matter while the fleet is paused.
func (c *Client) Look(ctx context.Context, workload string) (Look, error) {
	const op = "look at fleet"
	zone := c.opt.Zone
	r, err := c.read(ctx, op,
		count(c.keys.zoneMembers(zone)), count(c.keys.zoneWants(zone)),
		get(c.keys.zoneSlot(zone)), get(c.keys.workloadSlot(workload)),
		get(c.keys.pause()), get(c.keys.rates()), get(c.keys.settling()),
		get(c.keys.want(zone, c.opt.Node)))
	if err != nil {
		return Look{}, err
	}
	policy, err := parsePolicy(first(r[4]), first(r[5]))
	if err != nil {
		err = refuse(op, ErrPolicy, err.Error())
	}
	return Look{
		Zone:     fleet.Zone{Members: int(r[0].count), Wanting: int(r[1].count)},
		Slot:     holder(first(r[2])),
		Workload: holder(first(r[3])),
		Policy:   policy,
		Reported: first(r[7]) != nil,
		Settling: first(r[6]) != nil,
		pause:    leaseOf(first(r[4])),
		settling: leaseOf(first(r[6])),
		want:     leaseOf(first(r[7])),
	}, err
}

// holder parses the value of a slot. A value that cannot be parsed still takes the slot.
func holder(kv *keyValue) *Holder {
	if kv == nil {
		return nil
	}
	h := Holder{lease: kv.lease}
	_ = json.Unmarshal([]byte(kv.value), &h)
	h.Node, h.Permit = clean(h.Node), clean(h.Permit)
	return &h
}

// Zones reads the counts of all zones. It costs etcd the keys of all members, so Acquire only calls it if the node's own
// zone does not decide.
func (c *Client) Zones(ctx context.Context) (map[string]fleet.Zone, error) {
	members, wants := c.keys.members(), c.keys.wants()
	r, err := c.read(ctx, "count zones", list(members, true), list(wants, true))
	if err != nil {
		return nil, err
	}
	zones := map[string]fleet.Zone{}
	for _, kv := range r[0].kvs {
		if zone, _, ok := splitNode(members, kv.key); ok {
			z := zones[zone]
			z.Members++
			zones[zone] = z
		}
	}
	for _, kv := range r[1].kvs {
		if zone, _, ok := splitNode(wants, kv.key); ok {
			z := zones[zone]
			z.Wanting++
			zones[zone] = z
		}
	}
	return zones, nil
}

// totals reads the counts of the fleet.
func (c *Client) totals(ctx context.Context) (fleet.Zone, error) {
	r, err := c.read(ctx, "count fleet", count(c.keys.members()), count(c.keys.wants()))
	if err != nil {
		return fleet.Zone{}, err
	}
	return fleet.Zone{Members: int(r[0].count), Wanting: int(r[1].count)}, nil
}

// view returns what decides the rate of the node's zone, and whether it shows if the fleet is full. The other zones only
// matter if that may be: the own zone must be full, or too small to say, and so must the fleet as a whole; and if the slots
// are free.
func (c *Client) view(ctx context.Context, rates fleet.Rates, look Look) (view fleet.View, sure bool, err error) {
	view = fleet.View{Zones: map[string]fleet.Zone{c.opt.Zone: look.Zone}, Settling: look.Settling}
	if view.Settling || !mayBeFull(rates, look.Zone) {
		return view, true, nil
	}
	sure = look.Slot == nil && look.Workload == nil
	if sure {
		total, err := c.totals(ctx)
		if err != nil {
			return view, false, err
		}
		if total.Wanting == total.Members && look.Zone.Size() >= rates.MinZone {
			// Every zone is full, and this one counts. Listing them would cost etcd all keys.
			view.Zones["/"] = total
			return view, true, nil
		}
		if mayBeFull(rates, total) || rates.State(total) == fleet.Partial {
			// A zone whose rate is 0 anyway needs the others only for the alarm of a full fleet.
			if rates.State(look.Zone) == fleet.Normal || look.Zone.Size() > rates.LargeZone || c.lists() {
				view.Zones, err = c.Zones(ctx)
				return view, true, err
			}
			sure = false
		}
	}
	// A zone without wishes stands for the rest of the fleet, which is not full or does not matter.
	view.Zones["/"] = fleet.Zone{Members: rates.MinZone}
	return view, sure, nil
}

// listEvery limits how often a node lists all zones for the alarm of a full fleet. If it did so with each request, 10,000
// nodes of which one is well would read 20,000 keys each several hundred times a second.
const listEvery = 10 * time.Minute

// lists reports whether the node may list all zones for the alarm now. It does so for the first time after a random time.
func (c *Client) lists() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.opt.Now()
	if c.list == 0 {
		c.list = now + rand.N(listEvery)
	}
	if now < c.list {
		return false
	}
	c.list = now + listEvery
	return true
}

// mayBeFull reports whether a zone does not rule out that the fleet is full.
func mayBeFull(rates fleet.Rates, z fleet.Zone) bool {
	return z.Size() < rates.MinZone || rates.State(z) == fleet.Full
}
