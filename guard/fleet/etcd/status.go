package etcd

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/fleet"
)

// Fleet is the state of a whole fleet at one moment.
type Fleet struct {
	Zones    map[string]fleet.Zone
	Members  []Member // by zone and name
	Slots    []Slot   // of zones that have given a permit, by zone
	Policy   Policy
	Settling bool
	// SettlingFor is how long it settles on, at most, of SettlingTime.
	SettlingFor, SettlingTime time.Duration
}

// Member is a node of the fleet. One that wants a stop is in the list even if its membership has expired.
type Member struct {
	Zone, Name      string
	Digest, Version string
	Pools           []string // that want a soft stop
}

// Slot is a zone's slot that is taken.
type Slot struct {
	Zone string
	Holder
	FreeIn time.Duration // at most; in whole seconds
}

// List reads the whole fleet, for people: it costs etcd a value for each member.
func (c *Client) List(ctx context.Context) (Fleet, error) {
	const op = "list fleet"
	r, err := c.read(ctx, op, list(c.keys.members(), false), list(c.keys.wants(), false), list(c.keys.zoneSlots(), false),
		get(c.keys.pause()), get(c.keys.rates()), get(c.keys.settling()))
	if err != nil {
		return Fleet{}, err
	}
	f := Fleet{Zones: map[string]fleet.Zone{}, Settling: first(r[5]) != nil}
	if f.Policy, err = parsePolicy(first(r[3]), first(r[4])); err != nil {
		return Fleet{}, refuse(op, ErrPolicy, err.Error())
	}
	members := map[[2]string]*Member{}
	for i, prefix := range []string{c.keys.members(), c.keys.wants()} {
		for _, kv := range r[i].kvs {
			zone, name, ok := splitNode(prefix, kv.key)
			if !ok {
				continue
			}
			z := f.Zones[zone]
			m := members[[2]string{zone, name}]
			if m == nil {
				m = &Member{Zone: clean(zone), Name: clean(name)}
				members[[2]string{zone, name}] = m
			}
			var v wantValue // a member's value has no pools
			_ = json.Unmarshal([]byte(kv.value), &v)
			m.Digest, m.Version = clean(v.Digest), clean(v.Version)
			if i == 0 {
				z.Members++
			} else {
				z.Wanting++
				for _, pool := range v.Pools {
					m.Pools = append(m.Pools, clean(pool))
				}
			}
			f.Zones[zone] = z
		}
	}
	for _, m := range members {
		f.Members = append(f.Members, *m)
	}
	slices.SortFunc(f.Members, func(a, b Member) int {
		return cmp.Or(strings.Compare(a.Zone, b.Zone), strings.Compare(a.Name, b.Name))
	})
	for _, kv := range r[2].kvs {
		free, err := c.remaining(ctx, kv.lease)
		if err != nil {
			return Fleet{}, err
		}
		zone := strings.TrimPrefix(kv.key, c.keys.zoneSlots())
		f.Slots = append(f.Slots, Slot{Zone: clean(zone), Holder: *holder(kv), FreeIn: free})
	}
	if settling := first(r[5]); settling != nil {
		f.SettlingFor, f.SettlingTime, err = c.readLease(ctx, settling.lease)
	}
	return f, err
}

// Shared is a configuration shared by nodes that want a soft stop.
type Shared struct {
	Digest  string `json:"digest"`  // of the configuration
	Version string `json:"version"` // of criguard
	Wanting int    `json:"wanting"` // nodes that have it and want a soft stop
}

// sharedNodes limits how many nodes Shared reads: in a full fleet, every node may ask.
const sharedNodes = 100

// Shared returns the configurations of nodes in the own zone that want a soft stop, most frequent first. In a large zone,
// it reads a part of them.
func (c *Client) Shared(ctx context.Context) ([]Shared, error) {
	prefix := c.keys.zoneWants(c.opt.Zone)
	op := list(prefix, false)
	op.read.limit = sharedNodes
	r, err := c.read(ctx, "list configurations", op)
	if err != nil {
		return nil, err
	}
	var all []Shared
	for _, kv := range r[0].kvs {
		var v wantValue
		_ = json.Unmarshal([]byte(kv.value), &v)
		s := Shared{clean(v.Digest), clean(v.Version), 1}
		if i := slices.IndexFunc(all, func(o Shared) bool { return o.Digest == s.Digest && o.Version == s.Version }); i >= 0 {
			all[i].Wanting++
		} else {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Shared) int {
		return cmp.Or(cmp.Compare(b.Wanting, a.Wanting), strings.Compare(a.Digest, b.Digest), strings.Compare(a.Version, b.Version))
	})
	return all, nil
}
